"""GET: what there is to see. Every route is a function of the read model and nothing else."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from holdfast._core.lifecycle import Status
from holdfast._ops import explain as explaining, inspect, people
from holdfast._ops.explanation import Explanation
from holdfast._ops.inspect import RunSummary, RunView
from holdfast._ops.people import QuestionView
from holdfast._ops.tokens import Role
from holdfast._ops.web.routes import Ask, Nothing, Route
from holdfast._store.addresses import shown
from holdfast._store.contract import Query
from holdfast.errors import UsageError


class Health(msgspec.Struct):
    """That the server answers."""

    ok: bool = True


class StorePlace(msgspec.Struct):
    """Where runs are kept."""

    url: str
    namespace: str


class Me(msgspec.Struct):
    """Who asks, and what of."""

    actor: str
    role: str
    csrf: str | None
    expires_at: dt.datetime
    store: StorePlace
    warning: str | None
    now: dt.datetime
    version: int = 1


class RunsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which runs; each filter is one of a closed list."""

    status: list[str] = []
    flow: str | None = None
    queue: str | None = None
    held: str | None = None
    tag: str | None = None
    flow_version: str | None = None
    parent: str | None = None
    finding: str | None = None
    older_than: str | None = None
    limit: int = 50
    before: int | None = None


class Runs(msgspec.Struct):
    """A page of the list."""

    runs: list[RunSummary]
    next: str | None
    counts: dict[str, int]
    version: int = 1


class RunQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which run."""

    id: str


class Run(msgspec.Struct):
    """A run, and what a person needs to decide about it."""

    run: RunView
    seen: str
    steps_total: int
    explanation: Explanation | None
    findings: list[Any]
    questions: list[QuestionView]
    trace_id: str | None = None
    version: int = 1


def health(ask: Ask) -> Health:
    """Say that the server answers."""
    return Health()


def me(ask: Ask) -> Me:
    """Say who asks."""
    session, token = ask.session, ask.visitor.token
    until = token.expires_at
    if session is not None:
        until = dt.datetime.fromtimestamp(session.until_s, dt.UTC)
    return Me(
        actor=ask.actor,
        role=token.role,
        csrf=None if session is None else session.csrf,
        expires_at=until,
        store=StorePlace(shown(ask.store.url), ask.store.namespace),
        warning=ask.store.regression(),
        now=inspect.at(ask.store.now_us()),
    )


def runs(ask: Ask) -> Runs:
    """List runs."""
    asked: RunsQuery = ask.query
    try:
        status = [Status(name) for name in asked.status] or None
    except ValueError as error:
        raise UsageError(str(error)) from None
    query = Query(status=status, flow=asked.flow, limit=asked.limit)
    found = inspect.summaries(ask.store, query, asked.flow_version, asked.finding)
    return Runs(found, None, {})


def run(ask: Ask) -> Run:
    """Show one run."""
    row = inspect.found(ask.store, ask.query.id)
    view = inspect.view(ask.store, ask.query.id, plain=True)
    return Run(
        run=view,
        seen=inspect.version_seen(row),
        steps_total=len(view.steps),
        explanation=explaining.explain(ask.store, ask.query.id),
        findings=[],
        questions=people.questions(ask.store, run_id=ask.query.id, plain=True),
    )


VIEWER = Role.VIEWER
ROUTES = [
    Route("GET", "/health", None, "Says that the server answers.", health, Health),
    Route("GET", "/api/v1/me", VIEWER, "Who asks.", me, Me, Nothing),
    Route("GET", "/api/v1/runs", VIEWER, "Runs, newest first.", runs, Runs, RunsQuery),
    Route("GET", "/api/v1/run", VIEWER, "One run.", run, Run, RunQuery),
]
