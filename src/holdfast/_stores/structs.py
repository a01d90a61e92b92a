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
    """A run to be started; the drafts begin with `run_started`."""

    run_id: str
    flow: str
    version: str
    input_digest: bytes
    drafts: list[Draft]
    chunks: list[tuple[int, bytes]] = []
    tags: str = "{}"
    origin_etag: str | None = None
    """Of a fork: refused unless the run that it comes from has this etag."""
    queue: str | None = None
    """None is the queue `default`."""
    priority: int | None = None
    """Larger comes first; None is 0."""
    limit_key: str | None = None
    """Runs of a queue that share one of these share its limits per key."""
    wake_us: int | None = None
    """Not to be claimed by a worker before this time."""
    parent: str | None = None
    root: str | None = None
    origin: str | None = None
    next_chunk: int = 1
    """The first chunk number that is its own; a fork goes on where the other run stood."""


class Fenced(msgspec.Struct):
    """The write was refused: the epoch is no longer the writer's. Zero rows were changed."""


class Committed(msgspec.Struct):
    """The write is durable; `entries` as sealed."""

    entries: list[Entry]


class Broken(msgspec.Struct):
    """The write was refused by an error of its own (an illegal entry, an effect in a store that
    lost commits). Zero rows were changed; the rest of the batch is not concerned."""

    error: Exception


Outcome = Committed | Fenced | Refused | Broken


class Started(msgspec.Struct):
    """The result of `start`. `lease` is set if it was made here and claimed; `entries` may be,
    to save a look at what was written a moment ago."""

    row: RunRow
    created: bool
    lease: Lease | None = None
    entries: list[Entry] | None = None


class Busy(msgspec.Struct):
    """A claim was refused: `owner` (readable) may still be alive, or the run is not claimable."""

    row: RunRow
    owner: str


class Query(msgspec.Struct):
    """Filters of `list`; None means any. Newest first."""

    status: Sequence[Status] | None = None
    flow: str | None = None
    tag: tuple[str, str] | None = None
    run_id_prefix: str | None = None
    run_id_part: str | None = None
    """Stands somewhere in the run id."""
    updated_before_us: int | None = None
    updated_after_us: int | None = None
    """Changed at this time, or later."""
    queue: str | None = None
    held_reason: str | None = None
    parent: str | None = None
    forks: bool = False
    """Only runs that were forked from others."""
    version: str | None = None
    """Of the flow."""
    limit: int = 100
    before_run_no: int | None = None


class Again(msgspec.Struct):
    """Held runs that a worker tries again, because its code is not the code that they are held by."""

    token: str
    """The token that they are held on (`waiting_on`)."""
    body: bytes
    """The body of the `run_released` that says why."""


class Wanted(msgspec.Struct):
    """The request of a worker to `take`."""

    owner: int
    limit: int
    at_us: int
    flows: Mapping[str, Sequence[str]] | None = None
    """The versions that it can execute, by the name of the flow; None means any."""
    queues: Sequence[str] | None = None
    """In the order in which they are looked at; None means all."""
    working: Collection[int] = ()
    """Run numbers that are at work in this process; others of its own it may take again."""
    suspects: bool = False
    """Whether it asks for suspects only (`claim_rules.is_suspect`); else it gets none of them."""
    passed_over: bool = False
    """Written by the store: a suspect was left out whose turn it would have been."""
    quarantined: list[RunRow] = []
    """Written by the store: what was held instead of being given."""
    unfit: Collection[int] = ()
    """Run numbers that are left to others: the code of this worker could not replay them."""
    again: Again | None = None
    """Asks for these held runs, and for nothing else; then `queues` names the one that they are in."""


class Limits(msgspec.Struct):
    """The limits of a queue, across the whole fleet; None means no limit."""

    queue: str
    concurrency: int | None = None
    """Runs at work at one time."""
    concurrency_per_key: int | None = None
    """The same for runs that share a limit key."""
    rate: int | None = None
    """First claims in any `period_us`."""
    rate_per_key: int | None = None
    period_us: int = 60_000_000
    paused: bool = False
    """Nothing of it is taken; what is at work goes on."""


class QueueState(msgspec.Struct):
    """A queue as it stands."""

    limits: Limits
    ready: int = 0
    """Runs that nobody works on and that are due."""
    delayed: int = 0
    """Runs that nobody works on and that are not due yet, by a time or a message."""
    running: int = 0
    """Runs that a process works on."""
    failed: int = 0
    held: int = 0
    quarantined: int = 0
    """Of the held ones, those that are quarantined."""
    oldest_us: int | None = None
    """Since when the oldest run waits to be taken: a ready one since it was last changed, an abandoned
    one since it was last changed or its process was last heard of."""
    abandoned: int = 0
    """Runs whose process is proven dead or has let their lease run out, and that nobody has taken up
    since."""


class Pulse(msgspec.Struct):
    """A process that may own runs: alive as far as it said."""

    owner: int
    name: str
    until_us: int
    facts: str
    """JSON: what it is (a worker: its queues, flows, concurrency, runs at work)."""


class ScheduleRow(msgspec.Struct):
    """How far a schedule is: all ticks up to `cursor_us` have their run."""

    name: str
    flow: str
    spec: str
    """JSON: when, in which time zone, what is made up for, the input."""
    cursor_us: int
    paused: bool = False


class WholeRun(msgspec.Struct):
    """A run with everything that belongs to it, on its way from one store to another."""

    row: RunRow
    entries: list[Entry]
    chunks: Mapping[int, bytes]
    keys: list[KeyState]
    messages: list[tuple[Message, int | None]]
    """Each with the number of the entry that took it."""
    questions: list[Question] = []
    """Those that are open."""
    account: Account | None = None
    """The account of its family, if it is the root."""


class Measured(msgspec.Struct):
    """Measures, in the order of their minute, process and flow."""

    rows: list[Measure] = []
    damaged: list[str] = []
    """Descriptions of damaged rows, which are not among the rows."""


Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is: `("runs", 3, 100)`; 0 where
that is not known."""


def no_progress(what: str, done: int, total: int) -> None:
    """Tell nobody how far it is."""


LOST_END = "the end of the store"
"""The subject of a finding that acknowledged commits are missing."""


class Damage(msgspec.Struct):
    """One thing that `verify` found wrong."""

    what: str
    why: str
    run_id: str | None = None


class Posted(Enum):
    """The result of posting a message."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    """The run has ended, or failed: nobody would read it."""
