"""GET routes. Every route is a function of the read model; a GET changes nothing."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import msgspec

from holdfast._engine.journal.lifecycle import CLAIMABLE, HeldReason, Status
from holdfast._engine.journal.rows import RunRow, etag_of
from holdfast._engine.telemetry.trace_ids import trace_id_of
from holdfast._engine.values.durations import micros
from holdfast._engine.values.moments import at
from holdfast._features.rollback import operator as rollback_views
from holdfast._features.schedules import operator as schedule_admin
from holdfast._features.watchdog import store as watchdog
from holdfast._operator.act import fork as forks
from holdfast._operator.explain import (
    causes,
    doctor,
    doubts as doubt_views,
    status_report as explaining,
)
from holdfast._operator.read import (
    question_views,
    queue_views,
    resume_preview,
    run_views,
    snapshots as snapshots_of,
    timeline as timelines,
    trends as trending,
)
from holdfast._operator.read.step_views import step_views, steps_of
from holdfast._operator.web import request_models, response_models
from holdfast._operator.web.access_tokens import Role
from holdfast._operator.web.http_responses import Problem
from holdfast._operator.web.journals import clipped, history
from holdfast._operator.web.routes import API, Ask, Nothing, Route
from holdfast._stores import audit_log as audits, lineage
from holdfast._stores.addresses import without_password
from holdfast._stores.contract import Query, Store
from holdfast._stores.lookups import existing_row
from holdfast.errors import Corrupt, UsageError

F = TypeVar("F", bound=Callable[..., Any])

STATE_BYTES = 2 << 20
"""A larger state is omitted, unless requested."""
FRESH_S, SURVEY_S = 1.0, 2.0
"""How long counts and findings over all runs are cached."""
EXPLAINED = frozenset({Status.HELD, Status.FAILED, Status.WAITING})


ROUTES: list[Route] = []
"""The routes of this module, declared with `reads`."""


def reads(
    path: str,
    query: type[msgspec.Struct] = Nothing,
    *,
    role: Role | None = Role.VIEWER,
    **more: Any,
) -> Callable[[F], F]:
    """Make a GET route of a function: its docstring is the summary, its return type the response
    model."""

    def add(function: F) -> F:
        answer = get_type_hints(function)["return"]
        whole = path if path.startswith("/") else f"{API}/{path}"
        about = inspect.cleandoc(function.__doc__ or "").partition("\n")[0]
        ROUTES.append(Route("GET", whole, role, about, function, answer, query, **more))
        return function

    return add


# -- server and visitor ------------------------------------------------------------------------


@reads("/health", role=None)
def health(_: Ask) -> response_models.Health:
    """Report that the server answers."""
    return response_models.Health()


@reads("me")
def me(ask: Ask) -> response_models.Me:
    """Show the visitor and the store."""
    session, token = ask.session, ask.visitor.token
    until = token.expires_at
    if session is not None:
        until = dt.datetime.fromtimestamp(session.until_s, dt.UTC)
    return response_models.Me(
        actor=ask.actor,
        role=token.role,
        expires_at=until,
        store=response_models.StorePlace(without_password(ask.store.url), ask.store.namespace),
        warning=ask.store.regression(),
        now=at(ask.store.now_us()),
    )


@reads("/metrics", kind="text")
def metrics(ask: Ask) -> str:
    """Return the store's metrics in the text format of Prometheus."""
    from holdfast._operator.read.store_metrics import store_metrics

    return ask.site.fresh("metrics", FRESH_S, lambda: store_metrics(ask.store))


# -- the list ----------------------------------------------------------------------------------


@reads("runs", request_models.RunsQuery)
def runs(ask: Ask) -> response_models.Runs:
    """List runs, newest first."""
    asked: request_models.RunsQuery = ask.query
    query = Query(
        status=_statuses(asked.status),
        flow=asked.flow,
        queue=asked.queue,
        held_reason=asked.held_reason,
        tag=_tag(asked.tag),
        version=asked.version,
        parent=asked.parent,
        run_id_part=asked.search,
        updated_before_us=_before_us(ask.store, asked.older_than),
        limit=asked.limit,
        before_run_no=asked.before,
    )
    found, before = run_views.page(ask.store, query, asked.finding)
    return response_models.Runs(
        runs=found,
        next=None if before is None else str(before),
        counts=ask.site.fresh("counts", FRESH_S, lambda: _counted(ask.store)),
    )


