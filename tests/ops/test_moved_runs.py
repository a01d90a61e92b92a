"""A run that was moved to another store: the source refuses every decision about it, and says where
it goes on."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import Budget, Done, effect, flow, testing
from holdfast._api.store_actions import Acting
from holdfast._engine.journal.entries import Kind
from holdfast._features.watchdog import watchdog_loop
from holdfast._operator.act import store_move
from holdfast._operator.act.store_move import Fate
from holdfast._operator.cli.main import main
from holdfast._runtime.worker.recovery_pass import recover
from holdfast._stores.contract import Store as Kept
from holdfast.errors import RunHeld
from tests.ops.meanwhile import Meanwhile

Opened = testing.PrivateStore
called: list[str] = []


@effect(name="mv-search")
def search(topic: str) -> str:
    called.append(f"search {topic}")
    return topic.upper()


@effect(name="mv-pay", key="order:{topic}")
def pay(topic: str) -> str:
    called.append(f"pay {topic}")
    if called.count(f"pay {topic}") == 1:
        raise ConnectionError("who knows")
    return f"paid {topic}"


@flow(name="mv-waits", budget=Budget(steps=9))
def waits(topic: str) -> str:
    found = search(topic)
    answer = holdfast.ask("ok?", name="ok")
    return f"{found} {answer}"


@flow(name="mv-pays")
def pays(topic: str) -> str:
    return pay(topic)


@flow(name="mv-parent")
def parent(topic: str) -> str:
    return waits.start("child", topic).result()


@pytest.fixture(params=["sqlite", "postgresql"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    url = f"sqlite:///{tmp_path}/here.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_store_url")
    called.clear()
    with testing.store(url=url) as opened:
        yield opened


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Opened]:
    with testing.store(url=f"sqlite:///{tmp_path}/there.db") as opened:
        yield opened


def move(source: Opened, target: Opened, *run_ids: str) -> dict[str, Fate]:
    moved = store_move.move_runs(source._backend, target._backend, run_ids, actor="ann")
    return {one.run_id: one.fate for one in moved}


def unloaded(source: Opened, run_id: str = "r", topic: str = "tea") -> None:
    """Let a run come to its question, and give it back."""
    waits.with_options(store=source).submit(run_id, topic)
    source.recover()
    assert source.get(run_id).status == "waiting"


def state(store: Opened, run_id: str = "r") -> Any:
    backend = store._backend
    row = backend.get(run_id)
    assert row is not None
    return row, backend.load(row), backend.messages(row.run_no), backend.account(run_id)


class Arrived:
    """A run as it came to the target."""

    def __init__(self, target: Opened, run_id: str) -> None:
        self.row, self.entries, self.messages, account = state(target, run_id)
        self.steps = None if account is None else account.steps

    def has(self, kind: Kind | None, message: str) -> bool:
        """Return whether it has an entry of this kind, or a message that asks for it."""
        return any(entry.kind is kind for entry in self.entries) or any(
            told.kind == message for told, _ in self.messages
        )


ACTIONS: dict[str, Callable[[Acting, str], object]] = {
    "settle": lambda store, run_id: store.settle(run_id, "mv-search", Done("x"), actor="eve"),
    "resume": lambda store, run_id: store.resume(run_id),
    "pause": lambda store, run_id: store.pause(run_id),
    "cancel": lambda store, run_id: store.cancel(run_id),
    "signal": lambda store, run_id: store.signal(run_id, "go", 1),
    "answer": lambda store, run_id: store.answer(run_id, "ok", "yes", actor="eve"),
    "reject": lambda store, run_id: store.reject(run_id, "ok", actor="eve"),
    "approve": lambda store, run_id: store.approve(run_id, "mv-pay", actor="eve"),
    "set_budget": lambda store, run_id: store.set_budget(run_id, Budget(steps=20)),
    "rollback": lambda store, run_id: store.rollback(run_id, confirm=True),
    "fork": lambda store, run_id: store.fork(run_id, "other", before="mv-search", confirm=True),
}
OVERTAKEN: dict[str, Callable[[Arrived], bool]] = {
    "pause": lambda it: it.has(Kind.RUN_HELD, "pause"),
    "cancel": lambda it: it.has(Kind.RUN_CANCELLED, "cancel"),
    "signal": lambda it: it.has(None, "signal:go"),
    "answer": lambda it: it.has(None, "answer:ok"),
    "reject": lambda it: it.has(None, "answer:ok"),
    "set_budget": lambda it: it.steps == 20 or it.has(None, "budget_set"),
    "rollback": lambda it: it.has(Kind.ROLLBACK_REQUESTED, "rollback"),
}
"""By action, whether what it did arrived in the target."""


def test_every_action_on_a_run_is_tried() -> None:
    of_runs = {
        it.name
        for it in holdfast.adapters.actions()
        if "run_id" in inspect.signature(it.method).parameters
    }
    assert of_runs == set(ACTIONS)


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_on_a_moved_run_is_refused(source: Opened, target: Opened, name: str) -> None:
    unloaded(source)
    assert move(source, target, "r") == {"r": Fate.MOVED}
    before = state(source)

    with pytest.raises(RunHeld, match="moved to sqlite:.*there.db") as refused:
        ACTIONS[name](source, "r")

    assert (refused.value.run_id, refused.value.reason) == ("r", "moved")
    assert "holdfast resume r --confirm" in str(refused.value)
    assert state(source) == before
    assert target.verify() == source.verify() == []
    ACTIONS["answer"](target, "r")
    assert waits.with_options(store=target).run("r", "tea") == "TEA yes"


@pytest.mark.parametrize("name", OVERTAKEN)
def test_an_action_that_a_move_overtakes_is_refused_or_moves_too(
    source: Opened, target: Opened, name: str
) -> None:
    """The move comes before any one of the action's calls. What was acknowledged is in the target."""

    def go(run_id: str) -> None:
        move(source, target, run_id)

    for at in range(1, 100):
        run_id = f"r{at}"
        unloaded(source, run_id, f"tea {at}")
        meanwhile = Meanwhile(source._backend, at, lambda run_id=run_id: go(run_id))  # type: ignore[misc]
        refused: RunHeld | None = None
        try:
            ACTIONS[name](Acting(cast("Kept", meanwhile)), run_id)
        except RunHeld as error:
            refused = error
        if refused is not None:
            assert (refused.reason, refused.run_id) == ("moved", run_id)
        elif meanwhile.left > 0:
            return
        else:
            assert OVERTAKEN[name](Arrived(target, run_id)), at
    raise AssertionError("the action never ends")


