"""Findings of the watchdog: their kinds, the declared actions and the entries. Pure.

A finding is computed from a run's journal (`checks`): nothing is remembered elsewhere. Its id
is made of the entries that show it, so that finding it again gives the same id. The decision about it is
a message with that id: a run takes it once, from whichever process and however often it is sent.

    found ── post(finding:ID) ─┬─ a process has the run ► it takes the message: finding_noted, and stops
                               └─ nobody has it ► finding_noted (and run_held, run_cancelled), one write
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Literal

import msgspec

from holdfast._engine.decisions import control
from holdfast._engine.decisions.resume import doubts_of_the_dead, draft
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import CLAIMABLE
from holdfast._engine.journal.rows import Lease, Message, RunRow, Write
from holdfast._engine.journal.step_record import facts
from holdfast._engine.values.durations import Duration, micros
from holdfast._engine.values.moments import at
from holdfast._engine.values.money import COUNT_MAX, Amount, nanos
from holdfast.errors import UsageError

FINDING = "finding"
"""The kind of the message that brings a finding to its run."""
WATCHDOG = "watchdog"
"""The actor of its decisions."""
ACTIONS = ("ignore", "note", "hold", "cancel")


class Found(StrEnum):
    """The kinds of findings."""

    STUCK = "stuck"
    LOOPING = "looping"
    DUPLICATE_ACTION = "duplicate_action"
    PARTIAL_FAILURE = "partial_failure"
    RUNAWAY_COST = "runaway_cost"


class Severity(StrEnum):
    """How much a person is needed."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Finding(msgspec.Struct, frozen=True):
    """Something about a run that a person should know of."""

    run_id: str
    flow: str
    kind: Found
    severity: Severity
    id: str
    """The same for the same thing, however often it is found."""
    since: dt.datetime
    steps: tuple[str, ...]
    entries: tuple[int, ...]
    """The numbers of the entries that show it."""
    text: str
    actions: tuple[str, ...]
    """Safe next actions: commands that can be pasted."""
    noted_at: dt.datetime | None = None
    """When the watchdog wrote it into the run's journal."""
    did: str | None = None
    """The action of the watchdog."""
    open: bool = True
    """Whether it holds now; False if it was noted, and is over."""

    def __str__(self) -> str:
        lines = [f"{self.kind} ({self.severity}): {self.text}"]
        return "\n".join([*lines, *(f"    {action}" for action in self.actions)])


Act = Literal["ignore", "note", "hold", "cancel"] | Callable[[Finding], object]


class Limits(msgspec.Struct, frozen=True):
    """From when on something is a finding, as `run_started` records it."""

    stuck_us: int = 300_000_000
    loops: int = 10
    duplicates_us: int | None = None
    usd_nanos: int | None = None
    tokens: int | None = None
    usd_nanos_per_minute: int | None = None
    tokens_per_minute: int | None = None
    growth: float = 10.0


