"""The store contract: some fifty operations, each one transaction.

A store is synchronous and may be called from any thread. The writing operations are `append` (called
by the committer), `append_within`, `start`, `claim`, `take`, `post`, `forget`, `accept_data_loss`,
`register_owner`, `pulse`, and those that begin with `put`, `set` or `drop`. Every write of an owner is
conditional on its epoch and on the sequence number that it saw: the check is the write.

Time: `now_us()` is the store's own clock, which never runs backwards and never stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.rows import (
    Account,
    KeyState,
    Lease,
    Memo,
    Message,
    Question,
    RunRow,
    Write,
)
from holdfast._engine.telemetry.measures import Measure
from holdfast._stores.structs import (
    LOST_END,
    Again,
    Broken,
    Busy,
    Committed,
    Damage,
    Fenced,
    Limits,
    Measured,
    NewRun,
    Outcome,
    Posted,
    Progress,
    Pulse,
    Query,
    QueueState,
    ScheduleRow,
    Started,
    Wanted,
    WholeRun,
    no_progress,
)
from holdfast.errors import UsageError

__all__ = [
    "LOST_END",
    "Again",
    "Broken",
    "Busy",
    "Committed",
    "Damage",
    "EndedByItself",
    "Fenced",
    "Limits",
    "Measured",
    "NewRun",
    "Outcome",
    "Posted",
    "Progress",
    "Pulse",
    "Query",
    "QueueState",
    "ScheduleRow",
    "Started",
    "Store",
    "Wanted",
    "WholeRun",
    "no_progress",
]

Rows = list[RunRow]
Leases = list[Lease]
RunNumbers = list[int]
Queues = list[QueueState]
Pulses = list[Pulse]
Schedules = list[ScheduleRow]
StartedRuns = list[Started]
Entries = list[Entry]
Messages = list[Message]
Questions = list[Question]
Memos = list[Memo]
Names = list[str]
AllMessages = list[tuple[Message, int | None]]
Findings = list[Damage]
"""Aliases, because inside `Store` the name `list` is an operation."""


class EndedByItself(UsageError):
    """The work inside a transaction of the store has ended it: its earlier statements may
    persist."""


@runtime_checkable
class Store(Protocol):
    """The operations of a store for the runtime and the operators' tools."""

    url: str
    namespace: str
    store_id: str
    lease_s: float

    @property
    def path(self) -> str | None:
        """The file of the store; None if it has no file."""
        ...

    def now_us(self) -> int:
        """Return the store's time, in microseconds since 1970; never runs backwards."""
        ...

    def regression(self) -> str | None:
        """Describe the acknowledged commits that are missing, or return None. While commits are
        missing, reads work and `append` refuses every write that starts an effect
        (`StoreLostData`)."""
        ...

    def schema_version(self) -> int | None:
        """Return the version of its schema, which may be newer than this release's; None if it has
        none."""
        ...

    def accepted_through(self) -> int:
        """Return the largest run number that existed at the last `accept_data_loss`, or 0."""
        ...

    def accept_data_loss(self, actor: str) -> str:
        """Accept the current state of the store, and begin a new incarnation; return a text about
        the accepted loss."""
        ...

    def register_owner(self) -> int:
        """Make this process an owner with a kernel lock that dies with it; returns its number.
        After a fork, another call registers the child."""
        ...

    def pulse(self, owner: int, facts: str, working: Sequence[tuple[int, int]] = ()) -> RunNumbers:
        """Renew the leases of all runs of this owner for another `lease_s`. `working` are its runs
        with their epochs; returns those that it has lost."""
        ...

    def pulses(self) -> Pulses:
        """Return the owners whose pulse has not expired, oldest first."""
        ...

    def heard_us(self, owner: int) -> int:
        """Return the time of the last pulse of an owner, alive or not; 0 if it is unknown."""
        ...

    def start(self, new: NewRun, owner: int | None) -> Started:
        """Create the run, claimed by `owner` if given (entry `run_claimed`, epoch 1); or return the
        existing one unchanged."""
        ...

    def start_all(self, news: Sequence[tuple[NewRun, int | None]]) -> StartedRuns:
        """`start` for several runs, in one transaction and in order."""
        ...

    def claim(self, run_id: str, owner: int, at_us: int) -> Lease | Busy:
        """Claim the run for execution if its status is claimable and it has no live owner: epoch +
        1, entry `run_claimed` (the body has the reason: free, owner dead, lease expired), claims +
        1. The fifth claim in a row without a new outcome holds it as quarantined instead (Busy).
        Raises RunNotFound."""
        ...

    def take(self, wanted: Wanted) -> Leases:
        """Claim runs that are due, each as `claim` would, up to a limit: queue by queue in turns,
        within a queue by priority and then by age, and within the limits of the queues. A run that
        was already executing (its owner died) needs no room in its queue. Suspects are returned
        only if requested, and then nothing else. Held runs are returned only if requested
        (`wanted.again`): `run_released` and `run_claimed` are written in one transaction, if the
        run is still held on the same token."""
        ...

    def append_within(self, lease: Lease, work: Callable[[Any], Write]) -> Outcome:
        """Commit the statements of `work` on a connection of this database together with the write
        that it returns. If it raises, or the write is refused, all of it is rolled back. The lease
        must have no pending write. `work` must not commit or roll back the connection: if that
        cannot be prevented, it is detected and raises EndedByItself."""
        ...

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        """Commit a batch in one transaction, in order; a refused write fails alone. On return
        each committed lease's `row` is the new row. Renewal is a write without drafts.
        Raises StoreFull (no part of the batch was written, it may be tried again) or StoreFailed
        (I/O error: this handle is dead). An error of one write (StoreLostData, an illegal entry) is
        raised if the batch has no other write, otherwise it is the `Broken` of that write."""
        ...

    def get(self, run_id: str) -> RunRow | None:
        """Return the verified row; absence is confirmed through a second path."""
        ...

    def by_number(self, run_no: int) -> RunRow | None:
        """Return the verified row of a run number."""
        ...

    def list(self, query: Query) -> Rows:
        """Return rows, newest first."""
        ...

    def load(self, row: RunRow, skips: Sequence[tuple[int, int]] = ()) -> Entries:
        """Return the entries up to `row.last_seq` but for the skipped ranges (inclusive), with
        digests and chain verified for everything returned (a range that follows a gap is
        chained to the digest stored just before it), and the end compared with `row.head`. Raises
        RunDeleted if the run was removed since the row was read."""
        ...

    def entry(self, run_no: int, seq: int) -> Entry | None:
        """Return one entry by number, verified against the digest stored just before it."""
        ...

    def chunks(self, run_no: int, number: int) -> Mapping[int, bytes]:
        """Return chunk `number` of a run, verified, with some chunks before it. Raises RunDeleted
        if the run was removed."""
        ...

    def key(self, effect: str, key: str) -> KeyState | None:
        """Return a claimed key; absence is confirmed through a second path."""
        ...

    def waiting_on(self, token: str) -> Rows:
        """Return the runs whose `waiting_on` is this token."""
        ...

    def held_on(self, prefix: str, after: str = "", limit: int = 500) -> Names:
        """Return the distinct tokens that begin with `prefix` and on which runs are held, in order,
        after `after`. The cost depends on the number of tokens, not on the number of held runs."""
        ...

    def claimable(self, at_us: int, limit: int) -> Rows:
        """Return runs that `claim` would claim: claimable status, unowned or its owner dead or its
        lease expired, and due (`wake_us`)."""
        ...

    def set_limits(self, limits: Limits) -> None:
        """Set the limits of a queue; they apply to every worker at once."""
        ...

    def queues(self, *, counted: bool = True) -> Queues:
        """Return every queue that has limits, or a run that is open, failed or held, by name, with
        its counts; if they are not `counted`, those with limits only, without reading runs."""
        ...

    def put_schedule(self, row: ScheduleRow, expected_cursor_us: int | None) -> bool:
        """Write a schedule if it has the expected cursor (None: there is no schedule yet). Return whether
        the store has this row now. If a connection breaks at the commit, two writers of the same row
        both get True, since the row does not say who wrote it."""
        ...

    def schedules(self) -> Schedules:
        """Return the schedules, by name."""
        ...

    def whole(self, row: RunRow) -> WholeRun:
        """Return a run with all its data, verified, all from one state of the store. Raises
        RunDeleted if the run was removed since the row was read."""
        ...

    def put_whole(self, run: WholeRun) -> bool:
        """Write a run of another store without an owner, with its chain unchanged. Return False if
        it is here already, equal up to the copied end; raise RunConflict if it differs."""
        ...

    def owner_name(self, owner: int | None) -> str:
        """Describe an owner for people: process id and host, or `nobody`."""
        ...

    def owner_is_dead(self, owner: int) -> bool:
        """Return whether an owner is proven dead; an expired lease is no proof."""
        ...

    def post(self, run_id: str, message: Message, etag: str | None = None) -> Posted:
        """Put a message into the inbox of a run; its id is unique per run. Refused after the run
        has ended or failed (`lifecycle.ENDED`) or was moved to another store, except for an existing
        id. With an
        `etag` (`rows.etag_of`), raises `StaleView` if the run has another one now."""
        ...

    def inbox(self, run_no: int, after: int = 0) -> Messages:
        """Return the messages after a number that no write has taken yet, oldest first, verified.
        Reads only messages after that number."""
        ...

    def messages(self, run_no: int) -> AllMessages:
        """Return every message of a run, oldest first, verified, each with the number of the entry
        that took it."""
        ...

    def message(self, run_no: int, message_id: str) -> tuple[Message, int | None] | None:
        """Return one message by its id, verified, with the number of the entry that took it."""
        ...

    def news(self, run_nos: Sequence[int]) -> dict[int, int]:
        """Return the number of the newest untaken message, for those of these runs that have
        one."""
        ...

    def questions(self, run_id: str | None = None, limit: int = 1000) -> Questions:
        """Return the open questions of runs, oldest first."""
        ...

    def account(self, root: str) -> Account | None:
        """Return the account of a family of runs."""
        ...

    def put_account(self, account: Account, *, only_new: bool = False) -> Account:
        """Set the limits of a family's account, which is created if missing; the spent amounts
        stay. With `only_new`, an existing account is not changed. Return the current account."""
        ...

    def memo(self, space: str, key: str) -> Memo | None:
        """Return a value of a memory, unless it has expired or was removed."""
        ...

    def memos(self, space: str, prefix: str = "", after: str = "", limit: int = 100) -> Memos:
        """Return values of a memory in order of their keys, after the key `after`."""
        ...

    def spaces(self) -> Names:
        """Return the names of the memories, in order, including those whose values have all
        expired."""
        ...

    def put_memo(self, memo: Memo, expected: int | None = None) -> Memo | None:
        """Write a value of a memory; return it with its new version. With `expected`, write only if
        this is the current version (0: no value), otherwise return None."""
        ...

    def put_memos(self, memos: Sequence[Memo], expected: Sequence[Memo] = ()) -> bool:
        """Write values of memories, all or none; their own expected versions are ignored. With
        `expected`, write only if each of these has its expected version, otherwise return False;
        these are not written and need not be among the written ones."""
        ...

    def expired_memos(self, space: str | None = None, limit: int = 500) -> Memos:
        """Return expired values that are not removed yet, of one memory or of all."""
        ...

    def drop_memos(self, before_us: int) -> int:
        """Delete values of memories that expired or were removed before this time, up to a thousand
        per call. Return the number; their versions start again."""
        ...

    def put_measures(self, measures: Sequence[Measure]) -> None:
        """Write measures of a process. A measure of the same minute, process and flow is replaced,
        so a repeated write changes nothing. No process is notified."""
        ...

    def measures(self, after_us: int, before_us: int, limit: int = 100_000) -> Measured:
        """Return the measures of the minutes from `after_us` on that begin before `before_us`, in
        order; damaged ones are only named."""
        ...

    def drop_measures(self, before_us: int) -> int:
        """Delete measures of minutes before this, up to a thousand per call; return the number."""
        ...

    def forget(self, row: RunRow, at_us: int) -> bool:
        """Remove the journal, chunks, messages, keys, questions and account of an ended run, and mark
        its row as deleted. Return False if the row has changed since it was read, or if a fork that
        is not deleted depends on it (its `origin`). Only for a run that has ended
        (`lifecycle.ENDED`); safe to repeat."""
        ...

    def verify(
        self, run_ids: Iterable[str] | None = None, progress: Progress = no_progress
    ) -> Findings:
        """Check everything: pages, rows, chains, chunks, keys, that rows and journals agree, and
        that no acknowledged commit is missing. All data is read from one state of the store, so
        that concurrent writes are not reported as damage. An unknown id raises `RunNotFound`."""
        ...

    def backup(self, path: str, progress: Progress = no_progress) -> None:
        """Write a consistent copy that opens as a new incarnation."""
        ...

    def wait_for_change(self, timeout_s: float) -> bool:
        """Block until another commit may have changed the store, or the time has passed."""
        ...

    def close(self, *, at_work: bool = False) -> None:
        """Release everything; safe to call twice. If code of runs is still `at_work` in this
        process, its owners are not reported dead: their effects may still happen."""
        ...