def _statuses(names: list[str]) -> list[Status] | None:
    try:
        return [Status(name) for name in names] or None
    except ValueError:
        known = ", ".join(Status)
        raise UsageError(f"status={', '.join(names)[:80]!r}: must be one of {known}") from None


def _tag(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"tag must be NAME=VALUE, not {text[:80]!r}")
    return name, value


def _before_us(store: Store, age: str | None) -> int | None:
    return None if age is None else store.now_us() - micros(age, "older_than")


def _counted(store: Store) -> dict[str, int] | None:
    try:
        states = queue_views.queues(store)
    except Corrupt:
        return None  # The list is readable anyway; `fleet` and `findings` report the damage.
    names = ("ready", "delayed", "running", "abandoned", "failed", "held", "quarantined")
    return {name: sum(getattr(state, name) for state in states) for name in names}


# -- one run -----------------------------------------------------------------------------------


@reads("run", request_models.WholeQuery, heavy=True)
def run(ask: Ask) -> response_models.Run:
    """Show one run."""
    asked: request_models.WholeQuery = ask.query
    store, row = ask.store, existing_row(ask.store, asked.id)
    try:
        journal = lineage.read(store, row)
        past = journal[1]
        view = run_views.view_of(store, row, past, plain=True, steps=asked.steps)
    except Corrupt as damage:
        said = explaining.damaged(store, row, damage)
        raise Problem(
            500, "Corrupt", str(damage), run_id=row.run_id, explanation=msgspec.to_builtins(said)
        ) from None
    found = watchdog.Survey(store).findings(row, journal)
    told = None
    if row.status in EXPLAINED or found or _is_left(store, row):
        told = explaining.explain_of(store, row, journal, found)
    view = msgspec.structs.replace(
        view,
        input=clipped(view.input, full=asked.full),
        result=clipped(view.result, full=asked.full),
    )
    return response_models.Run(
        run=view,
        steps_total=len(steps_of(past)),
        etag=etag_of(row),
        explanation=told,
        findings=found,
        questions=question_views.questions(store, run_id=row.run_id, plain=True),
        doubts=doubt_views.doubts_of(store, row, past) if row.status is Status.HELD else [],
        trace_id=trace_id_of(store.store_id, store.namespace, row.run_id),
    )


def _is_left(store: Store, row: RunRow) -> bool:
    """Return whether a run is due and has no live owner: its process died, or none has claimed
    it."""
    if row.status not in CLAIMABLE:
        return False
    return row.owner is None or store.owner_is_dead(row.owner)


@reads("run/steps", request_models.StepsQuery, heavy=True)
def steps(ask: Ask) -> response_models.Steps:
    """Show some steps of a run, in the order in which they were called."""
    asked: request_models.StepsQuery = ask.query
    past = run_views.fold(ask.store, existing_row(ask.store, asked.id))
    total = len(steps_of(past))
    until = asked.after + asked.limit
    return response_models.Steps(
        steps=step_views(past, asked.after, until),
        total=total,
        next=until if until < total else None,
    )


@reads("run/timeline", request_models.RunQuery, heavy=True)
def timeline(ask: Ask) -> response_models.TimelineTold:
    """Show a run over time."""
    return response_models.TimelineTold(timeline=timelines.timeline(ask.store, ask.query.id))


@reads("run/snapshots", request_models.RunQuery, heavy=True)
def snapshots(ask: Ask) -> response_models.Snapshots:
    """List the snapshots of a run's loops."""
    return response_models.Snapshots(snapshots=snapshots_of.snapshots(ask.store, ask.query.id))


@reads("run/state", request_models.StateQuery, heavy=True)
def state(ask: Ask) -> response_models.State:
    """Show the state of a snapshot."""
    asked: request_models.StateQuery = ask.query
    found = snapshots_of.state(ask.store, asked.id, asked.seq, path=asked.path)
    kept = clipped(found.state, full=asked.full, limit=STATE_BYTES)
    return response_models.State(state=msgspec.structs.replace(found, state=kept))


