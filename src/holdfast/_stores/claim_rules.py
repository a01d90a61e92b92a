"""Rules of a claim, shared by all stores: which owner may take a run or a key, and the first row of
a run. Pure.

A claim raises the run's epoch, which is its fencing token: the former owner's next write is refused, so
two processes that both believe they own a run (split brain) cannot both write. A store supplies the
facts (is that owner dead? is there a message?) and performs the outcome in its own transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.entries import Draft, Entry, Kind
from holdfast._engine.journal.lifecycle import CLAIMABLE, ClaimedBecause, HeldReason, Status
from holdfast._engine.journal.rows import (
    GENESIS,
    NO_SKIPS,
    Applied,
    KeyState,
    Lease,
    RunRow,
    Write,
    apply,
    etag_of,
)
from holdfast._stores.contract import NewRun, Query, Wanted
from holdfast.errors import RunConflict, StaleView

QUARANTINE_AT = 5
"""The number of claims in a row without a new outcome at which a run is held instead."""

SUSPECT_AT = 2
"""The number of claims in a row without a new outcome that make a run a suspect: its processes
died, and it may be the cause. Then a worker executes it alone, so that no other run dies with
it."""

DEFAULT_QUEUE = "default"
"""The queue of runs that name none."""

READ_AHEAD = 64
"""How many chunks before the requested one are read with it."""

OUTCOMES = frozenset({Kind.STEP_COMPLETED, Kind.STEP_FAILED, Kind.STEP_IN_DOUBT, Kind.STEP_SETTLED})
"""Kinds of entries that may use the reserved space of a full disk: their effects have already
happened."""


def new_run(
    new: NewRun, namespace: str, run_no: int, owner: int | None, lease_until_us: int
) -> Applied:
    """Return the first entries and the first row of a run, claimed if there is an owner."""
    at_us = new.drafts[0].at_us
    row = _blank(new, namespace, run_no, at_us)
    write = Write(Lease(row), list(new.drafts), list(new.chunks))
    if owner is not None:
        write.drafts.append(_claimed(at_us, ClaimedBecause.STARTED, owner, 1))
        write.row = {"epoch": 1, "owner": owner, "claims": 1}
    elif new.wake_us is not None:
        write.row = {"wake_us": new.wake_us}
    return apply(row, write, lease_until_us)


def _blank(new: NewRun, namespace: str, run_no: int, at_us: int) -> RunRow:
    return RunRow(
        run_no=run_no,
        namespace=namespace,
        run_id=new.run_id,
        flow=new.flow,
        version=new.version,
        status=Status.QUEUED,
        held_reason=None,
        generation=1,
        epoch=0,
        owner=None,
        lease_until_us=0,
        last_seq=0,
        head=GENESIS,
        next_chunk=new.next_chunk,
        input_digest=new.input_digest,
        current_step=None,
        steps=0,
        attempts=0,
        degraded=0,
        claims=0,
        skips=NO_SKIPS,
        waiting_on=None,
        wake_us=None,
        usage="{}",
        tags=new.tags,
        created_us=at_us,
        updated_us=at_us,
        queue=new.queue,
        priority=new.priority,
        limit_key=new.limit_key,
        parent=new.parent,
        root=new.root,
        origin=new.origin,
    )


def why_claimable(
    row: RunRow,
    owner: int,
    at_us: int,
    is_dead: Callable[[int], bool],
    pulse_until_us: Callable[[int], int],
) -> str | None:
    """Return the reason why `owner` may take the run now, or None if it may not. The lease of a run
    is valid until its own deadline or the pulse of its owner, whichever is later."""
    if row.status not in CLAIMABLE:
        return None
    if row.owner is None:
        return ClaimedBecause.FREE
    if row.owner == owner:
        return ClaimedBecause.OWN
    if is_dead(row.owner):
        return ClaimedBecause.OWNER_DEAD
    if row.lease_until_us <= at_us and pulse_until_us(row.owner) <= at_us:
        return ClaimedBecause.LEASE_EXPIRED
    return None


def claim_of(
    row: RunRow,
    owner: int,
    at_us: int,
    is_dead: Callable[[int], bool],
    pulse_until_us: Callable[[int], int],
) -> Write | None:
    """Return the write by which `owner` claims a run, or by which the run is held if that would be
    one claim too many; None if it may not take the run."""
    why = why_claimable(row, owner, at_us, is_dead, pulse_until_us)
    if why is None:
        return None
    return quarantine_write(row, at_us) if is_poison(row) else claim_write(row, owner, at_us, why)


def claim_write(row: RunRow, owner: int, at_us: int, why: str) -> Write:
    """Return the write of a claim. A run that waits for nothing more has no wake time."""
    draft = _claimed(at_us, why, owner, row.epoch + 1)
    changes = {
        "epoch": row.epoch + 1,
        "owner": owner,
        "claims": row.claims + 1,
        "waiting_on": None,
        "wake_us": None,
        "heard": None,
        "lease_until_us": 0,
    }
    return Write(Lease(row), [draft], row=changes)


def freed_and_claimed(write: Write, owner: int, at_us: int) -> Write:
    """Extend the write of an actor that makes a run claimable, so that it also claims the run: no
    other owner can take it in between."""
    claim = claim_write(write.lease.row, owner, at_us, ClaimedBecause.FREE)
    # An actor's write raises the epoch itself; earlier claims do not count.
    row = write.row | claim.row | {"epoch": write.lease.row.epoch, "claims": 1}
    return msgspec.structs.replace(write, drafts=[*write.drafts, *claim.drafts], row=row)


def again_write(row: RunRow, wanted: Wanted) -> Write | None:
    """Return the write that releases a held run and claims it for a worker that tries it again;
    None if it is no longer held on the requested token."""
    again = wanted.again
    if again is None or row.status is not Status.HELD or row.waiting_on != again.token:
        return None
    write = claim_write(row, wanted.owner, wanted.at_us, ClaimedBecause.FREE)
    write.drafts.insert(0, Draft(Kind.RUN_RELEASED, wanted.at_us, body=again.body))
    write.row["claims"] = 1  # It was released in order: earlier claims do not count.
    return write


def quarantine_write(row: RunRow, at_us: int) -> Write:
    """Return the write that holds a run that was claimed too often without progress."""
    facts = {
        "reason": HeldReason.QUARANTINED,
        "detail": f"it was claimed {row.claims + 1} times in a row, and each time its process ended "
        "before anything new was recorded",
        "step": row.current_step or "",
        "actions": [
            command("explain", row.run_id),
            command("resume", row.run_id) + "    (when the cause is mended)",
        ],
    }
    body = msgspec.json.encode(facts)
    changes = {
        "epoch": row.epoch + 1,
        "held_reason": HeldReason.QUARANTINED.value,
        "wake_us": None,
        "heard": None,
    }
    return Write(Lease(row), [Draft(Kind.RUN_HELD, at_us, body=body)], row=changes)


def is_poison(row: RunRow) -> bool:
    """Return whether the next claim would be one too many."""
    return row.claims + 1 >= QUARANTINE_AT


def is_suspect(row: RunRow) -> bool:
    """Return whether a run may have killed its processes."""
    return row.claims >= SUSPECT_AT


def queue_of(row: RunRow) -> str:
    """Return the name of the queue that a run is in."""
    return row.queue or DEFAULT_QUEUE


def refusal(row: RunRow, owner_name: str) -> str:
    """Return the owner or the status that prevents a claim."""
    return owner_name if row.status in CLAIMABLE else f"nobody; it is {row.status.value}"


def is_due(row: RunRow, at_us: int, newest: int) -> bool:
    """Return whether a run without a live owner is due. `newest` is the number of the newest
    message that it has not taken, or 0: it wakes a run that has not seen it yet.

    A run whose owner died is always due: what it waited for may have come while it was owned.
    """
    if row.owner is not None:
        return True
    if row.status is Status.WAITING:
        return newest > (row.heard or 0) or (row.wake_us is not None and row.wake_us <= at_us)
    return row.wake_us is None or row.wake_us <= at_us


def arrived(row: RunRow, namespace: str, run_no: int) -> RunRow:
    """Return the row of a run from another store: the same history, without an owner."""
    moved = msgspec.structs.replace(
        row, namespace=namespace, run_no=run_no, owner=None, lease_until_us=0
    )
    return moved.sealed()


def arrived_key(state: KeyState, row: RunRow) -> KeyState:
    """Return the row of a business key that arrives with its run."""
    return msgspec.structs.replace(state, namespace=row.namespace, run_no=row.run_no).sealed()


def check_same_run(here: RunRow, other: RunRow) -> None:
    """Refuse a run of another store if its id has another history here, or was deleted here."""
    if here.deleted_us is not None:
        raise RunConflict(
            other.run_id, "as a deleted one, in the store that it is to be written to"
        )
    if (here.created_us, here.input_digest, here.flow) != (
        other.created_us,
        other.input_digest,
        other.flow,
    ):
        raise RunConflict(other.run_id, "as another run, in the store that it is to be written to")


def key_is_here(state: KeyState, here: KeyState) -> str:
    """Return the text for a business key of an arriving run that another run already owns."""
    return (
        f"with key {state.key!r} of {state.effect}, which run {here.run_id!r} of the other store "
        f"has ({here.state})"
    )


def check_etag(row: RunRow, etag: str | None) -> None:
    """Refuse an action on a run with another etag, in the transaction that writes the action; None
    accepts any."""
    if etag is not None and row.deleted_us is None and etag_of(row) != etag:
        told = row.status if row.held_reason is None else f"{row.status} ({row.held_reason})"
        raise StaleView(
            row.run_id, f"run {row.run_id!r} changed since you looked: it is {told} now; look again"
        )


def tokens_within(prefix: str, after: str) -> tuple[str, str]:
    """Return the bounds of all tokens that begin with `prefix` and sort after `after`."""
    return max(prefix, after), prefix[:-1] + chr(ord(prefix[-1]) + 1)


def deleted(row: RunRow, at_us: int) -> RunRow:
    """Return the row of a run whose journal is removed; it keeps the id."""
    return msgspec.structs.replace(row, deleted_us=at_us, skips=NO_SKIPS, tags="{}").sealed()


def starts_effect(write: Write) -> bool:
    """Return whether a write has the intent of an effect."""
    return any(
        draft.kind is Kind.STEP_STARTED and b'"effect":true' in draft.body for draft in write.drafts
    )


def has_outcome(write: Write) -> bool:
    """Return whether a write records an outcome that has already happened."""
    return any(draft.kind in OUTCOMES for draft in write.drafts)


def kinds(journal: Iterable[Entry]) -> Iterator[Kind]:
    """Yield the kinds of a journal's entries, with the start of each joined row."""
    for entry in journal:
        if entry.started_us is not None:
            yield Kind.STEP_STARTED
        yield entry.kind


