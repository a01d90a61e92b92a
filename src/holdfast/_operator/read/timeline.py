"""The timeline of a run as bars to draw: steps, attempts, waits, pauses, times held.

One walk over the journal (`_Walk`) opens and closes bars; `bars` gives them their lanes, and joins the
oldest of a long run. A step has a bar of its own, and one for each attempt if there were several.

A *gap* is time in which no process owned a run that was due: no worker had claimed it yet, or its owner
died. The time of a death is not recorded; known are the owner's last write and when it was found dead.
The gap lies between them, and the owner may have worked up to its end.

Each branch gets a lane for as long as it lasts, and more lanes where its calls overlap. The oldest
bars of a long run are joined into one, with a count.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from holdfast._engine.journal.entries import WAIT_BEGINS, WAIT_ENDS, Entry, Kind
from holdfast._engine.journal.lifecycle import ENDED, ClaimedBecause, Status
from holdfast._engine.journal.rows import GIVES_BACK, RunRow
from holdfast._engine.journal.step_keys import APPROVE, name_of, scope_of
from holdfast._engine.journal.step_record import facts
from holdfast._engine.values.moments import at
from holdfast._stores import lineage
from holdfast._stores.contract import Store
from holdfast._stores.lookups import existing_row

# -- bars ---------------------------------------------------------------------------------------


BARS_MAX = 500
SPECIAL_MAX = 100
"""How many gaps and times held are kept when a long run is thinned."""


class Bar(msgspec.Struct):
    """Something that took time."""

    kind: str
    """step, attempt, wait, gap, held; `joined` for the oldest of a long run."""
    key: str
    """The step key; empty for a gap, a time held and what is joined."""
    name: str
    effect: bool
    status: str
    """Of a step or an attempt its state (an attempt that died with its process is `interrupted`);
    of a wait `waiting`, `ended`, `timed_out` or `refused`; of a gap `died`, `lease_expired` or
    `queued`; of a time held its reason."""
    start: dt.datetime
    end: dt.datetime | None
    """None while it goes on."""
    attempt: int
    """Of an attempt its number; of a step how many there were."""
    generation: int
    lane: int = 0
    """Bars with one lane never overlap, but for a step and its attempts, and gaps and times held, which
    lie in lane 0 under all others. 0 is the run's main line."""
    branch: str = ""
    """The branch that it stands in, such as `gather[0]`; empty for the main line."""
    superseded: bool = False
    """Whether a later generation has left it behind."""
    count: int = 1
    """How many bars it stands for."""
    known_until: dt.datetime | None = None
    """Of an attempt whose process died: until when it is known to have been at work. It went on after
    that for nobody knows how long, but not after `end`."""


def branch_of(key: str) -> str:
    """Return the innermost branch that a step stands in; turns of a loop are no branch."""
    parts = scope_of(key).split("/")
    for end in range(len(parts), 0, -1):
        if parts[end - 1].endswith("]") and not parts[end - 1].startswith(("turns", "undo")):
            return "/".join(parts[:end])
    return ""


def give_lanes(bars: Iterable[Bar], now: dt.datetime) -> int:
    """Give each line of calls the first lane that is free for as long as it lasts; returns their
    number. A branch is one line, or several where its calls overlap: async code may have made them
    side by side without a branch."""
    lines: dict[tuple[str, int], list[Bar]] = {("", 0): []}
    for branch, calls in _by_branch(bars).items():
        busy: list[dt.datetime] = []
        for call in sorted(calls, key=lambda call: (call[0].start, call[0].key)):
            at = _free(busy, *_span(call, now))
            lines.setdefault((branch, at), []).extend(call)
    busy = []
    main = lines.pop(("", 0))
    for line in sorted(lines.values(), key=lambda line: (line[0].start, line[0].branch)):
        lane = _free(busy, *_span(line, now)) + 1
        for bar in line:
            bar.lane = lane
    for bar in main:
        bar.lane = 0
    return len(busy) + 1


def _by_branch(bars: Iterable[Bar]) -> dict[str, list[list[Bar]]]:
    """Return the calls of each branch, each with all its bars: a step and its attempts are one. Times
    without a call, in which nobody had the run, lie under all others."""
    calls: dict[tuple[str, str, int], list[Bar]] = {}
    for bar in bars:
        if bar.kind not in ("gap", "held"):
            calls.setdefault((bar.branch, bar.key, bar.generation), []).append(bar)
    branches: dict[str, list[list[Bar]]] = {}
    for (branch, _, _), call in calls.items():
        branches.setdefault(branch, []).append(call)
    return branches


def _span(bars: Iterable[Bar], now: dt.datetime) -> tuple[dt.datetime, dt.datetime]:
    return min(bar.start for bar in bars), max(bar.end or now for bar in bars)


