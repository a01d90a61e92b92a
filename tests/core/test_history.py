"""The fold of a journal: what replay asks of the past, and what it refuses to believe."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.history import Divergence, History, State
from holdfast._engine.journal.lifecycle import Status, status_of
from holdfast._engine.journal.superseded import escaped, superseded_by_resume
from holdfast.errors import Corrupt, StepFailed

SECOND = 1_000_000


class Journal:
    """Entries in a row, numbered and timed one after another."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.at_us = 0
        self.run(Kind.RUN_STARTED).run(Kind.RUN_CLAIMED, why="new")

    def run(self, kind: Kind, **facts: Any) -> Journal:
        return self._add(kind, None, 0, None, None, None, facts)

    def step(
        self,
        kind: Kind,
        key: str,
        position: int | None = None,
        digest: bytes | None = b"args",
        attempt: int = 1,
        joined: bool = False,
        **facts: Any,
    ) -> Journal:
        started = self.at_us + SECOND // 2 if joined else None
        return self._add(kind, key, attempt, position, digest, started, facts)

    def _add(self, kind: Kind, *rest: Any) -> Journal:
        key, attempt, position, digest, started, facts = rest
        last = self.entries[-1].seq if self.entries else 0
        self.at_us += SECOND
        body = msgspec.json.encode(facts)
        seq = last + (1 if started is None else 2)
        self.entries.append(
            Entry(seq, kind, self.at_us, key, attempt, position, digest, started, body, b"")
        )
        return self

    def done(self, key: str, position: int | None = 0, **facts: Any) -> Journal:
        return self.step(Kind.STEP_COMPLETED, key, position, joined=True, result=1, **facts)

    def fold(self) -> History:
        return History.fold("r", self.entries)


ERROR = {"type": "E", "message": ""}


# -- what is refused ---------------------------------------------------------------------------


def test_a_gap_is_noticed_unless_gaps_are_allowed():
    journal = Journal().done("a").done("b", 1).done("c", 2)
    del journal.entries[3]
    with pytest.raises(Corrupt, match="entry 5 is damaged: it is missing"):
        journal.fold()
    history = History.fold("r", journal.entries, gaps=True)
    assert set(history.records) == {"a", "c"}


def test_a_second_outcome_is_damage():
    journal = Journal().done("a").step(Kind.STEP_FAILED, "a", 0, final=True, error=ERROR)
    with pytest.raises(Corrupt, match="a has an outcome already"):
        journal.fold()


def test_a_start_after_the_outcome_is_damage():
    with pytest.raises(Corrupt, match="has an outcome already"):
        Journal().done("a").step(Kind.STEP_STARTED, "a", 0).fold()


def test_an_illegal_entry_is_damage():
    with pytest.raises(Corrupt, match="run_resumed is not legal in status completed"):
        Journal().run(Kind.RUN_COMPLETED).run(Kind.RUN_RESUMED).fold()
    with pytest.raises(Corrupt, match="after the end"):
        Journal().run(Kind.RUN_COMPLETED).done("a").fold()
    with pytest.raises(Corrupt, match="before run_started"):
        History.fold("r", Journal().done("a").entries[2:], gaps=True)


# -- the fold, kind by kind --------------------------------------------------------------------


def test_a_joined_row_is_a_start_and_an_outcome():
    history = Journal().done("a").fold()
    record = history.records["a"]
    assert (record.state, record.attempts) == (State.COMPLETED, 1)
    assert (record.first_seq, record.last_seq) == (3, 4)
    assert record.started_us == record.first_started_us == 2 * SECOND + SECOND // 2
    assert record.ended_us == 3 * SECOND
    assert history.recorded() == 1
    assert not record.effect
    assert not record.degraded


def test_what_is_degraded_says_so():
    assert Journal().done("a", degraded=ERROR).fold().records["a"].degraded


