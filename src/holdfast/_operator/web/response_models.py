"""Response models. The description of the API is generated from these structs; they hold the views of
the read model, which the command line shows too."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from holdfast._features.drift.comparison import ResumePreview
from holdfast._features.operator_side import Explanation
from holdfast._features.rollback.operator import RollbackPreview
from holdfast._features.schedules.operator import ScheduleView
from holdfast._features.watchdog.model import Finding
from holdfast._operator.act.fork import ForkPreview
from holdfast._operator.act.queue_admin import Resumed
from holdfast._operator.explain.causes import Cause
from holdfast._operator.explain.doubts import DoubtView
from holdfast._operator.read.question_views import QuestionView, Unreadable
from holdfast._operator.read.queue_views import QueueView, WorkerView
from holdfast._operator.read.run_views import RunSummary, RunView
from holdfast._operator.read.snapshots import Difference, SnapshotView, StateView
from holdfast._operator.read.step_views import StepView
from holdfast._operator.read.timeline import Timeline
from holdfast._operator.read.trends import Trends
from holdfast._stores.audit_log import AuditView


class Told(msgspec.Struct):
    """An answer; `version` is that of its shape."""

    version: int = 1


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
    expires_at: dt.datetime
    store: StorePlace
    warning: str | None
    """Which acknowledged commits the store has lost, if it has."""
    now: dt.datetime


class Runs(Told, kw_only=True):
    """A page of the list. With `next` there may be more, also if this page is not full."""

    runs: list[RunSummary]
    next: str | None
    counts: dict[str, int] | None
    """Open, abandoned, failed and held runs of all queues; null if they could not be read."""


class Run(Told, kw_only=True):
    """A run, and what a person needs to decide about it."""

    run: RunView
    steps_total: int
    etag: str
    """The version of the run, which a decision sends back as If-Match."""
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


class HistoryTold(Told, kw_only=True):
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


class StateDiff(Told, kw_only=True):
    """What changed between two snapshots."""

    before: SnapshotView
    after: SnapshotView
    differences: list[Difference]
    cut: bool
    """Whether there are more than are listed."""


class ResumePreviewTold(Told, kw_only=True):
    """What a run would find if it went on now."""

    preview: ResumePreview


class RollbackPreviewTold(Told, kw_only=True):
    """What a rollback would do."""

    preview: RollbackPreview


class ForkPreviewTold(Told, kw_only=True):
    """What a fork would repeat."""

    preview: ForkPreview


class Pending(Told, kw_only=True):
    """What waits for a person."""

    questions: list[QuestionView]
    doubts: list[DoubtView]
    troubles: list[Unreadable]
    """Runs that may wait for somebody, and are damaged."""
    held: list[Cause]
    """What holds runs, each cause once; of the newest runs that are held."""


class Fleet(Told, kw_only=True):
    """Who works, on what."""

    workers: list[WorkerView] | None
    queues: list[QueueView] | None
    schedules: list[ScheduleView] | None
    """Null is what could not be read."""
    troubles: list[str]
    """What of this could not be read, and why."""


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


class Audit(Told, kw_only=True):
    """Who changed what belongs to no run, the newest first."""

    audit: list[AuditView]


class SignedIn(Told, kw_only=True):
    """Who is signed in."""

    actor: str
    role: str
    csrf: str
    """The second secret: sent back as X-Holdfast-CSRF with every request. It is told only here."""


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
    input_checked: bool | None = None
    """False: an input was given, and was not checked against the flow's code; null: none was given."""


class ResumedAll(Told, kw_only=True):
    """What became of each run."""

    resumed: list[Resumed]


class QueueTold(Told, kw_only=True):
    """A queue as it is now."""

    queue: QueueView


class ScheduleTold(Told, kw_only=True):
    """A schedule as it is now."""

    schedule: ScheduleView