def may_act(row: RunRow, is_dead: Callable[[int], bool]) -> bool:
    """Return whether an actor may write to a run: it has no live owner, and was not removed."""
    return row.deleted_us is None and (row.owner is None or is_dead(row.owner))


def _claimed(at_us: int, why: str, owner: int, epoch: int) -> Draft:
    body = msgspec.json.encode({"why": why, "owner": owner, "epoch": epoch})
    return Draft(Kind.RUN_CLAIMED, at_us, body=body)


def matches(row: RunRow, query: Query) -> bool:
    """Return whether a run matches the filters of a list."""
    return (
        row.deleted_us is None
        and (query.status is None or row.status in query.status)
        and (query.parent is None or row.parent == query.parent)
        and (not query.forks or row.origin is not None)
        and (query.flow is None or row.flow == query.flow)
        and (query.version is None or row.version == query.version)
        and (query.tag is None or _has_tag(row, *query.tag))
        and (query.run_id_prefix is None or row.run_id.startswith(query.run_id_prefix))
        and (query.run_id_part is None or query.run_id_part in row.run_id)
        and (query.updated_before_us is None or row.updated_us < query.updated_before_us)
        and (query.updated_after_us is None or row.updated_us >= query.updated_after_us)
        and (query.queue is None or queue_of(row) == query.queue)
        and (query.held_reason is None or row.held_reason == query.held_reason)
        and (query.before_run_no is None or row.run_no < query.before_run_no)
    )


def _has_tag(row: RunRow, name: str, value: str) -> bool:
    tags = msgspec.json.decode(row.tags, type=dict[str, object])
    return tags.get(name) == value
