"""Queues: what a worker gets, in which order, and within which limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import Lease, Message, Write
from holdfast._stores.contract import (
    Again,
    Committed,
    Fenced,
    Limits,
    QueueState,
    Store,
    Wanted,
)
from tests.contract.ground import Ground, entry, new_run, step

SECOND_US = 1_000_000


class Taking(Ground):
    """Queues: what a worker gets, in which order, and within which limits."""

    # -- what these tests say ----------------------------------------------------------------------

    def queued(
        self,
        *run_ids: str,
        queue: str | None = None,
        priority: int | None = None,
        key: str | None = None,
        wake_us: int | None = None,
        flow: str = "f",
        version: str = "1",
    ) -> None:
        """Leave runs to any worker."""
        for run_id in run_ids:
            new = new_run(run_id, flow)
            new.version, new.queue, new.priority = version, queue, priority
            new.limit_key, new.wake_us = key, wake_us
            self.store.start(new, None)

    def took(
        self,
        limit: int = 100,
        *,
        queues: Sequence[str] | None = None,
        flows: Mapping[str, Sequence[str]] | None = None,
        working: Collection[int] | None = None,
        suspects: bool = False,
        unfit: Collection[int] = (),
        store: Store | None = None,
        owner: int | None = None,
    ) -> list[Lease]:
        """Take what is due; `working` is all that this process owns, unless it is given. What was
        asked for is kept as `wanted`, with what the store wrote there."""
        store, owner = store or self.store, self.owner if owner is None else owner
        if working is None:
            working = [number for number in range(1, 200) if self._is_owned(number, owner)]
        self.wanted = Wanted(owner, limit, self.clock(), flows, queues, working, suspects)
        self.wanted.unfit = unfit
        return store.take(self.wanted)

    def _is_owned(self, run_no: int, owner: int) -> bool:
        row = self.store.by_number(run_no)
        return row is not None and row.owner == owner

    def ids(self, leases: Sequence[Lease]) -> list[str]:
        """Return the ids of what was taken."""
        return [lease.row.run_id for lease in leases]

    def ended(self, *leases: Lease) -> None:
        """Bring runs to their end."""
        for lease in leases:
            assert isinstance(self.append(lease, entry(Kind.RUN_COMPLETED)), Committed)

    def state(self, queue: str = "default") -> QueueState:
        """Return a queue as it stands."""
        return next(state for state in self.store.queues() if state.limits.queue == queue)

    # -- order -------------------------------------------------------------------------------------

    def test_runs_that_the_worker_cannot_replay_are_left_to_others(self) -> None:
        """However many stand before the one that it can."""
        self.queued(*(f"r{number}" for number in range(30)))
        unfit = [row.run_no for row in map(self.row, (f"r{number}" for number in range(29)))]
        assert self.ids(self.took(1, unfit=unfit)) == ["r29"]
        assert self.took(1, unfit=unfit) == []
        assert self.ids(self.took(1)) == ["r0"]

    def test_a_taken_run_is_claimed(self) -> None:
        self.queued("r")
        (lease,) = self.took()
        row = self.row()
        assert lease.row == row
        assert (row.owner, row.epoch, row.claims, row.status) == (self.owner, 1, 1, Status.RUNNING)
        assert b'"why":"free"' in self.store.load(row)[-1].body
        assert isinstance(self.append(lease, step()), Committed)
        assert self.took() == []
        assert self.store.verify() == []

    def test_no_more_is_taken_than_was_asked_for(self) -> None:
        self.queued(*(f"r-{number}" for number in range(7)))
        assert len(self.took(3)) == 3
        assert len(self.took(3)) == 3
        assert len(self.took(3)) == 1
        assert self.took(3) == []

    def test_a_larger_priority_comes_first_then_the_older_run(self) -> None:
        self.queued("old")
        self.queued("low", priority=-1)
        self.queued("high", priority=5)
        self.queued("higher", priority=6)
        self.queued("new")
        found = [run_id for _ in range(5) for run_id in self.ids(self.took(1))]
        assert found == ["higher", "high", "old", "new", "low"]

    def test_a_delayed_run_waits_for_its_time(self) -> None:
        self.queued("later", wake_us=self.clock() + 5 * SECOND_US, priority=9)
        self.queued("now")
        assert self.ids(self.took()) == ["now"]
        self.clock.advance_s(4.9)
        assert self.took() == []
        self.clock.advance_s(0.1)
        assert self.ids(self.took()) == ["later"]
        assert self.row("later").wake_us is None

    def test_a_waiting_run_is_taken_when_it_is_due_or_spoken_to(self) -> None:
        for run_id, wake_us in (("timer", self.clock() + 5 * SECOND_US), ("signal", None)):
            changes = {"owner": None, "waiting_on": run_id, "wake_us": wake_us}
            lease = self.started_run(run_id)
            self.store.append([Write(lease, [entry(Kind.RUN_WAITING)], row=changes)])
        assert self.took() == []
        self.store.post("signal", Message("m", "signal", "me", 1, b"{}"))
        assert self.ids(self.took()) == ["signal"]
        self.clock.advance_s(6)
        assert self.ids(self.took()) == ["timer"]

    def test_queues_get_equal_shares(self) -> None:
        for queue, count in (("busy", 20), ("calm", 3), ("other", 20)):
            self.queued(*(f"{queue}-{number}" for number in range(count)), queue=queue)
        shares = [lease.row.queue for lease in self.took(15)]
        assert {name: shares.count(name) for name in shares} == {"busy": 6, "calm": 3, "other": 6}

    def test_no_queue_starves_where_one_run_is_taken_at_a_time(self) -> None:
        for queue in ("a", "b"):
            self.queued(*(f"{queue}-{number}" for number in range(30)), queue=queue)
        served: set[str | None] = set()
        for _ in range(25):
            served.update(lease.row.queue for lease in self.took(1))
            self.clock.advance_s(0.000_001)
        assert served == {"a", "b"}

    def test_only_the_queues_that_were_asked_for(self) -> None:
        self.queued("plain")
        self.queued("mail", queue="mail")
        self.queued("report", queue="report")
        assert self.ids(self.took(queues=["mail", "none"])) == ["mail"]
        assert self.ids(self.took(queues=["default"])) == ["plain"]
        assert self.ids(self.took()) == ["report"]

    def test_only_flows_and_versions_that_can_be_executed(self) -> None:
        self.queued("old", flow="f", version="1")
        self.queued("new", flow="f", version="2")
        self.queued("other", flow="g", version="1")
        assert self.took(flows={}) == []
        assert self.took(flows={"f": []}) == []
        assert self.ids(self.took(flows={"f": ["2", "3"]})) == ["new"]
        assert self.ids(self.took(flows={"g": ["1"], "h": ["1"]})) == ["other"]
        assert self.ids(self.took(flows={"f": ["1", "2"]})) == ["old"]

    def test_many_that_cannot_be_taken_do_not_hide_one_that_can(self) -> None:
        self.queued(*(f"strange-{number}" for number in range(30)), flow="g", priority=1)
        later_us = self.clock() + SECOND_US
        self.queued(*(f"later-{number}" for number in range(30)), priority=1, wake_us=later_us)
        self.queued("r")
        assert self.ids(self.took(2, flows={"f": ["1"]})) == ["r"]

    def test_namespaces_do_not_take_from_each_other(self) -> None:
        self.queued("r")
        other = self.open_store("other")
        owner = other.register_owner()
        other.set_limits(Limits("default", paused=True))
        assert self.took(store=other, owner=owner, working=()) == []
        assert self.ids(self.took()) == ["r"]
        other.close()

    # -- runs that were at work --------------------------------------------------------------------

    def test_runs_of_a_dead_owner_are_taken_over(self) -> None:
        other = self.open_store()
        owner = other.register_owner()
        other.start(new_run("r"), owner)
        assert self.took() == []
        self.kill_owner(other, owner)
        (lease,) = self.took()
        assert lease.row.epoch == 2
        assert b"owner_dead" in self.store.load(self.row())[-1].body

    def test_a_lease_that_ran_out_is_taken_over(self) -> None:
        stale = self.started_run()
        other = self.open_store()
        owner = other.register_owner()
        assert self.took(store=other, owner=owner, working=()) == []
        self.clock.advance_s(self.store.lease_s + 1)
        assert self.ids(self.took(store=other, owner=owner, working=())) == ["r"]
        assert b"lease_expired" in self.store.load(self.row())[-1].body
        assert isinstance(self.append(stale, step()), Fenced)
        other.close()

    def test_own_runs_are_taken_again_only_if_they_were_lost_track_of(self) -> None:
        kept, lost = self.started_run("kept"), self.started_run("lost")
        assert self.took(working=[kept.row.run_no, lost.row.run_no]) == []
        (lease,) = self.took(working=[kept.row.run_no])
        assert (lease.row.run_id, lease.row.epoch) == ("lost", 2)
        assert b'"why":"own"' in self.store.load(self.row("lost"))[-1].body
        assert isinstance(self.append(lost, step()), Fenced)

    def test_many_stranded_runs_are_taken_in_batches(self) -> None:
        other = self.open_store()
        owner = other.register_owner()
        other.start_all([(new_run(f"r-{number}"), owner) for number in range(25)])
        self.kill_owner(other, owner)
        batches = [self.ids(self.took(10)) for _ in range(4)]
        assert [len(batch) for batch in batches] == [10, 10, 5, 0]
        assert len({run_id for batch in batches for run_id in batch}) == 25

    def test_a_takeover_needs_no_room_in_its_queue(self) -> None:
        other = self.open_store()
        owner = other.register_owner()
        self.store.set_limits(Limits("default", concurrency=1, concurrency_per_key=1, rate=1))
        self.queued("at work", "waits", key="k")
        assert self.ids(self.took(store=other, owner=owner, working=())) == ["at work"]
        self.kill_owner(other, owner)
        assert self.ids(self.took()) == ["at work"]
        assert self.took() == []
        self.store.set_limits(Limits("default", paused=True))
        assert self.ids(self.took(working=(), suspects=True)) == ["at work"]

    def test_the_fifth_take_without_anything_new_is_quarantine(self) -> None:
        self.queued("poison", "fine")
        for suspects in (False, False, True, True):
            assert "poison" in self.ids(self.took(working=(), suspects=suspects))
            assert self.wanted.quarantined == []
            self.append(self.claimed("fine"), step())
        assert self.took(working=(), suspects=True) == []
        row = self.row("poison")
        assert self.wanted.quarantined == [row]
        assert (row.status, row.held_reason, row.owner) == (Status.HELD, "quarantined", None)
        assert self.kinds("poison")[-1] == "run_held"
        state = self.state()
        assert (state.held, state.quarantined) == (1, 1)
        assert self.store.verify() == []

    # -- limits ------------------------------------------------------------------------------------

    def test_concurrency_is_counted_across_processes(self) -> None:
        self.store.set_limits(Limits("default", concurrency=3))
        self.queued(*(f"r-{number}" for number in range(6)))
        other = self.open_store()
        owner = other.register_owner()
        first = self.took(2)
        second = self.took(store=other, owner=owner, working=())
        assert (len(first), len(second)) == (2, 1)
        assert self.took() == []
        self.ended(first[0])
        assert len(self.took()) == 1
        assert self.took() == []
        other.close()

    def test_a_waiting_run_that_was_given_back_leaves_its_place(self) -> None:
        self.store.set_limits(Limits("default", concurrency=1))
        self.queued("sleeper", "next")
        (lease,) = self.took()
        changes = {"owner": None, "waiting_on": "timer", "wake_us": self.clock() + SECOND_US}
        self.store.append([Write(lease, [entry(Kind.RUN_WAITING)], row=changes)])
        (second,) = self.took()
        assert second.row.run_id == "next"
        self.clock.advance_s(2)
        assert self.took() == []
        self.ended(second)
        assert self.ids(self.took()) == ["sleeper"]

    def test_runs_that_share_a_key_share_its_limit(self) -> None:
        self.store.set_limits(Limits("default", concurrency_per_key=2))
        self.queued(*(f"a-{number}" for number in range(10)), key="a")
        self.queued("b", key="b")
        self.queued("none-1", "none-2", "none-3")
        found = self.took(10)
        assert sorted(self.ids(found)) == ["a-0", "a-1", "b", "none-1", "none-2", "none-3"]
        self.ended(found[0])
        assert self.ids(self.took()) == ["a-2"]

    def test_a_rate_counts_first_claims_in_a_rolling_period(self) -> None:
        self.store.set_limits(Limits("default", rate=2, period_us=10 * SECOND_US))
        self.queued(*(f"r-{number}" for number in range(6)))
        first = self.took(1)
        self.ended(*first)
        self.clock.advance_s(5)
        assert len(self.took()) == 1
        assert self.took() == []
        self.clock.advance_s(4.9)
        assert self.took() == []
        self.clock.advance_s(0.1)
        assert len(self.took()) == 1
        assert self.took() == []
        self.clock.advance_s(10)
        assert len(self.took()) == 2

    def test_a_run_that_was_begun_before_needs_no_rate(self) -> None:
        self.store.set_limits(Limits("default", rate=1, rate_per_key=1, period_us=10 * SECOND_US))
        self.queued("begun", "fresh", key="k")
        (lease,) = self.took()
        self.append(lease, entry(Kind.RUN_RELEASED))
        assert self.ids(self.took()) == ["begun"]
        assert self.took() == []

    def test_a_rate_per_key(self) -> None:
        limits = Limits("default", rate_per_key=1, period_us=10 * SECOND_US)
        self.store.set_limits(limits)
        self.queued("a-1", "a-2", key="a")
        self.queued("b-1", "b-2", key="b")
        self.queued("free")
        found = self.took()
        assert sorted(self.ids(found)) == ["a-1", "b-1", "free"]
        self.ended(*found)
        assert self.took() == []
        self.clock.advance_s(10)
        assert sorted(self.ids(self.took())) == ["a-2", "b-2"]

    def test_a_key_that_has_had_its_share_hides_no_other(self) -> None:
        limits = Limits("default", rate_per_key=1, period_us=10 * SECOND_US)
        self.store.set_limits(limits)
        self.queued(*(f"a-{number}" for number in range(30)), key="a")
        self.queued("b", key="b")
        assert self.ids(self.took(1)) == ["a-0"]
        assert self.ids(self.took(1)) == ["b"]

    def test_a_rate_of_one_queue_is_not_counted_in_another(self) -> None:
        for queue in ("a", "b"):
            self.store.set_limits(Limits(queue, rate=1))
            self.queued(f"{queue}-1", f"{queue}-2", queue=queue)
        assert sorted(self.ids(self.took())) == ["a-1", "b-1"]

    def test_nothing_is_taken_from_a_paused_queue(self) -> None:
        self.store.set_limits(Limits("mail", paused=True))
        self.queued("mail", queue="mail")
        self.queued("plain")
        assert self.ids(self.took()) == ["plain"]
        assert self.state("mail").limits.paused
        self.store.set_limits(Limits("mail"))
        assert self.ids(self.took()) == ["mail"]

    def test_limits_hold_for_every_handle_at_once(self) -> None:
        other = self.open_store()
        owner = other.register_owner()
        self.queued("r")
        self.store.set_limits(Limits("default", concurrency=0))
        assert self.took(store=other, owner=owner, working=()) == []
        other.set_limits(Limits("default", concurrency=1))
        assert self.ids(self.took()) == ["r"]
        other.close()

    # -- how queues stand --------------------------------------------------------------------------

    def test_how_a_queue_stands(self) -> None:
        limits = Limits("work", 4, 3, 20, 10, 30 * SECOND_US)
        self.store.set_limits(limits)
        empty = QueueState(limits)
        assert self.store.queues() == [empty]
        self.queued("ready-1", "ready-2", "ready-3", "failed", "done", "held", queue="work")
        self.queued("later", queue="work", wake_us=self.clock() + SECOND_US)
        for run_id, kind in (("failed", Kind.RUN_FAILED), ("done", Kind.RUN_COMPLETED)):
            self.append(self.claimed(run_id), entry(kind))
        held = Write(self.claimed("held"), [entry(Kind.RUN_HELD)], row={"held_reason": "paused"})
        self.store.append([held])
        self.claimed("ready-1")
        state = self.state("work")
        assert state.limits == limits
        assert (state.ready, state.delayed, state.running) == (2, 1, 1)
        assert (state.failed, state.held, state.quarantined) == (1, 1, 0)
        assert state.oldest_us == self.row("ready-2").updated_us
        self.clock.advance_s(2)
        assert (self.state("work").ready, self.state("work").delayed) == (3, 0)

    def test_runs_of_a_dead_process_are_abandoned_and_not_at_work(self) -> None:
        other = self.open_store()
        owner = other.register_owner()
        self.queued("lost-1", "lost-2", "mine", "ready")
        self.claimed("lost-1", owner, other)
        self.clock.advance_s(1)
        self.claimed("lost-2", owner, other)
        self.claimed("mine")
        state = self.state()
        assert (state.ready, state.running, state.abandoned) == (1, 3, 0)
        self.clock.advance_s(1)
        other.pulse(owner, "{}")
        self.kill_owner(other, owner)
        self.store.pulse(self.owner, "{}")
        state = self.state()
        assert (state.ready, state.running, state.abandoned) == (1, 1, 2)
        assert state.oldest_us == self.row("ready").updated_us
        self.claimed("ready")
        heard_us = self.store.heard_us(owner)  # A process that took its leave is forgotten.
        assert self.state().oldest_us == max(heard_us, self.row("lost-1").updated_us)
        self.claimed("lost-1")
        state = self.state()
        assert (state.ready, state.running, state.abandoned) == (0, 3, 1)
        self.clock.advance_s(self.store.lease_s + 1)  # Nobody has said since that it lives.
        state = self.state()
        assert (state.running, state.abandoned) == (0, 4)

    def test_a_queue_with_runs_that_need_somebody_is_shown_without_limits(self) -> None:
        assert self.store.queues() == []
        self.append(self.started_run("done"), entry(Kind.RUN_COMPLETED))
        assert self.store.queues() == []
        self.append(self.started_run("failed"), entry(Kind.RUN_FAILED))
        assert self.store.queues() == [QueueState(Limits("default"), failed=1)]
        self.queued("held", queue="asks")
        held = Write(
            self.claimed("held"), [entry(Kind.RUN_HELD)], row={"held_reason": "quarantined"}
        )
        self.store.append([held])
        asks = QueueState(Limits("asks"), held=1, quarantined=1)
        assert self.store.queues() == [asks, QueueState(Limits("default"), failed=1)]
        self.queued("r")
        self.queued("m", queue="mail")
        assert [state.limits for state in self.store.queues()] == [
            Limits("asks"),
            Limits("default"),
            Limits("mail"),
        ]
        assert self.state().failed == 1
        self.store.set_limits(Limits("mail", concurrency=2))
        assert self.store.queues(counted=False) == [QueueState(Limits("mail", concurrency=2))]

    # -- held runs, tried again --------------------------------------------------------------------

    def held(self, *run_ids: str, on: str | None, claims: int | None = None) -> None:
        """Take runs that are queued, and hold them."""
        for lease in self.took():
            assert lease.row.run_id in run_ids
            changes: dict[str, object] = {"held_reason": "diverged", "waiting_on": on}
            if claims is not None:
                changes["claims"] = claims
            write = Write(lease, [entry(Kind.RUN_HELD)], row=changes)
            assert isinstance(self.store.append([write])[0], Committed)

    def again(
        self,
        token: str,
        limit: int = 100,
        *,
        queue: str = "default",
        flows: Mapping[str, Sequence[str]] | None = None,
        store: Store | None = None,
    ) -> list[str]:
        """Take runs that are held on this; returns their ids."""
        store = store or self.store
        wanted = Wanted(self.owner, limit, self.clock(), flows, [queue])
        wanted.again = Again(token, b'{"why":"other_code"}')
        return self.ids(store.take(wanted))

    def test_what_runs_are_held_on_is_listed_once_each(self) -> None:
        for token in ("code:b", "code:a", "code:c", "key:e:k", "codes", "cod", None):
            for number in range(3):
                self.queued(f"{token}-{number}")
            self.held(*(f"{token}-{number}" for number in range(3)), on=token)
        self.queued("waits")
        (lease,) = self.took()
        waits = {"owner": None, "waiting_on": "code:w"}
        self.store.append([Write(lease, [entry(Kind.RUN_WAITING)], row=waits)])
        elsewhere = self.open_store("elsewhere")
        assert self.store.held_on("code:") == ["code:a", "code:b", "code:c"]
        assert self.store.held_on("code:", "code:a", 1) == ["code:b"]
        assert self.store.held_on("code:", "code:c") == []
        assert self.store.held_on("key:") == ["key:e:k"]
        assert elsewhere.held_on("code:") == []
        elsewhere.close()

    def test_a_held_run_is_given_back_and_claimed_at_once(self) -> None:
        self.queued("r", "other", "paused")
        self.held("r", "other", "paused", on="code:a", claims=4)
        self.queued("on another")
        self.held("on another", on="code:b")
        assert self.took() == []
        assert self.again("code:z") == []
        assert self.again("code:a", 2) == ["r", "other"]
        row = self.row("r")
        assert (row.status, row.owner, row.claims) == (Status.RUNNING, self.owner, 1)
        assert (row.waiting_on, row.held_reason, row.epoch) == (None, None, 2)
        tail = ["run_claimed", "run_held", "run_released", "run_claimed"]
        assert self.kinds("r") == ["run_started", *tail]
        (released,) = [it for it in self.store.load(row) if it.kind is Kind.RUN_RELEASED]
        assert released.body == b'{"why":"other_code"}'
        assert self.again("code:a") == ["paused"]
        assert self.again("code:a") == []
        assert self.row("on another").status is Status.HELD
        assert not self.store.verify()

    def test_only_one_of_two_workers_gets_a_held_run(self) -> None:
        self.queued("r")
        self.held("r", on="code:a")
        other = self.open_store()
        assert self.again("code:a", store=other) == ["r"]
        assert self.again("code:a") == []
        other.close()

    def test_held_runs_are_tried_again_within_the_limits_of_their_queue(self) -> None:
        self.queued("a", "b", "c", queue="narrow")
        self.held("a", "b", "c", on="code:a")
        self.store.set_limits(Limits("narrow", concurrency=2))
        assert self.again("code:a") == [], "in another queue"
        assert self.again("code:a", queue="narrow") == ["a", "b"]
        assert self.again("code:a", queue="narrow") == []
        self.store.set_limits(Limits("narrow", paused=True))
        assert self.again("code:a", queue="narrow") == []
        self.store.set_limits(Limits("narrow"))
        assert self.again("code:a", queue="narrow") == ["c"]

    def test_a_held_run_is_tried_again_only_by_who_can_execute_it(self) -> None:
        self.queued("r", flow="g", version="2")
        self.held("r", on="code:a")
        assert self.again("code:a", flows={"g": ["1"], "f": ["2"]}) == []
        assert self.again("code:a", flows={"g": ["1", "2"]}) == ["r"]
