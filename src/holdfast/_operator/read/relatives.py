"""The relatives of a run: parent, children, the origin of a fork, and the people who started or forked
any of them.

Four eyes: an actor that started or forked a run, or an origin of it, may not approve what it asks.
The starter is a tag of the run. A fork has the tags of its origin, and its own actor.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import msgspec

from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import RunRow
from holdfast._stores import lineage
from holdfast._stores.contract import Store
from holdfast._stores.families import children

# -- parents and children -----------------------------------------------------------------------


CHILDREN_SHOWN = 100
CHILDREN_COUNTED = 1000
"""How many children are looked at to count them."""


class ChildView(msgspec.Struct, frozen=True):
    """A child, in a line."""

    run_id: str
    flow: str
    status: str
    held_reason: str | None = None
    owner_died: bool = False
    """Whether the process that had it is proven dead, and none has taken it up."""

    @property
    def status_text(self) -> str:
        """Its status, with the reason of a held one, or that its process is dead."""
        if self.owner_died:
            return f"{self.status}: its process is dead"
        return f"{self.status}: {self.held_reason}" if self.held_reason else self.status


def children_of(store: Store, run_id: str) -> tuple[list[ChildView], dict[str, int]]:
    """Return the newest children of a run, oldest first, and how many it has by status, counted up to
    a limit."""
    shown: list[ChildView] = []
    counts: Counter[str] = Counter()
    for row in itertools.islice(children(store, run_id), CHILDREN_COUNTED):
        view = child_view(store, row)
        counts[view.status_text] += 1
        if len(shown) < CHILDREN_SHOWN:
            shown.append(view)
    return shown[::-1], dict(counts.most_common())


def children_text(counts: dict[str, int]) -> str:
    """Return in a few words how many children there are, and how they are."""
    total = sum(counts.values())
    most = " or more" if total >= CHILDREN_COUNTED else ""
    how = ", ".join(f"{number:,} {status}" for status, number in counts.items())
    return f"{total:,}{most}: {how}"


def child_view(store: Store, row: RunRow) -> ChildView:
    """Return one child."""
    reason = row.held_reason if row.status is Status.HELD else None
    at_work = row.owner is not None and row.status in (Status.RUNNING, Status.WAITING)
    died = at_work and store.owner_is_dead(row.owner or 0)
    return ChildView(row.run_id, row.flow, str(row.status), reason, died)


def deadline_us(past: History) -> int | None:
    """Return when a run is cancelled if it has not ended, as its start says."""
    started = past.started
    found = None if started is None else started.data().get("deadline_us")
    return None if found is None else int(msgspec.json.decode(found))


def origin(row: RunRow) -> str | None:
    """Return the id of the run that a fork came from."""
    of = lineage.origin_of(row)
    return None if of is None else of.run


# -- four eyes ----------------------------------------------------------------------------------


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
