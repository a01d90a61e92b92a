"""What is asked and what is answered, as structs: requests are read by them, answers are written by
them, and the description of the API is made of them. Unknown fields of a request are refused."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holdfast._core.comparing import Preflight
from holdfast._core.findings import Finding
from holdfast._ops.differences import Difference
from holdfast._ops.explanation import Explanation
from holdfast._ops.inbox import DoubtView
from holdfast._ops.inspect import RunSummary, RunView, StepView
from holdfast._ops.people import QuestionView
from holdfast._ops.queues import QueueView, WorkerView
from holdfast._ops.rollback import RollbackPlan
from holdfast._ops.schedules import ScheduleView
from holdfast._ops.snapshots import SnapshotView, StateView
from holdfast._ops.timeline import Timeline
from holdfast._ops.trends import Trends

PAGE_MAX = 500
Id = Annotated[str, Meta(min_length=1, max_length=1000)]
Text = Annotated[str, Meta(max_length=1000)]
Reason = Annotated[str, Meta(max_length=10_000)]
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]
Number = Annotated[int, Meta(ge=0, le=2**53)]


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of a query, or a body."""


class Told(msgspec.Struct):
    """An answer; `version` is that of its shape."""

    version: int = 1


# -- looking -----------------------------------------------------------------------------------


class RunsQuery(Asked):
    """Which runs; every filter is one of this list."""

    status: list[Text] = []
    flow: Text | None = None
    queue: Text | None = None
    held: Text | None = None
    tag: Text | None = None
    """NAME=VALUE."""
    flow_version: Text | None = None
    parent: Text | None = None
    finding: Text | None = None
    older_than: Text | None = None
    """Not changed for so long: 30s, 10m, 2h, 7d."""
    id_part: Text | None = None
    """Stands somewhere in the run id."""
    limit: Limit = 50
    before: Number | None = None
    """The `next` of the page before."""


class RunQuery(Asked):
    """Which run."""

    id: Id


class WholeQuery(Asked):
    """Which run, and whether large values are shown whole."""

    id: Id
    full: bool = False
    steps: Annotated[int, Meta(ge=1, le=2000)] = 200
    """How many of the last steps."""


class StepsQuery(Asked):
    """Which steps of a run, by their place."""

    id: Id
    after: Number = 0
    limit: Annotated[int, Meta(ge=1, le=2000)] = 200


class EntriesQuery(Asked):
    """Which entries of a journal."""

    id: Id
    after: Number = 0
    limit: Limit = 200
    step: Text | None = None
    full: bool = False
    """Whether values over 64 KiB are shown whole."""


class TailQuery(Asked):
    """From which entry on; the header Last-Event-ID comes first."""

    id: Id
    after: Number = 0


class StateQuery(Asked):
    """Which snapshot; without `seq` the newest."""

    id: Id
    seq: int | None = None
    path: Text | None = None
    full: bool = False


class DifferencesQuery(Asked):
    """Between which snapshots."""

    id: Id
    from_: int = msgspec.field(name="from")
    to: int
    path: Text | None = None


class RollbackQuery(Asked):
    """Of which run, and down to which step."""

    id: Id
    to: Text | None = None


class ForkQuery(Asked):
    """Of which run, before which step."""

    id: Id
    before: Text
    new_run_id: Text | None = None


class InboxQuery(Asked):
    """Whose questions, and how many."""

    to: Text | None = None
    limit: Limit = 100


class TrendsQuery(Asked):
    """How far back, and of which flow."""

    hours: float = 24.0
    flow: Text | None = None


class NameQuery(Asked):
    """Which one, by its name."""

    name: Id


class Health(msgspec.Struct):
    """That the server answers; nothing else is said to somebody unknown."""

    ok: bool = True


class StorePlace(msgspec.Struct):
    """Where runs are kept."""

    url: str
    namespace: str


class Me(Told, kw_only=True):
    """Who asks, and what of."""

    actor: str
    role: str
    csrf: str | None
    expires_at: dt.datetime
    store: StorePlace
    warning: str | None
    """Which acknowledged commits the store has lost, if it has."""
    now: dt.datetime


class Runs(Told, kw_only=True):
    """A page of the list. With `next` there may be more, also if this page is not full."""

    runs: list[RunSummary]
    next: str | None
    counts: dict[str, int]
    """Open, failed and held runs of all queues."""


class Run(Told, kw_only=True):
    """A run, and what a person needs to decide about it."""

    run: RunView
    steps_total: int
    seen: str
    """What a decision sends back as If-Match."""
    explanation: Explanation | None
    findings: list[Finding]
    questions: list[QuestionView]
    doubts: list[DoubtView]
    trace_id: str


class Steps(Told, kw_only=True):
    """Some steps of a run."""

    steps: list[StepView]
    total: int
    next: int | None


class EntryData(msgspec.Struct):
    """An entry of a journal."""

    seq: int
    kind: str
    step: str | None
    attempt: int
    at: dt.datetime
    body: dict[str, Any]
    """What the entry says. A value that is too large is `{"…clipped": bytes}`."""


