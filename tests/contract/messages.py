"""Messages to runs, by people and by other runs, and which of them wakes whom."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast._engine.journal.changes import CloseInbox, PostMessage, TakeMessage
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import Lease, Message, Write
from holdfast._stores.contract import Broken, Committed, Fenced, Posted
from tests.contract.claims import SECOND_US, Taking
from tests.contract.ground import entry, new_run, started, step


def a_message(name: str, kind: str = "signal", body: bytes = b"{}") -> Message:
    """Return a message as it is posted: without a number."""
    return Message(name, kind, "me", 5, body)


class Messages(Taking):
    """Messages to runs, by people and by other runs, and which of them wakes whom."""

    def waiting(self, run_id: str, wake_us: int | None = None, **changes: Any) -> int:
        """Start a run and let it wait, given back; return its number."""
        lease = self.started_run(run_id)
        changes = {"owner": None, "waiting_on": run_id, "wake_us": wake_us, **changes}
        write = Write(lease, [entry(Kind.RUN_WAITING)], row=changes)
        assert isinstance(self.store.append([write])[0], Committed)
        return lease.row.run_no

    def names(self, run_id: str = "r") -> list[tuple[str, int]]:
        """Return the messages of a run that nobody has taken, with their numbers."""
        found = self.store.inbox(self.row(run_id).run_no)
        return [(message.message_id, message.number) for message in found]

    # -- numbers -----------------------------------------------------------------------------------

    def test_messages_are_numbered_in_the_order_of_their_arrival(self) -> None:
        lease = self.started_run()
        for name in ("b", "a", "c"):
            assert self.store.post("r", a_message(name)) is Posted.ACCEPTED
        assert self.names() == [("b", 1), ("a", 2), ("c", 3)]
        self.store.append([Write(lease, [step()], changes=[TakeMessage("a")])])
        run_no, seq = lease.row.run_no, lease.row.last_seq
        assert self.names() == [("b", 1), ("c", 3)]
        found = [(it.message_id, it.number, taken) for it, taken in self.store.messages(run_no)]
        assert found == [("b", 1, None), ("a", 2, seq), ("c", 3, None)]
        assert self.store.post("r", a_message("d")) is Posted.ACCEPTED
        assert self.names()[-1] == ("d", 4)
        assert [it for it, _ in self.store.whole(self.row()).messages] == [
            it for it, _ in self.store.messages(run_no)
        ]

    def test_a_number_that_somebody_gives_counts_for_nothing(self) -> None:
        self.started_run()
        self.store.post("r", Message("m", "signal", "me", 1, b"{}", 77))
        assert self.names() == [("m", 1)]

    def test_one_message_is_found_by_its_id(self) -> None:
        lease = self.started_run()
        self.started_run("other")
        for name in ("first", "second"):
            self.store.post("r", a_message(name))
        self.store.post("other", a_message("third"))
        self.store.append([Write(lease, [step()], changes=[TakeMessage("first")])])
        run_no = lease.row.run_no
        for message, taken in self.store.messages(run_no):
            assert self.store.message(run_no, message.message_id) == (message, taken)
        found = self.store.message(run_no, "first")
        assert found is not None
        assert found[1] is not None
        assert self.store.message(run_no, "third") is None

    def test_a_run_without_messages_has_no_news(self) -> None:
        run_no = self.started_run().row.run_no
        assert self.store.messages(run_no) == []
        assert self.store.news([run_no, 12345]) == {}
        assert self.store.news([]) == {}

    def test_news_is_the_newest_message_that_nobody_took(self) -> None:
        first, second, third = (self.started_run(name) for name in "abc")
        for run_id, name in (("a", "x"), ("a", "y"), ("b", "z")):
            self.store.post(run_id, a_message(name))
        numbers = [lease.row.run_no for lease in (first, second, third)]
        assert self.store.news(numbers) == {numbers[0]: 2, numbers[1]: 1}
        assert self.store.news(numbers[1:]) == {numbers[1]: 1}
        self.store.append(
            [
                Write(first, [step()], changes=[TakeMessage("y")]),
                Write(second, [], changes=[TakeMessage("z")]),
            ]
        )
        assert self.store.news(numbers) == {numbers[0]: 1}

    def test_of_two_actors_who_take_the_same_message_the_second_has_lost_the_run(self) -> None:
        lease = self.started_run()
        self.store.append([Write(lease, [entry(Kind.RUN_RELEASED)])])
        self.store.post("r", a_message("cancel"))
        one, other = (Lease(self.row(), acting=True) for _ in range(2))
        held = [
            Write(it, [entry(Kind.RUN_HELD)], changes=[TakeMessage("cancel")])
            for it in (one, other)
        ]
        assert isinstance(self.store.append(held[:1])[0], Committed)
        assert isinstance(self.store.append(held[1:])[0], Fenced)
        assert [taken for _, taken in self.store.messages(lease.row.run_no)] == [one.row.last_seq]

    # -- a run that goes on in another store ---------------------------------------------------------

    def test_a_moved_run_takes_messages_of_runs_only(self) -> None:
        """What people send is refused; what another run wrote in its own transaction is kept."""
        lease, other = self.started_run(), self.started_run("other")
        assert self.store.post("r", a_message("early")) is Posted.ACCEPTED
        held, changes = {"held_reason": "moved"}, [CloseInbox("r")]
        moved = Write(lease, [entry(Kind.RUN_HELD)], row=held, changes=changes)
        assert isinstance(self.store.append([moved])[0], Committed)
        assert self.store.post("r", a_message("late")) is Posted.REFUSED
        assert self.store.post("r", a_message("early")) is Posted.DUPLICATE
        posts = [PostMessage("r", a_message("of a run"))]
        assert isinstance(self.store.append([Write(other, [step()], changes=posts)])[0], Committed)
        assert self.names() == [("early", 1), ("of a run", 2)]
        back = Write(Lease(self.row(), acting=True), [entry(Kind.RUN_RESUMED)])
        assert isinstance(self.store.append([back])[0], Committed)
        assert self.store.post("r", a_message("late")) is Posted.ACCEPTED

    # -- the end -----------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", [Kind.RUN_COMPLETED, Kind.RUN_FAILED, Kind.RUN_CANCELLED])
    def test_after_the_end_a_message_is_refused(self, kind: Kind) -> None:
        lease = self.started_run()
        assert self.store.post("r", a_message("early")) is Posted.ACCEPTED
        self.append(lease, entry(kind))
        assert self.store.post("r", a_message("late")) is Posted.REFUSED
        assert self.store.post("r", a_message("early")) is Posted.DUPLICATE
        assert self.names() == [("early", 1)]
        assert self.store.verify() == []

    def test_a_held_run_still_gets_messages(self) -> None:
        self.append(self.started_run(), entry(Kind.RUN_HELD))
        assert self.store.post("r", a_message("m")) is Posted.ACCEPTED

    # -- what wakes a run --------------------------------------------------------------------------

    def test_only_a_message_that_it_has_not_heard_wakes_a_run(self) -> None:
        lease = self.started_run()
        for name in ("one", "two"):
            self.store.post("r", a_message(name))
        changes: dict[str, Any] = {"owner": None, "waiting_on": "s", "heard": 2}
        self.store.append([Write(lease, [entry(Kind.RUN_WAITING)], row=changes)])
        assert self.row().heard == 2
        assert self.claimable() == []
        assert self.took() == []
        assert (self.state().ready, self.state().delayed) == (0, 1)
        assert self.store.post("r", a_message("one")) is Posted.DUPLICATE
        assert self.claimable() == []
        self.store.post("r", a_message("three"))
        assert self.claimable() == ["r"]
        assert (self.state().ready, self.state().delayed) == (1, 0)
        (taken,) = self.took()
        assert taken.row.heard is None

    def test_a_message_that_was_taken_wakes_nobody(self) -> None:
        lease = self.started_run()
        self.store.post("r", a_message("m"))
        changes: dict[str, Any] = {"owner": None, "waiting_on": "s"}
        write = Write(lease, [entry(Kind.RUN_WAITING)], row=changes, changes=[TakeMessage("m")])
        self.store.append([write])
        assert (self.claimable(), self.took()) == ([], [])

    def test_a_run_that_heard_all_is_woken_by_its_time(self) -> None:
        self.store.start(new_run("other"), None)
        self.waiting("r", self.clock() + 5 * SECOND_US, heard=9)
        self.store.post("r", a_message("m"))
        assert self.claimable() == ["other"]
        self.clock.advance_s(6)
        assert self.claimable() == ["other", "r"]
        assert self.ids(self.took()) == ["other", "r"]

    def test_a_claim_by_name_forgets_what_was_heard(self) -> None:
        self.waiting("r", heard=3)
        assert self.claimed("r").row.heard is None

    def test_of_many_that_wait_only_those_are_given_that_are_due(self) -> None:
        far_us = self.clock() + 10_000 * SECOND_US
        for number in range(12):
            self.waiting(f"w{number}", far_us if number % 2 else None)
        self.queued("q1", queue="mail", priority=-1)
        self.queued("q2", wake_us=far_us)
        self.store.post("w4", a_message("m"))
        self.store.post("w7", a_message("m"))
        self.waiting("late", self.clock() + SECOND_US)
        self.clock.advance_s(1)
        assert sorted(self.claimable()) == ["late", "q1", "w4", "w7"]
        assert (self.state().ready, self.state().delayed) == (3, 11)
        assert sorted(self.ids(self.took())) == ["late", "q1", "w4", "w7"]
        assert self.took() == []

    def test_what_woke_comes_in_the_order_of_its_queue(self) -> None:
        """Runs that are due for different reasons stand in one line."""
        for run_id, priority in (("low", -5), ("high", 5)):
            new = new_run(run_id)
            new.priority = priority
            lease = self.store.start(new, self.owner).lease
            assert lease is not None
            changes: dict[str, Any] = {"owner": None, "waiting_on": "s"}
            self.store.append([Write(lease, [entry(Kind.RUN_WAITING)], row=changes)])
            self.store.post(run_id, a_message("m"))
        self.queued("plain")
        self.waiting("timer", self.clock() - 1)
        self.queued("delayed", priority=1, wake_us=self.clock() - 1)
        order = [self.took(1)[0].row.run_id for _ in range(5)]
        assert order == ["high", "delayed", "plain", "timer", "low"]

    def test_pages_of_what_is_due_leave_nothing_out(self) -> None:
        for number in range(7):
            self.waiting(f"w{number}", None if number % 2 else self.clock() - 1)
            self.store.post(f"w{number}", a_message("m"))
            self.queued(f"q{number}")
        taken = [self.ids(self.took(3)) for _ in range(5)]
        assert [len(part) for part in taken] == [3, 3, 3, 3, 2]
        assert len({run_id for part in taken for run_id in part}) == 14

    # -- messages of runs ---------------------------------------------------------------------------

    def test_a_run_writes_to_another_with_its_own_entry(self) -> None:
        run_no = self.waiting("parent")
        child = self.started_run("child")
        posts = [PostMessage("parent", a_message("done", "child", b'{"r":1}'))]
        (outcome,) = self.store.append([Write(child, [entry(Kind.RUN_COMPLETED)], changes=posts)])
        assert isinstance(outcome, Committed)
        (found,) = self.store.inbox(run_no)
        assert (found.message_id, found.kind, found.body, found.number) == (
            "done",
            "child",
            b'{"r":1}',
            1,
        )
        assert self.claimable() == ["parent"]
        assert self.store.verify() == []

    def test_a_fenced_or_broken_write_sends_nothing(self) -> None:
        self.waiting("parent")
        child = self.started_run("child")
        stale = Lease(child.row)
        child = self.claimed("child")
        posts = [PostMessage("parent", a_message("m"))]
        assert isinstance(self.store.append([Write(stale, [step()], changes=posts)])[0], Fenced)
        outcomes = self.store.append(
            [
                Write(child, [step()]),
                Write(child, [started()], changes=posts),
                Write(child, [step("t")], changes=[TakeMessage("never"), *posts]),
            ]
        )
        assert [type(outcome) for outcome in outcomes] == [Committed, Broken, Broken]
        assert self.names("parent") == []
        assert self.claimable() == []

    def test_a_message_to_an_ended_or_unknown_run_is_dropped_silently(self) -> None:
        gone = self.started_run("gone")
        self.append(gone, entry(Kind.RUN_COMPLETED))
        self.waiting("there")
        lease = self.started_run()
        posts = [PostMessage(name, a_message("m")) for name in ("gone", "never", "there", "there")]
        assert isinstance(self.store.append([Write(lease, [step()], changes=posts)])[0], Committed)
        assert (self.names("gone"), self.names("there")) == ([], [("m", 1)])
        assert isinstance(self.store.append([Write(lease, [step()], changes=posts)])[0], Committed)
        assert self.names("there") == [("m", 1)]

    def test_many_messages_of_one_batch_are_all_there(self) -> None:
        self.waiting("parent")
        leases = [self.started_run(f"c{number}") for number in range(5)]
        writes = [
            Write(lease, [step()], changes=[PostMessage("parent", a_message(lease.row.run_id))])
            for lease in leases
        ]
        assert all(isinstance(it, Committed) for it in self.store.append(writes))
        assert self.names("parent") == [(f"c{number}", number + 1) for number in range(5)]

    def test_a_run_may_write_to_itself_and_to_one_that_writes_in_the_same_batch(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        self.store.post("b", a_message("old"))
        outcomes = self.store.append(
            [
                Write(
                    first,
                    [step()],
                    changes=[PostMessage("a", a_message("x")), PostMessage("b", a_message("y"))],
                ),
                Write(
                    second, [step()], changes=[TakeMessage("old"), PostMessage("a", a_message("z"))]
                ),
                Write(second, [step("t")], changes=[TakeMessage("y")]),
            ]
        )
        assert [type(it) for it in outcomes] == [Committed] * 3
        assert (self.names("a"), self.names("b")) == ([("x", 1), ("z", 2)], [])
        assert self.store.verify() == []

    def test_a_run_that_ends_in_the_same_batch_gets_no_more_messages(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        outcomes = self.store.append(
            [
                Write(first, [entry(Kind.RUN_COMPLETED)]),
                Write(second, [step()], changes=[PostMessage("a", a_message("m"))]),
            ]
        )
        assert [type(it) for it in outcomes] == [Committed] * 2
        assert self.names("a") == []

    def test_messages_stay_in_their_namespace(self) -> None:
        other = self.open_store("other")
        other.start(new_run("same"), None)
        lease = self.started_run()
        posts = [PostMessage("same", a_message("m"))]
        assert isinstance(self.store.append([Write(lease, [step()], changes=posts)])[0], Committed)
        row = other.get("same")
        assert row is not None
        assert other.messages(row.run_no) == []
        other.close()

    def test_a_message_goes_with_a_transaction_of_the_user(self) -> None:
        self.waiting("parent")
        lease = self.started_run()

        def work(_connection: Any) -> Write:
            return Write(lease, [step()], changes=[PostMessage("parent", a_message("m"))])

        assert isinstance(self.store.append_within(lease, work), Committed)
        assert self.names("parent") == [("m", 1)]
