"""Request models: query parameters and bodies. The description of the API is generated from these
structs; unknown fields are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

PAGE_MAX = 500
NO_NUL = r"^[^\x00]*$"
"""Not every store can be asked for the character zero."""
Id = Annotated[str, Meta(min_length=1, max_length=1000, pattern=NO_NUL)]
Text = Annotated[str, Meta(max_length=1000, pattern=NO_NUL)]
Reason = Annotated[str, Meta(max_length=10_000)]
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
Few = Annotated[int, Meta(ge=1, le=10**9)]
Hours = Annotated[float, Meta(gt=0, le=24 * 366)]


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
    flow_version: Text | None = None
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

    hours: Hours = 24.0
    flow: Text | None = None


class NameQuery(Asked):
    """Which one, by its name."""

    name: Id


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
    drift: Literal["keep", "redo"] | None = None


class Settle(Asked):
    """What became of an effect in doubt."""

    step: Text
    outcome: Literal["done", "not_done", "failed"]
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


class SetBudget(Asked):
    """New limits, as a whole; those that are not given stay."""

    usd: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    tokens: Number | None = None
    steps: Number | None = None
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
    expected_number: Number | None = None


class Reject(Asked):
    """A rejection of a question or an approval."""

    name: Text
    reason: Reason = ""
    expected_number: Number | None = None


class Approve(Asked):
    """An approval of exactly the arguments that have this digest."""

    name: Text
    digest: Text
    expected_number: Number | None = None


class QueueLimits(Asked):
    """What a queue allows; what is not given stays, null takes a limit away."""

    concurrency: Few | UnsetType | None = UNSET
    concurrency_per_key: Few | UnsetType | None = UNSET
    rate: Few | UnsetType | None = UNSET
    rate_per_key: Few | UnsetType | None = UNSET
    period_s: Annotated[float, Meta(ge=0.001, le=1e7)] | UnsetType = UNSET
    paused: bool | UnsetType = UNSET


class Pause(Asked):
    """Whether a schedule is paused."""

    paused: bool
