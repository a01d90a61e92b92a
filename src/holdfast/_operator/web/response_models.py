"""Response models. The OpenAPI description is generated from these structs. They contain the views
of the read model, which the command line shows too."""

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
    """A response; `version` is the version of its format."""

    version: int = 1


class Health(msgspec.Struct):
    """Reports that the server answers; nothing else is shown without a credential."""

    ok: bool = True


class StorePlace(msgspec.Struct):
    """The address of the store."""

    url: str
    namespace: str


class Me(Told, kw_only=True):
    """The visitor and the store."""

    actor: str
    role: str
    expires_at: dt.datetime
    store: StorePlace
    warning: str | None
    """The acknowledged commits that the store has lost, if any."""
    now: dt.datetime


class Runs(Told, kw_only=True):
    """A page of the list. With `next` there may be more runs, even if this page is not full."""

    runs: list[RunSummary]
    next: str | None
    counts: dict[str, int] | None
    """Open, abandoned, failed and held runs of all queues; null if they could not be read."""


class Run(Told, kw_only=True):
    """A run, with the data for a decision about it."""

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
    """The content of the entry. A large value is replaced by `{"…clipped": bytes}`."""


class HistoryTold(Told, kw_only=True):
    """Some entries of a journal."""

    entries: list[EntryData]
    next: int | None
    """The `after` of the next page; null at the end."""
    last: int
    """The number of the last entry."""


class TimelineTold(Told, kw_only=True):
    """A run over time."""

    timeline: Timeline


class Snapshots(Told, kw_only=True):
    """The snapshots of a run's loops."""

    snapshots: list[SnapshotView]


class State(Told, kw_only=True):
    """The state of a snapshot."""

    state: StateView


class StateDiff(Told, kw_only=True):
    """The differences between two snapshots."""

    before: SnapshotView
    after: SnapshotView
    differences: list[Difference]
    cut: bool
    """Whether there are more differences than listed."""


class ResumePreviewTold(Told, kw_only=True):
    """The preview of a resume."""

    preview: ResumePreview


class RollbackPreviewTold(Told, kw_only=True):
    """The preview of a rollback."""

    preview: RollbackPreview


class ForkPreviewTold(Told, kw_only=True):
    """The preview of a fork."""

    preview: ForkPreview


class Pending(Told, kw_only=True):
    """Decisions that wait for a person."""

    questions: list[QuestionView]
    doubts: list[DoubtView]
    troubles: list[Unreadable]
    """Damaged runs, which may wait for a person too."""
    held: list[Cause]
    """The causes of held runs, each once; for the newest held runs."""


class Fleet(Told, kw_only=True):
    """Workers, queues and schedules."""

    workers: list[WorkerView] | None
    queues: list[QueueView] | None
    schedules: list[ScheduleView] | None
    """Null if it could not be read."""
    troubles: list[str]
    """The parts that could not be read, and why."""


class Findings(Told, kw_only=True):
    """The current findings of the watchdog."""

    findings: list[Finding]
    looked_at: int
    complete: bool
    """Whether all open and failed runs were examined; otherwise only the newest."""
    troubles: list[str]
    """Problems of the store as a whole."""


class TrendsTold(Told, kw_only=True):
    """Measures over time."""

    trends: Trends


class Audit(Told, kw_only=True):
    """Changes of objects that belong to no run, newest first."""

    audit: list[AuditView]


class SignedIn(Told, kw_only=True):
    """The signed-in visitor."""

    actor: str
    role: str
    csrf: str
    """The second secret: send it as X-Holdfast-CSRF with every request. It is returned only
    here."""


class SignedOut(Told, kw_only=True):
    """Confirms that the session has ended."""

    ok: bool = True


class Acted(Told, kw_only=True):
    """The result of a decision, and the next actions."""

    run_id: str
    status: str
    did: str
    recorded: bool = True
    """False: a live process owns the run and was notified, or there was nothing to do."""
    goes_on: bool = False
    """Whether the run waits for a process that has its flow."""
    freed: tuple[str, ...] = ()
    """Other runs that this freed."""
    effects: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


class Forked(Told, kw_only=True):
    """The new fork."""

    run_id: str
    did: str
    origin: str
    before: str
    repeats: tuple[str, ...]
    created: bool
    input_checked: bool | None = None
    """False: the given input was not checked against the flow's code; null: no input was given."""


class ResumedAll(Told, kw_only=True):
    """The outcome for each run."""

    resumed: list[Resumed]


class QueueTold(Told, kw_only=True):
    """The current state of a queue."""

    queue: QueueView


class ScheduleTold(Told, kw_only=True):
    """The current state of a schedule."""

    schedule: ScheduleView
