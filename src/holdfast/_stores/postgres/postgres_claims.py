"""Claim as many runs as a worker has free places.

Rows are locked when they are read; a worker skips rows that another one has locked (SKIP LOCKED),
so that any number of workers take different runs at the same time.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

from holdfast._engine.journal.lifecycle import CLAIMABLE
from holdfast._engine.journal.rows import Applied, Lease, RunRow, apply
from holdfast._stores import claim_rules, fleet_rows, queue_limits, row_codec
from holdfast._stores.contract import Limits, Wanted
from holdfast._stores.postgres.postgres_database import Database
from holdfast._stores.postgres.postgres_owners import Owners
from holdfast._stores.postgres.row_statement import send
from holdfast._stores.postgres.server_connection import Link
from holdfast.errors import StoreError

log = logging.getLogger("holdfast.store")

PAGES_MAX = 20
"""How many pages of runs at the limits of their queue a take skips."""


class Claimer:
    """Claims runs for the owners of one handle."""

    def __init__(
        self,
        database: Database,
        owners: Owners,
        now_us: Callable[[], int],
        lease_until_us: Callable[[], int],
        namespace: str,
    ) -> None:
        self._database = database
        self._owners = owners
        self._now_us = now_us
        self._lease_until_us = lease_until_us
        self._namespace = namespace

    # -- claims --------------------------------------------------------------------------------

    def take(self, wanted: Wanted) -> list[Lease]:
        """Take due runs: first those of dead owners, then queue by queue."""
        wanted.passed_over, wanted.quarantined = False, []
        if wanted.again is not None:
            return self._take_again(wanted)
        pulses, strays, rows, queues = self._database.work(
            lambda link, _tries: self._survey(link, wanted)
        )
        dead, late = self._owners.not_alive(pulses, wanted.at_us)
        taken: list[Lease] = []
        if dead or late or strays:
            taken += self._take_stranded(wanted, dead, late)
        limits = fleet_rows.limits_of_rows(rows, self._namespace)
        names = [queue for (queue,) in queues]
        if wanted.queues is None:
            random.shuffle(names)
        else:
            names = [queue for queue in wanted.queues if queue in names]

        def take_from(queue: str, limit: int) -> Sequence[Lease]:
            found = self._take_from(wanted, limits.get(queue) or Limits(queue), limit)
            taken.extend(found)
            return found

        try:
            queue_limits.in_turns(names, wanted.limit - len(taken), take_from)
        except StoreError as error:
            if not taken:
                raise
            # The claimed runs must be executed; the rest waits for the next take.
            log.warning("only %d runs were taken: %s", len(taken), error)
        return taken

    def _take_again(self, wanted: Wanted) -> list[Lease]:
        """Take held runs, for code that has not tried them."""
        limits = fleet_rows.limits_in(self._database.read, self._namespace)

        def take_from(queue: str, limit: int) -> Sequence[Lease]:
            return self._take_from(wanted, limits.get(queue) or Limits(queue), limit)

        return queue_limits.in_turns(list(wanted.queues or ()), wanted.limit, take_from)

    def _survey(self, link: Link, wanted: Wanted) -> list[list[Any]]:
        """Read in one round trip: owners, own runs that this process has lost track of, queues."""
        working = list(wanted.working)
        return link.fetch_each(
            ("owners_at_work", ()),
            ("stray_runs", (wanted.owner, self._namespace, working)),
            ("all_limits", ()),
            ("queues_ready", {"namespace": self._namespace, "at_us": wanted.at_us}),
        )

    def _take_stranded(
        self, wanted: Wanted, dead: Sequence[int], late: Sequence[int]
    ) -> list[Lease]:
        owners = [wanted.owner, *dead, *late]
        values = {
            **self._filters(wanted),
            "owners": owners,
            "late": list(late),
            "working": list(wanted.working),
            "queues": None if wanted.queues is None else list(wanted.queues),
            "limit": wanted.limit,
        }

        def work(link: Link, _tries: int) -> list[RunRow]:
            with link.writing():
                rows, suspects = link.fetch_each(
                    ("stranded_runs", values), ("stranded_suspects", values)
                )
                wanted.passed_over = bool(suspects) and not wanted.suspects
                return self._claim(link, wanted, list(row_codec.undamaged(rows)), None)

        return _claimed_leases(wanted, self._database.work(work))

    def _take_from(self, wanted: Wanted, limits: Limits, limit: int) -> list[Lease]:
        queue = limits.queue

        def work(link: Link, _tries: int) -> list[RunRow]:
            with link.writing():
                gate = queue_limits.Gate(limits)
                if queue_limits.has_limits(limits):
                    gate = self._gate(link, queue)
                    if not gate.is_open:
                        return []
                return self._claim(link, wanted, self._ready(link, wanted, gate, limit), gate)

        return _claimed_leases(wanted, self._database.work(work))

    def _ready(
        self, link: Link, wanted: Wanted, gate: queue_limits.Gate, limit: int
    ) -> list[RunRow]:
        """Return claimable runs of a queue, in order, without those at its limits."""
        ready: list[RunRow] = []
        seen: list[int] = list(wanted.unfit)
        for _ in range(PAGES_MAX):
            room = limit - len(ready)
            values = {
                **self._filters(wanted),
                "queue": gate.limits.queue,
                "full": gate.full_keys(),
                "spent": gate.spent_keys(),
                "begins": gate.begins,
                "seen": seen,
                "limit": room,
            }
            if wanted.again is None:
                found = link.fetch("ready_runs", values)
            else:
                found = link.fetch("held_runs", {**values, "token": wanted.again.token})
            seen += [row[0] for row in found]
            ready += [row for row in row_codec.undamaged(found) if gate.gives(row, wanted)]
            if len(found) < room or len(ready) == limit or not gate.is_open:
                break
        return ready

    def _gate(self, link: Link, queue: str) -> queue_limits.Gate:
        """Count the executing and the recently started runs, with the queue locked until the
        commit."""
        found = link.fetch("limits_locked", (self._namespace, queue))
        limits = fleet_rows.limits_of(found[0]) if found else Limits(queue)
        running = link.fetch("running_by_key", (self._namespace, queue))
        begun: list[Any] = []
        if queue_limits.counts_starts(limits):
            since_us = self._now_us() - limits.period_us
            link.change("forget_begun", (self._namespace, queue, since_us))
            begun = link.fetch("begun_by_key", (self._namespace, queue, since_us))
        return queue_limits.Gate(limits, running, begun)

    def _claim(
        self, link: Link, wanted: Wanted, rows: Sequence[RunRow], gate: queue_limits.Gate | None
    ) -> list[RunRow]:
        changes: list[tuple[RunRow, Applied]] = []
        for row in rows:
            if wanted.again is not None:
                write = claim_rules.again_write(row, wanted)
            else:
                write = claim_rules.claim_of(
                    row,
                    wanted.owner,
                    wanted.at_us,
                    lambda other: self._owners.is_dead(other, link.fetch),
                    lambda other: self._owners.pulse_until_us(other, link.fetch),
                )
            if write is not None:
                changes.append((row, apply(row, write, self._lease_until_us())))
        changed = send(link, changes, [])
        if gate is not None and queue_limits.counts_starts(gate.limits):
            first = [row for row, _ in changes if queue_limits.is_first(row)]
            numbers, keys = [row.run_no for row in first], [row.limit_key for row in first]
            # Take the time under the lock of the queue, which may have been waited for.
            begun = (self._namespace, gate.limits.queue, self._now_us(), numbers, keys)
            link.change("add_begun", begun)
        return [made.row for _, made in changes if made.row.run_no in changed]

    def _filters(self, wanted: Wanted) -> dict[str, Any]:
        pairs = queue_limits.pairs(wanted.flows)
        known = None if pairs is None else sorted(pairs)
        return {
            "namespace": self._namespace,
            "at_us": wanted.at_us,
            "suspects": wanted.suspects,
            "suspect_at": claim_rules.SUSPECT_AT,
            "flows": None if known is None else [flow for flow, _ in known],
            "versions": None if known is None else [version for _, version in known],
        }


def _claimed_leases(wanted: Wanted, rows: Sequence[RunRow]) -> list[Lease]:
    """Return the claimed runs, and report the runs that were held instead."""
    wanted.quarantined += [row for row in rows if row.status not in CLAIMABLE]
    return [Lease(row) for row in rows if row.status in CLAIMABLE]
