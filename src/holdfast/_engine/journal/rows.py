"""The row of a run beside its journal, and how one write changes it. Pure.

`runs` has one mutable row per run, sealed by its own digest. Every write of every store goes
through `apply`: it numbers and chains the new entries and derives the next row from them, so the
journal and the row cannot disagree. Stores update a row only if it is unchanged since it was read
(optimistic locking).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from holdfast._engine.journal.entries import WAIT_ENDS, Draft, Entry, Kind
from holdfast._engine.journal.lifecycle import TABLE, HeldReason, Status, next_status
from holdfast._engine.values import masks
from holdfast._engine.values.digest import seal
from holdfast.errors import Corrupt

GENESIS = bytes(16)
"""The digest before the first entry of a run."""
SEQ_BITS = 32
SEQ_MASK = (1 << SEQ_BITS) - 1
"""A message's number: its run and its place in the inbox, `run_no << SEQ_BITS | number`."""
NO_SKIPS = "[]"
"""The ranges that a resume leaves out (`RunRow.skips`, JSON), for a run without any."""


class RunRow(msgspec.Struct, gc=False):
    """The mutable row of one run: who may write next, and how far the run is."""

    run_no: int
    namespace: str
    run_id: str
    flow: str
    version: str
    status: Status
    held_reason: str | None
    generation: int
    epoch: int
    owner: int | None
    lease_until_us: int
    last_seq: int
    head: bytes
    next_chunk: int
    input_digest: bytes
    current_step: str | None
    steps: int
    attempts: int
    degraded: int
    claims: int
    skips: str
    waiting_on: str | None
    wake_us: int | None
    usage: str
    tags: str
    created_us: int
    updated_us: int
    queue: str | None = None
    priority: int | None = None
    limit_key: str | None = None
    heard: int | None = None
    """The number of the newest message that the run had seen when it began to wait: only a later
    one wakes it."""
    parent: str | None = None
    """The ID of the run that started this one."""
    root: str | None = None
    """The run id at the top of a family: whose account they all spend from. None: this run's own."""
    origin: str | None = None
    """Of a fork, JSON: `run`, the ID of its origin, and `base`, the first number of its own chunks;
    lower ones are the origin's."""
    deleted_us: int | None = None
    """When its journal was deleted. The row stays, so that the ID is not used again."""
    digest: bytes = b""

    def sealed(self) -> RunRow:
        """Return this row with the digest over all its columns."""
        self.digest = self.expected_digest()
        return self

    def expected_digest(self) -> bytes:
        """Return the digest of the columns.

        Columns of later versions are None where they are not used, and trailing None values are
        left out. A row therefore keeps its digest when a new version adds a column, and an older
        version can read and write every run that does not use it.
        """
        columns = msgspec.structs.astuple(self)[:-1]
        end = len(columns)
        while columns[end - 1] is None:
            end -= 1
        return seal(GENESIS, columns[:end])

    def check(self) -> RunRow:
        """Raise `Corrupt` if the row differs from what was written."""
        if self.digest != self.expected_digest():
            raise Corrupt("its row in runs", run_id=self.run_id, why="the digest does not match")
        return self


def etag_of(row: RunRow) -> str:
    """Return the version of a run that a decision refers to. A running run writes all the time, so
    only its status and generation count; of any other run, every entry does."""
    etag = f"{row.status}.{row.generation}"
    if row.status in (Status.QUEUED, Status.RUNNING):
        return etag
    return f"{etag}.{row.held_reason or ''}.{row.last_seq}"


def is_moved(row: RunRow) -> bool:
    """Return whether a run was moved to another store and must not continue here."""
    return row.status is Status.HELD and row.held_reason == HeldReason.MOVED


OPEN_KEYS = frozenset({"in_progress", "in_doubt"})
"""States of a business key in which its effect may or may not have happened."""


class KeyState(msgspec.Struct, gc=False):
    """One claimed business key: its holder and its state."""

    namespace: str
    effect: str
    key: str
    state: str  # in_progress | completed | in_doubt | not_done | undone
    run_no: int
    run_id: str
    step: str
    generation: int
    args_digest: bytes
    result_seq: int | None
    updated_us: int
    digest: bytes = b""

    def sealed(self) -> KeyState:
        """Return this row with its digest."""
        self.digest = self.expected_digest()
        return self

    def expected_digest(self) -> bytes:
        """Return the digest of the columns."""
        return seal(GENESIS, msgspec.structs.astuple(self)[:-1])

    def check(self) -> KeyState:
        """Raise `Corrupt` if the row differs from what was written."""
        if self.digest != self.expected_digest():
            raise Corrupt(
                f"key {self.key!r} of {self.effect}",
                run_id=self.run_id,
                why="the digest does not match",
            )
        return self


