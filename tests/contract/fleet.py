"""What a fleet shares: pulses, schedules, whole runs, and transactions of users."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast._engine.journal.changes import ClaimKey, KeyTaken, SetKey, TakeMessage
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import Lease, Message, Write
from holdfast._stores.contract import Busy, Committed, Fenced, NewRun, ScheduleRow, Store, WholeRun
from holdfast.errors import RunConflict, StoreLostData
from tests.contract.ground import (
    A,
    B,
    Ground,
    entry,
    intent,
    new_run,
    started,
    step,
)


class Broke(Exception):
    """What goes wrong in somebody's work."""


class Fleet(Ground):
    """What a fleet shares: pulses, schedules, whole runs, and transactions of users."""

    # -- pulses ------------------------------------------------------------------------------------

    def test_a_pulse_keeps_all_leases_of_its_owner(self) -> None:
        self.started_run("a")
        self.started_run("b")
        other = self.open_store()
        owner = other.register_owner()
        for _ in range(3):
            self.clock.advance_s(self.store.lease_s - 1)
            assert self.store.pulse(self.owner, "{}") == []
        assert isinstance(other.claim("a", owner, self.clock()), Busy)
        assert self.claimable(other) == []
        self.clock.advance_s(self.store.lease_s - 0.001)
        assert self.claimable(other) == []
        self.clock.advance_s(0.001)
        assert self.claimable(other) == ["a", "b"]
        assert self.claimed("a", owner, other).row.epoch == 2
        other.close()

    def test_a_pulse_says_nothing_about_the_runs_of_others(self) -> None:
        self.started_run()
        other = self.open_store()
        owner = other.register_owner()
        self.clock.advance_s(self.store.lease_s)
        other.pulse(owner, "{}")
        assert self.claimable(other) == ["r"]
        other.close()

    def test_a_pulse_does_not_keep_the_runs_of_a_dead_owner(self) -> None:
        other = self.open_store()
        owner = other.register_owner()
        other.start(new_run("r"), owner)
        other.pulse(owner, "{}")
        self.kill_owner(other, owner)
        assert self.claimable() == ["r"]
        assert owner not in [pulse.owner for pulse in self.store.pulses()]

    def test_a_pulse_tells_which_runs_are_lost(self) -> None:
        kept, lost, ended = (self.started_run(run_id) for run_id in ("kept", "lost", "ended"))
        self.append(ended, entry(Kind.RUN_COMPLETED))
        other = self.open_store()
        owner = other.register_owner()
        self.clock.advance_s(self.store.lease_s)
        self.claimed("lost", owner, other)
        leases = (kept, lost, ended)
        working = [(lease.row.run_no, lease.row.epoch) for lease in leases]
        assert self.store.pulse(self.owner, "{}", working) == [lost.row.run_no]
        assert self.store.pulse(self.owner, "{}", [(kept.row.run_no, 1)]) == []
        assert self.store.pulse(self.owner, "{}", [(99, 1)]) == [99]
        other.close()

    def test_who_is_there(self) -> None:
        other = self.open_store()
        owner = other.register_owner()
        self.store.pulse(self.owner, '{"pid":1}')
        self.clock.advance_s(1)
        other.pulse(owner, '{"queues":["ü"]}')
        first, second = self.store.pulses()
        assert (first.owner, first.facts) == (self.owner, '{"pid":1}')
        assert (second.owner, second.facts) == (owner, '{"queues":["ü"]}')
        assert second.name == self.store.owner_name(owner)
        assert second.until_us == self.clock() + int(self.store.lease_s * 1_000_000)
        assert self.store.heard_us(owner) == self.clock()
        assert self.store.heard_us(self.owner) == self.clock() - 1_000_000
        self.store.pulse(self.owner, '{"pid":2}')
        assert [pulse.facts for pulse in self.store.pulses()] == ['{"pid":2}', '{"queues":["ü"]}']
        self.clock.advance_s(self.store.lease_s)
        assert self.store.pulses() == []
        heard_us = self.clock() - int(self.store.lease_s * 1_000_000)
        assert self.store.heard_us(owner) == heard_us, "also of one that is given up"
        assert self.store.heard_us(99_999) == 0
        other.close()

    def test_a_pulse_changes_no_run(self) -> None:
        self.started_run()
        before = self.row()
        self.store.pulse(self.owner, "{}", [(before.run_no, before.epoch)])
        assert self.row() == before
        assert self.store.verify() == []

    # -- starting together -------------------------------------------------------------------------

    def test_several_runs_start_together(self) -> None:
        self.started_run("there")
        before = self.row("there")
        other = new_run("queued")
        other.queue, other.priority, other.limit_key, other.wake_us = "mail", 3, "k", 7
        found = self.store.start_all(
            [(new_run("mine"), self.owner), (new_run("there"), None), (other, None)]
        )
        assert [it.created for it in found] == [True, False, True]
        assert [it.lease is not None for it in found] == [True, False, False]
        assert found[1].row == before == self.row("there")
        row = self.row("queued")
        assert (row.queue, row.priority, row.limit_key, row.wake_us) == ("mail", 3, "k", 7)
        assert row.status is Status.QUEUED
        assert found[0].lease is not None
        assert isinstance(self.append(found[0].lease, step()), Committed)
        assert self.store.verify() == []

    def test_the_same_run_twice_in_one_go_is_started_once(self) -> None:
        first, second = self.store.start_all([(new_run("r"), self.owner), (new_run("r"), None)])
        assert (first.created, second.created) == (True, False)
        assert second.row == self.row()
        assert self.store.start_all([]) == []

    # -- schedules ---------------------------------------------------------------------------------

    def test_only_one_of_two_moves_a_schedule(self) -> None:
        row = ScheduleRow("nightly ü", "report", '{"cron":"0 3 * * *"}', 10)
        assert self.store.schedules() == []
        assert not self.store.put_schedule(row, 5)
        assert self.store.put_schedule(row, None)
        assert not self.store.put_schedule(row, None)
        assert self.store.schedules() == [row]
        moved = ScheduleRow("nightly ü", "report", '{"cron":"0 4 * * *"}', 20, paused=True)
        assert self.store.put_schedule(moved, 10)
        assert not self.store.put_schedule(moved, 10)
        assert self.store.put_schedule(moved, 20)
        assert self.store.schedules() == [moved]
        assert self.store.verify() == []

    def test_schedules_are_shown_by_name_and_kept_per_namespace(self) -> None:
        for name in ("b", "a"):
            assert self.store.put_schedule(ScheduleRow(name, "f", "{}", 1), None)
        other = self.open_store("other")
        assert other.schedules() == []
        assert other.put_schedule(ScheduleRow("a", "g", "{}", 2), None)
        assert [row.name for row in self.store.schedules()] == ["a", "b"]
        assert [row.flow for row in self.store.schedules()] == ["f", "f"]
        other.close()

    # -- whole runs --------------------------------------------------------------------------------

    def _rich(self, run_id: str = "rich") -> Lease:
        """Write a run with something of everything, owned and at work."""
        new = NewRun(run_id, "f", "2", A, [started()], [(1, b'"one"')], tags='{"team":"a"}')
        new.queue, new.priority, new.limit_key = "mail", 4, "k"
        lease = self.store.start(new, self.owner).lease
        assert lease is not None
        self.store.post(run_id, Message("m1", "signal", "me", 5, b'{"a":"\xc3\xbc"}'))
        self.store.post(run_id, Message("m2", "signal", "you", 6, b"{}"))
        claim = ClaimKey("pay", run_id, "e", A)
        done = SetKey("pay", run_id, "completed", result=True)
        for write in (
            Write(lease, [step("a")], [(2, b'{"chunk":1}')]),
            Write(lease, [intent("e")], changes=[claim]),
            Write(lease, [step("e")], changes=[done]),
            Write(lease, [entry(Kind.VALUE_EMITTED)], changes=[TakeMessage("m1")]),
        ):
            assert isinstance(self.store.append([write])[0], Committed)
        return lease

    def _moved(self, run: WholeRun, target: Store) -> WholeRun:
        assert target.put_whole(run)
        row = target.get(run.row.run_id)
        assert row is not None
        return target.whole(row)

    def test_a_whole_run_moves_with_all_that_belongs_to_it(self) -> None:
        lease = self._rich()
        run = self.store.whole(self.row("rich"))
        assert [seq for _, seq in run.messages] == [lease.row.last_seq, None]
        assert dict(run.chunks) == {1: b'"one"', 2: b'{"chunk":1}'}
        target = self.open_store("target")
        target.start(new_run("other"), None)
        moved = self._moved(run, target)
        assert (moved.entries, dict(moved.chunks)) == (run.entries, dict(run.chunks))
        assert moved.messages == run.messages
        (key,) = moved.keys
        assert (key.state, key.run_no, key.namespace) == ("completed", moved.row.run_no, "target")
        assert target.key("pay", "rich") == key
        row, before = moved.row, run.row
        assert (row.owner, row.lease_until_us, row.namespace) == (None, 0, "target")
        assert (row.head, row.last_seq, row.epoch) == (before.head, before.last_seq, before.epoch)
        assert (row.queue, row.priority, row.limit_key) == ("mail", 4, "k")
        assert target.verify() == []
        assert self.store.verify() == []
        target.close()

    def test_a_moved_run_goes_on_where_it_is_now(self) -> None:
        self._rich()
        target = self.open_store("target")
        self._moved(self.store.whole(self.row("rich")), target)
        row = target.get("rich")
        assert row is not None
        owner = target.register_owner()
        assert [message.message_id for message in target.inbox(row.run_no)] == ["m2"]
        lease = target.claim("rich", owner, self.clock())
        assert isinstance(lease, Lease)
        write = Write(lease, [step("b")], [(3, b'"three"')], changes=[TakeMessage("m2")])
        assert isinstance(target.append([write])[0], Committed)
        assert target.chunks(row.run_no, 3)[3] == b'"three"'
        assert target.verify() == []
        target.close()

    def test_a_run_that_is_there_already_is_left_as_it_is(self) -> None:
        self._rich()
        run = self.store.whole(self.row("rich"))
        target = self.open_store("target")
        assert target.put_whole(run)
        before = target.get("rich")
        assert not target.put_whole(run)
        assert target.get("rich") == before
        target.close()

    def test_another_run_of_the_same_name_is_a_conflict(self) -> None:
        self.started_run()
        target = self.open_store("target")
        target.start(new_run("r", digest=B), None)
        before = target.get("r")
        with pytest.raises(RunConflict):
            target.put_whole(self.store.whole(self.row()))
        assert target.get("r") == before
        target.close()

    def test_a_business_key_that_is_taken_there_is_a_conflict(self) -> None:
        self._rich()
        target = self.open_store("target")
        owner = target.register_owner()
        lease = target.start(new_run("first"), owner).lease
        assert lease is not None
        claim = ClaimKey("pay", "rich", "e", A)
        target.append([Write(lease, [intent("e")], changes=[claim])])
        with pytest.raises(RunConflict, match="first"):
            target.put_whole(self.store.whole(self.row("rich")))
        assert target.get("rich") is None
        assert target.verify() == []
        target.close()

    # -- transactions of users ---------------------------------------------------------------------

    def test_what_a_user_writes_commits_with_the_entry(self) -> None:
        lease = self.started_run()

        def work(connection: Any) -> Write:
            self.users_write(connection, "tea")
            self.users_write(connection, "milk")
            return Write(lease, [step()], [(1, b'"x"')])

        outcome = self.store.append_within(lease, work)
        assert isinstance(outcome, Committed)
        assert self.users_lines() == ["tea", "milk"]
        assert self.kinds()[-1] == "step_completed"
        assert lease.row == self.row()
        assert isinstance(self.append(lease, step("t")), Committed)
        assert self.store.verify() == []

    def test_an_error_of_the_user_undoes_everything(self) -> None:
        lease = self.started_run()
        before = self.row()

        def work(connection: Any) -> Write:
            self.users_write(connection, "tea")
            raise Broke

        with pytest.raises(Broke):
            self.store.append_within(lease, work)
        assert self.users_lines() == []
        assert self.row() == before == lease.row
        assert isinstance(self.append(lease, step()), Committed)

    def test_a_stale_owner_is_fenced_before_the_user_is_called(self) -> None:
        stale = Lease(self.started_run().row)
        taken = self.claimed("r")

        def work(_connection: Any) -> Write:
            raise AssertionError("it must not be called")

        assert isinstance(self.store.append_within(stale, work), Fenced)
        assert isinstance(self.append(taken, step()), Committed)

    def test_a_key_that_another_has_undoes_everything(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        self.claim_key(first)
        before = self.row("b")

        def work(connection: Any) -> Write:
            self.users_write(connection, "tea")
            return Write(second, [intent()], changes=[ClaimKey("pay", "k", "e", A)])

        taken = self.store.append_within(second, work)
        assert isinstance(taken, KeyTaken)
        assert taken.key.run_id == "a"
        assert self.users_lines() == []
        assert self.row("b") == before

    def test_a_store_that_lost_commits_lends_no_connection_for_effects(self) -> None:
        lease = self.started_run()
        store = self.lose_commits("r")
        owner = store.register_owner()
        self.clock.advance_s(store.lease_s + 1)
        claimed = store.claim("r", owner, self.clock())
        assert isinstance(claimed, Lease)
        before = claimed.row
        with pytest.raises(StoreLostData):
            store.append_within(claimed, lambda _: Write(claimed, [intent(), step("e")]))
        assert store.get("r") == before
        assert lease.row.run_no == before.run_no
        store.close()