class Watchdog(msgspec.Struct, frozen=True, kw_only=True):
    """The thresholds and the actions of the watchdog for the runs of a flow: "note" it in the journal,
    "hold" the run, "cancel" it, call a function with the `Finding`, or "ignore" it.

    `stuck_after` is the shortest time without an entry that counts; `loop_after` how often a step is
    called with the same arguments; `duplicates_within` compares effects with those of other runs of
    the flow. `usd` and `tokens` are what a run should not come to spend, at its pace of now;
    `usd_per_minute` and `tokens_per_minute` that pace; `cost_growth` by which factor one call may
    come to cost more than the first ones.
    """

    stuck: Act = "note"
    looping: Act = "note"
    duplicate_action: Act = "note"
    partial_failure: Act = "note"
    runaway_cost: Act = "note"
    stuck_after: Duration = "5m"
    loop_after: int = 10
    duplicates_within: Duration | None = None
    usd: Amount | None = None
    tokens: int | None = None
    usd_per_minute: Amount | None = None
    tokens_per_minute: int | None = None
    cost_growth: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what makes no sense, at the line where it is written."""
        for kind in Found:
            act = self.act(kind)
            if not callable(act) and act not in ACTIONS:
                raise UsageError(
                    f'Watchdog({kind}={act!r:.80}): "ignore", "note", "hold", "cancel", or a function '
                    "of the finding"
                )
        if type(self.loop_after) is not int or self.loop_after < 2:
            raise UsageError(f"Watchdog(loop_after={self.loop_after!r}): a whole number above 1")
        for name in ("tokens", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 0 < value <= COUNT_MAX):
                raise UsageError(f"Watchdog({name}={value!r}): a whole number above 0")
        growth: Any = self.cost_growth
        if isinstance(growth, bool) or not isinstance(growth, int | float) or not growth > 1:
            raise UsageError(f"Watchdog(cost_growth={growth!r}): a number above 1")
        self.limits()

    def act(self, kind: Found) -> Act:
        """Return what is to be done about a finding of this kind."""
        act: Act = getattr(self, kind.value)
        return act

    def limits(self) -> Limits:
        """Return from when on something is a finding."""
        within, per_minute = self.duplicates_within, self.usd_per_minute
        return Limits(
            stuck_us=micros(self.stuck_after, "Watchdog(stuck_after=…)"),
            loops=self.loop_after,
            duplicates_us=None
            if within is None
            else micros(within, "Watchdog(duplicates_within=…)"),
            usd_nanos=None if self.usd is None else nanos(self.usd, "Watchdog(usd=…)"),
            tokens=self.tokens,
            usd_nanos_per_minute=None
            if per_minute is None
            else nanos(per_minute, "Watchdog(usd_per_minute=…)"),
            tokens_per_minute=self.tokens_per_minute,
            growth=float(self.cost_growth),
        )


def checked_watch(of: str, watch: Any) -> Watchdog | None:
    """Return what `watchdog=` was given, or refuse it where it is written."""
    if watch is None or isinstance(watch, Watchdog):
        return watch
    raise UsageError(f"watchdog={watch!r:.80} of {of}: a holdfast.Watchdog(stuck=…, …)")


def limits_in(started: Entry | None) -> Limits:
    """Return the limits that a run was started with."""
    if started is None or b'"watch":' not in started.body:
        return Limits()
    told = started.data().get("watch")
    return Limits() if told is None else msgspec.json.decode(told, type=Limits)


# -- what is written ---------------------------------------------------------------------------


class Decision(msgspec.Struct):
    """The body of a message: the finding and its action."""

    id: str
    finding: str
    severity: str
    text: str
    steps: tuple[str, ...]
    entries: tuple[int, ...]
    since: dt.datetime
    did: str
    actions: tuple[str, ...] = ()


def decided(finding: Finding, did: str) -> Decision:
    """Return the decision to do something about a finding."""
    return Decision(
        finding.id,
        finding.kind.value,
        finding.severity.value,
        finding.text,
        finding.steps,
        finding.entries,
        finding.since,
        did,
        finding.actions,
    )


def message_id(finding_id: str) -> str:
    """Return the id of the message about a finding: the same id for every sender."""
    return f"{FINDING}:{finding_id}"


def finding_message(decision: Decision, at_us: int) -> Message:
    """Return the message that tells a run of a finding."""
    return Message(message_id(decision.id), FINDING, WATCHDOG, at_us, msgspec.json.encode(decision))


def read(message: Message) -> Decision:
    """Return what a message says."""
    return msgspec.json.decode(message.body, type=Decision)


def noted_in(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the findings that a journal has, by their id."""
    return {
        str(facts(entry).get("id")): entry for entry in entries if entry.kind is Kind.FINDING_NOTED
    }


def note(decision: Decision, at_us: int) -> Any:
    """Return the entry that says what was found, and what was done."""
    return draft(Kind.FINDING_NOTED, at_us, msgspec.to_builtins(decision))


def finding_write(
    lease: Lease,
    history: History,
    entries: Iterable[Entry],
    children: Sequence[str],
    decision: Decision,
    at_us: int,
) -> Write:
    """Return the write that does what was decided on a run: the entry, and with it the hold or the
    cancel. What the journal has already is not written again."""
    # Record what a dead owner left open: it could not be found out later.
    row = lease.row
    dead = lease.acting and row.owner is not None
    left, keys = doubts_of_the_dead(history, at_us) if dead else ([], [])
    if decision.id in noted_in(entries):
        return Write(lease, left, changes=keys)
    drafts = [note(decision, at_us)]
    reason = f"{decision.finding}: {decision.text}"
    if decision.did == "hold" and row.status in CLAIMABLE:
        write = control.pause_write(lease, history, WATCHDOG, reason, at_us)
    elif decision.did == "cancel" and history.rollback is None:
        write = control.cancel_write(lease, history, children, WATCHDOG, reason, at_us)
    else:
        return Write(lease, left + drafts, changes=keys)
    write.drafts = drafts + write.drafts
    return write


def from_journal(row: RunRow, entry: Entry) -> Finding:
    """Return a finding as the journal tells it."""
    said = msgspec.convert(facts(entry), Decision, strict=False)
    return Finding(
        row.run_id,
        row.flow,
        Found(said.finding),
        Severity(said.severity),
        said.id,
        said.since,
        said.steps,
        said.entries,
        said.text,
        said.actions,
        at(entry.at_us),
        said.did,
        open=False,
    )