def test_a_step_is_tried_until_it_is_done():
    journal = Journal().step(Kind.STEP_STARTED, "a", 0)
    assert journal.fold().records["a"].state is State.RUNNING
    journal.step(Kind.STEP_FAILED, "a", 0, final=False, retry_at_us=77, error=ERROR)
    record = journal.fold().records["a"]
    assert (record.state, record.retry_at_us, record.has_outcome) == (State.RETRYING, 77, False)
    assert record.failure is not None
    journal.step(Kind.STEP_STARTED, "a", 0, attempt=2)
    assert journal.fold().records["a"].attempts == 2
    journal.step(Kind.STEP_FAILED, "a", 0, attempt=2, final=True, error=ERROR)
    record = journal.fold().records["a"]
    assert (record.state, record.has_outcome) == (State.FAILED, True)


def test_an_intent_makes_an_effect():
    journal = Journal().step(Kind.STEP_STARTED, "pay", 0, effect=True)
    history = journal.fold()
    assert history.records["pay"].effect
    assert [record.key for record in history.open_doubts()] == ["pay"]
    history = journal.step(Kind.STEP_IN_DOUBT, "pay", 0, why="error", ended=True).fold()
    record = history.records["pay"]
    assert (record.state, record.ended) == (State.IN_DOUBT, True)
    assert history.open_doubts() == [record]


@pytest.mark.parametrize(
    ("settled", "state"),
    [("done", State.COMPLETED), ("failed", State.FAILED), ("not_done", State.NOT_DONE)],
)
def test_a_doubt_is_settled(settled, state):
    journal = Journal().step(Kind.STEP_STARTED, "pay", 0, effect=True)
    journal.step(Kind.STEP_IN_DOUBT, "pay", 0, why="error", ended=False)
    history = journal.step(Kind.STEP_SETTLED, "pay", 0, outcome=settled).fold()
    record = history.records["pay"]
    assert record.state is state
    assert (record.outcome is None) == (settled == "not_done")
    assert history.open_doubts() == []


def test_cancelled_skipped_progress_and_values():
    journal = Journal().step(Kind.STEP_STARTED, "a", 0).step(Kind.STEP_PROGRESSED, "a", 0, value=5)
    record = journal.fold().records["a"]
    assert record.progress is not None
    assert record.progress.body == b'{"value":5}'
    assert journal.step(Kind.STEP_CANCELLED, "a", 0).fold().records["a"].state is State.CANCELLED
    journal.step(Kind.SKIPPED_DUPLICATE, "b", 1, result=1)
    journal.step(Kind.VALUE_RECORDED, "now", 2, digest=None, value=9)
    history = journal.fold()
    assert history.records["b"].state is State.SKIPPED
    assert history.records["b"].has_outcome
    assert history.records["now"].state is State.COMPLETED


def test_what_a_flow_emits_has_a_place_and_what_a_step_emits_has_none():
    journal = Journal().step(Kind.VALUE_EMITTED, "emit", 0, digest=None, attempt=0, value=1)
    journal.step(Kind.STEP_STARTED, "a", 1).step(Kind.VALUE_EMITTED, "a", value=2)
    journal.step(Kind.STEP_COMPLETED, "a", 1, result=1).step(Kind.VALUE_EMITTED, "a", value=3)
    history = journal.fold()
    assert set(history.records) == {"emit", "a"}
    assert history.match("emit", 0, None) is history.records["emit"]


def test_entries_of_the_run_are_kept_at_hand():
    journal = Journal().run(Kind.RUN_HELD, reason="paused").run(Kind.RUN_RELEASED)
    history = journal.run(Kind.RUN_CLAIMED).run(Kind.RUN_FAILED, steps=[]).fold()
    assert history.started is not None
    assert history.held is not None
    assert history.failed is not None
    assert history.status is Status.FAILED
    completed = Journal().run(Kind.RUN_COMPLETED, result=1).fold()
    assert completed.completed is not None