class Message(msgspec.Struct, gc=False):
    """One row of a run's inbox: a message to a run that another process owns."""

    message_id: str
    kind: str
    actor: str
    at_us: int
    body: bytes
    number: int = 0
    """Its number in the inbox, from 1 on, assigned by the store."""


class MessageRow(msgspec.Struct, gc=False):
    """A message in an inbox, with its place and the entry that took it."""

    id: int
    run_no: int
    message_id: str
    kind: str
    actor: str
    at_us: int
    body: bytes
    taken_seq: int | None
    digest: bytes = b""

    def sealed(self) -> MessageRow:
        """Return this row with its digest."""
        self.digest = seal(GENESIS, msgspec.structs.astuple(self)[:-1])
        return self

    def message(self) -> Message:
        """Return the message."""
        number = self.id & SEQ_MASK
        return Message(self.message_id, self.kind, self.actor, self.at_us, self.body, number)


class Question(msgspec.Struct, gc=False):
    """An open question of a run to people."""

    run_id: str
    name: str
    number: int
    """How many times the run has asked under this name; an answer is to one of them."""
    kind: str  # question | approval
    to: str | None
    body: bytes
    asked_us: int
    until_us: int | None


class Account(msgspec.Struct, gc=False):
    """The limits and the spending of a family of runs. None is no limit. Money is in nano dollars,
    so that sums are exact."""

    root: str
    opened_us: int
    usd_nanos: int | None = None
    tokens: int | None = None
    steps: int | None = None
    wall_us: int | None = None
    spent_usd_nanos: int = 0
    spent_tokens: int = 0
    spent_steps: int = 0


class Memo(msgspec.Struct, gc=False):
    """One durable value outside any journal: key and value in a space, with a growing version."""

    space: str
    key: str
    value: bytes | None
    """JSON of the codec; None: it was removed."""
    expires_us: int | None = None
    version: int = 0
    """Assigned by the store; 1 is the first."""
    updated_us: int = 0
    run_id: str | None = None
    expected: int | None = None
    """In a write, not stored: the version that it must have (0: none), otherwise the whole write is
    refused."""


class Lease(msgspec.Struct):
    """The right to write to one run, and its row as last committed.

    `acting` marks an actor that holds the run for one transaction only: the write succeeds if the
    run is unowned and unchanged since it was read, raises the epoch and leaves it unowned, or to the
    owner that the write names.
    """

    row: RunRow
    acting: bool = False


class View(Protocol):
    """The rows beside runs as one transaction sees them: the changes of its writes so far, over the
    rows of the store."""

    def find(self, table: str, *at: Any) -> Any:
        """Return the row of a table at this place, or None."""
        ...

    def put(self, table: str, row: Any, *at: Any) -> None:
        """Set the row of a table at this place; None removes it."""
        ...


class Change(msgspec.Struct, gc=False):
    """One change of a transaction beside its run's journal and row. It is data: its class defines
    how all stores lock, decide, mask and announce it."""

    rank: ClassVar[int]
    """The order in which the changes of a write are decided, and may refuse it."""
    notifies: ClassVar[bool] = False
    """Whether processes that wait for a change of the store are woken by it."""
    is_read_back: ClassVar[bool] = False
    """Whether the run itself may read it outside of its journal, and must find it committed."""

    @property
    def may_refuse(self) -> bool:
        """Whether the whole write is refused if another write came first."""
        return False

    def lock(self, namespace: str) -> tuple[str, ...] | None:
        """Return the name that a server locks until the transaction ends, or None."""
        return None

    def decide(self, view: View, applied: Applied, now_us: int) -> Refused | None:
        """Put the new rows, or return why the write is refused. Pure except for the view."""
        raise NotImplementedError

    def mask(self, masked: Callable[[bytes], bytes]) -> None:
        """Mask the secrets in the strings that it stores."""


C = TypeVar("C", bound=Change)


class Refused(msgspec.Struct):
    """One of its changes refused the write, with its own outcome. No row was changed."""


class Write(msgspec.Struct):
    """The transaction of one run: all of it commits, or nothing."""

    lease: Lease
    drafts: list[Draft]
    chunks: list[tuple[int, bytes]] = []
    row: dict[str, Any] = {}
    """Columns of the run's row that no entry determines."""
    changes: Sequence[Change] = ()

    @property
    def may_be_refused(self) -> bool:
        """Whether it asks for something that another run may have taken meanwhile."""
        return any(change.may_refuse for change in self.changes)

    def of(self, kind: type[C]) -> list[C]:
        """Return its changes of one kind."""
        return [change for change in self.changes if isinstance(change, kind)]

    def mask_secrets(self) -> None:
        """Replace every secret in the facts that are no values: questions, reasons, names of models."""
        if not masks.any_masked():
            return
        for draft in self.drafts:
            draft.body = masks.masked_json(draft.body)
        for change in self.changes:
            change.mask(masks.masked_json)


