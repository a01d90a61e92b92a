"""Request models: query parameters, and the body of a sign-in. Bodies of actions are made of their
declarations. The description of the API is generated from these structs; unknown fields are refused."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast._api.store_actions import Id, Number, Text
from holdfast._operator.read.trends import DAY

PAGE_MAX = 500
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of a query, or a body."""


class RunsQuery(Asked):
    """Which runs; every filter is one of this list."""

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
    """Not changed for so long: 30s, 10m, 2h, 7d."""
    search: Text | None = None
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


class HistoryQuery(Asked):
    """Which entries of a journal."""

    id: Id
    after: Number = 0
    limit: Limit = 200
    step: Text | None = None
    full: bool = False
    """Whether values over 64 KiB are shown whole."""


class HistoryStreamQuery(Asked):
    """From which entry on; the header Last-Event-ID comes first."""

    id: Id
    after: Number = 0


class StateQuery(Asked):
    """Which snapshot; without `seq` the newest."""

    id: Id
    seq: Number | None = None
    path: Text | None = None
    full: bool = False


class StateDiffQuery(Asked):
    """Between which snapshots."""

    id: Id
    from_: Number = msgspec.field(name="from")
    to: Number
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


class PendingQuery(Asked):
    """Whose questions, and how many."""

    to: Text | None = None
    limit: Limit = 100


class AuditQuery(Asked):
    """How many."""

    limit: Limit = 100


class TrendsQuery(Asked):
    """How far back, and of which flow."""

    since: Text = DAY
    """How long ago it begins: 1h, 7d."""
    flow: Text | None = None


class NameQuery(Asked):
    """Which one, by its name."""

    name: Id


class SignIn(Asked):
    """The credential."""

    token: Annotated[str, Meta(max_length=1000)] = ""
