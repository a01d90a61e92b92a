"""What every store must do. Subclass `StoreContract`, say how a store is opened, and run pytest.

    class TestMine(StoreContract):
        def open_store(self, namespace="default"): ...

The suite knows nothing of how a store keeps things. A "process" is a handle: `second_store` is
the same data seen by another one, and `kill_owner` is the death of a process. There are no skips:
what one store cannot do is not part of the contract.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast._core.entries import Draft, Kind
from holdfast._core.lifecycle import Status
from holdfast._core.rows import (
    KeyChange,
    KeyClaim,
    Lease,
    Message,
    RunRow,
    Write,
)
from holdfast._store.contract import (
    Broken,
    Busy,
    Committed,
    Fenced,
    KeyTaken,
    NewRun,
    Outcome,
    Posted,
    Query,
    Store,
)
from holdfast.errors import Corrupt, HoldfastError, Regressed, RunNotFound

A = b"a" * 16
B = b"b" * 16
ODD_STRINGS = (
    "'; DROP TABLE runs; --",
    '"quoted"',
    "new\nline",
    "tab\tand \\ backslash",
    "\u202eright to left",
    "emoji \U0001f600 and e\u0301",
    "%like_",
    "../../etc/passwd",
    "nul\x00inside",
    " " * 3,
    "x" * 2000,
)


class FakeClock:
    """A clock that moves when it is told to, also backwards."""

    def __init__(self, at_us: int = 1_700_000_000_000_000) -> None:
        self.at_us = at_us

    def __call__(self) -> int:
        """Return the time in microseconds."""
        return self.at_us

    def advance_s(self, seconds: float) -> None:
        """Let time pass, or jump back."""
        self.at_us += int(seconds * 1_000_000)


def started(at_us: int = 1) -> Draft:
    """Return the entry that every run begins with."""
    return Draft(Kind.RUN_STARTED, at_us, body=b'{"args":[]}')


def new_run(run_id: str, flow: str = "f", digest: bytes = A, tags: str = "{}") -> NewRun:
    """Return a plain run."""
    return NewRun(run_id, flow, "1", digest, [started()], tags=tags)


def step(name: str = "s", at_us: int = 2, body: bytes = b'{"result":1}') -> Draft:
    """Return a joined row: a plain step that started and completed."""
    return Draft(Kind.STEP_COMPLETED, at_us, name, 1, 0, A, at_us, body)


def intent(name: str = "e", at_us: int = 2) -> Draft:
    """Return the intent of an effect."""
    return Draft(Kind.STEP_STARTED, at_us, name, 1, 0, A, body=b'{"effect":true}')


def entry(kind: Kind, at_us: int = 3, body: bytes = b"{}") -> Draft:
    """Return an entry that belongs to the run, not to a step."""
    return Draft(kind, at_us, body=body)


class StoreContract(abc.ABC):
    """The tests. Each gets a fresh store and a clock that stands still."""

    folder: Path
    clock: FakeClock
    store: Store
    owner: int

    @abc.abstractmethod
    def open_store(self, namespace: str = "default") -> Store:
        """Open a store: fresh at the first call of a test, the same data at the next."""

    @abc.abstractmethod
    def kill_owner(self, store: Store, owner: int) -> None:
        """End the process that a handle stands for, so that its death is proven."""

    @abc.abstractmethod
    def lose_commits(self, run_id: str) -> Store:
        """Return a store that lost acknowledged commits; the run is in what is left."""

    @pytest.fixture(autouse=True)
    def _fresh(self, tmp_path: Path) -> Iterator[None]:
        self.folder = tmp_path
        self.clock = FakeClock()
        self.store = self.open_store()
        self.owner = self.store.register_owner()
        yield
        self.store.close()

    # -- what tests say ------------------------------------------------------------------------

    def started_run(self, run_id: str = "r") -> Lease:
        """Start a run that this process owns."""
        lease = self.store.start(new_run(run_id), self.owner).lease
        assert lease is not None
        return lease

    def append(self, lease: Lease, *drafts: Draft) -> Outcome:
        """Write entries to one run."""
        return self.store.append([Write(lease, list(drafts))])[0]

    def claimed(self, run_id: str, owner: int | None = None, store: Store | None = None) -> Lease:
        """Claim a run and expect to get it."""
        store = store or self.store
        got = store.claim(run_id, self.owner if owner is None else owner, store.now_us())
        assert isinstance(got, Lease), got
        return got

    def row(self, run_id: str = "r") -> RunRow:
        """Return the row of a run that is there."""
        row = self.store.get(run_id)
        assert row is not None
        return row

    def kinds(self, run_id: str = "r") -> list[str]:
        """Return what the journal of a run says happened."""
        row = self.row(run_id)
        return [part.kind.value for item in self.store.load(row) for part in item.expand()]

    # -- start -----------------------------------------------------------------------------------

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
        claim = Write(made.lease, [intent()], claim=KeyClaim(text, text, text, A))
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

    # -- append and fence ------------------------------------------------------------------------

    def test_entries_are_numbered_chained_and_read_back(self) -> None:
        lease = self.started_run()
        outcome = self.append(lease, step("a"), step("b"), entry(Kind.EMITTED))
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
            stale, [step()], [(1, b"1")], {"tags": '{"a":"b"}'}, KeyClaim("e", "k", "s", A)
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

    def test_a_run_of_a_dead_owner_is_taken_at_once(self) -> None:
        other = self.open_store()
        owner = other.register_owner()
        made = other.start(new_run("r"), owner)
        self.kill_owner(other, owner)
        lease = self.claimed("r")
        assert (lease.row.epoch, lease.row.owner) == (2, self.owner)
        assert b"owner dead" in self.store.load(self.row())[-1].body
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
        self.store.append([Write(lease, [entry(Kind.RUN_WAITING)], changes=changes)])
        row = self.claimed("r").row
        assert (row.status, row.waiting_on, row.wake_us) == (Status.RUNNING, None, None)

    # -- claimable and waiting -----------------------------------------------------------------------

    def claimable(self, store: Store | None = None) -> list[str]:
        """Return the ids of the runs that a worker may take now."""
        return [row.run_id for row in (store or self.store).claimable(self.clock(), 100)]

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
            self.store.append([Write(lease, [entry(Kind.RUN_WAITING)], changes=changes)])
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
            self.store.append([Write(lease, [entry(Kind.RUN_WAITING)], changes=changes)])
        assert [row.run_id for row in self.store.waiting_on("child:x")] == ["a", "c"]
        assert self.store.waiting_on("child:z") == []

    # -- reading back ----------------------------------------------------------------------------------

    def test_a_load_leaves_out_what_is_skipped(self) -> None:
        lease = self.started_run()
        for name in "abcd":
            self.append(lease, step(name))
        row = self.row()
        everything = self.store.load(row)
        assert self.store.load(row, [(3, 6)]) == [*everything[:2], *everything[4:]]
        assert self.store.load(row, [(1, 2), (5, 8)]) == [everything[2], everything[5]]
        assert self.store.load(row, [(3, row.last_seq)]) == everything[:2]
        assert self.store.load(row, [(1, row.last_seq)]) == []

    def test_a_load_ends_where_the_row_ended(self) -> None:
        lease = self.started_run()
        before = self.row()
        self.append(lease, step())
        assert len(self.store.load(before)) == 2
        assert len(self.store.load(self.row())) == 3

    def test_one_entry_by_number(self) -> None:
        lease = self.started_run()
        self.append(lease, step("a"), step("b"))
        loaded = self.store.load(self.row())
        for item in loaded:
            for seq in range(item.first_seq, item.seq + 1):
                assert self.store.entry(lease.row.run_no, seq) == item
        assert self.store.entry(lease.row.run_no, 0) is None
        assert self.store.entry(lease.row.run_no, lease.row.last_seq + 1) is None
        assert self.store.entry(99, 1) is None

    def test_chunks_come_back_with_some_before_them(self) -> None:
        made = self.store.start(
            NewRun("r", "f", "1", A, [started()], [(1, b'"one"'), (2, b'"two"')]), self.owner
        )
        assert made.lease is not None
        assert made.row.next_chunk == 3
        self.store.append([Write(made.lease, [step()], [(3, b'"\xc3\xbc"')])])
        found = self.store.chunks(made.row.run_no, 3)
        assert found[3] == b'"\xc3\xbc"'
        assert set(found) <= {1, 2, 3}
        assert self.row().next_chunk == 4
        with pytest.raises(Corrupt):
            self.store.chunks(made.row.run_no, 9)

    def test_lists_are_filtered_and_paged_newest_first(self) -> None:
        for number in range(5):
            tags = f'{{"n":"{number % 2}"}}'
            self.store.start(new_run(f"r{number}", f"f{number % 2}", tags=tags), None)
        self.append(self.claimed("r0"), entry(Kind.RUN_COMPLETED, 9))

        def ids(**filters: object) -> list[str]:
            return [row.run_id for row in self.store.list(Query(**filters))]  # type: ignore[arg-type]

        assert ids() == ["r4", "r3", "r2", "r1", "r0"]
        assert ids(status=[Status.COMPLETED]) == ["r0"]
        assert ids(status=[Status.QUEUED, Status.COMPLETED], limit=2) == ["r4", "r3"]
        assert ids(status=[]) == []
        assert ids(flow="f1") == ["r3", "r1"]
        assert ids(tag=("n", "0")) == ["r4", "r2", "r0"]
        assert ids(tag=("m", "0")) == []
        assert ids(run_id_prefix="r3") == ["r3"]
        assert ids(updated_before_us=5) == ["r4", "r3", "r2", "r1"]
        page = self.store.list(Query(limit=2))
        assert ids(limit=2, before_run_no=page[-1].run_no) == ["r2", "r1"]

    # -- keys ------------------------------------------------------------------------------------------

    def claim_key(self, lease: Lease, digest: bytes = A, name: str = "e") -> Outcome:
        """Write an intent that claims the key "k" of the effect "pay"."""
        claim = KeyClaim("pay", "k", name, digest)
        return self.store.append([Write(lease, [intent(name)], claim=claim)])[0]

    def set_key(self, lease: Lease, state: str, *, result: bool = False) -> Outcome:
        """Write an outcome that says what became of the key."""
        change = KeyChange("pay", "k", state, result)
        return self.store.append([Write(lease, [step("e")], keys=[change])])[0]

    def test_a_key_is_claimed_with_its_intent(self) -> None:
        assert self.store.key("pay", "k") is None
        lease = self.started_run()
        assert isinstance(self.claim_key(lease), Committed)
        key = self.store.key("pay", "k")
        assert key is not None
        assert (key.state, key.run_id, key.step, key.result_seq) == ("in_progress", "r", "e", None)
        assert (key.run_no, key.generation, key.args_digest) == (lease.row.run_no, 1, A)
        self.set_key(lease, "completed", result=True)
        key = self.store.key("pay", "k")
        assert key is not None
        assert (key.state, key.result_seq) == ("completed", lease.row.last_seq)

    @pytest.mark.parametrize("state", ["in_progress", "completed", "in_doubt", "undone"])
    def test_a_key_of_another_run_is_taken(self, state: str) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        self.claim_key(first)
        self.set_key(first, state)
        before = self.row("b")
        taken = self.claim_key(second)
        assert isinstance(taken, KeyTaken)
        assert (taken.key.run_id, taken.key.state) == ("a", state)
        assert self.row("b") == before
        assert self.kinds("b") == ["run_started", "run_claimed"]

    def test_a_key_that_is_known_not_to_have_happened_may_be_claimed(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        self.claim_key(first)
        self.set_key(first, "not_done")
        assert isinstance(self.claim_key(second), Committed)
        key = self.store.key("pay", "k")
        assert key is not None
        assert (key.run_id, key.state) == ("b", "in_progress")

    def test_other_arguments_never_get_a_key(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        self.claim_key(first)
        self.set_key(first, "not_done")
        assert isinstance(self.claim_key(second, B), KeyTaken)

    def test_a_call_keeps_its_own_key_over_attempts(self) -> None:
        lease = self.started_run()
        self.claim_key(lease)
        assert isinstance(self.claim_key(lease), Committed)
        self.set_key(lease, "in_doubt")
        assert isinstance(self.claim_key(lease), Committed)
        assert isinstance(self.claim_key(lease, name="e#2"), KeyTaken)

    def test_a_run_does_not_change_the_key_of_another(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        self.claim_key(first)
        with pytest.raises(HoldfastError, match="has it now"):
            self.set_key(second, "completed")
        assert self.kinds("b") == ["run_started", "run_claimed"]
        key = self.store.key("pay", "k")
        assert key is not None
        assert key.state == "in_progress"

    def test_a_stale_owner_is_fenced_before_it_is_told_of_a_key(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        self.claim_key(first)
        stale = Lease(second.row)
        self.claimed("b")
        assert isinstance(self.claim_key(stale), Fenced)

    def test_one_batch_gives_a_key_once(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        claim = KeyClaim("pay", "k", "e", A)
        writes = [Write(lease, [intent()], claim=claim) for lease in (first, second)]
        assert [type(outcome) for outcome in self.store.append(writes)] == [Committed, KeyTaken]

    # -- inbox -----------------------------------------------------------------------------------------

    def test_a_message_is_taken_once(self) -> None:
        lease = self.started_run()
        first = Message("m1", "signal", "me", 5, b'{"a":1}')
        second = Message("m2", "cancel", "you", 4, b"{}")
        assert self.store.post("r", first) is Posted.ACCEPTED
        assert self.store.post("r", second) is Posted.ACCEPTED
        assert self.store.post("r", first) is Posted.DUPLICATE
        run_no = lease.row.run_no
        assert self.store.inbox(run_no) == [first, second]
        self.store.append([Write(lease, [entry(Kind.EMITTED)], took=["m1"])])
        assert self.store.inbox(run_no) == [second]
        assert self.store.post("r", first) is Posted.DUPLICATE
        with pytest.raises(AssertionError):
            self.store.append([Write(lease, [entry(Kind.EMITTED)], took=["m1"])])
        assert self.kinds() == ["run_started", "run_claimed", "emitted"]

    def test_a_fenced_write_takes_no_message(self) -> None:
        stale = Lease(self.started_run().row)
        self.store.post("r", Message("m", "signal", "me", 1, b"{}"))
        self.claimed("r")
        assert isinstance(self.store.append([Write(stale, [], took=["m"])])[0], Fenced)
        assert len(self.store.inbox(stale.row.run_no)) == 1

    def test_the_same_message_id_may_be_used_for_two_runs(self) -> None:
        for run_id in ("a", "b"):
            self.started_run(run_id)
            message = Message("m", "signal", "me", 1, b"{}")
            assert self.store.post(run_id, message) is Posted.ACCEPTED

    # -- the store as a whole ----------------------------------------------------------------------------

    def test_namespaces_are_apart(self) -> None:
        lease = self.started_run()
        self.claim_key(lease)
        other = self.open_store("other")
        assert other.get("r") is None
        assert other.list(Query()) == []
        assert other.key("pay", "k") is None
        assert other.start(new_run("r", "g"), None).created
        assert [row.flow for row in other.list(Query())] == ["g"]
        assert [row.run_id for row in other.claimable(self.clock(), 9)] == ["r"]
        assert self.claimable() == []
        assert self.row().flow == "f"
        other.close()

    def test_the_clock_never_runs_backwards(self) -> None:
        now_us = self.store.now_us()
        self.clock.advance_s(-1000)
        assert self.store.now_us() >= now_us
        self.started_run()
        other = self.open_store()
        assert other.now_us() >= now_us
        self.clock.advance_s(2000)
        assert other.now_us() == self.clock()
        other.close()

    def test_owners_have_numbers_and_names(self) -> None:
        other = self.open_store()
        assert other.register_owner() != self.owner
        assert self.store.owner_name(None) == "nobody"
        assert self.store.owner_name(self.owner) not in {"", "nobody"}
        other.close()

    def test_a_closed_handle_gives_its_runs_free(self) -> None:
        other = self.open_store()
        other.start(new_run("r"), other.register_owner())
        other.close()
        other.close()
        assert self.claimable() == ["r"]
        with pytest.raises(HoldfastError):
            other.start(new_run("s"), None)

    def test_another_handle_sees_every_commit(self) -> None:
        other = self.open_store()
        other.wait_for_change(0)
        assert not other.wait_for_change(0)
        lease = self.started_run()
        assert other.wait_for_change(5)
        self.append(lease, step())
        row = other.get("r")
        assert row == self.row()
        assert row is not None
        assert other.load(row) == self.store.load(row)
        other.close()

    def test_a_sound_store_verifies(self) -> None:
        lease = self.started_run()
        self.claim_key(lease)
        self.store.post("r", Message("m", "signal", "me", 1, b"{}"))
        self.append(lease, step(), entry(Kind.RUN_COMPLETED))
        self.store.start(new_run("s"), None)
        assert self.store.verify() == []
        assert self.store.verify(["r", "s"]) == []

    def test_a_store_that_lost_commits_refuses_effects_until_adopted(self) -> None:
        self.store.start(new_run("r"), None)
        assert self.store.regression() is None
        assert self.store.adopted_through() == 0
        store = self.lose_commits("r")
        assert store.regression()
        owner = store.register_owner()
        lease = self.claimed("r", owner, store)
        assert isinstance(store.append([Write(lease, [step()])])[0], Committed)
        with pytest.raises(Regressed, match="adopt"):
            store.append([Write(lease, [intent()])])
        outcomes = store.append([Write(lease, [step("t")]), Write(lease, [intent()])])
        assert [type(outcome) for outcome in outcomes] == [Committed, Broken]
        store.adopt("me")
        assert store.regression() is None
        assert store.adopted_through() >= lease.row.run_no
        assert isinstance(store.append([Write(lease, [intent()])])[0], Committed)
        store.close()