def test_the_last_snapshot_of_a_loop_counts():
    journal = Journal()
    for turn in (1, 2):
        journal.step(Kind.STATE_SAVED, "turns", digest=None, turn=turn)
    assert journal.fold().saved["turns"].body == b'{"turn":2}'


# -- takeovers and what they prove -------------------------------------------------------------


def doubtful(why: str, *, noted: bool) -> Any:
    journal = Journal().step(Kind.STEP_STARTED, "pay", 0, effect=True)
    if noted:
        journal.step(Kind.STEP_IN_DOUBT, "pay", 0, why="timeout", ended=False)
    journal.done("other", 1)
    return journal.run(Kind.RUN_CLAIMED, why=why).fold().records["pay"]


@pytest.mark.parametrize("noted", [True, False])
def test_a_dead_owner_proves_that_the_attempt_has_ended(noted):
    record = doubtful("owner_dead", noted=noted)
    assert record.ended
    assert record.lost_us == 5 * SECOND + noted * SECOND


@pytest.mark.parametrize("noted", [True, False])
def test_a_lease_that_ran_out_proves_nothing(noted):
    assert not doubtful("lease_expired", noted=noted).ended


def test_a_run_that_was_given_back_proves_nothing_of_an_abandoned_thread():
    assert not doubtful("free", noted=True).ended


def test_the_time_since_the_loss_counts_from_the_first_takeover():
    journal = Journal().step(Kind.STEP_STARTED, "pay", 0, effect=True)
    journal.run(Kind.RUN_CLAIMED, why="lease_expired")
    first = journal.at_us
    journal.run(Kind.RUN_CLAIMED, why="free")
    assert journal.fold().records["pay"].lost_us == first


def test_the_death_of_a_later_owner_proves_nothing_of_the_one_that_left_the_doubt():
    """A stalls in the effect, B takes over and dies, C takes over: A may still be acting."""
    journal = Journal().step(Kind.STEP_STARTED, "pay", 0, effect=True)
    journal.run(Kind.RUN_CLAIMED, why="lease_expired")
    journal.step(Kind.STEP_IN_DOUBT, "pay", 0, why="process_died", ended=False)
    journal.run(Kind.RUN_CLAIMED, why="owner_dead")
    assert not journal.fold().records["pay"].ended


def test_a_new_attempt_has_nothing_of_the_old_doubt():
    journal = Journal().step(Kind.STEP_STARTED, "pay", 0, effect=True)
    journal.run(Kind.RUN_CLAIMED, why="owner_dead")
    record = journal.step(Kind.STEP_STARTED, "pay", 0, attempt=2, effect=True).fold().records["pay"]
    assert (record.ended, record.lost_us) == (False, None)


# -- matching ----------------------------------------------------------------------------------


def test_a_call_finds_its_record_by_place_key_and_arguments():
    history = Journal().done("a").done("b", 1).fold()
    assert history.match("a", 0, b"args") is history.records["a"]
    assert history.match("b", 1, None) is history.records["b"]
    assert history.match("c", 2, b"args") is None
    with pytest.raises(Divergence, match="has a at call 0, the flow now calls b"):
        history.match("b", 0, b"args")
    with pytest.raises(Divergence, match="with other arguments"):
        history.match("a", 0, b"else")
    assert history.match_quietly("b", 0) is None
    assert history.match_quietly("a", 0) is history.records["a"]


def test_a_call_without_a_place_is_found_by_key():
    history = Journal().done("tool:7", None).fold()
    assert history.match("tool:7", None, b"args") is history.records["tool:7"]
    assert history.match("tool:8", None, b"args") is None
    with pytest.raises(Divergence):
        history.match("tool:7", None, b"else")


def test_scopes_have_places_of_their_own():
    history = Journal().done("gather[0]/a").done("gather[1]/a").fold()
    assert history.match("gather[1]/a", 0, b"args") is history.records["gather[1]/a"]
    assert history.match("gather[2]/a", 0, b"args") is None


