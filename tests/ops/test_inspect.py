"""The read model: what is shown of a run, also of values whose classes nobody here knows."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
import zoneinfo

import msgspec
import pytest

from holdfast import Done
from holdfast._engine.values.chunks import Values
from holdfast._engine.values.class_registry import Known
from holdfast._operator.act import run_decisions
from holdfast._operator.cli.tables import status_told
from holdfast._operator.read import run_views
from holdfast._operator.read.step_views import ErrorView
from holdfast._stores.contract import Query, Store
from holdfast._stores.readable_values import readable
from holdfast.errors import Corrupt, RunNotFound
from tests.model.memory_store import MemoryStore
from tests.ops.conftest import Clock
from tests.ops.journals import Journal
from tests.ops.test_explain import built


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Message:
    role: str
    text: str


@dataclasses.dataclass
class Chat:
    messages: list[Message]
    color: Color = Color.RED


NOBODY = Known()
"""What an operator's process knows."""


@pytest.fixture
def values() -> Values:
    known = Known()
    known.learn(Chat)
    return Values(lambda number: {}, known)


def seen(values: Values, value: object) -> object:
    node = values.encode(value, "value")
    chunks = dict(values.take_fresh())
    reader = Values(lambda number: chunks, NOBODY, values.next_chunk)
    shown = readable(node, reader)
    msgspec.json.encode(shown)
    return shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        ({"a": [1, 2.5, "x", None, True]}, {"a": [1, 2.5, "x", None, True]}),
        ({"object": ["Chat", {}]}, {"object": ["Chat", {}]}),
        ((1, (2, 3)), [1, [2, 3]]),
        ({3}, [3]),
        ({1: "a", 2: "b"}, {"1": "a", "2": "b"}),
        ({1: "a", "1": "b"}, [[1, "a"], ["1", "b"]]),
        ({(1, 2): "a"}, [[[1, 2], "a"]]),
        (Color.RED, "Color.RED"),
        (Message("user", "hi"), {"Message": {"role": "user", "text": "hi"}}),
        (
            Chat([Message("user", "hi")]),
            {
                "Chat": {
                    "messages": [{"Message": {"role": "user", "text": "hi"}}],
                    "color": "Color.RED",
                }
            },
        ),
        (10**30, str(10**30)),
        (float("nan"), "nan"),
        (b"\x00\xff", {"bytes": "AP8="}),
        (decimal.Decimal("1.50"), "1.50"),
        (uuid.UUID(int=1), str(uuid.UUID(int=1))),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.timedelta(days=1, seconds=5), "1 day, 0:00:05"),
        (
            dt.datetime(2026, 1, 2, 3, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
            "2026-01-02 03:00:00+01:00",
        ),
    ],
)
def test_values_are_readable_without_their_classes(values: Values, value, shown):
    assert seen(values, value) == shown


def test_what_is_stored_apart_is_followed(values: Values):
    chat = Chat([])
    shown: dict = {}
    for number in range(60):
        chat.messages.append(Message("user", f"{number} " + "x" * 700))
        shown = seen_all(values, chat)
    assert [m["Message"]["text"][:2].strip() for m in shown["Chat"]["messages"]] == [
        str(number) for number in range(60)
    ]


STORED: dict[int, bytes] = {}


def seen_all(values: Values, value: object) -> dict:
    node = values.encode(value, "value")
    STORED.update(values.take_fresh())
    shown = readable(node, Values(lambda number: STORED, NOBODY, values.next_chunk))
    assert isinstance(shown, dict)
    return shown


@pytest.mark.parametrize(
    "node",
    [
        b'{"a": 1, "b": 2}',
        b'{"what": 1}',
        b'{"chunk": 9}',
        b'{"chunk": "x"}',
        b'{"list": 1}',
        b'{"object": 5}',
        b'{"map": [1]}',
        b"[" * 50_000 + b"]" * 50_000,
        b"nonsense",
    ],
)
def test_what_is_damaged_is_said_to_be(node: bytes):
    with pytest.raises(Corrupt):
        readable(node, Values(lambda number: {1: b'{"prev":1,"items":[]}'}, NOBODY, 2))


# -- runs --------------------------------------------------------------------------------------


def test_a_run_as_a_whole(store: Store):
    journal = Journal(store, "r", input={"topic": "x"}, tags={"team": "a"})
    journal.step("search", ["a", "b"], {"topic": "x"}).failing("think", 2, final=False)
    view = run_views.view(store, "r")
    assert (view.run_id, view.flow, view.status, view.current_step) == (
        "r",
        "pay",
        "running",
        "think",
    )
    assert view.input == {"topic": "x"}
    assert view.tags == {"team": "a"}
    assert view.owner is not None
    assert (view.totals.steps, view.totals.attempts) == (1, 3)
    search, think = view.steps
    assert (search.key, search.status, search.retry_count) == ("search", "completed", 0)
    assert (think.status, think.attempts, think.retry_count) == ("retrying", 2, 1)
    assert think.error == ErrorView("TimeoutError", "the model did not answer")
    assert search.started_at.tzinfo is dt.UTC


