"""Starting runs, and writing to them: what is fenced changes nothing."""

from __future__ import annotations

import pytest

from holdfast._engine.journal.changes import ClaimKey
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import Lease, Message, Write
from holdfast._stores.contract import (
    Broken,
    Busy,
    Committed,
    Fenced,
    Query,
)
from holdfast.errors import Corrupt, RunNotFound
from tests.contract.ground import (
    ODD_STRINGS,
    A,
    B,
    Ground,
    entry,
    intent,
    new_run,
    started,
    step,
)


class Writing(Ground):
    """Starting runs, and writing to them: what is fenced changes nothing."""

    # -- start -------------------------------------------------------------------------------------

    def test_a_started_run_is_there_and_owned(self) -> None:
        made = self.store.start(new_run("r"), self.owner)
        assert made.created
        assert made.lease is not None
        assert made.row == made.lease.row == self.row()
        assert (made.row.status, made.row.epoch, made.row.owner) == (Status.RUNNING, 1, self.owner)
        assert self.kinds() == ["run_started", "run_claimed"]

    def test_a_submitted_run_is_queued_and_unowned(self) -> None:
        made = self.store.start(new_run("r"), None)
        assert made.lease is None
        assert (made.row.status, made.row.epoch, made.row.owner) == (Status.QUEUED, 0, None)

    def test_starting_again_changes_nothing(self) -> None:
        self.started_run()
        before = self.row()
        again = self.store.start(new_run("r", "other flow", B), self.owner)
        assert not again.created
        assert again.lease is None
        assert again.row == before == self.row()
        assert again.row.input_digest == A  # What tells the caller that it is a conflict.
        assert again.row.flow == "f"

    def test_an_unknown_run_is_nowhere(self) -> None:
        assert self.store.get("r") is None
        assert self.store.by_number(1) is None
        with pytest.raises(RunNotFound):
            self.store.claim("r", self.owner, 1)
        with pytest.raises(RunNotFound):
            self.store.post("r", Message("m", "signal", "me", 1, b"{}"))

    def test_runs_have_numbers(self) -> None:
        first = self.store.start(new_run("a"), None).row
        second = self.store.start(new_run("b"), None).row
        assert first.run_no < second.run_no
        assert self.store.by_number(second.run_no) == second

    @pytest.mark.parametrize("text", ODD_STRINGS)
    def test_odd_strings_are_only_strings(self, text: str) -> None:
        self.store.start(new_run("plain"), None)
        made = self.store.start(new_run(text, text), self.owner)
        assert made.lease is not None
        self.append(made.lease, step(text))
        claim = Write(made.lease, [intent()], changes=[ClaimKey(text, text, text, A)])
        assert isinstance(self.store.append([claim])[0], Committed)
        self.store.post(text, Message(text, text, text, 1, b"{}"))
        row = self.row(text)
        assert (row.run_id, row.flow) == (text, text)
        assert self.store.load(row)[2].step == text
        assert [m.message_id for m in self.store.inbox(row.run_no)] == [text]
        assert [r.run_id for r in self.store.list(Query(flow=text))] == [text]
        assert text in [r.run_id for r in self.store.list(Query(run_id_prefix=text))]
        key = self.store.key(text, text)
        assert key is not None
        assert key.step == text
        assert self.store.get("plain") is not None
        assert self.store.verify() == []

    # -- append and fence --------------------------------------------------------------------------

    def test_entries_are_numbered_chained_and_read_back(self) -> None:
        lease = self.started_run()
        outcome = self.append(lease, step("a"), step("b"), entry(Kind.VALUE_EMITTED))
        assert isinstance(outcome, Committed)
        assert [item.seq for item in outcome.entries] == [4, 6, 7]
        assert lease.row == self.row()
        loaded = self.store.load(self.row())
        assert loaded[2:] == outcome.entries
        assert loaded[-1].digest == self.row().head
        assert (self.row().steps, self.row().attempts) == (2, 2)

    def test_a_stale_owner_writes_nothing(self) -> None:
        lease = self.started_run()
        stale = Lease(lease.row)
        self.claimed("r")
        before = self.row()
        write = Write(
            stale, [step()], [(1, b"1")], {"tags": '{"a":"b"}'}, [ClaimKey("e", "k", "s", A)]
        )
        assert isinstance(self.store.append([write])[0], Fenced)
        assert isinstance(self.store.append([Write(stale, [])])[0], Fenced)
        assert self.row() == before
        assert self.store.key("e", "k") is None
        with pytest.raises(Corrupt):
            self.store.chunks(before.run_no, 1)
        assert "step_completed" not in self.kinds()

    def test_a_lease_that_was_given_back_writes_nothing(self) -> None:
        lease = self.started_run()
        self.append(lease, entry(Kind.RUN_RELEASED))
        assert isinstance(self.append(lease, step()), Fenced)

    def test_one_fenced_write_does_not_harm_the_others(self) -> None:
        mine, lost = self.started_run("a"), self.started_run("b")
        stale = Lease(lost.row)
        self.claimed("b")
        outcomes = self.store.append([Write(stale, [step()]), Write(mine, [step()])])
        assert [type(outcome) for outcome in outcomes] == [Fenced, Committed]
        assert self.kinds("a")[-1] == "step_completed"
        assert self.kinds("b")[-1] == "run_claimed"

    def test_several_writes_of_one_run_stand_on_each_other(self) -> None:
        lease = self.started_run()
        outcomes = self.store.append([Write(lease, [step(name)]) for name in "abc"])
        assert all(isinstance(outcome, Committed) for outcome in outcomes)
        assert [item.step for item in self.store.load(self.row())[2:]] == ["a", "b", "c"]
        assert lease.row == self.row()
        assert self.store.verify() == []

    def test_an_illegal_entry_is_the_error_of_its_own_write(self) -> None:
        good, bad = self.started_run("a"), self.started_run("b")
        wrong = Write(bad, [started()])
        outcomes = self.store.append([Write(good, [step()]), wrong, Write(good, [step("t")])])
        assert [type(outcome) for outcome in outcomes] == [Committed, Broken, Committed]
        assert self.kinds("b") == ["run_started", "run_claimed"]
        with pytest.raises(AssertionError):
            self.store.append([wrong])
        assert self.store.verify() == []

    def test_terminal_is_final(self) -> None:
        lease = self.started_run()
        self.append(lease, entry(Kind.RUN_COMPLETED))
        assert (self.row().status, self.row().owner) == (Status.COMPLETED, None)
        assert isinstance(self.append(lease, step()), Fenced)
        assert isinstance(self.store.claim("r", self.owner, 5), Busy)
        with pytest.raises(AssertionError):
            self.append(Lease(self.row(), acting=True), entry(Kind.RUN_CANCELLED))
        assert self.kinds()[-1] == "run_completed"

    def test_a_renewal_moves_the_lease_and_nothing_else(self) -> None:
        lease = self.started_run()
        before = self.row()
        self.clock.advance_s(10)
        assert isinstance(self.store.append([Write(lease, [])])[0], Committed)
        after = self.row()
        assert after.lease_until_us == before.lease_until_us + 10_000_000
        assert (after.last_seq, after.head, after.epoch) == (before.last_seq, before.head, 1)

    # -- acting ------------------------------------------------------------------------------------

    def test_an_actor_writes_to_an_unowned_run_and_leaves_it_unowned(self) -> None:
        self.store.start(new_run("r"), None)
        lease = Lease(self.row(), acting=True)
        assert isinstance(self.append(lease, entry(Kind.RUN_CANCELLED)), Committed)
        assert (self.row().epoch, self.row().owner) == (1, None)
        assert self.row().status is Status.CANCELLED

    def test_an_actor_with_an_old_view_writes_nothing(self) -> None:
        self.store.start(new_run("r"), None)
        first, second = Lease(self.row(), acting=True), Lease(self.row(), acting=True)
        assert isinstance(self.append(first, entry(Kind.RUN_HELD)), Committed)
        assert isinstance(self.append(second, entry(Kind.RUN_CANCELLED)), Fenced)
        assert self.row().status is Status.HELD

    def test_two_actors_in_one_batch_do_not_both_write(self) -> None:
        self.store.start(new_run("r"), None)
        row = self.row()
        writes = [Write(Lease(row, acting=True), [entry(Kind.RUN_HELD)]) for _ in range(2)]
        assert [type(outcome) for outcome in self.store.append(writes)] == [Committed, Fenced]

    def test_an_actor_does_not_write_to_a_run_that_somebody_alive_owns(self) -> None:
        self.started_run()
        self.clock.advance_s(1000)  # A lease that ran out is no proof of death.
        other = self.open_store()
        write = Write(Lease(self.row(), acting=True), [entry(Kind.RUN_CANCELLED)])
        assert isinstance(other.append([write])[0], Fenced)
        assert self.row().status is Status.RUNNING
        other.close()

    def test_an_actor_writes_to_a_run_whose_owner_is_dead(self) -> None:
        other = self.open_store()
        owner = other.register_owner()
        other.start(new_run("r"), owner)
        self.kill_owner(other, owner)
        write = Write(Lease(self.row(), acting=True), [entry(Kind.RUN_CANCELLED)])
        assert isinstance(self.store.append([write])[0], Committed)
        assert (self.row().owner, self.row().epoch) == (None, 2)