def _free(busy: list[dt.datetime], begun: dt.datetime, ended: dt.datetime) -> int:
    """Take the first place that is free from `begun` on, until `ended`."""
    free = next((at for at, until in enumerate(busy) if until <= begun), len(busy))
    busy[free : free + 1] = [max(begun, ended)]
    return free


def thinned(bars: list[Bar]) -> tuple[list[Bar], int]:
    """Leave out what says nothing more than its step, and join the oldest of too many bars."""
    retried = {(bar.key, bar.generation) for bar in bars if bar.attempt > 1}
    told = [bar for bar in bars if bar.kind != "attempt" or (bar.key, bar.generation) in retried]
    if len(told) <= BARS_MAX:
        return told, 0
    special = [bar for bar in told if bar.kind in ("gap", "held")][-SPECIAL_MAX:]
    others = [bar for bar in told if bar.kind not in ("gap", "held")]
    room = BARS_MAX - len(special) - 1
    old = others[:-room]
    ends = [bar.end for bar in old if bar.end is not None]
    one = Bar(
        "joined",
        "",
        "earlier steps",
        False,
        "",
        old[0].start,
        max(ends, default=old[-1].start),
        0,
        old[0].generation,
        count=len(old),
    )
    return sorted([one, *special, *others[-room:]], key=lambda bar: bar.start), len(old)


# -- the timeline -------------------------------------------------------------------------------


GAP_US = 50_000
"""A run that nobody had for less than this was taken up at once."""


class ExecutionView(msgspec.Struct):
    """One time that a process had the run."""

    owner: str
    start: dt.datetime
    end: dt.datetime | None
    """None while it goes on; of a process that died, its last sign of life."""
    how: str
    """How it ended: `at work`, `died`, `lease expired`, `waiting`, `released`, `held`, `completed` …"""
    found_dead: dt.datetime | None = None
    """Of a process that died: when another one found that out and took the run. It died some time
    between `end` and then; None while nobody has taken the run."""


class Timeline(msgspec.Struct):
    """A run over time."""

    run_id: str
    start: dt.datetime
    end: dt.datetime
    """When it ended; now, if it has not."""
    open: bool
    bars: list[Bar]
    lanes: int
    """How many lanes there are."""
    executions: list[ExecutionView]
    steps: int = 0
    """How many steps were called, also those whose bars are joined (`StepCounts.called`)."""
    joined: int = 0
    """How many bars of a long run are shown as one."""
    borrowed: int = 0
    """Of a fork: how many outcomes came from the other run, and took no time here."""


def timeline(store: Store, run_id: str) -> Timeline:
    """Return when a run did what."""
    row = existing_row(store, run_id)
    walk = _Walk(store)
    for entry in store.load(row):
        walk.take(entry)
    now_us = store.now_us()
    walk.end(row, now_us)
    is_open = row.status not in ENDED
    bars, joined = thinned(sorted(walk.bars, key=lambda bar: bar.start))
    return Timeline(
        run_id=row.run_id,
        start=at(row.created_us),
        end=at(now_us if is_open else walk.last_us),
        open=is_open,
        bars=bars,
        lanes=give_lanes(bars, at(now_us)),
        executions=walk.executions,
        steps=sum(bar.kind == "step" for bar in walk.bars),
        joined=joined,
        borrowed=_borrowed(store, row),
    )


def _borrowed(store: Store, row: RunRow) -> int:
    if row.origin is None:
        return 0
    records = lineage.fold(store, row).records.values()
    return sum(record.borrowed and not record.keeps_place for record in records)


# -- the walk ----------------------------------------------------------------------------------


