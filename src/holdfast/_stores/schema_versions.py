"""The compatibility of processes and stores by schema version. Pure, and the same for every kind of
store.

A store has the version of its schema, and the lowest version of a process that can work with it. A
migration that only adds (expand) keeps the second number: processes of the previous version keep
working beside the new ones. When no process of an older version is left, a later migration may
remove the parts that only those needed (contract), and raises the number.
"""

from __future__ import annotations

from holdfast.errors import Corrupt, StoreTooNew

WORKS_FROM = 1
"""The oldest version whose processes can work with a store of the newest one. A contracting
migration raises it."""

WAY_OUT = "restore the store from a backup"
"""The advice for an incomplete store, which cannot be opened."""


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
