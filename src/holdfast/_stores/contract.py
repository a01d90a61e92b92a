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
"""Named, because inside `Store` the word `list` is one of its operations."""


class EndedByItself(UsageError):
    """The work inside a transaction of the store has ended it: what it did before may stay."""


@runtime_checkable
class Store(Protocol):
    """Everything the runtime and the operators' tools ask of a store."""

    url: str
    namespace: str
    store_id: str
    lease_s: float

    @property
    def path(self) -> str | None:
        """The file that it is kept in; None if it is not kept in a file."""
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
        """Return the version of its schema, which may be newer than ours; None if it has none."""
        ...

    def accepted_through(self) -> int:
        """Return the largest run number that existed at the last `accept_data_loss`, or 0."""
        ...

    def accept_data_loss(self, actor: str) -> str:
        """Accept the store as it is now; opens a new incarnation. Returns what was accepted."""
        ...

    def register_owner(self) -> int:
        """Make this process an owner with a kernel lock that dies with it; returns its number.
        Called again after a fork it registers anew."""
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
        """Create the run, claimed by `owner` if given (entry `run_claimed`, epoch 1); or return
        the one that exists, unchanged."""
        ...

    def start_all(self, news: Sequence[tuple[NewRun, int | None]]) -> StartedRuns:
        """`start` for several runs, in one transaction and in order."""
        ...

    def claim(self, run_id: str, owner: int, at_us: int) -> Lease | Busy:
        """Take the run for execution if its status is claimable and nobody alive has it: epoch
        + 1, entry `run_claimed` (body says why: free, owner dead, lease expired), claims + 1.
        The fifth claim in a row that brought nothing holds it as quarantined instead (Busy).
        Raises RunNotFound."""
        ...

    def take(self, wanted: Wanted) -> Leases:
        """Claim runs that are due, each as `claim` would, up to a limit: queue by queue in turns,
        within a queue by priority and then by age, and within the limits of the queues. A run
        that was at work already (its owner died) needs no room in its queue. Suspects are given
        only to those who ask for them, and then nothing else. Held runs are given only to those who
        ask for them (`wanted.again`): `run_released` and `run_claimed` are written in one
        transaction, if the run is still held on the same."""
        ...

    def append_within(self, lease: Lease, work: Callable[[Any], Write]) -> Outcome:
        """Commit what `work` does with a connection of this database together with the write that
        it returns. If it raises, or the write is refused, nothing of it has happened. The lease
        has no write under way; the connection must not be committed or rolled back by `work`: what
        cannot be refused is found out, and raises EndedByItself."""
        ...

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        """Commit a batch in one transaction, in order; a refused write fails alone. On return
        each committed lease's `row` is the new row. Renewal is a write without drafts.
        Raises StoreFull (nothing of the batch was written, may be tried again) or StoreFailed
        (I/O error: this handle is dead). An error of one write (StoreLostData, an illegal entry) is
        raised if the batch has no other write, else it is the `Broken` of that write."""
        ...

    def get(self, run_id: str) -> RunRow | None:
        """Return the verified row; absence is confirmed by a second path."""
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
        """Return chunk `number` of a run, verified, with some that stand before it. Raises RunDeleted
        if the run was removed."""
        ...

    def key(self, effect: str, key: str) -> KeyState | None:
        """Return a claimed key; absence is confirmed by a second path."""
        ...

    def waiting_on(self, token: str) -> Rows:
        """Return the runs whose `waiting_on` is this token."""
        ...

    def held_on(self, prefix: str, after: str = "", limit: int = 500) -> Names:
        """Return the different tokens that begin with `prefix` and on which runs are held, in order,
        from the one behind `after` on. Its cost depends on how many tokens there are, not on how many
        runs are held on each."""
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
        """Write a schedule if its cursor is as expected (None: there is none yet). Returns whether it
        stands there as given: two writers of the same row are both told so where a connection breaks
        at its commit, since the row is the same whoever of them wrote it."""
        ...

    def schedules(self) -> Schedules:
        """Return the schedules, by name."""
        ...

    def whole(self, row: RunRow) -> WholeRun:
        """Return a run as its row says, with everything that belongs to it, verified: all read at
        one moment. Raises RunDeleted if the run was removed since the row was read."""
        ...

    def put_whole(self, run: WholeRun) -> bool:
        """Write a run of another store, unowned, with its chain as it is. False if it is here
        already, equal up to where it came from; raises RunConflict if it differs."""
        ...

    def owner_name(self, owner: int | None) -> str:
        """Describe an owner for people: process id and host, or `nobody`."""
        ...

    def owner_is_dead(self, owner: int) -> bool:
        """Return whether an owner is proven dead; an expired lease is no proof."""
        ...

    def post(self, run_id: str, message: Message, etag: str | None = None) -> Posted:
        """Put a message into the inbox of a run; its id is unique per run. Refused once the run has
        ended or failed (`lifecycle.ENDED`), or was moved to another store, but for an id that is there
        already. With an
        `etag` (`rows.etag_of`), raises `StaleView` if the run has another one now."""
        ...

    def inbox(self, run_no: int, after: int = 0) -> Messages:
        """Return the messages behind a number that no write has taken yet, oldest first, verified.
        Reads only what came after that number."""
        ...

    def messages(self, run_no: int) -> AllMessages:
        """Return every message of a run, oldest first, verified, each with the number of the entry
        that took it."""
        ...

    def message(self, run_no: int, message_id: str) -> tuple[Message, int | None] | None:
        """Return one message by its id, verified, with the number of the entry that took it."""
        ...

    def news(self, run_nos: Sequence[int]) -> dict[int, int]:
        """Return the number of the newest message that is not taken, for those of these runs that
        have one."""
        ...

    def questions(self, run_id: str | None = None, limit: int = 1000) -> Questions:
        """Return the open questions of runs, oldest first."""
        ...

    def account(self, root: str) -> Account | None:
        """Return the account of a family of runs."""
        ...

    def put_account(self, account: Account, *, only_new: bool = False) -> Account:
        """Set the limits of a family's account, which is made if there is none; what was spent stays as
        it is. With `only_new`, one that is there is left alone. Returns the account as it is now."""
        ...

    def memo(self, space: str, key: str) -> Memo | None:
        """Return a value of a memory, unless its time is over or it was removed."""
        ...

    def memos(self, space: str, prefix: str = "", after: str = "", limit: int = 100) -> Memos:
        """Return values of a memory by key, in order, from the key behind `after` on."""
        ...

    def spaces(self) -> Names:
        """Return the names of the memories, in order, also of those whose values are all over."""
        ...

    def put_memo(self, memo: Memo, expected: int | None = None) -> Memo | None:
        """Write a value of a memory; returns it with its new version. With `expected` only if it
        has this version now (0: there is none), else None."""
        ...

    def put_memos(self, memos: Sequence[Memo], expected: Sequence[Memo] = ()) -> bool:
        """Write values of memories, all or none; what they expect is not looked at. With `expected`
        only if each of these has the version now that it expects, else False; they are not written,
        and need not be among those that are."""
        ...

    def expired_memos(self, space: str | None = None, limit: int = 500) -> Memos:
        """Return values whose time is over and which nobody has removed, of one memory or of all."""
        ...

    def drop_memos(self, before_us: int) -> int:
        """Remove values of memories whose time was over before this, or which were removed before;
        up to a thousand at once. Returns how many; their versions count anew."""
        ...

    def put_measures(self, measures: Sequence[Measure]) -> None:
        """Write measures of a process. A measure of the same minute, process and flow is replaced, so
        a repeated write changes nothing. Nobody is notified."""
        ...

    def measures(self, after_us: int, before_us: int, limit: int = 100_000) -> Measured:
        """Return the measures of the minutes from `after_us` on that begin before `before_us`, in
        order; those that are damaged are only named."""
        ...

    def drop_measures(self, before_us: int) -> int:
        """Remove measures of minutes before this, up to a thousand at once; returns how many."""
        ...

    def forget(self, row: RunRow, at_us: int) -> bool:
        """Remove the journal, chunks, messages, keys, questions and account of an ended run, and mark
        its row as deleted. False if the row is no longer as it was read, or if a fork that is not
        deleted stands on it (its `origin`). Only for a run that has ended (`lifecycle.ENDED`); safe
        to repeat."""
        ...

    def verify(
        self, run_ids: Iterable[str] | None = None, progress: Progress = no_progress
    ) -> Findings:
        """Check everything: pages, rows, chains, chunks, keys, that rows and journals agree, and that
        no acknowledged commit is missing. All of it is read in one state of the store, so that
        nothing that others write meanwhile is taken for damage. An id that no run has is
        `RunNotFound`."""
        ...

    def backup(self, path: str, progress: Progress = no_progress) -> None:
        """Write a consistent copy that opens as a new incarnation."""
        ...

    def wait_for_change(self, timeout_s: float) -> bool:
        """Block until another commit may have changed the store, or the time has passed."""
        ...

    def close(self, *, at_work: bool = False) -> None:
        """Release everything; safe to call twice. With code of runs still `at_work` in this process
        its owners are not given out as dead: what they began may yet happen."""
        ...
