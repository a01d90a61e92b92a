"""Memories: what a key and a value may be, and how a flow reads and writes them. Pure.

A memory belongs to no run, so its values stand by themselves (no chunks), and a flow that looked at
one would see something else on replay. So in a flow every read is recorded with what it saw, and
every write is an entry in the transaction that writes the value: replay repeats neither. In a step
nothing is recorded: what it writes is kept back, and commits with its outcome.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast._engine.journal.changes import PutMemo
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.rows import Memo
from holdfast._engine.journal.step_keys import check_label
from holdfast._engine.journal.step_record import VALUE
from holdfast._engine.scripts.requests import (
    Append,
    Decode,
    Note,
    Script,
    StepCall,
    StoreRead,
    Wrote,
)
from holdfast._engine.scripts.step_script import find, replayed
from holdfast._engine.values import codec
from holdfast._engine.values.redactor import Redact, redacted
from holdfast.errors import NotSerializable, UsageError

KEY_MAX_BYTES = 512
VALUE_MAX_BYTES = 1024 * 1024
"""A memory is for small values: put a larger one in a file, and its name in the memory."""
PAGE = 100
"""How many values one question to the store asks for."""

Told = list[Any]
"""A value as it is recorded: key, value, version, when it was written and expires, by which run."""


RESERVED = "holdfast"
"""How names of memories begin that Holdfast keeps for itself."""


class Recall(StoreRead):
    """Read from a memory: one value, or those whose keys begin so; sends back what was found, in the
    form that is recorded."""

    space: str
    key: str | None = None
    prefix: str = ""
    after: str = ""
    limit: int | None = None


def checked_space(namespace: object) -> str:
    """Return the name of a memory, or raise a UsageError."""
    return check_label("the namespace of a memory", namespace)


def checked_own_space(namespace: object) -> str:
    """Return the name of a memory that users may write, or raise a UsageError."""
    space = checked_space(namespace)
    if space.startswith(RESERVED):
        raise UsageError(
            f"memory {space!r}: names that begin with {RESERVED!r} are reserved for Holdfast; choose "
            "another"
        )
    return space


def checked_key(space: str, key: object) -> str:
    """Return a key, or raise a UsageError."""
    checked = check_label(f"a key of memory {space!r}", key)
    if len(checked.encode()) > KEY_MAX_BYTES:
        raise UsageError(
            f"a key of memory {space!r} has at most {KEY_MAX_BYTES} bytes; {checked[:40]!r}… has "
            f"{len(checked.encode())}"
        )
    return checked


def encoded(space: str, key: str, value: object, redact: Redact | None = None) -> bytes:
    """Return a value as it is stored, with nothing apart; refuses what would not survive."""
    path = f"memory {space!r}, {key!r}"
    if redact is not None:
        value = redacted(value, path, redact)
    node = codec.encode(value, path)
    if len(node) > VALUE_MAX_BYTES:
        raise NotSerializable(
            path,
            f"it takes {len(node):,} bytes, and a value of a memory at most {VALUE_MAX_BYTES:,}; "
            "keep it in a file and remember its name, or divide it over several keys",
        )
    return node


def recorded_value(memo: Memo) -> Told:
    """Return what a flow reads of a value, in the form that is recorded."""
    value = None if memo.value is None else codec.decode(memo.value)
    return [memo.key, value, memo.version, memo.updated_us, memo.expires_us, memo.run_id]


def told_version(seen: list[Told]) -> int:
    """Return the recorded version of a value; 0 if there is none."""
    return int(seen[0][2]) if seen else 0


# -- what a flow does ---------------------------------------------------------------------------


def recall_script(call: StepCall, asked: Recall, history: History, decode: Decode) -> Script:
    """Read from a memory, once: what was seen is recorded, and seen again on replay."""
    record = find(call, history, decode, VALUE)
    if record is not None and record.has_outcome:
        return replayed(call, record, decode, history.run_id)
    seen: list[Told] = yield asked
    # It goes with the next write: what depends on it cannot be shown to the world before.
    note = Note(Kind.VALUE_RECORDED, {}, {"value": seen})
    wrote: Wrote = yield Append(call, [note], waits=False, lazily=True)
    return wrote.value


def remember_script(call: StepCall, memo: Memo, history: History, decode: Decode) -> Script:
    """Write to a memory, once: the value and the entry that says so commit together. Returns
    whether it was written; with a version that is no longer the newest, it was not."""
    record = find(call, history, decode, VALUE)
    if record is not None and record.has_outcome:
        return replayed(call, record, decode, history.run_id)
    wrote: Wrote = yield Append(
        call, [Note(Kind.VALUE_RECORDED, {}, {"value": True})], changes=[PutMemo(memo)]
    )
    if wrote.refused is not None:
        wrote = yield Append(call, [Note(Kind.VALUE_RECORDED, {}, {"value": False})])
    return wrote.value


def remove_script(call: StepCall, memo: Memo, history: History, decode: Decode) -> Script:
    """Remove from a memory, once. Returns whether a value was there to remove; with a version, whether
    it was that one."""
    record = find(call, history, decode, VALUE)
    if record is not None and record.has_outcome:
        return replayed(call, record, decode, history.run_id)
    while True:
        seen: list[Told] = yield Recall(memo.space, memo.key)
        version = told_version(seen)
        if version == 0 or memo.expected not in (None, version):
            wrote: Wrote = yield Append(call, [Note(Kind.VALUE_RECORDED, {}, {"value": False})])
            return wrote.value
        change = PutMemo(msgspec.structs.replace(memo, expected=version))
        wrote = yield Append(
            call, [Note(Kind.VALUE_RECORDED, {}, {"value": True})], changes=[change]
        )
        if wrote.refused is None:
            return wrote.value  # Else somebody wrote it meanwhile: it is looked at again.


def kept_back(call: StepCall, memo: Memo) -> None:
    """Keep what a step writes until its outcome is written; the last one of a key counts."""
    others = [
        change
        for change in call.attempt.outcome_changes or ()
        if not (isinstance(change, PutMemo) and _place(change.memo) == _place(memo))
    ]
    call.attempt.outcome_changes = [*others, PutMemo(memo)]


def _place(memo: Memo) -> tuple[str, str]:
    return memo.space, memo.key


def overlaid(found: list[Memo], call: StepCall | None, space: str, prefix: str) -> list[Memo]:
    """Return values as a step sees them: what it wrote itself stands over what is stored."""
    if call is None or not call.attempt.outcome_changes:
        return found
    seen = {memo.key: memo for memo in found}
    for change in call.attempt.outcome_changes:
        if not isinstance(change, PutMemo) or change.memo.space != space:
            continue
        if change.memo.key.startswith(prefix):
            seen[change.memo.key] = change.memo
    return [
        msgspec.structs.replace(seen[key]) for key in sorted(seen) if seen[key].value is not None
    ]