@reads("run/state-diff", request_models.StateDiffQuery, heavy=True)
def state_diff(ask: Ask) -> response_models.StateDiff:
    """Show what changed between two snapshots."""
    asked: request_models.StateDiffQuery = ask.query
    found = snapshots_of.compared(ask.store, asked.id, asked.from_, asked.to, path=asked.path)
    return response_models.StateDiff(
        before=found.before, after=found.after, differences=found.differences, cut=found.cut
    )


# -- before deciding ---------------------------------------------------------------------------


@reads("run/preview-resume", request_models.RunQuery, heavy=True)
def preview_resume(ask: Ask) -> response_models.ResumePreviewTold:
    """Preview a resume, as far as the journal alone allows."""
    row = existing_row(ask.store, ask.query.id)
    past = resume_preview.replayed_history(ask.store, row)
    preview = resume_preview.preview_resume(ask.store, row, past, None)
    return response_models.ResumePreviewTold(preview=preview)


@reads("run/preview-rollback", request_models.RollbackQuery, heavy=True)
def preview_rollback(ask: Ask) -> response_models.RollbackPreviewTold:
    """Preview a rollback."""
    preview = rollback_views.preview_rollback(ask.store, ask.query.id, ask.query.to)
    return response_models.RollbackPreviewTold(preview=preview)


@reads("run/preview-fork", request_models.ForkQuery, heavy=True)
def preview_fork(ask: Ask) -> response_models.ForkPreviewTold:
    """Preview a fork: which effects it may repeat."""
    asked: request_models.ForkQuery = ask.query
    preview = forks.preview_fork(
        ask.store, asked.id, asked.new_run_id, before=asked.before, actor=ask.actor
    )
    return response_models.ForkPreviewTold(preview=preview)


# -- all runs ----------------------------------------------------------------------------------


@reads("pending", request_models.PendingQuery, heavy=True)
def pending(ask: Ask) -> response_models.Pending:
    """List decisions that wait for a person."""
    asked: request_models.PendingQuery = ask.query
    bad: list[question_views.Unreadable] = []
    asking = question_views.questions(
        ask.store, to=asked.to, limit=asked.limit, plain=True, unreadable=bad
    )
    doubts = doubt_views.doubts(ask.store, asked.limit, bad)
    bad = list({it.run_id: it for it in bad}.values())
    held = causes.causes(ask.store, causes.held_in(ask.store, asked.limit))
    held = [it for it in held if it.reason != HeldReason.MOVED]
    return response_models.Pending(questions=asking, doubts=doubts, troubles=bad, held=held)


@reads("fleet")
def fleet(ask: Ask) -> response_models.Fleet:
    """Show workers, queues and schedules."""
    told = response_models.Fleet(workers=None, queues=None, schedules=None, troubles=[])
    parts = {
        "workers": queue_views.workers,
        "queues": queue_views.queues,
        "schedules": schedule_admin.schedules,
    }
    for name, read in parts.items():
        try:
            setattr(told, name, read(ask.store))
        except Corrupt as damage:
            told.troubles.append(f"{name}: {damage}")
    return told


@reads("findings", heavy=True)
def findings(ask: Ask) -> response_models.Findings:
    """List the current findings of the watchdog."""
    told, found = ask.site.fresh("findings", SURVEY_S, lambda: doctor.checkup(ask.store))
    return response_models.Findings(
        findings=found,
        looked_at=told.looked_at,
        complete=told.complete,
        troubles=[it.text for it in told.troubles],
    )


@reads("trends", request_models.TrendsQuery)
def trends(ask: Ask) -> response_models.TrendsTold:
    """Show measures over time."""
    asked: request_models.TrendsQuery = ask.query
    return response_models.TrendsTold(
        trends=trending.trends(ask.store, since=asked.since, flow=asked.flow)
    )


@reads("audit", request_models.AuditQuery, role=Role.OPERATOR)
def audit(ask: Ask) -> response_models.Audit:
    """Show who changed queues, schedules and tokens."""
    return response_models.Audit(audit=audits.recorded_changes(ask.store, ask.query.limit))


reads("run/history", request_models.HistoryQuery, heavy=True)(history)