class _Walk:
    """Opens and closes bars, entry by entry."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.bars: list[Bar] = []
        self.executions: list[ExecutionView] = []
        self.last_us = 0
        self._due_us: int | None = None
        """Since when the run was to go on, while nobody had it."""
        self._waiting: Entry | None = None
        """The `run_waiting` that no entry has ended yet."""
        self._generation = 1
        self._steps: dict[str, Bar] = {}
        self._attempts: dict[str, Bar] = {}
        self._waits: dict[str, Bar] = {}
        self._done: dict[str, list[Bar]] = {}
        """All bars of a key that no generation has left behind."""
        self._held: Bar | None = None

    def take(self, entry: Entry) -> None:
        """Take in the next entry."""
        if entry.kind is Kind.RUN_CLAIMED:
            self._claimed(entry)
        elif entry.kind in GIVES_BACK:
            self._given_back(entry)
        elif entry.kind is Kind.RUN_WAITING:
            self._waiting = entry
        elif entry.kind in _BY_KIND:
            if entry.step is not None:
                self._waiting = None
            _BY_KIND[entry.kind](self, entry)
        if entry.kind is Kind.RUN_STARTED or entry.kind is Kind.RUN_RESUMED:
            self._due_us = entry.at_us
        self.last_us = max(self.last_us, entry.at_us)

    def end(self, row: RunRow, now_us: int) -> None:
        """See how it stands now: what is still open, and whether somebody has the run."""
        if row.owner is not None:
            if not self._store.owner_is_dead(row.owner):
                return
            self._leave(self.last_us, "died")
            if self._waiting is None or (due := _wakes(self._waiting)) is None:
                due = None if self._waiting is not None else self.last_us
            self._interrupt(now_us, died=True)
            if due is not None and due < now_us:
                self._gap(due, None, "died")
        elif self._waiting is not None:
            self._leave(self._waiting.at_us, "waiting")
        elif row.status is Status.QUEUED and self._due_us is not None:
            self._gap(self._due_us, None, "queued")

    # -- who had the run -----------------------------------------------------------------------

    def _claimed(self, entry: Entry) -> None:
        told = facts(entry)
        why = str(told.get("why", ""))
        status = _LOST.get(why)
        since = self._due_us
        if self._waiting is not None:
            since = _wakes(self._waiting)
            self._leave(self._waiting.at_us, "waiting")
        elif status is not None:
            since = self.last_us
            self._leave(self.last_us, status.replace("_", " "))
            if self.executions:
                self.executions[-1].found_dead = at(entry.at_us)
            self._interrupt(entry.at_us, died=True)
        self._interrupt()
        if since is not None and (status is not None or entry.at_us - since > GAP_US):
            self._gap(min(since, entry.at_us), entry.at_us, status or "queued")
        owner = told.get("owner")
        name = self._store.owner_name(owner if isinstance(owner, int) else None)
        self.executions.append(ExecutionView(name, at(entry.at_us), None, "at work"))
        self._waiting = self._due_us = None

    def _given_back(self, entry: Entry) -> None:
        self._waiting = None
        self._interrupt(entry.at_us)
        self._leave(entry.at_us, entry.kind.value.removeprefix("run_").replace("_", " "))
        self._release(entry.at_us)
        if entry.kind in _ENDS:
            self._close(entry.at_us)
        goes_on = entry.kind in (Kind.RUN_RELEASED, Kind.ROLLBACK_REQUESTED)
        self._due_us = entry.at_us if goes_on else None
        if entry.kind is Kind.RUN_HELD:
            reason = str(facts(entry).get("reason", ""))
            self._held = self._bar("held", "", reason.replace("_", " "), reason, entry.at_us)

    def _leave(self, at_us: int, how: str) -> None:
        if self.executions and self.executions[-1].end is None:
            self.executions[-1].end = at(at_us)
            self.executions[-1].how = how

    def _gap(self, since_us: int, until_us: int | None, status: str) -> None:
        bar = self._bar("gap", "", _GAPS.get(status, status), status, since_us)
        bar.end = None if until_us is None else at(until_us)

    def _interrupt(self, at_us: int | None = None, *, died: bool = False) -> None:
        """Attempts that have no outcome ended with the process that made them; of one that died it is
        only known that they ended at the latest when it was found dead."""
        for bar in self._attempts.values():
            if bar.end is None:
                bar.end = max(bar.start, at(self.last_us if at_us is None else at_us))
                bar.status = "interrupted"
                if died:
                    bar.known_until = max(bar.start, at(self.last_us))

    def _release(self, at_us: int) -> None:
        if self._held is not None:
            self._held.end = at(at_us)
            self._held = None

    def _close(self, at_us: int) -> None:
        """Nothing goes on once the run has ended."""
        for bar in self.bars:
            bar.end = bar.end or max(bar.start, at(at_us))

    def taken_up(self, entry: Entry) -> None:
        """A later generation may leave something behind."""
        told = facts(entry)
        if entry.kind is Kind.RUN_RESUMED:
            self._release(entry.at_us)
        self._generation = int(told.get("generation", self._generation))
        for key in told.get("superseded", ()):
            for bar in self._done.pop(key, ()):
                bar.superseded = True
                bar.end = bar.end or at(entry.at_us)
            for kept in (self._steps, self._attempts, self._waits):
                kept.pop(key, None)

    # -- steps ---------------------------------------------------------------------------------

    def _bar(self, kind: str, key: str, name: str, status: str, start_us: int) -> Bar:
        start = at(start_us)
        bar = Bar(kind, key, name, False, status, start, None, 0, self._generation)
        bar.branch = branch_of(key)
        self.bars.append(bar)
        if key:
            self._done.setdefault(key, []).append(bar)
        return bar

    def _begun(self, key: str, start_us: int) -> Bar:
        if key not in self._steps:
            self._steps[key] = self._bar("step", key, name_of(key), "running", start_us)
        return self._steps[key]

    def started(self, entry: Entry) -> None:
        key = entry.step or ""
        step = self._begun(key, entry.at_us)
        step.effect = step.effect or b'"effect":true' in entry.body
        step.status, step.end, step.attempt = "running", None, entry.attempt
        attempt = self._bar("attempt", key, step.name, "running", entry.at_us)
        attempt.effect, attempt.attempt = step.effect, entry.attempt
        self._attempts[key] = attempt

    def _tried(self, entry: Entry, status: str, *, final: bool) -> None:
        if entry.started_us is not None:
            self.started(msgspec.structs.replace(entry, at_us=entry.started_us))
        key = entry.step or ""
        step = self._begun(key, entry.at_us)
        attempt = self._attempts.get(key)
        if attempt is not None and attempt.end is None:
            attempt.end, attempt.status = at(entry.at_us), status
        step.status = status
        step.attempt = max(step.attempt, entry.attempt)
        if final:
            step.end = at(entry.at_us)

    def completed(self, entry: Entry) -> None:
        self._tried(entry, "completed", final=True)

    def skipped(self, entry: Entry) -> None:
        self._tried(entry, entry.kind.value, final=True)

    def failed(self, entry: Entry) -> None:
        final = bool(facts(entry).get("final"))
        self._tried(entry, "failed", final=final)
        if not final:
            self._steps[entry.step or ""].status = "retrying"

    def in_doubt(self, entry: Entry) -> None:
        self._tried(entry, "in_doubt", final=False)
        attempt = self._attempts.get(entry.step or "")
        if attempt is not None and attempt.status == "interrupted":
            attempt.status = "in_doubt"

    def settled(self, entry: Entry) -> None:
        status = _SETTLED.get(str(facts(entry).get("outcome")), "failed")
        self._tried(entry, status, final=status != "not_done")

    def cancelled(self, entry: Entry) -> None:
        self._tried(entry, "cancelled", final=True)

    # -- waits ---------------------------------------------------------------------------------

    def wait_begun(self, entry: Entry) -> None:
        key = entry.step or ""
        self._waits[key] = self._bar("wait", key, _waited_for(entry), "waiting", entry.at_us)

    def wait_ended(self, entry: Entry) -> None:
        bar = self._waits.get(entry.step or "")
        if bar is not None:
            bar.end, bar.status = at(entry.at_us), "ended"
            if entry.kind is Kind.WAIT_TIMED_OUT:
                bar.status = "timed_out"
            elif entry.kind is Kind.QUESTION_ANSWERED and "refused" in entry.data():
                bar.status = "refused"


_BY_KIND: dict[Kind, Callable[[_Walk, Entry], None]] = {
    Kind.STEP_STARTED: _Walk.started,
    Kind.STEP_COMPLETED: _Walk.completed,
    Kind.STEP_FAILED: _Walk.failed,
    Kind.STEP_IN_DOUBT: _Walk.in_doubt,
    Kind.STEP_SETTLED: _Walk.settled,
    Kind.STEP_CANCELLED: _Walk.cancelled,
    Kind.SKIPPED_DUPLICATE: _Walk.skipped,
    Kind.RUN_RESUMED: _Walk.taken_up,
    Kind.DRIFT_FOUND: _Walk.taken_up,
    **dict.fromkeys(WAIT_BEGINS, _Walk.wait_begun),
    **dict.fromkeys(WAIT_ENDS, _Walk.wait_ended),
}
_ENDS = frozenset({Kind.RUN_COMPLETED, Kind.RUN_FAILED, Kind.RUN_CANCELLED, Kind.RUN_ROLLED_BACK})
_LOST = {
    ClaimedBecause.OWNER_DEAD.value: "died",
    ClaimedBecause.LEASE_EXPIRED.value: "lease_expired",
}
_GAPS = {
    "died": "its process died in this time",
    "lease_expired": "its process was not heard of",
    "queued": "nobody had taken it",
}
_SETTLED = {"done": "completed", "not_done": "not_done"}


def _waited_for(entry: Entry) -> str:
    """Explain what a call waits for, by the name that people know it by."""
    said = facts(entry)
    name = str(said.get("name", ""))
    if entry.kind is Kind.SIGNAL_AWAITED:
        return f"signal {name}"
    if entry.kind is Kind.CHILD_STARTED:
        return f"child {said.get('run', '')}".rstrip()
    if entry.kind is not Kind.QUESTION_ASKED:
        return "sleep"
    is_approval = name.startswith(APPROVE)
    return f"approval of {name.removeprefix(APPROVE)}" if is_approval else f"answer to {name}"


def _wakes(waiting: Entry) -> int | None:
    """Return when a run that waits goes on by itself."""
    told = facts(waiting).get("for")
    if not isinstance(told, list):
        return None
    lines = cast("list[dict[str, Any]]", told)
    times = [it["until_us"] for it in lines if it.get("until_us") is not None]
    return min(times, default=None)