class Entries(Told, kw_only=True):
    """Some entries of a journal."""

    entries: list[EntryData]
    next: int | None
    """What `after` is for the next page; None at the end."""
    last: int
    """The number of the last entry."""


class TimelineTold(Told, kw_only=True):
    """A run over time."""

    timeline: Timeline


class Snapshots(Told, kw_only=True):
    """The snapshots of a run's loops."""

    snapshots: list[SnapshotView]


class State(Told, kw_only=True):
    """The state that a snapshot has."""

    state: StateView


class Differences(Told, kw_only=True):
    """What changed between two snapshots."""

    before: SnapshotView
    after: SnapshotView
    differences: list[Difference]
    cut: bool
    """Whether there are more than are listed."""


class PreflightTold(Told, kw_only=True):
    """What a run would find if it went on now."""

    preflight: Preflight


class RollbackTold(Told, kw_only=True):
    """What a rollback would do."""

    plan: RollbackPlan


class Repeat(msgspec.Struct):
    """An effect that would be executed again."""

    step: str
    what: str


class ForkTold(Told, kw_only=True):
    """What a fork would repeat."""

    origin: str
    before: str
    effects: list[Repeat]


class Inbox(Told, kw_only=True):
    """What waits for a person."""

    questions: list[QuestionView]
    doubts: list[DoubtView]


class Fleet(Told, kw_only=True):
    """Who works, on what."""

    workers: list[WorkerView]
    queues: list[QueueView]
    schedules: list[ScheduleView]


class Findings(Told, kw_only=True):
    """What the watchdog finds now."""

    findings: list[Finding]
    looked_at: int
    complete: bool
    """Whether all open and failed runs were looked at; else the newest."""
    troubles: list[str]
    """What is wrong with the store as a whole."""


class TrendsTold(Told, kw_only=True):
    """What was measured over time."""

    trends: Trends


# -- acting ------------------------------------------------------------------------------------


class SignIn(Asked):
    """The credential."""

    token: Annotated[str, Meta(max_length=1000)] = ""


class Reasoned(Asked):
    """Why, for those who read the journal."""

    reason: Reason = ""


class Resume(Asked):
    """How a run is taken up again."""

    accept_change: bool = False
    confirm: bool = False
    drift: Literal["go_on", "redo"] | None = None


class Settle(Asked):
    """What became of an effect in doubt."""

    step: Text
    as_: Literal["done", "not_done", "fail"] = msgspec.field(name="as")
    result: Any = None
    reason: Reason = ""
    confirm: bool = False
    """`not_done` executes it: that needs a second yes."""


class Rollback(Asked):
    """Down to which step, and whether what cannot be undone may stay."""

    to: Text | None = None
    reason: Reason = ""
    confirm: bool = False


class Fork(Asked):
    """A new run from before a step."""

    new_run_id: Text
    before: Text
    input: dict[str, Any] | None = None
    confirm: bool = False


class RaiseBudget(Asked):
    """New limits, as a whole; those that are not given stay."""

    usd: float | None = None
    tokens: int | None = None
    steps: int | None = None
    wall: Text | float | None = None


class Signal(Asked):
    """Something that is said to a run."""

    name: Text
    value: Any = None
    signal_id: Text | None = None


class Answer(Asked):
    """An answer to a question."""

    name: Text
    answer: Any
    number: int | None = None


class Refuse(Asked):
    """A refusal of a question or an approval."""

    name: Text
    reason: Reason = ""
    number: int | None = None


class Approve(Asked):
    """An approval of exactly the arguments that have this digest."""

    name: Text
    digest: Text
    number: int | None = None


class QueueLimits(Asked):
    """What a queue allows; what is not given stays, null takes a limit away."""

    concurrency: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    per_key: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    rate: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    per_key_rate: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    per_s: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    paused: bool | UnsetType = UNSET


class Pause(Asked):
    """Whether a schedule is paused."""

    paused: bool


class SignedIn(Told, kw_only=True):
    """Who is signed in."""

    actor: str
    role: str


class SignedOut(Told, kw_only=True):
    """That the session has ended."""

    ok: bool = True


class Acted(Told, kw_only=True):
    """What a decision did, and what happens next."""

    run_id: str
    status: str
    did: str
    recorded: bool = True
    """False: a live process has the run and was asked, or there was nothing to do."""
    goes_on: bool = False
    """Whether the run waits for a process that has its flow."""
    freed: tuple[str, ...] = ()
    """Other runs that waited for this."""
    effects: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


class Forked(Told, kw_only=True):
    """The fork that was made."""

    run_id: str
    did: str
    origin: str
    before: str
    repeats: tuple[str, ...]
    created: bool


class QueueTold(Told, kw_only=True):
    """A queue as it is now."""

    queue: QueueView


class ScheduleTold(Told, kw_only=True):
    """A schedule as it is now."""

    schedule: ScheduleView
