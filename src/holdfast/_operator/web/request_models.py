"""Request models: query parameters, and the body of a sign-in. Bodies of actions are generated from
their declarations. The OpenAPI description is generated from these structs; unknown fields are
refused."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast._api.store_actions import Id, Number, Text
from holdfast._operator.read.trends import DAY

PAGE_MAX = 500
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """Query parameters or a body."""


class RunsQuery(Asked):
    """Filters of the list of runs; all must match."""

    status: list[Text] = []
    flow: Text | None = None
    queue: Text | None = None
    held_reason: Text | None = None
    tag: Text | None = None
    """NAME=VALUE."""
    version: Text | None = None
    parent: Text | None = None
    finding: Text | None = None
    older_than: Text | None = None
    """Not changed for this long: 30s, 10m, 2h, 7d."""
    search: Text | None = None
    """A part of the run id."""
    limit: Limit = 50
    before: Number | None = None
    """The `next` of the previous page."""


class RunQuery(Asked):
    """A run."""

    id: Id


class WholeQuery(Asked):
    """A run, and whether large values are shown in full."""

    id: Id
    full: bool = False
    steps: Annotated[int, Meta(ge=1, le=2000)] = 200
    """The number of steps, counted from the last."""


class StepsQuery(Asked):
    """A range of a run's steps."""

    id: Id
    after: Number = 0
    limit: Annotated[int, Meta(ge=1, le=2000)] = 200


class HistoryQuery(Asked):
    """A range of a journal's entries."""

    id: Id
    after: Number = 0
    limit: Limit = 200
    step: Text | None = None
    full: bool = False
    """Whether values over 64 KiB are shown in full."""


class HistoryStreamQuery(Asked):
    """The entry after which to begin; the header Last-Event-ID takes precedence."""

    id: Id
    after: Number = 0


class StateQuery(Asked):
    """A snapshot; without `seq` the newest."""

    id: Id
    seq: Number | None = None
    path: Text | None = None
    full: bool = False


class StateDiffQuery(Asked):
    """Two snapshots."""

    id: Id
    from_: Number = msgspec.field(name="from")
    to: Number
    path: Text | None = None


class RollbackQuery(Asked):
    """A run, and the step down to which it is rolled back."""

    id: Id
    to: Text | None = None


class ForkQuery(Asked):
    """A run, and the step before which it is forked."""

    id: Id
    before: Text
    new_run_id: Text | None = None


class PendingQuery(Asked):
    """The person, and the number of questions."""

    to: Text | None = None
    limit: Limit = 100


class AuditQuery(Asked):
    """The number of records."""

    limit: Limit = 100


class TrendsQuery(Asked):
    """A period and a flow."""

    since: Text = DAY
    """The length of the period: 1h, 7d."""
    flow: Text | None = None


class NameQuery(Asked):
    """An object, by its name."""

    name: Id


class SignIn(Asked):
    """The credential."""

    token: Annotated[str, Meta(max_length=1000)] = ""
