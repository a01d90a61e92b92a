"""Liveness of owners: by pulse everywhere, and by the process table on the same host.

An owner that closed the store has recorded that. An owner whose process is gone, on this host and
in this pid namespace, is dead. Any other is alive until its pulse expires, which is no proof of
death.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from holdfast._stores import row_codec
from holdfast._stores.lookups import Fetch
from holdfast._stores.postgres.postgres_database import Database
from holdfast._stores.postgres.server_connection import Link
from holdfast._stores.row_codec import OwnerRow
from holdfast._stores.sqlite.owner_locks import describe, is_gone

FORGOTTEN_AFTER_US = 24 * 3600 * 1_000_000
ENDED = -1
"""The pulse of an owner that has closed the store."""


class Owners:
    """The owners of one store, for one handle."""

    def __init__(self, database: Database, now_us: Callable[[], int], lease_us: int) -> None:
        self._database = database
        self._now_us = now_us
        self._lease_us = lease_us
        self._rows: dict[int, OwnerRow] = {}
        self._dead: set[int] = set()
        self._own: set[int] = set()
        self._pid = os.getpid()

    def register(self) -> int:
        """Register this process as an owner."""
        self._check_process()
        numbers: list[int] = []

        def work(link: Link, _tries: int) -> int:
            if not numbers:
                numbers.append(link.fetch("next_owner")[0][0])
            owner = numbers[0]
            row = describe(owner, 0, self._now_us())
            with link.writing():
                link.change("add_owner", msgspec.structs.astuple(row))
                link.change("put_pulse", (owner, self._now_us() + self._lease_us, "{}"))
                link.change("forget_pulses", (self._now_us() - FORGOTTEN_AFTER_US,))
            return owner

        owner = self._database.work(work)
        self._own.add(owner)
        return owner

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._own.clear()

    # -- liveness ------------------------------------------------------------------------------

    def is_dead(self, owner: int, fetch: Fetch | None = None) -> bool:
        """Return whether an owner is proven dead. A caller with a connection passes its `fetch`, so
        that a pool of one is enough."""
        if self._is_gone(owner, fetch):
            return True
        if owner not in self._own and self.pulse_until_us(owner, fetch) == ENDED:
            self._dead.add(owner)
        return owner in self._dead

    def pulse_until_us(self, owner: int, fetch: Fetch | None = None) -> int:
        """Return the expiry of an owner's pulse."""
        found = (fetch or self._database.read)("pulse_of", (owner,))
        return int(found[0][0]) if found else 0

    def not_alive(self, pulses: Iterable[Sequence[Any]], at_us: int) -> tuple[list[int], list[int]]:
        """Return the dead owners of these pulses, and those whose pulse has expired."""
        dead: list[int] = []
        late: list[int] = []
        for owner, until_us in pulses:
            if until_us == ENDED or self._is_gone(owner):
                dead.append(owner)
            elif until_us <= at_us:
                late.append(owner)
        return dead, late

    def _is_gone(self, owner: int, fetch: Fetch | None = None) -> bool:
        """Return whether an owner's process is known to have ended, without its pulse."""
        self._check_process()
        if owner in self._own:
            return False
        row = None if owner in self._dead else self._row(owner, fetch)
        if row is not None and is_gone(row):
            self._dead.add(owner)
        return owner in self._dead

    def name(self, owner: int | None, fetch: Fetch | None = None) -> str:
        """Describe an owner for people."""
        if owner is None:
            return "nobody"
        row = self._row(owner, fetch)
        return f"owner {owner}" if row is None else f"process {row.pid} on {row.host}"

    def _row(self, owner: int, fetch: Fetch | None = None) -> OwnerRow | None:
        known = self._rows.get(owner)
        if known is None:
            found = (fetch or self._database.read)("owner_row", (owner,))
            known = row_codec.owner_row(found[0]) if found else None
            if known is not None:
                self._rows[owner] = known
        return known

    def end(self) -> None:
        """Record that the owners of this handle have ended."""
        self._check_process()
        if self._own:
            owners = sorted(self._own)
            self._database.work(lambda link, _tries: link.change("end_pulse", (owners,)), 1.0)
            self._own.clear()
