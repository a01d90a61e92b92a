"""Runs that move to another store: whole, compared, held where they were, and never in both."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from click.testing import CliRunner

import holdfast
from holdfast import NOT_DONE, effect, flow, step, testing
from holdfast._engine.journal.changes import PostMessage, TakeMessage
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Lease, Memo, Message, Write
from holdfast._features.alerts import alerter
from holdfast._features.memory.operator import MEMOS_PAGE, copy_memories
from holdfast._features.schedules.operator import copy_schedules
from holdfast._features.watchdog import watchdog_loop
from holdfast._operator.act import store_move
from holdfast._operator.act.store_move import Fate, Moved
from holdfast._operator.cli.main import main
from holdfast._runtime import queues
from holdfast._stores import audit_log
from holdfast._stores.contract import Busy, Limits, NewRun, ScheduleRow, Store as Kept
from holdfast._stores.sqlite import backups
from holdfast.errors import ConfirmationRequired, RunHeld, StoreError, StoreLostData, UsageError
from tests.ops.meanwhile import Meanwhile

PAIRS = [
    ("memory", "memory"),
    ("sqlite", "sqlite"),
    ("sqlite", "postgresql"),
    ("postgresql", "sqlite"),
]


@dataclasses.dataclass
class Pair:
    """Two opened stores; flows run in the first unless told otherwise."""

    source: testing.PrivateStore
    target: testing.PrivateStore

    def copy(self, *run_ids: str, dry_run: bool = False) -> dict[str, Moved]:
        """Copy these runs, or all, and say what became of each."""
        here, there = self.source._backend, self.target._backend
        store_move.check(here, there)
        wanted = run_ids or store_move.run_ids(here)
        moved = store_move.move_runs(here, there, wanted, actor="ann", dry_run=dry_run)
        return {one.run_id: one for one in moved}

    def fates(self, *run_ids: str) -> dict[str, Fate]:
        return {run_id: one.fate for run_id, one in self.copy(*run_ids).items()}


@pytest.fixture(params=PAIRS, ids=lambda pair: "-to-".join(pair))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        opened = []
        for number, kind in enumerate(request.param):
            url = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/{number}.db"}.get(kind)
            url = url or str(request.getfixturevalue("postgres_url"))
            opened.append(stack.enter_context(testing.store(url=url)))
            if kind == "memory":
                opened[-1]._backend.store_id = f"memory-{number}"
        yield Pair(*opened)


called: list[tuple[str, str]] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    called.clear()


@step(name="cp-load")
def load(topic: str) -> dict[str, Any]:
    called.append(("load", topic))
    return {"topic": topic, "text": f"about {topic} " * 200}


@effect(name="cp-send", on_doubt="retry")
def send(topic: str) -> str:
    called.append(("send", holdfast.idempotency_key()))
    if topic.startswith("doubtful") and len([c for c in called if c[0] == "send"]) == 1:
        raise KeyboardInterrupt
    return f"sent {topic}"


@effect(name="cp-ask")
def ask(topic: str) -> str:
    called.append(("ask", holdfast.idempotency_key()))
    if topic == "asked" and len([c for c in called if c[0] == "ask"]) == 1:
        raise ConnectionError("who knows")
    return f"asked {topic}"


@effect(name="cp-keyed", key="order:{topic}")
def keyed(topic: str) -> str:
    called.append(("keyed", topic))
    return f"ordered {topic}"


@flow(name="cp-report")
def report(topic: str) -> str:
    loaded = load(topic)
    if topic == "broken":
        raise ValueError("broken")
    if topic == "asked":
        return ask(topic)
    if topic.startswith("ordered"):
        return keyed(topic)
    return f"{len(loaded['text'])} {send(topic)}"


def run(store: holdfast.types.Store, run_id: str, topic: str) -> Any:
    return report.with_options(store=store).run(run_id, topic)


def stop(store: holdfast.types.Store, run_id: str, topic: str) -> None:
    """Run it as far as it comes."""
    try:
        run(store, run_id, topic)
    except (KeyboardInterrupt, holdfast.errors.HoldfastError):
        return
    raise AssertionError("it came to its end")


def journal(store: holdfast.types.Store, run_id: str) -> list[Any]:
    row = store._backend.get(run_id)
    assert row is not None
    return list(store._backend.load(row))


# --- what moves, moves whole ------------------------------------------------------------------


def test_a_run_that_is_over_is_copied_as_it_is(pair: Pair) -> None:
    result = run(pair.source, "r", "tea")

    assert pair.fates() == {"r": Fate.MOVED}

    assert journal(pair.target, "r") == journal(pair.source, "r")
    assert pair.target.get("r").result == result
    assert pair.source.get("r").status == "completed"
    before = list(called)
    assert run(pair.target, "r", "tea") == result
    assert called == before
    assert not list(pair.target.verify())


@effect(name="copy-undoable")
def copy_pay(n: int) -> int:
    return n


@copy_pay.undo
def copy_unpay(result: int, n: int) -> None:
    called.append(("unpaid", str(n)))


@flow(name="copy-undoing")
def copy_undoing(n: int) -> int:
    return copy_pay(n)


def test_a_run_that_is_over_is_undone_in_the_target_and_not_in_both(pair: Pair) -> None:
    called.clear()
    copy_undoing.with_options(store=pair.source).run("r", 7)
    assert pair.copy(dry_run=True)["r"].fate is Fate.MOVED
    assert not pair.source.preview_rollback("r").confirm
    assert pair.fates() == {"r": Fate.MOVED}
    assert pair.fates() == {"r": Fate.THERE}

    with pytest.raises(ConfirmationRequired, match="it was copied to .*: roll it back there"):
        pair.source.rollback("r")
    assert "it was copied to" in str(pair.source.explain("r"))
    assert pair.source.get("r").waiting_for is None
    assert not pair.target.preview_rollback("r").confirm
    assert pair.target.rollback("r").status == "rolled_back"
    assert called == [("unpaid", "7")]
    assert pair.fates() == {"r": Fate.THERE}
    assert not list(pair.source.verify())
    assert not list(pair.target.verify())


def test_a_run_that_could_not_be_copied_is_undone_where_it_is(pair: Pair) -> None:
    called.clear()
    copy_undoing.with_options(store=pair.source).run("r", 7)
    copy_undoing.with_options(store=pair.target).run("r", 8)
    assert pair.fates() == {"r": Fate.CONFLICT}
    assert pair.source.rollback("r").status == "rolled_back"
    assert called == [("unpaid", "7")]


def test_a_copy_again_finds_everything_there(pair: Pair) -> None:
    run(pair.source, "a", "tea")
    report.with_options(store=pair.source).submit("b", "cake")

    assert pair.fates() == {"a": Fate.MOVED, "b": Fate.MOVED}
    assert pair.fates() == {"a": Fate.THERE, "b": Fate.THERE}
    run(pair.target, "b", "cake")
    assert pair.fates() == {"a": Fate.THERE, "b": Fate.THERE}


def test_a_queued_run_goes_on_in_the_target_only(pair: Pair) -> None:
    report.with_options(store=pair.source).submit("r", "tea")

    pair.copy()

    with pytest.raises(RunHeld, match="moved to"):
        run(pair.source, "r", "tea")
    assert pair.source.recover() == []
    assert run(pair.target, "r", "tea") == "2000 sent tea"
    assert [what for what, _ in called] == ["load", "send"]


def test_a_run_that_stopped_mid_way_keeps_what_it_has(pair: Pair) -> None:
    stop(pair.source, "r", "doubtful tea")

    assert pair.fates() == {"r": Fate.MOVED}

    assert run(pair.target, "r", "doubtful tea") == "3800 sent doubtful tea"
    assert [what for what, _ in called] == ["load", "send", "send"]


def test_an_effect_that_was_begun_is_repeated_under_the_same_key(pair: Pair) -> None:
    """The key is derived from the store; the one that was shown before is shown again (I6)."""
    stop(pair.source, "r", "doubtful tea")
    pair.copy()
    run(pair.target, "r", "doubtful tea")

    keys = [key for what, key in called if what == "send"]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    intents = [e for e in pair.target.history("r") if e.kind == "step_started" and e.attempt]
    assert {e.body["key"] for e in intents if "key" in e.body} == {keys[0]}


def test_a_run_in_doubt_is_held_in_the_target_and_settled_there(pair: Pair) -> None:
    stop(pair.source, "r", "asked")

    pair.copy()

    assert pair.target.get("r").held_reason == "in_doubt"
    with pytest.raises(RunHeld, match="moved to"):
        pair.source.settle("r", "cp-ask", NOT_DONE, actor="ana")
    pair.target.settle("r", "cp-ask", NOT_DONE, actor="ana")
    assert run(pair.target, "r", "asked") == "asked asked"
    keys = {key for what, key in called if what == "ask"}
    assert len(keys) == 1


def test_a_failed_run_is_taken_up_again_in_the_target(pair: Pair) -> None:
    stop(pair.source, "r", "broken")

    pair.copy()

    assert pair.target.get("r").status == "failed"
    assert pair.source.get("r").status == "held"
    stop(pair.target, "r", "broken")
    assert pair.target.get("r").status == "failed"
    assert [what for what, _ in called] == ["load"]


def test_queue_priority_delay_tags_and_messages_come_along(pair: Pair) -> None:
    kept = pair.source._backend
    at_us = kept.now_us()
    new = NewRun(
        "r",
        "cp-report",
        "1",
        b"d" * 16,
        [Draft(Kind.RUN_STARTED, at_us)],
        tags='{"who":"ann"}',
        queue="slow",
        priority=7,
        limit_key="tenant",
        wake_us=at_us + 10**12,
    )
    kept.start(new, None)
    messages = [Message(f"m{n}", "signal", "ann", at_us, b'{"n":%d}' % n) for n in range(2)]
    for message in messages:
        kept.post("r", message)
    row = kept.get("r")
    assert row is not None
    kept.append(
        [
            Write(
                Lease(row, acting=True),
                [Draft(Kind.VALUE_EMITTED, at_us)],
                changes=[TakeMessage("m0")],
            )
        ]
    )

    pair.copy()

    there = pair.target._backend.get("r")
    assert there is not None
    assert (there.queue, there.priority, there.limit_key) == ("slow", 7, "tenant")
    assert (there.tags, there.wake_us) == ('{"who":"ann"}', at_us + 10**12)
    assert pair.target._backend.inbox(there.run_no) == [
        msgspec.structs.replace(messages[1], number=2)
    ]


def test_what_a_run_says_to_a_moved_run_is_handed_on_by_the_next_copy(pair: Pair) -> None:
    report.with_options(store=pair.source).submit("r", "tea")
    report.with_options(store=pair.source).submit("child", "tea")
    pair.copy("r")
    late, kept = Message("late", "child_ended", "child", 1, b"{}"), pair.source._backend
    lease = kept.claim("child", kept.register_owner(), kept.now_us())
    assert not isinstance(lease, Busy)
    kept.append([Write(lease, [], changes=[PostMessage("r", late)])])

    pair.copy("r")
    pair.copy("r")

    there = pair.target._backend.get("r")
    assert there is not None
    assert pair.target._backend.inbox(there.run_no) == [msgspec.structs.replace(late, number=1)]


# --- what does not move -----------------------------------------------------------------------


def test_a_run_at_work_stays_and_is_said(pair: Pair) -> None:
    report.with_options(store=pair.source).submit("r", "tea")
    kept = pair.source._backend
    lease = kept.claim("r", kept.register_owner(), kept.now_us())
    assert not isinstance(lease, Busy)
    before = journal(pair.source, "r")

    moved = pair.copy()["r"]

    assert moved.fate is Fate.BUSY
    assert "has it" in moved.why
    assert journal(pair.source, "r") == before
    assert pair.target._backend.get("r") is None


def test_an_id_that_is_taken_by_another_run_is_a_conflict(pair: Pair) -> None:
    report.with_options(store=pair.source).submit("r", "tea")
    run(pair.target, "r", "cake")
    before = journal(pair.source, "r"), journal(pair.target, "r")

    assert pair.copy()["r"].fate is Fate.CONFLICT
    assert (journal(pair.source, "r"), journal(pair.target, "r")) == before


@pytest.mark.parametrize("over", [True, False])
def test_a_business_key_that_another_run_has_is_a_conflict(pair: Pair, over: bool) -> None:
    topic = "ordered tea"
    if over:
        run(pair.source, "r", topic)
    else:
        stop_inside_keyed(pair.source, topic)
    run(pair.target, "other", topic)

    moved = pair.copy()["r"]

    assert moved.fate is Fate.CONFLICT
    assert "order:ordered tea" in moved.why
    assert pair.target._backend.get("r") is None
    assert pair.source.get("r").status == ("completed" if over else "held")
    assert "moved" not in str(pair.source.explain("r"))


def stop_inside_keyed(store: holdfast.types.Store, topic: str) -> None:
    def body(*_: Any) -> Any:
        raise ConnectionError("who knows")

    with keyed.fake(body):
        stop(store, "r", topic)


def test_business_keys_move_with_their_run(pair: Pair) -> None:
    run(pair.source, "r", "ordered tea")
    pair.copy()

    assert run(pair.target, "again", "ordered tea") == "ordered ordered tea"
    assert [what for what, _ in called if what == "keyed"] == ["keyed"]
    state = pair.target._backend.key("cp-keyed", "order:ordered tea")
    assert state is not None
    assert state.run_id == "r"


def test_a_run_that_waits_for_the_key_of_another_goes_after_it(pair: Pair) -> None:
    stop_inside_keyed(pair.source, "ordered tea")
    stop(pair.source, "second", "ordered tea")
    assert pair.source.get("second").held_reason == "in_doubt"

    alone = pair.copy("second")["second"]
    assert (alone.fate, "run 'r' has" in alone.why) == (Fate.STAYS, True)

    assert pair.fates("second", "r") == {"r": Fate.MOVED, "second": Fate.MOVED}
    pair.target.settle("r", "cp-keyed", holdfast.Done("ordered ordered tea"), actor="ana")
    assert run(pair.target, "second", "ordered tea") == "ordered ordered tea"


def test_what_cannot_be_right_is_refused(pair: Pair) -> None:
    with pytest.raises(UsageError, match="the same store"):
        store_move.check(pair.source._backend, pair.source._backend)


def test_a_store_that_lost_commits_is_not_copied(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair.source._backend, "regression", lambda: "commit 7 is gone")
    with pytest.raises(StoreLostData, match="commit 7 is gone"):
        pair.copy()


def test_a_run_whose_store_lost_commits_ends_where_it_is(pair: Pair) -> None:
    report.with_options(store=pair.source).submit("r", "tea")
    pair.source._backend.accept_data_loss("ann")

    assert pair.copy()["r"].fate is Fate.STAYS


def test_a_run_of_a_restored_store_ends_where_it_is(tmp_path: Path) -> None:
    copy, here = str(tmp_path / "backup.db"), str(tmp_path / "restored.db")
    with testing.store(url=f"sqlite:///{tmp_path}/0.db") as lived:
        report.with_options(store=lived).submit("r", "tea")
        lived.backup(copy)
    backups.restore(copy, here)
    with (
        testing.store(url=f"sqlite:///{here}") as restored,
        testing.store(url=f"sqlite:///{tmp_path}/1.db") as target,
    ):
        stays = Pair(restored, target).copy()["r"]
    assert stays.fate is Fate.STAYS
    assert "restored from a backup" in stays.why
    assert "lost commits" not in stays.why


def test_a_run_that_is_not_there_is_said(pair: Pair) -> None:
    assert pair.copy("nobody")["nobody"].fate is Fate.MISSING


# --- the way back -----------------------------------------------------------------------------


def test_only_a_confirmed_resume_lets_it_go_on_in_the_source(pair: Pair) -> None:
    report.with_options(store=pair.source).submit("r", "tea")
    pair.copy()

    with pytest.raises(RunHeld, match="moved to"):
        pair.source.resume("r")
    said = str(pair.source.explain("r"))
    assert "was moved to" in said
    assert "holdfast resume r --confirm" in said
    assert pair.source.get("r").held_reason == "moved"
    assert [seen.held_reason for seen in pair.source.runs()] == ["moved"]
    assert [seen.run_id for seen in pair.source.runs(held_reason="moved")] == ["r"]
    assert pair.source.runs(held_reason="paused") == []

    pair.source.resume("r", confirm=True)
    assert run(pair.source, "r", "tea") == "2000 sent tea"
    assert pair.copy()["r"].fate is Fate.CONFLICT


# --- killed on the way ------------------------------------------------------------------------


class Died(BaseException):
    """The process that copies is gone."""


def dies_before(kept: Kept, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> Any:
        raise Died

    monkeypatch.setattr(kept, operation, die)


@pytest.mark.parametrize("topic", ["queued", "doubtful tea", "asked", "broken"])
def test_a_copy_that_died_between_its_two_commits_is_finished_by_the_next(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    if topic == "queued":
        report.with_options(store=pair.source).submit("r", topic)
    else:
        stop(pair.source, "r", topic)
    row = pair.source._backend.get("r")
    assert row is not None
    with monkeypatch.context() as patch:
        dies_before(pair.target._backend, "put_whole", patch)
        with pytest.raises(Died):
            pair.copy()

    assert pair.target._backend.get("r") is None
    with pytest.raises(RunHeld, match="moved to"):
        run(pair.source, "r", topic)
    assert pair.fates() == {"r": Fate.MOVED}
    there = pair.target._backend.get("r")
    assert there is not None
    assert (there.status, there.held_reason, there.head) == (row.status, row.held_reason, row.head)


def test_a_run_that_is_over_is_marked_before_it_is_in_the_target(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    called.clear()
    copy_undoing.with_options(store=pair.source).run("r", 7)
    with monkeypatch.context() as patch:
        dies_before(pair.target._backend, "put_whole", patch)
        with pytest.raises(Died):
            pair.copy()

    with pytest.raises(ConfirmationRequired, match="it was copied to"):
        pair.source.rollback("r")
    assert pair.fates() == {"r": Fate.MOVED}
    there = pair.target._backend.get("r")
    assert there is not None
    assert there.waiting_on is None, "the mark is the source's"
    assert pair.source.rollback("r", confirm=True).status == "rolled_back"
    assert called == [("unpaid", "7")]


def test_a_copy_that_died_before_it_compared_is_finished_by_the_next(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop(pair.source, "r", "asked")
    with monkeypatch.context() as patch:
        patch.setattr(store_move, "compare", lambda *_: (_ for _ in ()).throw(Died))
        with pytest.raises(Died):
            pair.copy()

    assert pair.fates() == {"r": Fate.THERE}


def test_what_arrived_differently_is_noticed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    run(pair.source, "r", "tea")
    whole = pair.target._backend.whole

    def changed(row: Any) -> Any:
        found = whole(row)
        numbers = sorted(found.chunks)
        return msgspec.structs.replace(found, chunks=dict.fromkeys(numbers, b"other"))

    with monkeypatch.context() as patch:
        patch.setattr(pair.target._backend, "whole", changed)
        assert pair.copy()["r"].fate is Fate.DAMAGED

    def shorter(row: Any) -> Any:
        found = whole(row)
        return msgspec.structs.replace(found, entries=found.entries[:-1])

    with monkeypatch.context() as patch:
        patch.setattr(pair.target._backend, "whole", shorter)
        assert pair.copy()["r"].fate is Fate.CONFLICT


# --- queues and schedules ---------------------------------------------------------------------


def test_limits_of_queues_come_along_where_there_are_none(pair: Pair) -> None:
    here, there = pair.source._backend, pair.target._backend
    here.set_limits(Limits("slow", concurrency=2))
    here.set_limits(Limits("own", concurrency=2))
    there.set_limits(Limits("own", concurrency=9))

    assert list(store_move.copy_limits(here, there)) == ["slow"]

    limits = {state.limits.queue: state.limits.concurrency for state in there.queues()}
    assert limits == {"own": 9, "slow": 2}


def schedules(kept: Kept) -> dict[str, tuple[int, bool]]:
    return {row.name: (row.cursor_us, row.paused) for row in kept.schedules()}


def test_a_schedule_ticks_in_one_store_only(pair: Pair) -> None:
    here, there = pair.source._backend, pair.target._backend
    here.put_schedule(ScheduleRow("ticking", "cp-report", "{}", 100), None)
    here.put_schedule(ScheduleRow("resting", "cp-report", "{}", 200, paused=True), None)

    assert sorted(copy_schedules(here, there)) == ["resting", "ticking"]

    # Pausing moves the cursor: a worker that is just ticking must not undo it.
    assert schedules(here) == {"ticking": (101, True), "resting": (200, True)}
    assert schedules(there) == {"ticking": (101, False), "resting": (200, True)}
    assert not here.put_schedule(ScheduleRow("ticking", "cp-report", "{}", 150), 100)
    assert list(copy_schedules(here, there)) == []


@pytest.mark.parametrize("dies", range(3))
def test_a_schedule_is_moved_by_the_next_copy_wherever_the_first_one_died(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, dies: int
) -> None:
    here, there = pair.source._backend, pair.target._backend
    here.put_schedule(ScheduleRow("ticking", "cp-report", "{}", 100), None)
    writes = 0

    def mortal(put: Callable[..., bool]) -> Callable[..., bool]:
        def put_schedule(row: ScheduleRow, expected: int | None) -> bool:
            nonlocal writes
            if writes == dies:
                raise Died
            writes += 1
            return put(row, expected)

        return put_schedule

    with monkeypatch.context() as patch:
        for kept in (here, there):
            patch.setattr(kept, "put_schedule", mortal(kept.put_schedule))
        with pytest.raises(Died):
            list(copy_schedules(here, there))

    ticking = [s for kept in (here, there) for s in schedules(kept).values() if not s[1]]
    assert len(ticking) <= 1
    list(copy_schedules(here, there))
    assert schedules(here) == {"ticking": (101, True)}
    assert schedules(there) == {"ticking": (101, False)}


# --- memories ---------------------------------------------------------------------------------


def remembered(pair: Pair, *, dry_run: bool = False) -> dict[str, tuple[int, int, list[str]]]:
    here, there = pair.source._backend, pair.target._backend
    found = copy_memories(here, there, dry_run=dry_run)
    return {one.space: (one.copied, one.there, one.left) for one in found}


def test_values_of_memories_come_along_once(pair: Pair) -> None:
    here, there = pair.source.memory("customers"), pair.target.memory("customers")
    for number in range(MEMOS_PAGE + 3):
        here.set(f"c-{number:03}", {"number": number})
    here.set("soon", "over", ttl="1d")
    here.set("gone", 1)
    here.delete("gone")
    total = MEMOS_PAGE + 4

    assert remembered(pair, dry_run=True) == {"customers": (total, 0, [])}
    assert there.items() == []
    assert remembered(pair) == {"customers": (total, 0, [])}
    assert [(it.key, it.value, it.expires_at) for it in there.items()] == [
        (it.key, it.value, it.expires_at) for it in here.items()
    ]
    assert remembered(pair) == {"customers": (0, total, [])}
    assert not list(pair.target.verify())


def test_a_value_that_the_target_went_on_with_stays(pair: Pair) -> None:
    here, there = pair.source.memory("customers"), pair.target.memory("customers")
    here.set("a", "first")
    remembered(pair)
    there.set("a", "second")

    assert remembered(pair) == {"customers": (0, 1, [])}
    assert there.get("a") == "second"


def test_a_value_that_was_written_later_in_the_source_is_said(pair: Pair) -> None:
    pair.target.memory("customers").set("a", "theirs")
    written_us = pair.target._backend.now_us()
    here = pair.source.memory("customers")
    while pair.source._backend.memo("customers", "a") is None or newest(pair) <= written_us:
        here.set("a", "ours")

    assert remembered(pair) == {"customers": (0, 0, ["a"])}
    assert pair.target.memory("customers").get("a") == "theirs"


def newest(pair: Pair) -> int:
    memo = pair.source._backend.memo("customers", "a")
    assert memo is not None
    return memo.updated_us


def test_what_workers_note_for_themselves_stays_behind(pair: Pair) -> None:
    for space in (alerter.SPACE, audit_log.SPACE, queues.DECLARED, watchdog_loop.CALLS):
        pair.source._backend.put_memo(Memo(space, "k", b"1"))
    assert remembered(pair) == {}
    assert pair.target._backend.spaces() == []


def test_a_value_that_arrived_differently_is_noticed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.source.memory("customers").set("a", "right")
    kept = pair.target._backend
    write = kept.put_memos

    def wrong(memos: list[Memo], expected: list[Memo]) -> bool:
        return write([msgspec.structs.replace(memo, value=b'"wrong"') for memo in memos], expected)

    monkeypatch.setattr(kept, "put_memos", wrong)
    with pytest.raises(StoreError, match="has another value"):
        remembered(pair)


# --- runs that are deleted meanwhile ------------------------------------------------------------


def a_run_and_its_fork(store: testing.PrivateStore, number: int) -> tuple[str, str]:
    ids = (f"r{number}", f"f{number}")
    run(store, ids[0], "tea")
    store.fork(ids[0], ids[1], before="cp-send", confirm=True)
    run(store, ids[1], "tea")
    return ids


def remove(kept: Kept, ids: tuple[str, str]) -> None:
    for run_id in reversed(ids):  # The fork first: the other one stands as long as it does.
        row = kept.get(run_id)
        assert row is not None
        assert kept.forget(row, 99)


@pytest.mark.parametrize("there_before", [False, True])
def test_a_run_that_is_deleted_at_any_moment_is_skipped_and_not_damaged(
    pair: Pair, there_before: bool
) -> None:
    """Whichever call of the copy the deletion comes before, nothing is told but the truth."""
    here, there = pair.source._backend, pair.target._backend
    met: set[Fate] = set()
    ended = False
    for at in range(1, 100):
        ids = a_run_and_its_fork(pair.source, at)
        if there_before:
            pair.copy(*ids)
        source = Meanwhile(here, at, lambda ids=ids: remove(here, ids))  # type: ignore[misc]
        moved = list(store_move.move_runs(cast("Kept", source), there, ids, actor="ann"))
        if ended := source.left > 0:
            break
        assert {one.fate for one in moved} <= {Fate.MOVED, Fate.THERE, Fate.DELETED}, (at, moved)
        met |= {one.fate for one in moved}
        for one in moved:
            left = there.get(one.run_id)
            assert (left is None) == (one.fate is Fate.DELETED and not there_before)
            assert left is None or left.deleted_us is None
    assert ended
    assert met == {Fate.DELETED, Fate.THERE if there_before else Fate.MOVED}
    assert list(pair.target.verify()) == []


def test_a_run_that_is_deleted_in_the_target_meanwhile_is_a_conflict(pair: Pair) -> None:
    here, there = pair.source._backend, pair.target._backend
    ended = False
    for at in range(1, 100):
        ids = a_run_and_its_fork(pair.source, at)
        pair.copy(*ids)
        target = Meanwhile(there, at, lambda ids=ids: remove(there, ids))  # type: ignore[misc]
        moved = list(store_move.move_runs(here, cast("Kept", target), ids, actor="ann"))
        if ended := target.left > 0:
            break
        fates = {one.fate for one in moved}
        assert fates <= {Fate.THERE, Fate.CONFLICT, Fate.STAYS}, (at, moved)
        assert all(one.fate is Fate.THERE or "delete" in one.why for one in moved) or (
            Fate.STAYS in fates
        ), (at, moved)
    assert ended


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    source, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    with testing.store(url=source) as store:
        run(store, "done", "tea")
        report.with_options(store=store).submit("queued", "tea")
        stop(store, "asked", "asked")
    return source, target


def command(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["store", "move", *args])
    return result.exit_code, result.output


def test_the_command_copies_and_says_so(files: tuple[str, str]) -> None:
    assert command(*files, "--dry-run") == (0, "Would be moved: 3 runs.\n")
    assert not Path(files[1].removeprefix("sqlite:///")).exists()

    code, said = command(*files, "--actor", "ann")

    assert (code, said) == (0, "Moved and compared: 3 runs.\n")
    assert command(*files)[1].startswith("Moved and compared: 0 runs.\nAlready in the target")


def test_the_command_copies_memories_and_says_so(files: tuple[str, str]) -> None:
    with holdfast.open(files[0], default=False) as store:
        store.memory("customers").set("a", 1)
    said = command(*files, "--actor", "ann")
    assert said == (
        0,
        "Moved and compared: 3 runs.\nCopied and compared: 1 value of memory 'customers'.\n",
    )
    again = command(*files)[1].splitlines()
    assert again[-1] == "Already in the target: 1 value of memory 'customers'."
    with holdfast.open(files[0], default=False) as store:
        store.memory("customers").set("a", 2)
    code, told = command(*files, "--json")
    assert code == 1
    assert json.loads(told)["memories"] == [
        {"space": "customers", "copied": 0, "there": 0, "left": ["a"]}
    ]
    assert "not copied" in command(*files)[1]


def test_the_command_copies_single_runs_into_a_namespace(files: tuple[str, str]) -> None:
    code, said = command(*files, "--run", "queued", "--to-namespace", "other", "--json")

    answer = json.loads(said)
    assert (code, answer["runs"]["moved"]) == (0, 1)
    with holdfast.open(files[1], default=False, namespace="other") as store:
        assert store.get("queued").status == "queued"


def test_the_command_copies_between_namespaces_of_one_store(files: tuple[str, str]) -> None:
    code, said = command(files[0], files[0], "--to-namespace", "other")

    assert (code, said) == (0, "Moved and compared: 3 runs.\n")
    assert command(files[0], files[0])[0] == 2
    with holdfast.open(files[0], default=False, namespace="other") as store:
        assert run(store, "queued", "tea") == "2000 sent tea"
        assert not list(store.verify())


def test_the_command_tells_by_its_exit_code_that_something_stayed(files: tuple[str, str]) -> None:
    with holdfast.open(files[0], default=False) as store:
        kept = store._backend
        kept.claim("queued", kept.register_owner(), kept.now_us())
        code, said = command(*files)
    assert code == 5
    assert "queued: busy" in said
    assert command(*files, "--run", "nobody")[0] == 6
    assert command(*files)[0] == 0


def test_the_command_says_of_a_deleted_run_that_was_named_that_it_is_not_there(
    files: tuple[str, str],
) -> None:
    with holdfast.open(files[0], default=False) as store:
        row = store._backend.get("done")
        assert row is not None
        assert store._backend.forget(row, 99)
    code, said = command(*files, "--run", "done")
    assert (code, "done: missing: it was deleted" in said) == (6, True)
    assert command(*files) == (0, "Moved and compared: 2 runs.\n")


def test_the_command_refuses_what_cannot_be_copied(tmp_path: Path) -> None:
    assert command("memory:", f"sqlite:///{tmp_path}/b.db")[0] == 2
    assert command(f"sqlite:///{tmp_path}/none.db", f"sqlite:///{tmp_path}/b.db")[0] == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://me:secret@db:5432/app?password=secret", "postgresql://me@db:5432/app"),
        ("postgresql://db/app", "postgresql://db/app"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_a_password_is_not_recorded(url: str, told: str) -> None:
    assert store_move.display_url(url) == told


@pytest.mark.parametrize("place", ["missing/b.db", "locked/b.db", "b.db?mode=ro"])
def test_a_dry_run_reports_a_target_that_cannot_be_made(
    files: tuple[str, str], tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locked").mkdir()
    allows, opens = os.access, os.open

    def refused(path: Any, mode: int) -> bool:  # The tests may run as root, who may do anything.
        return "locked" not in str(path) and allows(path, mode)

    def not_opened(path: Any, *args: Any, **kwargs: Any) -> int:
        if "locked" in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opens(path, *args, **kwargs)

    monkeypatch.setattr(os, "access", refused)
    monkeypatch.setattr(os, "open", not_opened)
    target = f"sqlite:///{tmp_path}/{place}"
    dry = command(files[0], target, "--dry-run")
    assert dry == command(files[0], target)
    assert dry[0] == 1, dry