def test_a_persons_time_is_not_the_steps(store: Store, clock: Clock):
    Journal(store, "r").held_in_doubt("charge", why="error")
    before = run_views.view(store, "r").steps[0].duration_s
    clock.advance(120)
    run_decisions.settle(store, "r", "charge", Done("paid"), actor="kim")
    [charge] = run_views.view(store, "r").steps
    assert charge.duration_s == before
    assert charge.settled is not None
    assert str(charge.settled) == "settled as done by kim"
    assert charge.settled.after_s == pytest.approx(120, abs=1)
    assert charge.settled.at == charge.ended_at


def test_an_attempt_that_died_has_no_known_length(store: Store, clock: Clock):
    Journal(store, "r").held_in_doubt("charge", why="process_died")
    assert run_views.view(store, "r").steps[0].duration_s is None


def test_a_pause_between_attempts_is_no_work(store: Store, clock: Clock):
    journal = Journal(store, "r")
    journal.failing("think", 1, final=False)
    worked = run_views.view(store, "r").steps[0].duration_s
    assert worked is not None
    clock.advance(60)
    journal.failing("think", 2, final=False)
    after = run_views.view(store, "r").steps[0].duration_s
    assert after is not None
    assert after < 60


def test_how_runs_end(store: Store):
    Journal(store, "done").step("a").completed({"ok": 1})
    Journal(store, "failed").failing("a").failed("a", error=("StepFailed", "a gave up"))
    Journal(store, "held").held_in_doubt("charge", args={"n": 1})
    assert run_views.view(store, "done").result == {"ok": 1}
    assert run_views.view(store, "failed").error == ErrorView("StepFailed", "a gave up")
    held = run_views.view(store, "held")
    assert held.held_reason == "in_doubt"
    assert held.held_detail is not None
    assert held.actions
    assert held.steps[0].effect
    assert held.owner is None
    with pytest.raises(RunNotFound):
        run_views.view(store, "nope")


def test_superseded_steps_are_kept_and_marked(store: Store):
    from holdfast._operator.act import run_decisions

    Journal(store, "r").step("a").failing("b").failed("b")
    run_decisions.resume(store, "r", actor="kim")
    assert [(s.key, s.superseded) for s in run_views.view(store, "r").steps] == [
        ("a", False),
        ("b", True),
    ]
    assert run_views.view(store, "r").error is None


def test_a_joined_row_is_shown_as_two_entries(store: Store):
    Journal(store, "r").step("search", ["x"], {"topic": "t"}).completed()
    entries = run_views.history(store, "r")
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    started, completed = [entry for entry in entries if entry.step == "search"]
    assert (started.kind, started.body) == ("step_started", {"args": {"topic": "t"}})
    assert (completed.kind, completed.body) == ("step_completed", {"result": ["x"]})
    assert started.at <= completed.at


def test_lists_are_filtered(store: Store, clock):
    Journal(store, "old", tags={"team": "a"}).completed()
    clock.advance(3600)
    Journal(store, "new", flow="other").held("paused")

    def ids(**query):
        return [run.run_id for run in run_views.summaries(store, Query(**query))]

    from holdfast._engine.journal.lifecycle import Status

    assert ids() == ["new", "old"]
    assert ids(status=[Status.HELD]) == ["new"]
    assert ids(flow="pay") == ["old"]
    assert ids(tag=("team", "a")) == ["old"]
    assert ids(updated_before_us=clock.us - 60_000_000) == ["old"]
    assert ids(limit=1) == ["new"]
    assert run_views.summaries(store, Query())[0].held_reason == "paused"


def test_where_a_run_failed_is_said_as_it_was(clock):
    """Its last step may have gone well: then it is the flow's own code that raised."""
    store = MemoryStore(clock=clock)
    Journal(store, "own").step("lookup").failed(error=("KeyError", "'title'"))
    Journal(store, "step").step("lookup").failing("think").failed("think")
    Journal(store, "well").step("lookup").completed()
    told = {run.run_id: run.failed_in for run in run_views.summaries(store, Query())}
    assert told == {"own": "the flow", "step": "think", "well": None}
    assert run_views.view(store, "own").failed_in == "the flow"
    assert run_views.view(store, "step").failed_in == "think"


def test_a_run_whose_process_is_dead_is_not_told_as_at_work(clock: Clock):
    store = built("running_owner_died", clock)
    row = store.get("r")
    assert row is not None
    for run in (run_views.summary_of(store, row), run_views.view(store, "r")):
        assert run.owner_died
        assert status_told(run) == "running: its process is dead"
    alive = built("running", clock)
    assert not run_views.view(alive, "r").owner_died
