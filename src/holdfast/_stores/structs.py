"""The small structs of the store contract: parameters and results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum

import msgspec

from holdfast._engine.journal.entries import Draft, Entry
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import (
    Account,
    KeyState,
    Lease,
    Message,
    Question,
    Refused,
    RunRow,
)
from holdfast._engine.telemetry.measures import Measure


class NewRun(msgspec.Struct):
    """A run to start; the drafts begin with `run_started`."""

    run_id: str
    flow: str
    version: str
    input_digest: bytes
    drafts: list[Draft]
    chunks: list[tuple[int, bytes]] = []
    tags: str = "{}"
    origin_etag: str | None = None
    """For a fork: refused unless its origin has this etag."""
    queue: str | None = None
    """None is the queue `default`."""
    priority: int | None = None
    """Larger numbers come first; None is 0."""
    limit_key: str | None = None
    """Runs of a queue with the same key share its limits per key."""
    wake_us: int | None = None
    """Workers do not claim the run before this time."""
    parent: str | None = None
    root: str | None = None
    origin: str | None = None
    next_chunk: int = 1
    """Its first own chunk number; a fork continues the numbers of its origin."""


class Fenced(msgspec.Struct):
    """The write was refused: the epoch is no longer the writer's. Zero rows were changed."""


class Committed(msgspec.Struct):
    """The write is durable; `entries` are sealed."""

    entries: list[Entry]


class Broken(msgspec.Struct):
    """The write was refused for its own error (an illegal entry, an effect in a store that lost
    commits). Zero rows were changed; the rest of the batch is not affected."""

    error: Exception


Outcome = Committed | Fenced | Refused | Broken


class Started(msgspec.Struct):
    """The result of `start`. `lease` is set if the run was created and claimed here; `entries` may
    be set, to save a read of the entries just written."""

    row: RunRow
    created: bool
    lease: Lease | None = None
    entries: list[Entry] | None = None


class Busy(msgspec.Struct):
    """A claim was refused: `owner` (a text) may still be alive, or the run is not claimable."""

    row: RunRow
    owner: str


class Query(msgspec.Struct):
    """Filters of `list`; None means any. Newest first."""

    status: Sequence[Status] | None = None
    flow: str | None = None
    tag: tuple[str, str] | None = None
    run_id_prefix: str | None = None
    run_id_part: str | None = None
    """A part of the run id."""
    updated_before_us: int | None = None
    updated_after_us: int | None = None
    """Changed at this time, or later."""
    queue: str | None = None
    held_reason: str | None = None
    parent: str | None = None
    forks: bool = False
    """Only forks."""
    version: str | None = None
    """The version of the flow."""
    limit: int = 100
    before_run_no: int | None = None


class Again(msgspec.Struct):
    """Held runs that a worker tries again, because its code differs from the code that held
    them."""

    token: str
    """The token on which they are held (`waiting_on`)."""
    body: bytes
    """The body of `run_released`, with the reason."""


class Wanted(msgspec.Struct):
    """A worker's request for `take`."""

    owner: int
    limit: int
    at_us: int
    flows: Mapping[str, Sequence[str]] | None = None
    """The versions that it can execute, by flow name; None means any."""
    queues: Sequence[str] | None = None
    """The queues, in order; None means all."""
    working: Collection[int] = ()
    """The numbers of runs that this process executes; it may take its other own runs again."""
    suspects: bool = False
    """Whether it requests only suspects (`claim_rules.is_suspect`); otherwise it receives none."""
    passed_over: bool = False
    """Set by the store: a suspect was skipped."""
    quarantined: list[RunRow] = []
    """Set by the store: runs that were held instead of claimed."""
    unfit: Collection[int] = ()
    """Numbers of runs to leave to other workers, because this worker's code could not replay
    them."""
    again: Again | None = None
    """Requests only these held runs; then `queues` names their queue."""


class Limits(msgspec.Struct):
    """The limits of a queue, across the whole fleet; None means no limit."""

    queue: str
    concurrency: int | None = None
    """The maximum number of running runs."""
    concurrency_per_key: int | None = None
    """The same for runs with one limit key."""
    rate: int | None = None
    """The maximum number of first claims in any `period_us`."""
    rate_per_key: int | None = None
    period_us: int = 60_000_000
    paused: bool = False
    """Whether no runs are taken from it; running runs continue."""


class QueueState(msgspec.Struct):
    """The current state of a queue."""

    limits: Limits
    ready: int = 0
    """Due runs that no process executes."""
    delayed: int = 0
    """Runs that wait for a time or a message and that no process executes."""
    running: int = 0
    """Runs that a process executes."""
    failed: int = 0
    held: int = 0
    quarantined: int = 0
    """The quarantined ones of the held runs."""
    oldest_us: int | None = None
    """The time since which the oldest run has waited for a worker: for a ready run its last change,
    for an abandoned one its last change or the last heartbeat of its process."""
    abandoned: int = 0
    """Runs whose process is proven dead or whose lease has expired, and that no process has claimed
    since."""


class Pulse(msgspec.Struct):
    """A process that may own runs, with the expiry of its pulse."""

    owner: int
    name: str
    until_us: int
    facts: str
    """JSON: a description (for a worker: its queues, flows, concurrency, running runs)."""


class ScheduleRow(msgspec.Struct):
    """The state of a schedule: all ticks up to `cursor_us` have their run."""

    name: str
    flow: str
    spec: str
    """JSON: times, time zone, policy for missed ticks, input."""
    cursor_us: int
    paused: bool = False


class WholeRun(msgspec.Struct):
    """A run with all its data, for a move from one store to another."""

    row: RunRow
    entries: list[Entry]
    chunks: Mapping[int, bytes]
    keys: list[KeyState]
    messages: list[tuple[Message, int | None]]
    """Each with the number of the entry that took it."""
    questions: list[Question] = []
    """The open questions."""
    account: Account | None = None
    """The account of its family, if it is the root."""


class Measured(msgspec.Struct):
    """Measures, in the order of their minute, process and flow."""

    rows: list[Measure] = []
    damaged: list[str] = []
    """Descriptions of damaged rows, which are not among the rows."""


Progress = Callable[[str, int, int], None]
"""Receives the name of the work, the finished amount, and the total: `("runs", 3, 100)`; a total of
0 means unknown."""


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore the progress."""


LOST_END = "the end of the store"
"""The subject of a finding that acknowledged commits are missing."""


class Damage(msgspec.Struct):
    """One damage that `verify` found."""

    what: str
    why: str
    run_id: str | None = None


class Posted(Enum):
    """The result of posting a message."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    """The run has ended or failed, so it would not read the message."""