class Applied(msgspec.Struct):
    """The result of `apply`: sealed entries and the next row."""

    entries: list[Entry]
    row: RunRow


GIVES_BACK = frozenset(
    {
        Kind.RUN_RELEASED,
        Kind.RUN_HELD,
        Kind.RUN_COMPLETED,
        Kind.RUN_FAILED,
        Kind.RUN_CANCELLED,
        Kind.RUN_ROLLED_BACK,
        Kind.ROLLBACK_REQUESTED,
    }
)
"""Entries after which the run has no owner."""
BESIDE = frozenset({Kind.VALUE_EMITTED, Kind.SCOPE_OPENED})
"""Entries at a step's place that are not the step's."""
DONE = frozenset({Kind.STEP_COMPLETED, Kind.SKIPPED_DUPLICATE})
"""Entries that finish a step of the run."""
BRINGS_ON = frozenset(
    {
        Kind.STEP_COMPLETED,
        Kind.STEP_SETTLED,
        Kind.SKIPPED_DUPLICATE,
        Kind.STATE_SAVED,
        Kind.RUN_RELEASED,
        Kind.RUN_RESUMED,
        Kind.ROLLBACK_REQUESTED,
    }
    | WAIT_ENDS
)
"""Entries that show that the run is no poison pill: the claim counter restarts."""
NO_PROGRESS = b'{"why":"store error"'
"""A run that is released because it could not write may itself be the cause, so this does not
count."""


def apply(row: RunRow, write: Write, lease_until_us: int) -> Applied:
    """Number and chain the new entries, and derive the next row. The given row stays unchanged.

    Times along a journal never decrease: an entry has the time of the previous one if its writer's
    clock is behind. The start of a step (`started_us`) stays as measured.
    """
    new = msgspec.structs.replace(row)
    entries: list[Entry] = []
    for draft in write.drafts:
        if draft.at_us < new.updated_us:  # A clock that is behind, or a branch that wrote later.
            draft = msgspec.structs.replace(draft, at_us=new.updated_us)  # noqa: PLW2901
        seq = new.last_seq + (1 if draft.started_us is None else 2)
        entry = Entry(
            seq,
            draft.kind,
            draft.at_us,
            draft.step,
            draft.attempt,
            draft.position,
            draft.args_digest,
            draft.started_us,
            draft.body,
            seal(new.head, _sealed_parts(new.run_id, seq, draft)),
        )
        entries.append(entry)
        _fold(new, draft, entry)
    for name, value in write.row.items():
        setattr(new, name, value)
    if write.chunks:
        new.next_chunk = max(new.next_chunk, write.chunks[-1][0] + 1)
    if write.lease.acting:
        new.epoch += 1
        new.owner = write.row.get("owner")
    if new.owner is None:
        new.lease_until_us = 0
    else:
        new.lease_until_us = max(new.lease_until_us, lease_until_us)
    new.digest = new.expected_digest()
    return Applied(entries, new)


def entry_digest(prev: bytes, run_id: str, seq: int, entry: Draft | Entry) -> bytes:
    """Return the digest of an entry at this place in its run's chain."""
    return seal(prev, _sealed_parts(run_id, seq, entry))


def _sealed_parts(run_id: str, seq: int, entry: Draft | Entry) -> tuple[Any, ...]:
    """Return the fields that an entry's digest covers."""
    return (
        run_id,
        seq,
        entry.kind.value,
        entry.at_us,
        entry.step,
        entry.attempt,
        entry.position,
        entry.args_digest,
        entry.started_us,
        entry.body,
    )


def _fold(row: RunRow, draft: Draft, entry: Entry) -> None:
    kind = draft.kind
    first = row.last_seq == 0
    if first or row.status is not Status.RUNNING or kind in TABLE:  # Else it goes on running.
        row.status = next_status(None if first else row.status, kind)
    row.last_seq = entry.seq
    row.head = entry.digest
    if kind is not Kind.FINDING_NOTED:  # A finding is a remark on the run, and no activity of it.
        row.updated_us = max(row.updated_us, draft.at_us)
    if draft.step is not None and kind not in BESIDE:
        row.current_step = draft.step
    if kind is Kind.STEP_STARTED or draft.started_us is not None:
        row.attempts += 1
    if kind in DONE or (kind is Kind.STEP_SETTLED and draft.body.startswith(b'{"outcome":"done"')):
        row.steps += 1
    if kind in BRINGS_ON and not draft.body.startswith(NO_PROGRESS):
        row.claims = 0
    if kind in GIVES_BACK:
        row.owner = None
    if kind is not Kind.RUN_HELD and row.status is not Status.HELD:
        row.held_reason = None
