"""The read model of runs. The command line, the page and `store.get` show these views and nothing else.

Everything comes from the journal, whose digests are verified on the way: a damaged run raises
`Corrupt` instead of being shown as something it is not. Values are decoded if this process knows
their classes, and otherwise shown in the readable form of `readable`, which needs none.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from holdfast._engine.decisions.control import CANCEL, PAUSE
from holdfast._engine.decisions.resume import facts_of, held_facts
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import CLAIMABLE, FINAL, HeldReason, Status
from holdfast._engine.journal.rows import RunRow, etag_of
from holdfast._engine.journal.step_keys import is_undo
from holdfast._engine.values.masks import masked
from holdfast._engine.values.moments import at
from holdfast._features.budgets.operator import BudgetView, budget_of, held_detail
from holdfast._features.watchdog import store as watchdog
from holdfast._features.watchdog.model import Found
from holdfast._operator.read import relatives
from holdfast._operator.read.entry_views import EntryView, outside
from holdfast._operator.read.message_views import SignalView, messages_of, waiting_for
from holdfast._operator.read.relatives import ChildView, children_of, deadline_us
from holdfast._operator.read.step_views import (
    ErrorView,
    RunningStep,
    StepCounts,
    StepView,
    counts_of,
    error_in,
    running_of,
    step_views,
)
from holdfast._stores import lineage
from holdfast._stores.addresses import place
from holdfast._stores.contract import Damage, Progress, Query, Store, no_progress
from holdfast._stores.lookups import existing_row
from holdfast._stores.readable_values import Reader
from holdfast.errors import Corrupt, RunNotFound, UsageError

T = TypeVar("T")

# -- requests to stop that are not carried out yet ----------------------------------------------


_WHAT = {CANCEL: "cancelled", PAUSE: "held", "rollback": "rolled back"}
_BETWEEN = frozenset(
    {Kind.RUN_CLAIMED, Kind.RUN_RELEASED, Kind.RUN_RESUMED, Kind.RUN_HELD, Kind.STEP_SETTLED}
)
"""What may stand behind the request of a rollback, or behind an undo, while it is not ended."""
ENTRIES_BEHIND = 10
"""How many such entries are looked behind."""


class StoppingView(msgspec.Struct, frozen=True):
    """A request to stop a run that is on its way to the process that has it."""

    what: str
    """"cancelled", "held" or "rolled back"."""
    actor: str
    at: dt.datetime
    reason: str = ""


def pending_stop(store: Store, row: RunRow) -> StoppingView | None:
    """Return what was asked first and not carried out; a cancel before a pause. None if nothing was,
    or if the run has ended."""
    if row.status in FINAL:
        return None
    try:
        asked = [message for message in store.inbox(row.run_no) if message.kind in _WHAT]
    except Corrupt:
        return None  # Damage is reported elsewhere; show the rest of the run.
    for message in sorted(asked, key=lambda it: (it.kind != CANCEL, it.number)):
        reason = str(msgspec.json.decode(message.body, type=dict[str, object]).get("reason") or "")
        at = dt.datetime.fromtimestamp(message.at_us / 1e6, dt.UTC)
        return StoppingView(_WHAT[message.kind], message.actor, at, reason)
    return None


def rolls_back(store: Store, row: RunRow, past: History | None = None) -> bool:
    """Return whether a run is to be rolled back or is being rolled back: from its history if that was
    read, else from the end of its journal."""
    if row.status not in CLAIMABLE and row.status is not Status.HELD:
        return False
    if past is not None:
        return past.rollback is not None
    try:
        for seq in range(row.last_seq, max(1, row.last_seq - ENTRIES_BEHIND), -1):
            entry = store.entry(row.run_no, seq)
            if entry is None or b'"rolled_back_to":' in entry.body:
                return False
            if entry.kind is Kind.ROLLBACK_REQUESTED or is_undo(entry.step or ""):
                return True
            if entry.kind not in _BETWEEN:
                return False
    except Corrupt:
        pass  # One damaged run is no reason to list none.
    return False


def us(at: dt.datetime) -> int:
    """Return a time in microseconds."""
    return round(at.timestamp() * 1e6)


# -- where a run failed -------------------------------------------------------------------------


FLOW = "the flow"
"""Where a run failed whose steps did not: in the flow's own code."""


