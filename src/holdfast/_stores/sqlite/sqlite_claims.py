"""One take from the queues of a SQLite store, inside its transaction.

For each queue the candidates come in order from several sources, page by page: runs without an
owner, runs of each owner that is dead or whose pulse expired, and runs that this process owns and
has lost track of.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from holdfast._engine.journal.lifecycle import CLAIMABLE
from holdfast._engine.journal.rows import Lease, RunRow, apply
from holdfast._stores import claim_rules, fleet_rows, queue_limits, row_codec
from holdfast._stores.contract import Limits, Wanted
from holdfast._stores.sql.database import Owners
from holdfast._stores.sqlite.transaction_writer import Transaction

PAGE_MAX = 200
"""How many candidates are read per page."""
_LOWEST_RANK = -(1 << 63)
_PRIORITY = RunRow.__struct_fields__.index("priority")


class Taking:
    """One take, inside its transaction."""

    def __init__(
        self, tx: Transaction, owners: Owners, namespace: str, lease_until_us: int, wanted: Wanted
    ) -> None:
        self._tx = tx
        self._fetch = tx.fetch
        self._owners = owners
        self._namespace = namespace
        self._lease_until_us = lease_until_us
        self._wanted = wanted
        self._known = queue_limits.pairs(wanted.flows)
        self._flows = None
        if self._known is not None:
            self._flows = [f"{flow}\x1f{version}" for flow, version in self._known]
        self._limits = fleet_rows.limits_in(tx.fetch, namespace)
        self._open_owners = dict(self._takeable_owners())
        self._gates: dict[str, queue_limits.Gate] = {}
        self._candidates: dict[str, Iterator[RunRow]] = {}
        self._taken: set[int] = set()
        """The runs claimed so far, which are now among the runs of this owner."""

    def _takeable_owners(self) -> Iterator[tuple[int, int | None]]:
        """Yield the owners whose runs may be taken, each with the time before which the lease of a
        run must have expired (None: the owner is dead, or this process)."""
        at_us = self._wanted.at_us
        for owner, until_us in self._fetch("owners_at_work", ()):
            if owner == self._wanted.owner or self._owners.is_dead(owner):
                yield owner, None
            elif until_us <= at_us:
                yield owner, at_us

    def queues(self) -> list[str]:
        """Return the names of the queues to read, in order."""
        if self._wanted.queues is not None:
            return list(dict.fromkeys(self._wanted.queues))
        at = {"namespace": self._namespace, "at_us": self._wanted.at_us}
        names = {fleet_rows.queue_name(name) for (name,) in self._fetch("ready_queues", at)}
        for owner in self._open_owners:
            found = self._fetch("queues_of_owner", (owner, self._namespace))
            names.update(fleet_rows.queue_name(name) for (name,) in found)
        return queue_limits.begun_anywhere(names, self._wanted.at_us)

    def take_from(self, queue: str, limit: int) -> list[Lease]:
        """Claim up to `limit` runs of one queue."""
        if queue not in self._candidates:
            self._gates[queue] = self._gate(queue)
            again = self._wanted.again
            order = self._in_order(queue) if again is None else self._held(queue, again.token)
            self._candidates[queue] = order
        gate, candidates = self._gates[queue], self._candidates[queue]
        taken: list[Lease] = []
        while len(taken) < limit and (row := next(candidates, None)) is not None:
            if gate.gives(row, self._wanted) and (lease := self._take(row)) is not None:
                taken.append(lease)
        return taken

    def _take(self, row: RunRow) -> Lease | None:
        wanted, owners = self._wanted, self._owners
        if wanted.again is not None:
            write = claim_rules.again_write(row, wanted)
        else:
            write = claim_rules.claim_of(
                row,
                wanted.owner,
                wanted.at_us,
                owners.is_dead,
                lambda other: owners.pulse_until_us(other, self._fetch),
            )
        if write is None:
            return None
        applied = apply(row, write, self._lease_until_us)
        claimed = applied.row
        self._tx.put_run(row, applied)
        self._tx.changed(claimed.digest)
        self._taken.add(row.run_no)
        queue = claim_rules.queue_of(row)
        if queue_limits.is_first(row) and queue_limits.counts_starts(self._gates[queue].limits):
            self._begun(row, queue)
        if claimed.owner is None:
            wanted.quarantined.append(claimed)
            return None
        return Lease(claimed)

    def _begun(self, row: RunRow, queue: str) -> None:
        at_us, period_us = self._wanted.at_us, self._gates[queue].limits.period_us
        place = (self._namespace, queue)
        self._tx.change("forget_begun", (*place, at_us - period_us))
        self._tx.change("add_begun", (*place, at_us, row.run_no, row.limit_key))

    def _gate(self, queue: str) -> queue_limits.Gate:
        limits = self._limits.get(queue, Limits(queue))
        if not queue_limits.has_limits(limits):
            return queue_limits.Gate(limits)
        place = (self._namespace, queue)
        running = self._fetch("at_work", place)
        begun: Sequence[Any] = ()
        if queue_limits.counts_starts(limits):
            begun = self._fetch("begun_since", (*place, self._wanted.at_us - limits.period_us))
        return queue_limits.Gate(limits, running, begun)

    # -- candidates ----------------------------------------------------------------------------

    def _in_order(self, queue: str) -> Iterator[RunRow]:
        """Yield the claimable runs of a queue, by priority and then by age."""
        stranded = [self._of_owner(queue, *owner) for owner in self._open_owners.items()]
        for row in heapq.merge(self._ready(queue), *stranded, key=_place):
            if (
                row.run_no not in self._taken
                and row.status in CLAIMABLE
                and claim_rules.queue_of(row) == queue
                and queue_limits.can_execute(row, self._known)
            ):
                yield row

    def _held(self, queue: str, token: str) -> Iterator[RunRow]:
        """Yield the runs of a queue that are held on this token and that this worker can execute,
        by age."""
        gate, on = self._gates[queue], {"token": token}

        def page(values: dict[str, object]) -> list[Any]:
            return self._fetch("held_runs", {**values, **on}) if gate.is_open else []

        for row in self._paged(queue, page, by_age=True):
            if claim_rules.queue_of(row) == queue and queue_limits.can_execute(row, self._known):
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
                "full": gate.full_keys(),
                "spent": gate.spent_keys(),
            }
            return self._fetch("ready_runs", {**values, **now})

        return self._paged(queue, page)

    def _of_owner(self, queue: str, owner: int, until_us: int | None) -> Iterator[RunRow]:
        mine = {
            "owner": owner,
            "until_us": until_us,
            "working": [*self._wanted.working] if owner == self._wanted.owner else [],
        }
        return self._paged(queue, lambda values: self._fetch("runs_of_owner", {**values, **mine}))

    def _paged(
        self,
        queue: str,
        fetch: Callable[[dict[str, object]], list[Any]],
        *,
        by_age: bool = False,
    ) -> Iterator[RunRow]:
        """Yield the rows of a query, in order; each page begins after the previous one."""
        size = min(self._wanted.limit, PAGE_MAX)
        rank, after = _LOWEST_RANK, 0
        while True:
            values: dict[str, object] = {
                "namespace": self._namespace,
                "queue": queue,
                "rank": rank,
                "after": after,
                "limit": size,
                "claims": claim_rules.SUSPECT_AT if self._wanted.suspects else 0,
            }
            found = fetch(values)
            yield from sorted(row_codec.undamaged(found), key=_age if by_age else _place)
            if len(found) < size:
                return
            if by_age:
                after = found[-1][0]
                continue
            rank, after = max((-(row[_PRIORITY] or 0), row[0]) for row in found)


def _place(row: RunRow) -> tuple[int, int]:
    return -(row.priority or 0), row.run_no


def _age(row: RunRow) -> int:
    return row.run_no
