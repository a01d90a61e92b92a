"""Which process may work with which store. Pure, and the same for every kind of store.

A store says which version its schema has, and from which version on a process can work with it. A
migration that only adds (expand) leaves the second number as it is: processes of the version before
go on beside those of the new one. When no process of an older version is left, a later migration may
take away what only those needed (contract), and raises it.
"""

from __future__ import annotations

from holdfast.errors import Corrupt, StoreTooNew

WORKS_FROM = 1
"""The oldest version whose processes can work with a store of the newest one. Version 1 knows
nothing of pulses: to it, the leases of a worker look as if they had run out. Version 2 knows nothing
of waits: to it, the journal of a run that slept is damaged."""

WAY_OUT = "restore the store from a backup"
"""What is to be done about a store that is not whole, and cannot be opened."""


def missing(what: str) -> Corrupt:
    """Return the error about a part of a store without which it cannot be opened."""
    return Corrupt(what, why=f"it is not there; {WAY_OUT}")


def check(version: int, works_from: int, known: int, store: str) -> None:
    """Refuse a store that processes of the version `known` cannot work with."""
    if version > known and works_from > known:
        raise StoreTooNew(
            f"{store} has schema version {version}, which works with {works_from} or later; this "
            f"Holdfast knows up to {known}: upgrade Holdfast (git pull in its clone), or open it "
            "with the version that wrote it"
        )