def failure(store: Store, row: RunRow) -> Entry | None:
    """Return the entry that says how a run failed: the last, but for what was noted since."""
    seq = row.last_seq
    while seq > 0:
        entry = store.entry(row.run_no, seq)
        if entry is None or entry.kind is not Kind.FINDING_NOTED:
            return entry
        seq -= 1
    return None


def failed_in(failed: Entry | None) -> str | None:
    """Return which step a run failed in, or that its flow's own code raised."""
    if failed is None or failed.kind is not Kind.RUN_FAILED:
        return None
    steps = facts_of(failed).get("steps")
    return str(steps[0]) if steps else FLOW


# -- runs ---------------------------------------------------------------------------------------


UNREAD = "a step that cannot be read"
"""Where a run failed whose journal is damaged there."""

WHILE_AT_WORK = (Kind.STEP_PROGRESSED, Kind.VALUE_EMITTED)
BEHIND = 10
"""How many entries of that kind are looked behind for the start of the step."""

NEWEST, ALIKE = 300, 0.8
"""How many run ids are looked through for one like another, and how much alike they must be."""
CLAIMABLE_MAX = 100_000
"""How many free runs are looked through for one."""
LARGEST = 2**63 - 1
"""The largest number that every store can be asked for."""
_CURSOR = re.compile(r"[0-9]{1,19}")
LOOKED_AT, PICKED = 1000, 100
"""How many runs are looked at for one page of a list, and how many at one time."""


class Totals(msgspec.Struct, frozen=True):
    """What a run has cost so far; replays count nothing."""

    steps: int
    """Steps and effects that are done, in all generations (`StepCounts.done`)."""
    attempts: int
    degraded: int
    usage: dict[str, Any]


class RunSummary(msgspec.Struct, frozen=True):
    """One line of a list of runs: what the row says, without reading the journal."""

    run_id: str
    flow: str
    status: str
    held_reason: str | None
    """Why it is held; `moved` if it was moved to another store and goes on there."""
    generation: int
    owner: str | None
    current_step: str | None
    totals: Totals
    tags: dict[str, str]
    created_at: dt.datetime
    updated_at: dt.datetime
    version: str = ""
    """The version of the flow that it is executed with."""
    waiting_for: str | None = None
    """What it waits for, in short."""
    failed_in: str | None = None
    """Of a failed run: the step that gave up, or "the flow" if its own code raised."""
    owner_died: bool = False
    """Whether the process that had it is proven dead: it goes on when another takes it."""
    abandoned: bool = False
    """Whether its process is proven dead or has let the lease run out, and none has taken it up."""
    running: RunningStep | None = None
    """The step that is being executed, as far as the end of its journal says."""
    rolling_back: bool = False
    """Whether it is to be rolled back or is being rolled back, as far as the end of its journal says."""


class RunView(msgspec.Struct, frozen=True):
    """A run as a whole."""

    run_id: str
    flow: str
    status: str
    held_reason: str | None
    held_detail: str | None
    actions: tuple[str, ...]
    generation: int
    owner: str | None
    input: Any
    result: Any
    error: ErrorView | None
    current_step: str | None
    steps: list[StepView]
    step_counts: StepCounts
    totals: Totals
    tags: dict[str, str]
    created_at: dt.datetime
    updated_at: dt.datetime
    version: str = ""
    origin: str | None = None
    """Of a fork: the run that it came from."""
    budget: BudgetView | None = None
    """What it may spend and has spent; None without a budget."""
    waiting_for: str | None = None
    """What it waits for, in short."""
    signals: list[SignalView] = []
    """The messages to it, signals and answers, and the state of each."""
    parent: str | None = None
    """Of a child: the run that called it."""
    children: list[ChildView] = []
    """The runs that it called, in that order; of more than a hundred the newest."""
    children_by_status: dict[str, int] = {}
    """How many runs it called, by status and held reason; not more than 1,000 are counted."""
    deadline: dt.datetime | None = None
    """When it is cancelled, if it has not ended before."""
    stopping: StoppingView | None = None
    """What it was asked to do and has not done yet: to be cancelled, held or rolled back."""
    failed_in: str | None = None
    """Of a failed run: the step that gave up, or "the flow" if its own code raised."""
    owner_died: bool = False
    """Whether the process that had it is proven dead: it goes on when another takes it."""
    abandoned: bool = False
    """Whether its process is proven dead or has let the lease run out, and none has taken it up."""
    running: list[RunningStep] = []
    """The steps that are being executed, the oldest first; one that began less than a third of a lease
    ago may be missing, since its start is not written yet."""
    rolling_back: bool = False
    """Whether it is to be rolled back or is being rolled back."""
    etag: str = ""
    """Its version as shown: a decision that gives it as `expected_version` is refused on another."""


