"""Convert rows of tables to objects and back. A row that is not as it was written raises `Corrupt`.

A digest covers types and values, so it also detects a column whose type changed. Only values that
cannot be compared (an unknown status, invalid text) are caught here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.journal.rows import (
    GENESIS,
    SEQ_BITS,
    SEQ_MASK,
    KeyState,
    MessageRow,
    RunRow,
    entry_digest,
)
from holdfast._engine.values.digest import seal
from holdfast._stores.contract import Query
from holdfast.errors import Corrupt

Values = Sequence[Any]

LAST_CODE = 0x10FFFF
_END_OF_PREFIX = chr(LAST_CODE)
_KINDS = {kind.value: kind for kind in Kind}
_STATUSES = {status.value: status for status in Status}
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)
"""Errors of building or sealing a row from wrong types."""


class StoreRow(msgspec.Struct, gc=False):
    """The row that every commit changes: the number of commits, and the head of their chain."""

    store_id: str
    incarnation: int
    commits: int
    head: bytes
    clock_us: int
    last_run_no: int
    last_owner: int
    accepted_through: int
    is_copy: int
    digest: bytes = b""

    def sealed(self) -> StoreRow:
        """Return this row with its digest set."""
        self.digest = seal(GENESIS, msgspec.structs.astuple(self)[:-1])
        return self


class OwnerRow(msgspec.Struct, gc=False):
    """A process that may own runs, with its description of itself."""

    owner: int
    pid: int
    started: str
    boot_id: str
    pid_namespace: int
    host: str
    lock_inode: int
    registered_us: int
    digest: bytes = b""

    def sealed(self) -> OwnerRow:
        """Return this row with its digest set."""
        self.digest = seal(GENESIS, msgspec.structs.astuple(self)[:-1])
        return self


def run_row(values: Values) -> RunRow:
    """Return a verified row of runs."""
    run_id = values[2] if isinstance(values[2], str) else f"number {values[0]}"
    try:
        row = RunRow(*values)
        row.status = _status(values[5])
        expected = row.expected_digest()
    except _UNREADABLE as error:
        raise Corrupt("its row in runs", run_id=run_id, why=_wrong(error)) from None
    if row.digest != expected:
        raise Corrupt("its row in runs", run_id=run_id, why="the digest does not match")
    return row


def key_state(values: Values) -> KeyState:
    """Return a verified row of keys."""
    try:
        state = KeyState(*values)
        expected = state.expected_digest()
    except _UNREADABLE as error:
        raise Corrupt(f"key {values[2]!r} of {values[1]!r}", why=_wrong(error)) from None
    if state.digest != expected:
        raise Corrupt(f"key {values[2]!r} of {values[1]!r}", why="the digest does not match")
    return state


def store_row(values: Values) -> StoreRow:
    """Return the verified row of the store."""
    row = StoreRow(*values)
    _check(row, "the row of the store")
    return row


def owner_row(values: Values) -> OwnerRow:
    """Return a verified row of owners."""
    row = OwnerRow(*values)
    _check(row, f"row {values[0]!r} of owners")
    return row


def message_row(values: Values) -> MessageRow:
    """Return a verified row of an inbox."""
    row = MessageRow(*values)
    _check(row, f"message {values[2]!r} of run number {values[1]!r}")
    return row


def _check(row: StoreRow | OwnerRow | MessageRow, what: str) -> None:
    stored = row.digest
    try:
        expected = row.sealed().digest
    except _UNREADABLE as error:
        raise Corrupt(what, why=_wrong(error)) from None
    if stored != expected:
        raise Corrupt(what, why="the digest does not match")


def entry(values: Values, prev: bytes, run_id: str) -> Entry:
    """Return a verified entry that is chained to the digest before it."""
    row_id, kind, at_us, step, attempt, position, args_digest, started_us, body, digest = values
    seq = row_id & SEQ_MASK
    try:
        made = Entry(
            seq, _kind(kind), at_us, step, attempt, position, args_digest, started_us, body, digest
        )
        expected = entry_digest(prev, run_id, seq, made)
    except _UNREADABLE as error:
        raise Corrupt(f"entry {seq}", run_id=run_id, why=_wrong(error)) from None
    if digest != expected:
        raise Corrupt(f"entry {seq}", run_id=run_id, why="the digest does not match")
    return made


def entry_values(run_no: int, made: Entry) -> tuple[Any, ...]:
    """Return the values to insert into the journal."""
    return (
        run_no << SEQ_BITS | made.seq,
        made.kind,
        made.step,
        made.attempt,
        made.position,
        made.at_us,
        made.started_us,
        made.args_digest,
        made.digest,
        made.body,
    )


def chunk_digest(run_no: int, number: int, body: bytes) -> bytes:
    """Return the digest of a chunk at its position."""
    return seal(GENESIS, (run_no, number, body))


def name_hash(*names: str) -> int:
    """Return a 64-bit hash of names, for the index that confirms an absence."""
    form = b"".join(b"%d:%b" % (len(raw), raw) for raw in (name.encode() for name in names))
    return int.from_bytes(hashlib.blake2b(form, digest_size=8).digest(), "big", signed=True)


def end_of_prefix(prefix: str) -> str | None:
    """Return the first string after all strings with a prefix; None if there is none."""
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at])
        if code < LAST_CODE:
            following = chr(
                0xE000 if code == 0xD7FF else code + 1
            )  # Surrogates are not valid text.
            return prefix[:at] + following
    return None


def key_values(state: KeyState) -> tuple[Any, ...]:
    """Return the values to insert into keys, with the hash of the names."""
    hashed = name_hash(state.namespace, state.effect, state.key)
    return (*msgspec.structs.astuple(state), hashed)


def message_values(message: MessageRow) -> tuple[Any, ...]:
    """Return the values to insert into an inbox."""
    return msgspec.structs.astuple(message)


def run_values(row: RunRow) -> tuple[Any, ...]:
    """Return the values to insert into runs, with the hash of the names."""
    return (*msgspec.structs.astuple(row), name_hash(row.namespace, row.run_id))


def moved_values(row: RunRow) -> tuple[object, ...]:
    """Return all values of a run's row that can change."""
    return (
        row.flow,
        row.version,
        row.status,
        row.held_reason,
        row.generation,
        row.epoch,
        row.owner,
        row.lease_until_us,
        row.last_seq,
        row.head,
        row.next_chunk,
        row.input_digest,
        row.current_step,
        row.steps,
        row.attempts,
        row.degraded,
        row.claims,
        row.skips,
        row.waiting_on,
        row.wake_us,
        row.usage,
        row.tags,
        row.updated_us,
        row.heard,
        row.deleted_us,
        row.digest,
    )