def test_after_an_accepted_change_records_are_found_by_key():
    journal = Journal().done("a").done("b", 1).run(Kind.RUN_HELD, reason="diverged")
    history = journal.run(Kind.CHANGE_ACCEPTED).run(Kind.RUN_RELEASED).fold()
    assert history.match("b", 0, b"args") is history.records["b"]
    assert history.match("new", 1, b"args") is None
    assert history.match("a", 2, b"args") is history.records["a"]


def test_after_an_accepted_change_the_key_alone_counts():
    """A person said so: a recorded step keeps its result even if it is now called otherwise."""
    journal = Journal().done("a").run(Kind.RUN_HELD, reason="diverged")
    history = journal.run(Kind.CHANGE_ACCEPTED).run(Kind.RUN_RELEASED).fold()
    assert history.match("a", 0, b"else") is history.records["a"]


def test_a_call_whose_record_stands_at_another_place_is_a_divergence():
    """Between them stood a loop or branches, which have no record at their place."""
    history = Journal().done("a").fold()
    with pytest.raises(Divergence):
        history.match("a", 1, b"args")


def test_what_a_flow_left_out_is_listed_when_it_has_ended():
    history = Journal().done("a").done("b", 1).done("tool:1", None).fold()
    missed, old = history.unconsumed({"a"})
    assert ([record.key for record in missed], old) == (["b"], [])
    assert history.unconsumed({"a", "b"}) == ([], [])


def test_turns_before_the_last_snapshot_are_not_left_out():
    journal = Journal().done("turns[0]/a").done("turns[1]/a")
    journal.step(Kind.STATE_SAVED, "turns", digest=None, turn=1).done("turns[10]/a")
    missed, _ = journal.fold().unconsumed(set())
    assert [record.key for record in missed] == ["turns[1]/a", "turns[10]/a"]


def test_after_an_accepted_change_what_is_left_out_is_old():
    journal = Journal().done("a").done("b", 1).run(Kind.RUN_HELD, reason="diverged")
    journal.run(Kind.CHANGE_ACCEPTED, confirmed=True).run(Kind.RUN_RELEASED)
    history = journal.fold()
    missed, old = history.unconsumed({"a"})
    assert (missed, [record.key for record in old]) == ([], ["b"])
    assert history.confirmed
    assert history.decided_seq == journal.entries[-2].seq


# -- joined rows -------------------------------------------------------------------------------


def test_a_joined_row_stands_for_two_entries():
    journal = Journal().step(Kind.STEP_COMPLETED, "a", 0, joined=True, args=[1], result=2)
    started, completed = journal.entries[-1].expand()
    assert (started.seq, started.kind, started.body) == (3, Kind.STEP_STARTED, b'{"args":[1]}')
    assert (completed.seq, completed.kind, completed.body) == (
        4,
        Kind.STEP_COMPLETED,
        b'{"result":2}',
    )
    assert started.at_us == journal.entries[-1].started_us
    assert list(completed.expand()) == [completed]


def test_a_joined_row_without_arguments_has_an_empty_start():
    journal = Journal().step(Kind.STEP_COMPLETED, "a", 0, joined=True, result=2)
    started, _ = journal.entries[-1].expand()
    assert started.body == b"{}"


# -- generations -------------------------------------------------------------------------------


def failed_run() -> Journal:
    """a succeeds, two branches run (one fails), and something follows in the failed branch."""
    journal = Journal().done("a")
    journal.done("gather[0]/b").step(
        Kind.STEP_FAILED, "gather[1]/b", 0, final=True, error=ERROR, joined=True
    )
    journal.done("gather[1]/clean up", 1).done("gather[0]/c", 1).done("after", 2)
    return journal.run(Kind.RUN_FAILED, steps=["gather[1]/b", "not known"])


def test_a_resume_leaves_behind_what_failed_and_what_its_branch_did_after():
    history = failed_run().fold()
    gone = [record.key for record in superseded_by_resume(history)]
    assert gone == ["gather[1]/b", "gather[1]/clean up", "after"]
    assert superseded_by_resume(Journal().done("a").fold()) == []