class Page(list[T]):
    """A list of at most `limit` things, and where more of them are.

    `next` is None if nothing follows. Else give it to the same call as `after=`.
    """

    def __init__(self, items: list[T], next: str | None = None) -> None:
        super().__init__(items)
        self.next = next

    def __repr__(self) -> str:
        more = "" if self.next is None else f", next={self.next!r}"
        return f"Page({super().__repr__()}{more})"


def checked_limit(what: str, limit: object) -> int:
    """Return the size of a page, or raise a UsageError."""
    if type(limit) is not int or not 1 <= limit <= LARGEST:
        raise UsageError(f"{what}(limit={limit!r:.80}): a whole number above 0, of at most 64 bits")
    return limit


def wrong_cursor(what: str, after: object) -> UsageError:
    """Return the error for a cursor that no page has given."""
    return UsageError(f"{what}(after={after!r:.80}): give the `next` of the page before")


# -- asking ------------------------------------------------------------------------------------


def view(store: Store, run_id: str, *, plain: bool = False) -> RunView:
    """Return a run; with `plain`, all values in the form that needs no classes."""
    row = existing_row(store, run_id)
    return view_of(store, row, fold(store, row), plain=plain)


def summaries(
    store: Store,
    query: Query,
    version: str | None = None,
    finding: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> Page[RunSummary]:
    """Return the runs that a query asks for, newest first; only those of a version, those in which
    something of this kind is found, and those that have all `tags`, if that is given.
    A query may ask for runs that were moved, as if that were a reason of its own."""
    asked = msgspec.structs.replace(query, version=version or query.version)
    chosen: list[RunSummary] = []
    while True:
        found, before = page(store, asked, finding, tags=tags)
        chosen += found
        if before is None:
            return Page(chosen)
        asked.before_run_no, asked.limit = before, query.limit - len(chosen)
        if asked.limit <= 0:
            return Page(chosen, str(before) if _more(store, asked, finding, tags) else None)


def _more(store: Store, asked: Query, finding: str | None, tags: Mapping[str, str] | None) -> bool:
    """Return whether a run follows those that were found."""
    before: int | None = asked.before_run_no
    while before is not None:
        asked.before_run_no, asked.limit = before, 1
        found, before = page(store, asked, finding, tags=tags)
        if found:
            return True
    return False


def run_cursor(cursor: str | None) -> int | None:
    """Return the number of the run behind which a page begins."""
    if cursor is None:
        return None
    if isinstance(cursor, str) and _CURSOR.fullmatch(cursor) and int(cursor) <= LARGEST:  # pyright: ignore[reportUnnecessaryIsInstance]
        return int(cursor)
    raise wrong_cursor("runs", cursor)


def page(
    store: Store,
    query: Query,
    finding: str | None = None,
    looked_at: int = LOOKED_AT,
    tags: Mapping[str, str] | None = None,
) -> tuple[list[RunSummary], int | None]:
    """Return up to `limit` runs, and from where on older ones are looked for (`before_run_no`), or
    None. So many runs are looked at: there may be fewer that fit, and more behind them."""
    if query.held_reason is not None and query.held_reason not in [*HeldReason]:
        raise UsageError(f"held_reason={query.held_reason[:80]!r}: one of {', '.join(HeldReason)}")
    asked = msgspec.structs.replace(query)
    if finding in (Found.STUCK, Found.RUNAWAY_COST) and asked.status is None:
        asked.status = sorted(CLAIMABLE)  # What does not go on is neither stuck nor spends.
    wanted = (tags or {}).items()
    picky = bool(wanted) or finding is not None
    has = watchdog.having(store, finding)
    chosen: list[RunSummary] = []
    while looked_at > 0:
        asked.limit = min(looked_at, max(PICKED, query.limit)) if picky else query.limit
        rows = store.list(asked)
        for row in rows:
            asked.before_run_no = row.run_no
            fits = not wanted or wanted <= msgspec.json.decode(row.tags).items()
            run = summary_of(store, row) if fits and has(row) else None
            if run is not None:
                chosen.append(run)
            if len(chosen) >= query.limit:
                return chosen, row.run_no
        if len(rows) < asked.limit:
            return chosen, None
        looked_at -= len(rows)
    return chosen, asked.before_run_no


def history(
    store: Store, run_id: str, *, plain: bool = False, after: int = 0, limit: int | None = None
) -> list[EntryView]:
    """Return a run's entries in order; a joined row is shown as the two entries it stands for.
    With `after` and `limit` only that range of the journal is read; it may give one entry more than
    asked for, since what was written together is not divided."""
    row = existing_row(store, run_id)
    reader = Reader(store, row)
    return [
        EntryView(entry, reader, plain=plain)
        for written in store.load(row, outside(store, row, after, limit))
        for entry in written.expand()
        if entry.seq > after
    ]


def verified(
    store: Store, run_ids: Iterable[str] | None = None, progress: Progress = no_progress
) -> list[Damage]:
    """Check everything that is stored, or only these runs; an id that no run has is RunNotFound."""
    try:
        return store.verify(run_ids, progress)
    except RunNotFound as error:
        where = place(store.url, store.namespace)
        raise RunNotFound(masked(error.run_id), where) from None


def nearest(store: Store, run_id: str) -> str | None:
    """Return the id that is most like one that is not there, if any is: among the newest runs, and
    among all that have a part of it somewhere in their id."""
    import difflib

    half = max(3, len(run_id) // 2)
    parts = (None, run_id[:-2] or None, run_id[2:] or None, run_id[:half], run_id[-half:])
    ids = {
        row.run_id
        for part in parts
        for row in store.list(Query(limit=NEWEST, run_id_part=part))
        if row.deleted_us is None
    }
    return next(iter(difflib.get_close_matches(run_id, sorted(ids), n=1, cutoff=ALIKE)), None)


def fold(store: Store, row: RunRow) -> History:
    """Return the whole history of a run, verified."""
    return lineage.fold(store, row)


def owner_of(store: Store, row: RunRow) -> str | None:
    """Return the owner of the run in words, or None."""
    return None if row.owner is None else store.owner_name(row.owner)


def owner_died(store: Store, row: RunRow) -> bool:
    """Return whether a run that seems to be at work has been left by a process that is proven dead."""
    if row.owner is None or row.status not in (Status.RUNNING, Status.WAITING):
        return False
    return store.owner_is_dead(row.owner)


def is_abandoned(store: Store, row: RunRow) -> bool:
    """Return whether a run that seems to be at work has no live owner: its process is proven dead, or
    has had no pulse for a lease."""
    if row.owner is None or row.status not in CLAIMABLE:
        return False
    now_us = store.now_us()
    late = row.lease_until_us <= now_us and (
        store.heard_us(row.owner) + int(store.lease_s * 1e6) <= now_us
    )
    return late or store.owner_is_dead(row.owner)


def may_be_taken(store: Store, row: RunRow) -> bool:
    """Return whether a process may take the run up now: nobody has it, its owner is proven dead, or
    the lease has run out."""
    free = store.claimable(store.now_us(), CLAIMABLE_MAX)
    return any(found.run_no == row.run_no for found in free)


# -- building the views ------------------------------------------------------------------------


def view_of(
    store: Store, row: RunRow, past: History, *, plain: bool, steps: int | None = None
) -> RunView:
    """Return a run whose history was read before; with `steps`, only that many of the last ones."""
    reader = Reader(store, row)
    held = held_facts(past) if row.status is Status.HELD else {}
    called, counts = children_of(store, row.run_id)
    return RunView(
        run_id=row.run_id,
        flow=row.flow,
        status=str(row.status),
        held_reason=row.held_reason,
        held_detail=held_detail(store, row, past) if held else None,
        actions=tuple(held.get("actions", ())),
        generation=row.generation,
        owner=owner_of(store, row),
        input=_value(past.started, "input", reader, plain=plain),
        result=_value(past.completed, "result", reader, plain=plain),
        error=error_in(past.failed, "error") if past.status is Status.FAILED else None,
        current_step=row.current_step,
        steps=step_views(past, -steps if steps else None),
        step_counts=counts_of(past),
        totals=_totals(row),
        tags=_json(row.tags),
        created_at=at(row.created_us),
        updated_at=at(row.updated_us),
        version=row.version,
        budget=budget_of(store, row, past),
        origin=relatives.origin(row),
        waiting_for=waiting_for(store, row),
        signals=messages_of(store, row, plain=plain),
        parent=row.parent,
        children=called,
        children_by_status=counts,
        deadline=None if (until_us := deadline_us(past)) is None else at(until_us),
        stopping=pending_stop(store, row),
        failed_in=None if row.status is not Status.FAILED else failed_in(past.failed),
        owner_died=owner_died(store, row),
        abandoned=(left := is_abandoned(store, row)),
        running=running_of(past) if row.status is Status.RUNNING and not left else [],
        rolling_back=rolls_back(store, row, past),
        etag=etag_of(row),
    )


def summary_of(store: Store, row: RunRow) -> RunSummary:
    """Return one line of a list, from the row."""
    return RunSummary(
        run_id=row.run_id,
        flow=row.flow,
        status=str(row.status),
        held_reason=row.held_reason,
        generation=row.generation,
        owner=owner_of(store, row),
        current_step=row.current_step,
        totals=_totals(row),
        tags=_json(row.tags),
        created_at=at(row.created_us),
        updated_at=at(row.updated_us),
        version=row.version,
        waiting_for=waiting_for(store, row),
        failed_in=_failed_in(store, row) if row.status is Status.FAILED else None,
        owner_died=owner_died(store, row),
        abandoned=(left := is_abandoned(store, row)),
        running=None if left else _running(store, row),
        rolling_back=rolls_back(store, row),
    )


def _running(store: Store, row: RunRow) -> RunningStep | None:
    """Return the step that is being executed, from the last entries of a run at work: what a step says
    while it works stands behind its start."""
    if row.status is not Status.RUNNING or row.owner is None:
        return None
    try:
        for seq in range(row.last_seq, max(0, row.last_seq - BEHIND), -1):
            entry = store.entry(row.run_no, seq)
            if entry is None or entry.kind not in (Kind.STEP_STARTED, *WHILE_AT_WORK):
                return None
            if entry.kind is Kind.STEP_STARTED:
                return RunningStep(entry.step or "", entry.attempt, at(entry.at_us))
    except Corrupt:
        pass  # One damaged run is no reason to list none.
    return None


def _failed_in(store: Store, row: RunRow) -> str | None:
    try:
        return failed_in(failure(store, row))
    except Corrupt:
        return UNREAD  # One damaged run is no reason to list none.


def _value(entry: Entry | None, field: str, reader: Reader, *, plain: bool) -> Any:
    raw = None if entry is None else entry.data().get(field)
    return None if raw is None else reader.value(bytes(raw), plain=plain)


def _totals(row: RunRow) -> Totals:
    usage = _json(row.usage)
    if "cost" in usage:  # A sum of fractions: a budget counts nano dollars, and so does this.
        usage["cost"] = round(usage["cost"], 9)
    return Totals(row.steps, row.attempts, row.degraded, usage)


def _json(text: str) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
