"""Families of runs, and runs whose history was removed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from holdfast._engine.journal.changes import (
    ClaimKey,
    CloseQuestion,
    OpenQuestion,
    PutMemo,
    SetKey,
    TakeMessage,
)
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import Account, Lease, Memo, Message, RunRow, Write, etag_of
from holdfast._stores.contract import (
    LOST_END,
    Busy,
    Committed,
    Fenced,
    NewRun,
    Posted,
    Query,
    WholeRun,
)
from holdfast.errors import RunConflict, RunDeleted, RunNotFound, StaleView
from tests.contract.ground import (
    ODD_STRINGS,
    A,
    B,
    Ground,
    entry,
    intent,
    new_run,
    step,
)
from tests.contract.questions import question

RACES = 20


class Forgetting(Ground):
    """Families of runs, and runs whose history was removed."""

    # -- families ----------------------------------------------------------------------------------

    def test_a_run_knows_its_parent_its_root_and_where_it_came_from(self) -> None:
        new = new_run("child")
        new.parent, new.root, new.origin = "parent", "top", '{"run":"old","base":7}'
        new.next_chunk = 7
        new.chunks = [(7, b'"own"')]
        made = self.store.start(new, None).row
        assert (made.parent, made.root, made.next_chunk) == ("parent", "top", 8)
        assert made.origin == '{"run":"old","base":7}'
        assert self.row("child") == made
        assert dict(self.store.chunks(made.run_no, 7)) == {7: b'"own"'}
        assert self.claimed("child").row.root == "top"

    def test_children_are_listed_by_their_parent(self) -> None:
        for name, parent in (("a", "p"), ("b", "q"), ("c", "p"), ("d", None)):
            new = new_run(name)
            new.parent = parent
            self.store.start(new, None)
        assert [row.run_id for row in self.store.list(Query(parent="p"))] == ["c", "a"]
        assert [row.run_id for row in self.store.list(Query(parent="p", limit=1))] == ["c"]
        assert self.store.list(Query(parent="d")) == []
        found = self.store.list(Query(parent="p", status=[Status.RUNNING]))
        assert found == []
        assert len(self.store.list(Query())) == 4
        assert self.store.list(Query(forks=True)) == []

    def test_a_family_is_kept_when_a_run_moves(self) -> None:
        new = new_run("child")
        new.parent, new.root, new.origin = "p", "top", '{"run":"old","base":7}'
        new.next_chunk = 7
        new.chunks = [(7, b'"own"')]
        lease = self.store.start(new, self.owner).lease
        assert lease is not None
        changes = {"owner": None, "waiting_on": "x", "heard": 3}
        self.store.append([Write(lease, [entry(Kind.RUN_WAITING)], row=changes)])
        target = self.open_store("target")
        assert target.put_whole(self.store.whole(self.row("child")))
        row = target.get("child")
        assert row is not None
        assert (row.parent, row.root, row.heard) == ("p", "top", 3)
        assert (row.origin, row.next_chunk) == ('{"run":"old","base":7}', 8)
        assert [it.run_id for it in target.list(Query(parent="p"))] == ["child"]
        assert [it.run_id for it in target.list(Query(forks=True))] == ["child"]
        target.close()

    # -- removing ----------------------------------------------------------------------------------

    def test_what_a_run_asks_and_may_spend_moves_with_it(self) -> None:
        lease = self.started_run()
        asked = question("r", "q", to="ops")
        self.store.append([Write(lease, [step()], changes=[OpenQuestion(asked)])])
        account = self.store.put_account(Account("r", 5, steps=3, spent_steps=2))
        run = self.store.whole(self.row())
        assert (run.questions, run.account) == ([asked], account)
        target = self.open_store("target")
        assert target.put_whole(run)
        assert (target.questions(), target.account("r")) == ([asked], account)
        row = target.get("r")
        assert row is not None
        assert (target.whole(row).questions, target.whole(row).account) == ([asked], account)
        assert target.verify() == []
        target.close()

    def _ended(self, run_id: str = "r", kind: Kind = Kind.RUN_COMPLETED) -> RunRow:
        """Write a run with something of everything, and end it."""
        new = new_run(run_id, tags='{"team":"a"}')
        lease = self.store.start(new, self.owner).lease
        assert lease is not None
        self.store.put_account(Account(run_id, 1, steps=5))
        self.store.post(run_id, Message("m1", "signal", "me", 1, b"{}"))
        self.store.post(run_id, Message("m2", "signal", "me", 1, b"{}"))
        claim = ClaimKey("pay", run_id, "e", A)
        done = SetKey("pay", run_id, "completed", result=True)
        for write in (
            Write(lease, [step()], [(1, b'"one"')], changes=[OpenQuestion(question(run_id, "q"))]),
            Write(lease, [intent()], changes=[claim, TakeMessage("m1")]),
            Write(lease, [step("e")], changes=[done, PutMemo(Memo("s", run_id, b"1"))]),
            Write(lease, [entry(kind)], row={"skips": "[[3,4]]"}, changes=[CloseQuestion("*")]),
        ):
            assert isinstance(self.store.append([write])[0], Committed)
        return self.row(run_id)

    @pytest.mark.parametrize("kind", [Kind.RUN_COMPLETED, Kind.RUN_FAILED, Kind.RUN_CANCELLED])
    def test_a_removed_run_leaves_its_row_and_nothing_else(self, kind: Kind) -> None:
        other = self._ended("other")
        row = self._ended("r", kind)
        assert self.store.forget(row, 99)
        left = self.row()
        assert (left.deleted_us, left.tags, left.skips) == (99, "{}", "[]")
        assert (left.status, left.run_no, left.created_us) == (
            row.status,
            row.run_no,
            row.created_us,
        )
        assert (left.input_digest, left.flow, left.last_seq) == (A, "f", row.last_seq)
        assert self.store.messages(row.run_no) == []
        assert self.store.key("pay", "r") is None
        assert self.store.account("r") is None
        assert self.store.questions() == []
        # A row that was read before: its run is removed, and not damaged.
        for read in (
            lambda: self.store.chunks(row.run_no, 1),
            lambda: self.store.load(row),
            lambda: self.store.whole(row),
        ):
            with pytest.raises(RunDeleted):
                read()
        assert self.store.load(left) == []
        assert self.store.entry(row.run_no, 1) is None
        whole = self.store.whole(left)
        assert (whole.entries, dict(whole.chunks), whole.keys) == ([], {}, [])
        assert (whole.messages, whole.questions, whole.account) == ([], [], None)
        assert self.store.verify() == []
        assert self.store.verify(["r"]) == []
        assert self.row("other") == other
        assert self.store.load(other)[0].kind is Kind.RUN_STARTED
        assert self.store.key("pay", "other") is not None
        assert self.store.account("other") is not None
        assert len(self.store.messages(other.run_no)) == 2
        memo = self.store.memo("s", "r")
        assert memo is not None  # A memory is not the run's own.

    def test_an_id_that_no_run_has_is_not_found_and_no_damage(self) -> None:
        self.started_run("there")
        with pytest.raises(RunNotFound) as told:
            self.store.verify(["there", "not-there"])
        assert told.value.run_id == "not-there"

    @pytest.mark.parametrize("run_ids", [None, ["busy", "old0", "old1", "old2", "kept"]])
    def test_what_others_write_during_a_check_is_no_damage(self, run_ids: list[str] | None) -> None:
        busy = self.started_run("busy")
        self._ended("kept")
        old = [self._ended(f"old{number}") for number in range(3)]
        heard: list[str] = []

        def meanwhile(what: str, done: int, total: int) -> None:
            assert not total or done <= total
            heard.append(what)
            self.append(busy, step(f"s{len(heard)}"))
            self.store.start(new_run(f"new{len(heard)}"), None)
            self.store.post("busy", Message(f"m{len(heard)}", "signal", "me", 1, b"{}"))
            if old:
                assert self.store.forget(old.pop(), 99)

        assert self.store.verify(run_ids, meanwhile) == []
        assert set(heard) >= {"runs"}
        assert old == []
        assert self.store.verify() == []

    def test_a_check_says_that_commits_are_missing(self) -> None:
        self.started_run("r")
        store = self.lose_commits("r")
        try:
            for run_ids in (None, ["r"]):
                assert LOST_END in [found.what for found in store.verify(run_ids)]
            store.accept_data_loss("me")
            assert LOST_END not in [found.what for found in store.verify()]
        finally:
            store.close()

    def test_a_message_that_says_what_was_seen_is_refused_where_it_is_otherwise(self) -> None:
        lease = self.started_run()
        etag = etag_of(self.row())
        self.append(lease, step())  # A run at work may write.
        assert (
            self.store.post("r", Message("m1", "signal", "me", 1, b"{}"), etag) is Posted.ACCEPTED
        )
        self.append(lease, entry(Kind.RUN_HELD))
        before = self.store.messages(self.row().run_no)
        with pytest.raises(StaleView):
            self.store.post("r", Message("m2", "signal", "me", 1, b"{}"), etag)
        assert self.store.messages(self.row().run_no) == before
        now = etag_of(self.row())
        assert self.store.post("r", Message("m2", "signal", "me", 1, b"{}"), now) is Posted.ACCEPTED

    def test_a_fork_of_a_run_that_is_not_as_it_was_seen_is_refused(self) -> None:
        lease = self.started_run()
        etag = etag_of(self.row())
        self.append(lease, entry(Kind.RUN_HELD))
        new = new_run("fork")
        new.origin, new.origin_etag = '{"run":"r","base":1}', etag
        with pytest.raises(StaleView):
            self.store.start(new, None)
        assert self.store.get("fork") is None
        new.origin_etag = etag_of(self.row())
        assert self.store.start(new, None).created
        new.origin_etag = etag
        assert not self.store.start(new, None).created  # It is there already.
        assert self.store.verify(["r"]) == []

    def test_a_removed_run_is_in_no_list(self) -> None:
        self._ended("keep")
        assert self.store.forget(self._ended(), 99)
        self.store.start(new_run("later"), None)
        assert [row.run_id for row in self.store.list(Query())] == ["later", "keep"]
        assert [row.run_id for row in self.store.list(Query(limit=1))] == ["later"]
        assert [row.run_id for row in self.store.list(Query(limit=2))] == ["later", "keep"]
        assert self.store.list(Query(run_id_prefix="r")) == []
        assert [row.run_id for row in self.store.list(Query(status=[Status.COMPLETED]))] == ["keep"]
        assert self.claimable() == ["later"]

    def test_a_removed_run_is_in_no_queue(self) -> None:
        failed = self._ended("failed", Kind.RUN_FAILED)
        assert [state.failed for state in self.store.queues()] == [1]
        assert self.store.forget(failed, 99)
        assert self.store.queues() == []

    def test_an_id_is_not_given_again(self) -> None:
        self.store.forget(self._ended(), 99)
        again = self.store.start(new_run("r"), self.owner)
        assert (again.created, again.lease, again.row.deleted_us) == (False, None, 99)
        assert isinstance(self.store.claim("r", self.owner, 100), Busy)
        assert self.store.post("r", Message("m1", "signal", "me", 1, b"{}")) is Posted.REFUSED
        assert self.store.post("r", Message("new", "signal", "me", 1, b"{}")) is Posted.REFUSED
        assert self.store.verify() == []

    def test_a_run_that_goes_on_is_not_removed(self) -> None:
        for run_id, kind in (("running", Kind.VALUE_EMITTED), ("held", Kind.RUN_HELD)):
            lease = self.started_run(run_id)
            self.append(lease, entry(kind))
            before = self.row(run_id)
            assert not self.store.forget(before, 99)
            assert self.row(run_id) == before
        assert len(self.store.list(Query())) == 2

    def test_a_run_that_changed_since_it_was_read_is_not_removed(self) -> None:
        seen = self._ended("r", Kind.RUN_FAILED)
        self.append(Lease(self.row(), acting=True), entry(Kind.RUN_RESUMED))
        assert not self.store.forget(seen, 99)
        assert self.row().status is Status.QUEUED
        assert len(self.kinds()) > 2
        assert self.store.key("pay", "r") is not None

    def test_removing_twice_is_removing_once(self) -> None:
        seen = self._ended()
        assert self.store.forget(seen, 99)
        assert not self.store.forget(seen, 100)
        left = self.row()
        assert left.deleted_us == 99
        self.store.forget(left, 101)
        assert self.store.verify() == []

    def test_a_late_write_to_a_removed_run_is_refused(self) -> None:
        row = self._ended("r", Kind.RUN_FAILED)
        actor = Lease(row, acting=True)
        assert self.store.forget(row, 99)
        outcome = self.append(actor, entry(Kind.RUN_RESUMED))
        assert isinstance(outcome, Fenced)
        fresh = Lease(self.row(), acting=True)
        assert isinstance(self.append(fresh, entry(Kind.RUN_RESUMED)), Fenced)
        assert self.row().deleted_us == 99
        assert self.store.verify() == []

    def test_a_key_that_another_run_has_by_now_stays(self) -> None:
        first = self.started_run("first")
        self.claim_key(first)
        self.set_key(first, "not_done")
        self.append(first, entry(Kind.RUN_COMPLETED))
        second = self.started_run("second")
        self.claim_key(second)
        assert self.store.forget(self.row("first"), 99)
        key = self.store.key("pay", "k")
        assert key is not None
        assert key.run_id == "second"

    def test_a_run_of_another_store_whose_id_was_removed_here_is_a_conflict(self) -> None:
        moved = self._whole_of_another()
        row = self.row()
        assert self.store.put_whole(moved) is False
        assert self.store.forget(row, 99)
        with pytest.raises(RunConflict):
            self.store.put_whole(moved)
        assert self.row().deleted_us == 99

    def _whole_of_another(self) -> WholeRun:
        self._ended()
        return self.store.whole(self.row())

    # -- forks -------------------------------------------------------------------------------------

    def _fork(self, run_id: str, origin: str) -> NewRun:
        new = new_run(run_id)
        new.origin = msgspec.json.encode({"run": origin, "base": 2}).decode()
        new.next_chunk = 2
        return new

    @pytest.mark.parametrize("origin", ["r", *ODD_STRINGS])
    def test_a_run_that_a_fork_stands_on_is_not_removed(self, origin: str) -> None:
        row = self._ended(origin)
        self.started_run(origin + "-")  # Neither a fork, nor one of this run.
        self.store.start(self._fork("beside", origin + "-"), None)
        fork = self.store.start(self._fork("fork", origin), self.owner).lease
        assert fork is not None
        assert not self.store.forget(row, 99)
        assert self.row(origin) == row
        assert len(self.store.load(row)) > 4
        self.append(fork, entry(Kind.RUN_COMPLETED))
        assert not self.store.forget(row, 99)
        assert self.store.forget(self.row("fork"), 99)
        assert self.store.forget(row, 99)

    def test_a_fork_in_another_namespace_is_of_another_run(self) -> None:
        row = self._ended()
        other = self.open_store("other")
        other.start(self._fork("fork", "r"), None)
        assert self.store.forget(row, 99)
        other.close()

    def test_a_run_that_was_removed_cannot_be_forked(self) -> None:
        moved = self.store.whole(self.store.start(self._fork("moved", "r"), None).row)
        target = self.open_store("target")
        here, self.store = self.store, target
        try:
            assert target.forget(self._ended(), 99)
            with pytest.raises(RunDeleted, match="'r'"):
                target.start(self._fork("fork", "r"), None)
            with pytest.raises(RunDeleted, match="'r'"):
                target.put_whole(moved)
            assert target.get("fork") is None
            assert target.get("moved") is None
        finally:
            self.store = here
            target.close()

    def test_a_fork_that_is_there_is_found_whatever_became_of_its_origin(self) -> None:
        row = self._ended()
        fork = self.store.start(self._fork("fork", "r"), self.owner).lease
        assert fork is not None
        self.append(fork, entry(Kind.RUN_COMPLETED))
        assert self.store.forget(self.row("fork"), 99)
        assert self.store.forget(row, 99)
        again = self.store.start(self._fork("fork", "r"), None)
        assert (again.created, again.row.deleted_us) == (False, 99)

    def test_forked_and_removed_at_once_only_one_of_them_is_done(self) -> None:
        """Two processes, on each run at the same moment: never a fork without its origin."""
        other = self.open_store()
        rows = [self._ended(f"r{number}") for number in range(RACES)]
        meet = threading.Barrier(2, timeout=30)

        def remove() -> list[bool]:
            removed: list[bool] = []
            for row in rows:
                meet.wait()
                removed.append(other.forget(row, 99))
            return removed

        def fork() -> list[bool]:
            made: list[bool] = []
            for row in rows:
                meet.wait()
                try:
                    made.append(
                        self.store.start(self._fork(row.run_id + "f", row.run_id), None).created
                    )
                except RunDeleted:
                    made.append(False)
            return made

        with ThreadPoolExecutor(2) as pool:
            removing, forking = pool.submit(remove), pool.submit(fork)
            removed, made = removing.result(), forking.result()
        assert [one != two for one, two in zip(removed, made, strict=True)] == [True] * RACES
        other.close()

    def test_removal_stays_in_its_namespace(self) -> None:
        other = self.open_store("other")
        theirs = other.start(new_run("r", digest=B), None).row
        other.put_account(Account("r", 1, steps=1))
        assert self.store.forget(self._ended(), 99)
        assert other.get("r") == theirs
        assert other.account("r") is not None
        assert other.verify() == []
        other.close()