def run_row_or_held(values: Values) -> RunRow:
    """Return a row of runs; a damaged row is returned as held, and cannot be loaded or written."""
    try:
        return run_row(values)
    except Corrupt as damage:
        run_no = values[0] if isinstance(values[0], int) else 0
        return RunRow(
            run_no=run_no,
            namespace=str(values[1]),
            run_id=values[2] if isinstance(values[2], str) else f"number {run_no}",
            flow=str(values[3]),
            version="",
            status=Status.HELD,
            held_reason=HeldReason.CORRUPT.value,
            generation=0,
            epoch=-1,
            owner=None,
            lease_until_us=0,
            last_seq=0,
            head=GENESIS,
            next_chunk=0,
            input_digest=b"",
            current_step=str(damage),
            steps=0,
            attempts=0,
            degraded=0,
            claims=0,
            skips="[]",
            waiting_on=None,
            wake_us=None,
            usage="{}",
            tags="{}",
            created_us=0,
            updated_us=0,
        )


def undamaged(rows: Iterable[Values]) -> Iterator[RunRow]:
    """Yield the readable rows of runs: one damaged run must not stop the others."""
    for values in rows:
        try:
            yield run_row(values)
        except Corrupt as damage:
            import logging  # Only on damage.

            logging.getLogger("holdfast.store").warning("not claimed: %s", damage)


def _wrong(error: Exception) -> str:
    return f"it has a value that cannot be: {error}"


def _status(name: str) -> Status:
    try:
        return _STATUSES[name]
    except KeyError:
        raise ValueError(f"{name!r} is no status of a run") from None


def _kind(name: str) -> Kind:
    try:
        return _KINDS[name]
    except KeyError:
        raise ValueError(f"{name!r} is no kind of entry") from None


_PLAIN = re.compile(r"[A-Za-z0-9 _.:@=+-]+")
"""Text that JSON does not escape: rows without it need not be parsed."""


def list_values(query: Query, namespace: str) -> dict[str, object]:
    """Return the values of the statement `list_runs`."""
    tag, tag_value = query.tag or (None, None)
    prefix = query.run_id_prefix
    return {
        "namespace": namespace,
        "before": query.before_run_no,
        "status": None if query.status is None else [status.value for status in query.status],
        "flow": query.flow,
        "version": query.version,
        "prefix": prefix,
        "prefix_end": None if prefix is None else prefix + _END_OF_PREFIX,
        "part": query.run_id_part,
        "updated_before_us": query.updated_before_us,
        "updated_after_us": query.updated_after_us,
        "queue": query.queue,
        "held_reason": query.held_reason,
        "parent": query.parent,
        "forks": query.forks,
        "tag": tag,
        "tag_value": tag_value,
        "tag_part": tag_value if tag_value and _PLAIN.fullmatch(tag_value) else None,
        "limit": query.limit,
    }