def test_the_next_generation_has_no_place_for_what_was_superseded():
    journal = failed_run()
    gone = [record.key for record in superseded_by_resume(journal.fold())]
    history = journal.run(Kind.RUN_RESUMED, generation=2, superseded=[*gone, "unknown"]).fold()
    assert history.generation == 2
    assert [record.key for record in history.superseded] == gone
    assert history.match("gather[1]/b", 0, b"else") is None
    assert history.match("gather[0]/b", 0, b"args") is not None
    assert history.status is Status.QUEUED
    again = journal.run(Kind.RUN_CLAIMED).done("gather[1]/b").fold()
    assert again.records["gather[1]/b"].generation == 2


def test_a_superseded_record_is_gone_from_an_accepted_change_too():
    journal = Journal().step(Kind.STEP_FAILED, "a", 0, final=True, error=ERROR)
    journal.step(Kind.STEP_FAILED, "tool:1", None, final=True, error=ERROR)
    journal.run(Kind.RUN_FAILED, steps=["a", "tool:1"]).run(Kind.CHANGE_ACCEPTED)
    history = journal.run(Kind.RUN_RESUMED, generation=2, superseded=["a", "tool:1"]).fold()
    assert history.match("a", 0, b"args") is None
    assert history.match("tool:1", None, b"args") is None


def failure(step: str) -> StepFailed:
    error: Any = StepFailed(step, "E", "", 1)
    error.__holdfast_step__ = step
    return error


def test_escaped_failures_are_found_in_causes_contexts_and_groups():
    assert escaped(failure("a")) == ["a"]
    assert escaped(ValueError()) == []
    group = ExceptionGroup("both", [failure("a"), ValueError(), failure("b")])
    assert escaped(group) == ["a", "b"]
    outer = RuntimeError()
    outer.__cause__ = failure("a")
    outer.__cause__.__context__ = failure("b")
    assert escaped(outer) == ["a", "b"]
    looping = failure("a")
    looping.__context__ = RuntimeError()
    looping.__context__.__context__ = looping
    assert escaped(looping) == ["a"]


# -- any journal -------------------------------------------------------------------------------

moves = st.lists(st.tuples(st.sampled_from(sorted(Kind)), st.sampled_from("ab")), max_size=25)
FACTS: dict[Kind, dict[str, Any]] = {
    Kind.STEP_FAILED: {"final": True},
    Kind.STEP_SETTLED: {"outcome": "done"},
    Kind.RUN_RESUMED: {"generation": 2, "superseded": []},
    Kind.RUN_FAILED: {"steps": []},
}


@given(moves)
def test_a_journal_is_folded_to_the_status_of_its_entries_or_refused(moves):
    journal = Journal()
    for kind, key in moves:
        facts = FACTS.get(kind, {})
        if kind.value.startswith(("run_", "change_")):
            journal.run(kind, **facts)
        else:
            journal.step(kind, key, "ab".index(key), **facts)
    try:
        history = journal.fold()
    except Corrupt:
        return
    assert history.status is status_of(entry.kind for entry in journal.entries)
    assert history.last_seq == journal.entries[-1].seq
    outcomes = [record for record in history.records.values() if record.has_outcome]
    assert all(record.outcome is not None for record in outcomes)
    assert history.recorded() == len(outcomes)
    for record in history.records.values():
        if record.position is not None and history.placed:
            assert history.match(record.key, record.position, None) is record


@given(moves)
def test_folding_is_the_same_in_one_go_and_one_by_one(moves):
    journal = Journal()
    for kind, key in moves:
        if kind is not Kind.RUN_STARTED and kind.value.startswith("step_"):
            journal.step(kind, key, "ab".index(key), **FACTS.get(kind, {}))
    try:
        whole = journal.fold()
    except Corrupt:
        return
    history = History("r")
    for entry in journal.entries:
        history.add(entry)
    assert history.records == whole.records
