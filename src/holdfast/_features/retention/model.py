"""Which runs may be removed, and when. Pure.

a run that has ended; a failed one only when somebody asks for it
with all its children, which have ended too; a child not without its parent
not while its time is not over: what somebody says now, or `retention=` of its flow, as recorded
not while a business key of it may still be remembered by the other side
not while a fork stands on it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.lifecycle import ENDED, FINAL, Status
from holdfast._engine.journal.rows import KeyState, RunRow
from holdfast._engine.scripts import doubt_policies
from holdfast._engine.scripts.business_keys import claimed_key
from holdfast._engine.values import durations
from holdfast._engine.values.durations import Duration
from holdfast.errors import UsageError

KEEP = "keep_us"
"""The fact of `run_started` that says how long the run is kept after its end."""


class Asked(msgspec.Struct, frozen=True):
    """A request to remove runs."""

    older_than_us: int | None = None
    """How long ago it ended; None: as long as its flow said."""
    at_least_us: int = 0
    """Without `older_than_us`: runs that ended later than this are not looked at."""
    flow: str | None = None
    statuses: frozenset[Status] = FINAL


class Claimed(msgspec.Struct, frozen=True):
    """A business key that a run claimed, and how long it may be remembered."""

    effect: str
    key: str
    ttl_us: int


def checked_keep(flow: str, keep: Duration | None) -> int | None:
    """Return how long runs of a flow are kept, in microseconds."""
    if keep is None:
        return None
    return durations.micros(keep, f"retention= of flow {flow}")


def checked_statuses(status: str | Iterable[str] | None) -> frozenset[Status]:
    """Return which runs are meant: those that ended well or were stopped, or what is named."""
    if status is None:
        return FINAL
    names = [status] if isinstance(status, str) else list(status)
    known = {member.value: member for member in ENDED}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        wrong = ", ".join(map(repr, unknown)) or repr(status)
        raise UsageError(
            f"`status` {wrong}: only runs that have ended are removed: {', '.join(sorted(known))}"
        )
    return frozenset(known[name] for name in names)


def kept_for(started: Entry | None) -> int | None:
    """Return how long the flow wanted to have a run kept, by its first entry."""
    if started is None:
        return None
    told = started.data().get(KEEP)
    return None if told is None else msgspec.json.decode(told, type=int)


def too_young(row: RunRow, limit_us: int | None, now_us: int) -> str | None:
    """Return why the retention of a run is not over, or None if it is."""
    if limit_us is None:
        return "its flow says nothing of how long it is kept"
    left_us = row.updated_us + limit_us - now_us
    if left_us > 0:
        return f"its time is over in {durations.as_text(left_us)}"
    return None


def claims(journal: Iterable[Entry]) -> Iterator[Claimed]:
    """Yield the business keys that a run claimed."""
    for entry in journal:
        claimed = claimed_key(entry) if entry.kind is Kind.STEP_STARTED else None
        if claimed is not None:
            ttl_s = entry.data().get("key_ttl_s")
            seconds = (
                doubt_policies.KEY_TTL_S
                if ttl_s is None
                else msgspec.json.decode(ttl_s, type=float)
            )
            yield Claimed(*claimed, int(seconds * 1e6))


def still_remembered(claimed: Claimed, state: KeyState | None, row: RunRow, now_us: int) -> bool:
    """Return whether a key of this run may still be known to the other side."""
    if state is None or state.run_no != row.run_no:
        return False
    return state.updated_us + claimed.ttl_us > now_us
