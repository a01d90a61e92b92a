"""What a fleet shares, in SQLite: pulses, and queues with limits.

A take is one transaction. For each queue the candidates come in their order from up to three
places, page by page: runs that nobody owns, runs of owners that are dead or were not heard of
any more, and runs that this process owned and has lost track of.
"""

from __future__ import annotations

import builtins
import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._core.lifecycle import CLAIMABLE
from holdfast._core.rows import Lease, RunRow
from holdfast._store import decisions, gates, lookups, records
from holdfast._store.connections import Connection
from holdfast._store.contract import Limits, Pulse, QueueState, Wanted
from holdfast._store.database import Q
from holdfast._store.records import LimitsRow
from holdfast._store.writer import Changed
from holdfast.errors import Corrupt

if TYPE_CHECKING:
    from holdfast._store.database import Database
    from holdfast._store.ownership import Owners
    from holdfast._store.writer import Writer

PAGE_MAX = 200
"""How many candidates are read at a time."""
FORGOTTEN_AFTER_US = 3_600_000_000
"""How long a pulse that ran out is kept."""
_LOWEST_RANK = -(1 << 63)


class SqliteFleet:
    """The part of a SQLite store that concerns more than one run or one process."""

    if TYPE_CHECKING:
        namespace: str
        lease_s: float
        _writer: Writer
        _database: Database
        _owners: Owners

        def now_us(self) -> int: ...
        def owner_name(self, owner: int | None) -> str: ...
        def _lease_us(self) -> int: ...
        def _inside(self, connection: Connection) -> lookups.Fetch: ...
        def _is_time_to_scan(self, name: str) -> bool: ...
        def _claimed(
            self, connection: Connection, row: RunRow, owner: int, at_us: int
        ) -> RunRow | None: ...

    # -- pulses --------------------------------------------------------------------------------

    def pulse(
        self, owner: int, facts: str, working: Sequence[tuple[int, int]] = ()
    ) -> builtins.list[int]:
        now_us = self.now_us()

        def work(connection: Connection) -> None:
            connection.execute(Q["put_pulse"], (owner, now_us + self._lease_us(), facts))
            connection.execute(Q["forget_pulses"], (now_us - FORGOTTEN_AFTER_US,))

        self._writer.beside(work)
        if not working:
            return []
        numbers = _json([run_no for run_no, _ in working])
        epochs = dict(self._database.read("epochs", (numbers,)))
        return [run_no for run_no, epoch in working if epochs.get(run_no) != epoch]

    def pulses(self) -> builtins.list[Pulse]:
        return [
            Pulse(owner, self.owner_name(owner), until_us, facts)
            for owner, until_us, facts in self._database.read("pulses_after", (self.now_us(),))
            if not self._owners.is_dead(owner)
        ]

    def _pulses_seen(self, connection: Connection) -> Callable[[int], int]:
        """Return how to ask, inside a transaction, until when an owner is sure to live."""

        def until_us(owner: int) -> int:
            found = self._database.fetch(connection, "pulse_of", (owner,))
            return found[0][0] if found else 0

        return until_us

    # -- queues --------------------------------------------------------------------------------

    def take(self, wanted: Wanted) -> builtins.list[Lease]:
        self._check_index()

        def work(connection: Connection) -> tuple[builtins.list[Lease], Changed | None]:
            taking = _Taking(self, connection, wanted)
            taken = gates.in_turns(taking.queues(), wanted.limit, taking.take_from)
            changed = Changed(b"".join(taking.digests)) if taking.digests else None
            return taken, changed

        return self._writer.transact(work)

    def _check_index(self) -> None:
        """Now and then, see that the index that workers look through hides no run."""
        if self._is_time_to_scan("hidden_run"):
            for (run_no,) in self._database.read("hidden_run"):
                why = f"it does not show run number {run_no}"
                raise Corrupt("the index of runs that are ready", why=why)

    def set_limits(self, limits: Limits) -> None:
        row = records.limits_row(self.namespace, limits)

        def work(connection: Connection) -> tuple[None, Changed]:
            connection.execute(Q["put_limits"], msgspec.structs.astuple(row))
            return None, Changed(row.digest)

        self._writer.transact(work)

    def queues(self) -> builtins.list[QueueState]:
        read = self._database.read
        states = {
            limits.queue: QueueState(limits)
            for limits in _all_limits(read("limits", (self.namespace,)))
        }
        values = {"namespace": self.namespace, "at_us": self.now_us()}
        for name, running, ready, count, oldest_us in read("open_counts", values):
            state = states.setdefault(name, QueueState(Limits(name)))
            state.running, state.ready = running, ready
            state.delayed = count - running - ready
            state.oldest_us = oldest_us
        for name, failed, held, quarantined in read("stopped_counts", (self.namespace,)):
            if name in states:
                state = states[name]
                state.failed, state.held, state.quarantined = failed, held, quarantined
        return [states[name] for name in sorted(states)]