def test_the_same_run_id_does_not_go_on_in_the_source(source: Opened, target: Opened) -> None:
    unloaded(source)
    move(source, target, "r")
    before = state(source)
    here = waits.with_options(store=source)

    with pytest.raises(RunHeld, match="moved to"):
        here.run("r", "tea")
    with pytest.raises(RunHeld, match="moved to"):
        here.submit("r", "tea").result()
    assert recover(source._engine, 10) == []
    assert state(source) == before


def test_a_child_that_was_moved_is_not_cancelled_with_its_parent(
    source: Opened, target: Opened
) -> None:
    parent.with_options(store=source).submit("p", "tea")
    source.recover()
    source.recover()
    (child,) = (run.run_id for run in source.runs(parent="p"))
    assert source.get(child).status == "waiting"
    move(source, target, child)

    stopped = source.cancel("p")

    assert stopped.outcome == "cancelled"
    assert child in stopped.detail
    assert "there.db" in stopped.detail
    assert source.get(child).held_reason == "moved"
    # What its parent said goes along with the next move, since nobody else would deliver it.
    move(source, target, child)
    row = target._backend.get(child)
    assert row is not None
    assert [it.kind for it in target._backend.inbox(row.run_no)] == ["cancel"]


def test_a_key_of_a_moved_run_is_settled_there(source: Opened, target: Opened) -> None:
    for run_id in ("first", "second"):
        with pytest.raises(RunHeld):
            pays.with_options(store=source).run(run_id, "tea")
    move(source, target, "first")

    with pytest.raises(RunHeld, match="run 'first' is held .moved.*there.db"):
        source.settle("second", "mv-pay", Done("paid"), actor="eve")
    assert source.get("second").status == "held"


def test_a_moved_run_that_waited_for_a_key_is_not_freed_in_the_source(
    source: Opened, target: Opened
) -> None:
    for run_id in ("first", "second"):
        with pytest.raises(RunHeld):
            pays.with_options(store=source).run(run_id, "tea")
    assert move(source, target, "second", "first")["first"] is Fate.MOVED
    source.resume("first", confirm=True)
    source.settle("first", "mv-pay", Done("paid"), actor="eve")
    source.recover()
    assert source.get("second").held_reason == "moved"
    with pytest.raises(RunHeld, match="moved to"):
        pays.with_options(store=source).run("second", "tea")


def test_the_watchdog_leaves_a_moved_run_alone(source: Opened, target: Opened) -> None:
    unloaded(source)
    move(source, target, "r")
    before = state(source)
    watchdog_loop.run_once(source._engine, {})
    assert state(source) == before


def test_the_commands_say_where_it_is(source: Opened, target: Opened) -> None:
    unloaded(source)
    move(source, target, "r")
    for words in (
        ["cancel", "r"],
        ["pause", "r"],
        ["signal", "r", "go"],
        ["answer", "r", "ok", "1"],
    ):
        result = CliRunner().invoke(main, [*words, "--url", source.url, "--json"])
        assert result.exit_code == 3, result.output
        told = json.loads(result.stdout)["error"]
        assert (told["type"], told["reason"], told["run_id"]) == ("RunHeld", "moved", "r")
        assert "there.db" in told["message"]


def test_the_command_that_looks_there_names_one_store(source: Opened, target: Opened) -> None:
    unloaded(source)
    move(source, target, "r")
    told = CliRunner().invoke(main, ["explain", "r", "--url", source.url]).output
    lines = [line for line in told.splitlines() if line.startswith("      holdfast ")]
    assert [line.count("--url") for line in lines] == [1] * len(lines), told
    (there,) = [line for line in lines if "there.db" in line]
    looked = CliRunner().invoke(main, shlex.split(there)[1:])
    assert looked.exit_code == 0
    assert "was moved" not in looked.output
