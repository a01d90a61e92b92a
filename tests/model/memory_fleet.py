"""What a fleet shares, in memory: pulses, queues with limits, schedules, and whole runs."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._engine.journal.lifecycle import CLAIMABLE, HeldReason, Status
from holdfast._engine.journal.rows import Account, Applied, Lease, Question, RunRow, Write, apply
from holdfast._stores import claim_rules, lineage, queue_limits
from holdfast._stores.contract import (
    Fenced,
    Limits,
    Outcome,
    Pulse,
    QueueState,
    ScheduleRow,
    Wanted,
    WholeRun,
)
from holdfast.errors import RunConflict

if TYPE_CHECKING:
    from tests.model.memory_store import MemoryWorld


class Fleet:
    """What workers of a fleet see of each other, and of the world's queues."""

    def __init__(self) -> None:
        self.pulses: dict[int, Pulse] = {}
        self.limits: dict[tuple[str, str], Limits] = {}
        self.begun: list[tuple[str, str, str | None, int]] = []
        """First claims in queues that limit them: namespace, queue, limit key, time."""
        self.schedules: dict[tuple[str, str], ScheduleRow] = {}


class MemoryFleet:
    """The part of a memory store that concerns more than one run or one process."""

    if TYPE_CHECKING:
        world: MemoryWorld
        namespace: str
        lease_s: float

        def _check_open(self) -> None: ...
        def get(self, run_id: str) -> RunRow | None: ...
        def _mine(self) -> Sequence[RunRow]: ...
        def _is_dead(self, owner: int) -> bool: ...
        def _check_not_removed(self, run_no: int) -> None: ...
        def _is_claimable(self, row: RunRow, at_us: int) -> bool: ...
        def _lease_until_us(self) -> int: ...
        def _keep(self, applied: Applied, chunks: Sequence[tuple[int, bytes]]) -> None: ...
        def append(self, writes: Sequence[Write]) -> builtins.list[Outcome]: ...
        def owner_name(self, owner: int | None) -> str: ...
        def questions(
            self, run_id: str | None = None, limit: int = 1000
        ) -> builtins.list[Question]: ...
        def account(self, root: str) -> Account | None: ...
        def put_account(self, account: Account, *, only_new: bool = False) -> Account: ...

    # -- pulses --------------------------------------------------------------------------------

    def pulse(
        self, owner: int, facts: str, working: Sequence[tuple[int, int]] = ()
    ) -> builtins.list[int]:
        with self.world.lock:
            self._check_open()
            name = self.owner_name(owner)
            self.world.fleet.pulses[owner] = Pulse(owner, name, self._lease_until_us(), facts)
            rows = self.world.rows
            return [no for no, epoch in working if no not in rows or rows[no].epoch != epoch]

    def pulses(self) -> builtins.list[Pulse]:
        with self.world.lock:
            now_us = self.world.now_us()
            return [
                msgspec.structs.replace(pulse)
                for owner, pulse in sorted(self.world.fleet.pulses.items())
                if pulse.until_us > now_us and not self._is_dead(owner)
            ]

    def heard_us(self, owner: int) -> int:
        with self.world.lock:
            return max(0, self._pulse_until_us(owner) - int(self.lease_s * 1e6))

    def _pulse_until_us(self, owner: int) -> int:
        pulse = self.world.fleet.pulses.get(owner)
        return 0 if pulse is None else pulse.until_us

    # -- queues --------------------------------------------------------------------------------

    def take(self, wanted: Wanted) -> builtins.list[Lease]:
        with self.world.lock:
            self._check_open()
            wanted.passed_over, wanted.quarantined = False, []
            if wanted.again is not None:
                return self._take_again(wanted)
            known = queue_limits.pairs(wanted.flows)
            due = [
                row
                for row in self._mine()
                if queue_limits.can_execute(row, known)
                and row.run_no not in wanted.working
                and (row.owner == wanted.owner or self._is_claimable(row, wanted.at_us))
                and row.status in CLAIMABLE
            ]
            by_queue: dict[str, list[RunRow]] = {}
            for row in sorted(due, key=lambda row: (-(row.priority or 0), row.run_no)):
                by_queue.setdefault(claim_rules.queue_of(row), []).append(row)
            names = self._open_queues(wanted) if wanted.queues is None else wanted.queues
            names = list(dict.fromkeys(names))
            rows = {name: iter(by_queue.get(name, ())) for name in names}
            closed = {name: self._gate(name, wanted.at_us) for name in names}

            def take_from(name: str, limit: int) -> list[Lease]:
                taken: list[Lease] = []
                while len(taken) < limit and (row := next(rows[name], None)) is not None:
                    gate = closed[name]
                    if gate.gives(row, wanted):
                        taken += self._take(row, wanted, gate)
                return taken

            taken = queue_limits.in_turns(names, wanted.limit, take_from)
            if taken or wanted.quarantined:
                self.world.committed()
            return taken

    def _take_again(self, wanted: Wanted) -> builtins.list[Lease]:
        """Take runs that are held, for code that has not tried them."""
        known, taken = queue_limits.pairs(wanted.flows), list[Lease]()
        closed = {name: self._gate(name, wanted.at_us) for name in wanted.queues or ()}
        for row in sorted(self._mine(), key=lambda row: row.run_no):
            gate, write = (
                closed.get(claim_rules.queue_of(row)),
                claim_rules.again_write(row, wanted),
            )
            if gate is None or write is None or not queue_limits.can_execute(row, known):
                continue
            if len(taken) < wanted.limit and gate.gives(row, wanted):
                applied = apply(row, write, self._lease_until_us())
                self._keep(applied, ())
                taken.append(Lease(msgspec.structs.replace(applied.row)))
        if taken:
            self.world.committed()
        return taken

    def _open_queues(self, wanted: Wanted) -> Sequence[str]:
        names = {
            claim_rules.queue_of(row)
            for row in self._mine()
            if row.status in CLAIMABLE
            and (
                self._is_claimable(row, wanted.at_us)
                if row.owner is None
                else row.owner == wanted.owner
                or self._is_dead(row.owner)
                or self._pulse_until_us(row.owner) <= wanted.at_us
            )
        }
        return queue_limits.begun_anywhere(names, wanted.at_us)

    def _gate(self, queue: str, at_us: int) -> queue_limits.Gate:
        fleet = self.world.fleet
        limits = fleet.limits.get((self.namespace, queue), Limits(queue))
        running = Counter(
            row.limit_key
            for row in self._mine()
            if claim_rules.queue_of(row) == queue and is_at_work(row)
        )
        begun = Counter(
            key
            for namespace, name, key, then_us in fleet.begun
            if (namespace, name) == (self.namespace, queue) and then_us > at_us - limits.period_us
        )
        return queue_limits.Gate(limits, running.items(), begun.items())

    def _take(self, row: RunRow, wanted: Wanted, gate: queue_limits.Gate) -> builtins.list[Lease]:
        why = claim_rules.why_claimable(
            row, wanted.owner, wanted.at_us, self._is_dead, self._pulse_until_us
        )
        if why is None:
            return []
        poison = claim_rules.is_poison(row)
        write = (
            claim_rules.quarantine_write(row, wanted.at_us)
            if poison
            else claim_rules.claim_write(row, wanted.owner, wanted.at_us, why)
        )
        if queue_limits.is_first(row) and queue_limits.counts_starts(gate.limits):
            queue = claim_rules.queue_of(row)
            begun = (self.namespace, queue, row.limit_key, wanted.at_us)
            self.world.fleet.begun.append(begun)
        applied = apply(row, write, self._lease_until_us())
        self._keep(applied, ())
        made = msgspec.structs.replace(applied.row)
        if poison:
            wanted.quarantined.append(made)
        return [] if poison else [Lease(made)]

    def set_limits(self, limits: Limits) -> None:
        with self.world.lock:
            self._check_open()
            self.world.fleet.limits[self.namespace, limits.queue] = msgspec.structs.replace(limits)
            self.world.committed()

    def queues(self, *, counted: bool = True) -> builtins.list[QueueState]:
        with self.world.lock:
            states = {
                name: QueueState(msgspec.structs.replace(limits))
                for (namespace, name), limits in self.world.fleet.limits.items()
                if namespace == self.namespace
            }
            if not counted:
                return [states[name] for name in sorted(states)]
            now_us = self.world.now_us()
            mine = [row for row in self._mine() if row.deleted_us is None]
            for row in mine:
                if row.status in CLAIMABLE or row.status in (Status.FAILED, Status.HELD):
                    name = claim_rules.queue_of(row)
                    states.setdefault(name, QueueState(Limits(name)))
            for row in mine:
                state = states.get(claim_rules.queue_of(row))
                if state is not None:
                    is_due = self._is_claimable(row, now_us)
                    if row.owner is not None and is_due:
                        since_us = max(row.updated_us, self.heard_us(row.owner))
                        state.abandoned += 1
                        state.oldest_us = oldest(state, since_us)
                    else:
                        count(state, row, is_due)
            return [states[name] for name in sorted(states)]

    # -- schedules -----------------------------------------------------------------------------

    def put_schedule(self, row: ScheduleRow, expected_cursor_us: int | None) -> bool:
        with self.world.lock:
            self._check_open()
            known = self.world.fleet.schedules.get((self.namespace, row.name))
            if (None if known is None else known.cursor_us) != expected_cursor_us:
                return False
            self.world.fleet.schedules[self.namespace, row.name] = msgspec.structs.replace(row)
            self.world.committed()
            return True

    def schedules(self) -> builtins.list[ScheduleRow]:
        with self.world.lock:
            return [
                msgspec.structs.replace(row)
                for (namespace, _), row in sorted(self.world.fleet.schedules.items())
                if namespace == self.namespace
            ]

    # -- transactions and whole runs -----------------------------------------------------------

    def append_within(self, lease: Lease, work: Callable[[Any], Write]) -> Outcome:
        """Memory has no database for users: `work` gets None, and the write is all there is."""
        with self.world.lock:
            self._check_open()
            if self.world.rows[lease.row.run_no] != lease.row or lease.row.owner is None:
                return Fenced()
            return self.append([work(None)])[0]

    def whole(self, row: RunRow) -> WholeRun:
        with self.world.lock:
            row.check()
            if row.deleted_us is None:
                self._check_not_removed(row.run_no)
            world = self.world
            return WholeRun(
                msgspec.structs.replace(row),
                [entry for entry in world.journals[row.run_no] if entry.seq <= row.last_seq],
                dict(world.chunks.get(row.run_no, {})),
                [state for state in world.keys.values() if state.run_no == row.run_no],
                [
                    (message, world.taken.get((row.run_no, message.message_id)))
                    for message in world.inboxes.get(row.run_no, ())
                ],
                self.questions(row.run_id),
                self.account(row.run_id),
            )

    def put_whole(self, run: WholeRun) -> bool:
        with self.world.lock:
            self._check_open()
            number = self.world.numbers.get((self.namespace, run.row.run_id))
            if number is not None:
                claim_rules.check_same_run(self.world.rows[number], run.row)
                return False
            run_no = len(self.world.rows) + 1
            row = claim_rules.arrived(run.row, self.namespace, run_no)
            lineage.check_origin(row, self.get)
            for state in run.keys:
                at = (self.namespace, state.effect, state.key)
                if at in self.world.keys:
                    raise RunConflict(
                        row.run_id, claim_rules.key_is_here(state, self.world.keys[at])
                    )
            self.world.numbers[self.namespace, row.run_id] = run_no
            self._keep(Applied(list(run.entries), row), list(run.chunks.items()))
            for state in run.keys:
                moved = claim_rules.arrived_key(state, row)
                self.world.keys[moved.namespace, moved.effect, moved.key] = moved
            self.world.inboxes[run_no] = [message for message, _ in run.messages]
            self.world.untaken[run_no] = {
                it.message_id: it.number for it, taken in run.messages if taken is None
            }
            self.world.taken.update(
                {(run_no, message.message_id): seq for message, seq in run.messages if seq}
            )
            for question in run.questions:
                self.world.beside.questions[run_no, question.name] = question
            if run.account is not None:
                self.put_account(run.account, only_new=True)
            self.world.committed()
            return True


def is_at_work(row: RunRow) -> bool:
    """Tell whether a run takes a place in its queue."""
    return row.owner is not None and row.status in CLAIMABLE


def oldest(state: QueueState, since_us: int) -> int:
    """Return since when the oldest run is due: 0 is a time, and None is not."""
    return since_us if state.oldest_us is None else min(state.oldest_us, since_us)


def count(state: QueueState, row: RunRow, is_due: bool) -> None:
    """Count one run of a queue."""
    if is_at_work(row):
        state.running += 1
    elif row.status in CLAIMABLE and is_due:
        state.ready += 1
        state.oldest_us = oldest(state, row.updated_us)
    elif row.status in CLAIMABLE:
        state.delayed += 1
    elif row.status is Status.FAILED:
        state.failed += 1
    elif row.status is Status.HELD:
        state.held += 1
        state.quarantined += row.held_reason == HeldReason.QUARANTINED