class _Taking:
    """One take, inside its transaction."""

    def __init__(self, store: SqliteFleet, connection: Connection, wanted: Wanted) -> None:
        self.digests: list[bytes] = []
        self._store = store
        self._connection = connection
        self._fetch = store._inside(connection)  # pyright: ignore[reportPrivateUsage]
        self._namespace = store.namespace
        self._wanted = wanted
        self._known = gates.pairs(wanted.flows)
        self._flows = None
        if self._known is not None:
            self._flows = _json([f"{flow}\x1f{version}" for flow, version in self._known])
        self._working = _json(list(wanted.working))
        self._limits = {
            limits.queue: limits
            for limits in _all_limits(self._fetch("limits", (self._namespace,)))
        }
        self._open_owners = dict(self._takeable_owners())
        self._gates: dict[str, gates.Gate] = {}
        self._candidates: dict[str, Iterator[RunRow]] = {}
        self._taken: set[int] = set()
        """Runs claimed so far: from now on they are among the runs of this owner."""

    def _takeable_owners(self) -> Iterator[tuple[int, int | None]]:
        """Yield the owners whose runs may be taken, each with the time before which the lease of
        a run must have run out (None: it is dead, or ours)."""
        at_us = self._wanted.at_us
        is_dead = self._store._owners.is_dead  # pyright: ignore[reportPrivateUsage]
        pulse_until_us = self._store._pulses_seen(self._connection)  # pyright: ignore[reportPrivateUsage]
        for (owner,) in self._fetch("owners_at_work", ()):
            if owner == self._wanted.owner or is_dead(owner):
                yield owner, None
            elif pulse_until_us(owner) <= at_us:
                yield owner, at_us

    def queues(self) -> list[str]:
        """Return the names of the queues to look at, in order."""
        if self._wanted.queues is not None:
            return list(dict.fromkeys(self._wanted.queues))
        names = {name for (name,) in self._fetch("ready_queues", {"namespace": self._namespace})}
        for owner in self._open_owners:
            found = self._fetch("queues_of_owner", (owner, self._namespace))
            names.update(name for (name,) in found)
        return sorted(names)

    def take_from(self, queue: str, limit: int) -> list[Lease]:
        """Claim up to so many runs of one queue."""
        if queue not in self._candidates:
            self._gates[queue] = self._gate(queue)
            self._candidates[queue] = self._in_order(queue)
        gate, candidates = self._gates[queue], self._candidates[queue]
        taken: list[Lease] = []
        while len(taken) < limit and (row := next(candidates, None)) is not None:
            if gate.admits(row) and (lease := self._take(row)) is not None:
                taken.append(lease)
        return taken

    def _take(self, row: RunRow) -> Lease | None:
        store, wanted = self._store, self._wanted
        claimed = store._claimed(self._connection, row, wanted.owner, wanted.at_us)  # pyright: ignore[reportPrivateUsage]
        if claimed is None:
            return None
        self.digests.append(claimed.digest)
        self._taken.add(row.run_no)
        queue = decisions.queue_of(row)
        if gates.is_first(row) and gates.counts_starts(self._gates[queue].limits):
            self._begun(row, queue)
        return None if claimed.owner is None else Lease(claimed)

    def _begun(self, row: RunRow, queue: str) -> None:
        at_us, period_us = self._wanted.at_us, self._gates[queue].limits.period_us
        place = (self._namespace, queue)
        self._connection.execute(Q["forget_begun"], (*place, at_us - period_us))
        self._connection.execute(Q["add_begun"], (*place, at_us, row.run_no, row.limit_key))

    def _gate(self, queue: str) -> gates.Gate:
        limits = self._limits.get(queue, Limits(queue))
        if not gates.has_limits(limits):
            return gates.Gate(limits)
        place = (self._namespace, queue)
        running = self._fetch("at_work", place)
        begun: Sequence[Any] = ()
        if gates.counts_starts(limits):
            begun = self._fetch("begun_since", (*place, self._wanted.at_us - limits.period_us))
        return gates.Gate(limits, running, begun)

    # -- candidates ----------------------------------------------------------------------------

    def _in_order(self, queue: str) -> Iterator[RunRow]:
        """Yield the runs of a queue that may be claimed, by priority and then by age."""
        stranded = [self._of_owner(queue, *owner) for owner in self._open_owners.items()]
        for row in heapq.merge(self._ready(queue), *stranded, key=_place):
            if (
                row.run_no not in self._taken
                and row.status in CLAIMABLE
                and decisions.queue_of(row) == queue
                and gates.can_execute(row, self._known)
            ):
                yield row

    def _ready(self, queue: str) -> Iterator[RunRow]:
        gate = self._gates[queue]

        def page(values: dict[str, object]) -> list[Any]:
            if not gate.is_open:
                return []
            now = {
                "at_us": self._wanted.at_us,
                "begins": gate.begins,
                "flows": self._flows,
                "full": _json(gate.full_keys()),
                "spent": _json(gate.spent_keys()),
            }
            return self._fetch("ready_runs", {**values, **now})

        return self._paged(queue, page)

    def _of_owner(self, queue: str, owner: int, until_us: int | None) -> Iterator[RunRow]:
        mine = {
            "owner": owner,
            "until_us": until_us,
            "working": self._working if owner == self._wanted.owner else "[]",
        }
        return self._paged(queue, lambda values: self._fetch("runs_of_owner", {**values, **mine}))

    def _paged(
        self, queue: str, fetch: Callable[[dict[str, object]], list[Any]]
    ) -> Iterator[RunRow]:
        """Yield what a query finds, in order; each page begins behind the one before."""
        size = min(self._wanted.limit, PAGE_MAX)
        rank, after = _LOWEST_RANK, 0
        while True:
            values = {
                "namespace": self._namespace,
                "queue": queue,
                "rank": rank,
                "after": after,
                "limit": size,
            }
            found = fetch(values)
            yield from sorted(records.undamaged(found), key=_place)
            if len(found) < size:
                return
            rank, after = max((-(row[_PRIORITY] or 0), row[0]) for row in found)


_PRIORITY = RunRow.__struct_fields__.index("priority")


def _place(row: RunRow) -> tuple[int, int]:
    return -(row.priority or 0), row.run_no


def _all_limits(rows: Sequence[Any]) -> Iterator[Limits]:
    for values in rows:
        row: LimitsRow = records.limits_of(values)
        yield row.limits()


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
