"""Suspects: runs that their processes may have died of are given only to who asks for them."""

from __future__ import annotations

from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import Lease, Write
from holdfast._stores.contract import Committed, Limits, Store
from tests.contract.claims import Taking
from tests.contract.ground import entry, step


class Suspects(Taking):
    """Suspects: runs that their processes may have died of are given only to who asks for them."""

    def suspect(self, *run_ids: str, owner: int | None = None, store: Store | None = None) -> None:
        """Claim runs twice in a row, with nothing new between."""
        store, owner = store or self.store, self.owner if owner is None else owner
        for run_id in run_ids:
            for _ in range(2):
                assert isinstance(store.claim(run_id, owner, self.clock()), Lease)

    def freed(self, *run_ids: str) -> None:
        """Leave runs to anybody, with nothing new: as after an act of a person on a stranded one."""
        for run_id in run_ids:
            lease = Lease(self.row(run_id))
            write = Write(lease, [entry(Kind.VALUE_EMITTED)], row={"owner": None})
            assert isinstance(self.store.append([write])[0], Committed)
            assert self.row(run_id).owner is None

    def passed_over(self) -> bool:
        """Tell whether the last take left out a suspect."""
        return self.wanted.passed_over

    def test_a_stranded_suspect_is_given_only_to_who_asks_for_suspects(self) -> None:
        other = self.open_store()
        owner = other.register_owner()
        self.queued("bad", "once", "fresh")
        self.suspect("bad", owner=owner, store=other)
        assert isinstance(other.claim("once", owner, self.clock()), Lease)
        assert self.ids(self.took()) == ["fresh"]
        assert not self.passed_over()
        self.kill_owner(other, owner)
        assert self.ids(self.took()) == ["once"]
        assert self.passed_over()
        assert self.took() == []
        assert self.passed_over()
        self.queued("new")
        (lease,) = self.took(suspects=True)
        assert (lease.row.run_id, lease.row.claims) == ("bad", 3)
        assert not self.passed_over()
        assert self.took(suspects=True) == []
        assert self.ids(self.took()) == ["new"]
        assert not self.passed_over()

    def test_a_suspect_of_a_lease_that_ran_out(self) -> None:
        self.queued("bad")
        self.suspect("bad")
        other = self.open_store()
        owner = other.register_owner()
        for suspects in (False, True):
            assert self.took(store=other, owner=owner, working=(), suspects=suspects) == []
            assert not self.passed_over()
        self.clock.advance_s(self.store.lease_s + 1)
        assert self.took(store=other, owner=owner, working=()) == []
        assert self.passed_over()
        taken = self.took(store=other, owner=owner, working=(), suspects=True)
        assert self.ids(taken) == ["bad"]
        other.close()

    def test_a_suspect_of_ones_own(self) -> None:
        self.queued("bad")
        self.suspect("bad")
        assert self.took() == []
        assert not self.passed_over()
        assert self.took(working=()) == []
        assert self.passed_over()
        assert self.ids(self.took(working=(), suspects=True)) == ["bad"]

    def test_a_suspect_that_nobody_owns(self) -> None:
        self.queued("bad-1", "bad-2", "fine-1", "fine-2")
        self.suspect("bad-1", "bad-2")
        self.freed("bad-1", "bad-2")
        assert self.ids(self.took(1)) == ["fine-1"]
        assert self.passed_over()
        assert self.ids(self.took(1)) == ["fine-2"]
        assert self.took(1) == []
        assert self.passed_over()
        assert self.ids(self.took(1, suspects=True)) == ["bad-1"]
        assert self.ids(self.took(1, suspects=True)) == ["bad-2"]
        assert self.took(1) == []
        assert not self.passed_over()

    def test_a_suspect_that_may_not_be_taken_is_not_passed_over(self) -> None:
        self.queued("bad", queue="mail")
        self.suspect("bad")
        self.freed("bad")
        assert self.took(flows={"g": ["1"]}) == []
        assert not self.passed_over()
        assert self.took(queues=["default"]) == []
        assert not self.passed_over()
        for limits in (Limits("mail", paused=True), Limits("mail", concurrency=0)):
            self.store.set_limits(limits)
            for suspects in (False, True):
                assert self.took(suspects=suspects) == []
                assert not self.passed_over()
        self.store.set_limits(Limits("mail", concurrency=1))
        assert self.took(queues=["mail"], flows={"f": ["1"]}) == []
        assert self.passed_over()
        assert self.ids(self.took(suspects=True)) == ["bad"]

    def test_a_suspect_takes_no_room_of_others(self) -> None:
        self.store.set_limits(Limits("default", concurrency=1))
        self.queued("bad", "fine")
        self.suspect("bad")
        self.freed("bad")
        assert self.ids(self.took()) == ["fine"]
        assert self.took(suspects=True) == []

    def test_many_suspects_do_not_hide_a_run_that_is_none(self) -> None:
        other = self.open_store()
        owner = other.register_owner()
        bad = [f"bad-{number}" for number in range(12)]
        self.queued(*bad, "fine")
        self.suspect(*bad, owner=owner, store=other)
        self.kill_owner(other, owner)
        assert self.ids(self.took(2)) == ["fine"]
        self.queued("more")
        self.freed(*bad)
        assert self.ids(self.took(2)) == ["more"]

    def test_a_suspect_that_brought_something_new_is_none(self) -> None:
        self.queued("r")
        self.suspect("r")
        (lease,) = self.took(working=(), suspects=True)
        assert isinstance(self.append(lease, step()), Committed)
        assert lease.row.claims == 0
        assert self.took(working=(), suspects=True) == []
        assert self.ids(self.took(working=())) == ["r"]
