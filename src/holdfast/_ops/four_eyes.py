"""Four eyes: who has had a hand in a run, and so may not approve what it asks.

That is whoever started it, as a tag of the run says, and whoever forked it; and the same of every run
that it came from or that called it. A fork has the tags of its origin, and is made by somebody else.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast._core.rows import RunRow
from holdfast._store import lineage
from holdfast._store.contract import Store


def starters(store: Store, row: RunRow, tag: str) -> set[str]:
    """Return who started a run or one of its ancestors, as far as their tags say it."""
    return {said for it in _line(store, row) if (said := _tags(it).get(tag))}


def forkers(store: Store, row: RunRow) -> set[str]:
    """Return who forked a run or one of its ancestors, by name."""
    return {
        name_of(lineage.told_of(store, it).actor)
        for it in _line(store, row)
        if it.origin is not None and it.deleted_us is None
    }


def name_of(actor: str) -> str:
    """Return the name of an actor, without the way and the address: kim (page, 127.0.0.1)."""
    return actor.partition(" (")[0]


def _line(store: Store, row: RunRow) -> Iterator[RunRow]:
    """Yield a run and all that it came from, each once."""
    known = {row.run_id}
    below = [row]
    while below:
        one = below.pop()
        yield one
        origin = lineage.origin_of(one)
        for above in (None if origin is None else origin.run, one.parent):
            found = None if above is None or above in known else store.get(above)
            if found is not None:
                known.add(found.run_id)
                below.append(found)


def _tags(row: RunRow) -> dict[str, str]:
    return msgspec.json.decode(row.tags, type=dict[str, str]) if row.tags else {}
