"""Claims: who may have a run, and when."""

from __future__ import annotations

import pytest

from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import (
    Lease,
    Message,
    Write,
)
from holdfast._stores import claim_rules
from holdfast._stores.contract import (
    Busy,
    Committed,
    Fenced,
    NewRun,
    Wanted,
)
from tests.contract.ground import (
    A,
    Ground,
    entry,
    new_run,
    started,
    step,
)


class Owning(Ground):
    """Claims: who may have a run, and when."""

    # -- claim -------------------------------------------------------------------------------------

    def test_a_free_run_can_be_claimed(self) -> None:
        self.store.start(new_run("r"), None)
        lease = self.claimed("r")
        assert (lease.row.epoch, lease.row.owner, lease.row.claims) == (1, self.owner, 1)
        assert lease.row.status is Status.RUNNING
        assert b'"why":"free"' in self.store.load(self.row())[-1].body

    def test_a_run_of_a_living_owner_is_busy(self) -> None:
        self.started_run()
        other = self.open_store()
        busy = other.claim("r", other.register_owner(), self.clock())
        assert isinstance(busy, Busy)
        assert busy.row == self.row()
        assert busy.owner
        other.close()

    def test_a_failed_run_is_freed_and_claimed_in_one_write(self) -> None:
        lease = self.started_run()
        self.append(lease, entry(Kind.RUN_FAILED))
        row = self.row()
        freed = Write(Lease(row, acting=True), [entry(Kind.RUN_RESUMED)], row={"generation": 2})
        write = claim_rules.freed_and_claimed(freed, self.owner, self.clock())
        assert isinstance(self.store.append([write])[0], Committed)
        now = self.row()
        assert (now.status, now.owner, now.epoch) == (Status.RUNNING, self.owner, row.epoch + 1)
        assert (now.generation, now.claims) == (2, 1)
        assert now.lease_until_us > self.clock()
        other = self.open_store()
        assert isinstance(other.claim("r", other.register_owner(), self.clock()), Busy)
        other.close()
        self.append(Lease(write.lease.row), step("s"))
        assert [it.kind for it in self.store.load(self.row())][-3:] == [
            Kind.RUN_RESUMED,
            Kind.RUN_CLAIMED,
            Kind.STEP_COMPLETED,
        ]
        assert self.store.verify() == []

    def test_a_run_of_a_dead_owner_is_taken_at_once(self) -> None:
        other = self.open_store()
        owner = other.register_owner()
        made = other.start(new_run("r"), owner)
        self.kill_owner(other, owner)
        lease = self.claimed("r")
        assert (lease.row.epoch, lease.row.owner) == (2, self.owner)
        assert b"owner_dead" in self.store.load(self.row())[-1].body
        assert made.lease is not None

    def test_a_lease_that_ran_out_is_taken_and_the_old_owner_fenced(self) -> None:
        lease = self.started_run()
        other = self.open_store()
        owner = other.register_owner()
        self.clock.advance_s(self.store.lease_s + 1)
        taken = self.claimed("r", owner, other)
        assert taken.row.epoch == 2
        assert isinstance(self.append(lease, step()), Fenced)
        assert isinstance(other.append([Write(taken, [step()])])[0], Committed)
        other.close()

    def test_an_owner_may_claim_its_own_run_again(self) -> None:
        lease = self.started_run()
        assert self.claimed("r").row.epoch == 2
        assert isinstance(self.append(lease, step()), Fenced)

    # -- time --------------------------------------------------------------------------------------

    def test_no_entry_is_earlier_than_the_one_before_it(self) -> None:
        """Whoever writes to a run may have a clock that is behind that of whoever wrote before."""
        at_us = self.clock()
        begun = NewRun("r", "f", "1", A, [started(at_us)])
        self.store.start(begun, None)
        claimed = self.store.claim("r", self.owner, at_us - 2_000_000)
        assert isinstance(claimed, Lease)
        self.append(claimed, step("s", at_us - 1_000_000), step("t", at_us + 7))
        self.append(claimed, entry(Kind.RUN_RELEASED, at_us + 5))
        acting = Lease(self.row(), acting=True)
        self.append(acting, entry(Kind.RUN_HELD, at_us))
        journal = self.store.load(self.row())
        assert [(it.kind, it.at_us - at_us, it.started_us) for it in journal] == [
            (Kind.RUN_STARTED, 0, None),
            (Kind.RUN_CLAIMED, 0, None),
            (Kind.STEP_COMPLETED, 0, at_us - 1_000_000),
            (Kind.STEP_COMPLETED, 7, at_us + 7),
            (Kind.RUN_RELEASED, 7, None),
            (Kind.RUN_HELD, 7, None),
        ]
        assert self.row().updated_us == at_us + 7
        assert self.store.verify() == []

    @pytest.mark.parametrize("takes", [False, True])
    def test_the_clock_of_a_claimer_goes_on_from_the_time_of_the_run(self, takes: bool) -> None:
        other = self.open_store()
        self.clock.advance_s(60)
        other.start(NewRun("r", "f", "1", A, [started(other.now_us())]), None)
        self.clock.advance_s(-60)
        at_us = self.store.now_us()
        if takes:
            (lease,) = self.store.take(Wanted(self.owner, 1, at_us))
        else:
            lease = self.claimed("r")
        self.append(lease, step("s", self.store.now_us()))
        parts = [part for item in self.store.load(self.row()) for part in item.expand()]
        times = [part.at_us for part in parts]
        assert len(times) == 4
        assert times == sorted(times)
        other.close()

    def test_only_one_of_two_claims_wins(self) -> None:
        self.store.start(new_run("r"), None)
        other = self.open_store()
        owner = other.register_owner()
        self.claimed("r")
        assert isinstance(other.claim("r", owner, self.clock()), Busy)
        other.close()

    def test_the_fifth_claim_without_anything_new_is_quarantine(self) -> None:
        self.store.start(new_run("r"), None)
        for _ in range(4):
            self.claimed("r")
        assert isinstance(self.store.claim("r", self.owner, 9), Busy)
        row = self.row()
        assert (row.status, row.held_reason, row.owner) == (Status.HELD, "quarantined", None)
        assert self.kinds()[-1] == "run_held"
        assert isinstance(self.store.claim("r", self.owner, 9), Busy)
        assert self.row() == row
        assert self.store.verify() == []

    @pytest.mark.parametrize("kind", [Kind.STEP_COMPLETED, Kind.STATE_SAVED, Kind.RUN_RELEASED])
    def test_anything_new_lets_the_claims_count_anew(self, kind: Kind) -> None:
        self.store.start(new_run("r"), None)
        for _ in range(3):
            self.claimed("r")
        self.append(self.claimed("r"), Draft(kind, 3, "s"))
        assert self.row().claims == 0
        self.claimed("r")

    def test_a_claim_ends_a_wait(self) -> None:
        lease = self.started_run()
        changes = {"owner": None, "waiting_on": "answer:q", "wake_us": self.clock() + 5}
        self.store.append([Write(lease, [entry(Kind.RUN_WAITING)], row=changes)])
        row = self.claimed("r").row
        assert (row.status, row.waiting_on, row.wake_us) == (Status.RUNNING, None, None)

    # -- claimable and waiting ---------------------------------------------------------------------

    def test_what_is_claimable(self) -> None:
        self.store.start(new_run("queued"), None)
        self.started_run("owned")
        done = self.started_run("done")
        self.append(done, entry(Kind.RUN_COMPLETED))
        failed = self.started_run("failed")
        self.append(failed, entry(Kind.RUN_FAILED))
        assert self.claimable() == ["queued"]
        self.clock.advance_s(self.store.lease_s + 1)
        assert self.claimable() == ["queued", "owned"]
        assert len(self.store.claimable(self.clock(), 1)) == 1

    def test_runs_of_a_dead_owner_are_claimable_at_once(self) -> None:
        other = self.open_store()
        owner = other.register_owner()
        other.start(new_run("r"), owner)
        assert self.claimable() == []
        self.kill_owner(other, owner)
        assert self.claimable() == ["r"]

    def test_a_waiting_run_is_claimable_when_it_is_due_or_spoken_to(self) -> None:
        for run_id, wake_us in (("timer", self.clock() + 5_000_000), ("signal", None)):
            changes = {"owner": None, "waiting_on": run_id, "wake_us": wake_us}
            lease = self.started_run(run_id)
            self.store.append([Write(lease, [entry(Kind.RUN_WAITING)], row=changes)])
        assert self.claimable() == []
        self.store.post("signal", Message("m", "signal", "me", 1, b"{}"))
        assert self.claimable() == ["signal"]
        self.clock.advance_s(6)
        assert self.claimable() == ["timer", "signal"]

    def test_who_waits_on_a_token(self) -> None:
        for run_id in ("a", "b", "c"):
            lease = self.started_run(run_id)
            token = "child:x" if run_id != "b" else "child:y"
            changes = {"waiting_on": token}
            self.store.append([Write(lease, [entry(Kind.RUN_WAITING)], row=changes)])
        assert [row.run_id for row in self.store.waiting_on("child:x")] == ["a", "c"]
        assert self.store.waiting_on("child:z") == []
