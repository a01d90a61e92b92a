"""Findings as operators see them: in the explanation of a run, and as metrics of a store.

The metrics are kept in between, since findings cost most: each turn goes on in the open runs where the
turn before stopped, for some milliseconds, until all of them have been looked at; then it begins again.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from holdfast._engine.journal.history import State
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.text import moment
from holdfast._features.operator_side import ALL_IS_WELL, Case, Gauge, OperatorSide, Reading, single
from holdfast._features.watchdog import store as watchdog
from holdfast._features.watchdog.model import Finding, Found, Severity
from holdfast._stores.contract import Store

FINDINGS_EVERY_S = 5.0
FINDINGS_TIME_S = 0.05
"""How often runs are looked at for findings, and for how long at one time."""


# -- explanation -------------------------------------------------------------------------------


def about_findings(case: Case) -> None:
    """Explain the run's open findings, and what the watchdog did about them."""
    found: Sequence[Finding] | None = case.findings
    if found is None:
        found = watchdog.Survey(case.store).findings(case.row, case.journal)
    known = {action.command for action in case.said.actions}
    told: list[str] = []
    for finding in found:
        if finding.severity is Severity.INFO:
            continue  # What is held says so itself.
        name = str(finding.kind).replace("_", " ")
        told.append(name)
        case.said.known.append(f"Finding, {name}: {finding.text}.{_did(finding)}")
        _not_known(case, finding.kind)
        for action in finding.actions:
            if action not in known and not action.startswith("holdfast explain"):
                known.add(action)
                case.do(_MEANING.get(action.split()[1], "It can be done now:"), action)
        if finding.kind is Found.STUCK and case.row.owner is not None and finding.steps:
            _hangs(case, finding)
    if told:
        _not_all_is_well(case, ", ".join(dict.fromkeys(told)))


def _hangs(case: Case, finding: Finding) -> None:
    """Explain how a step that will never end is ended, and what that causes."""
    if not watchdog.is_at_work(case.store, case.row):
        return
    step = finding.steps[0]
    record = case.past.records.get(step)
    if record is None or record.state not in (State.RUNNING, State.RETRYING):
        return
    after = "it is in doubt then, and is settled" if record.effect else "it is executed anew"
    case.said.known.append(
        f"No step is interrupted from outside. If {step} will never end, only the end of its process "
        f"ends it; {after} when the run is taken up again."
    )
    owner = case.store.owner_name(case.row.owner)
    case.do(
        f"If {step} will never end: end the worker that has it in good order (SIGTERM, to {owner} or "
        "its parent). Its other runs come to their end or are given back first. Only if that does "
        "not help, kill it: effects of all its runs that are under way are in doubt then."
    )


def _did(finding: Finding) -> str:
    if finding.noted_at is None:
        return ""
    at_us = round(finding.noted_at.timestamp() * 1e6)
    return f" Noted {moment(at_us)}" + (f" ({finding.did})." if finding.did else ".")


def _not_known(case: Case, kind: Found) -> None:
    nobody_has_it = case.row.owner is None and kind is Found.STUCK
    if not nobody_has_it and _OPEN[kind] not in case.said.unknown:
        case.said.unknown.append(_OPEN[kind])


def _not_all_is_well(case: Case, names: str) -> None:
    """Say it first, for a reader of one line."""
    said = case.said
    said.case = said.case.removesuffix(ALL_IS_WELL).rstrip(" .")
    said.case += f". The watchdog finds: {names}."
    said.actions = [
        msgspec.structs.replace(it, meaning=it.meaning.removeprefix(f"{ALL_IS_WELL} "))
        for it in said.actions
    ]


_OPEN: dict[Found, str] = {
    Found.STUCK: "Whether it is only slow, or will never go on: look at what it waits for.",
    Found.LOOPING: "Whether that is meant: a step that is to be asked again says polls=True.",
    Found.DUPLICATE_ACTION: "Whether the second one was wanted: look at what is there now.",
    Found.PARTIAL_FAILURE: "Whether what was done is to stay as it is, or to be undone.",
    Found.RUNAWAY_COST: "What it will come to, and whether it is worth that.",
}
_MEANING = {
    "history": "To see its entries:",
    "show": "To see its steps:",
    "pause": "To hold it until somebody resumes it:",
    "cancel": "To cancel it:",
    "rollback": "To see what could be undone:",
    "run": "To execute it here:",
    "worker": "To start a worker, which takes it when it is due:",
}


# -- metrics -----------------------------------------------------------------------------------


class Round:
    """Looks at the open and failed runs of a store, some at a time, again and again."""

    def __init__(self, store: Store) -> None:
        self._store: Store = weakref.proxy(store)  # A round keeps no store alive that nobody has.
        self._survey = watchdog.Survey(self._store)
        self._rows: Iterator[RunRow] | None = None
        self._found: dict[int, list[Finding]] = {}
        """Findings by run; those of the round before stay until the run is looked at again."""
        self._seen: set[int] = set()
        self._unread: set[int] = set()
        self._turn_s = -math.inf
        self._begun_s = 0.0
        self.age_of: float | None = None
        """When the last round that came to its end began; None if none has."""
        self.runs = 0
        self.unread = 0

    @property
    def findings(self) -> list[Finding]:
        """The findings in the runs that were looked at."""
        return [it for found in self._found.values() for it in found]

    @property
    def complete(self) -> bool:
        """Whether all runs were looked at, and could be read."""
        return self.age_of is not None and not self.unread

    def go_on(self) -> None:
        """Look at some more runs, unless that was done a moment ago."""
        if time.monotonic() - self._turn_s < FINDINGS_EVERY_S:
            return
        ends_s = time.monotonic() + FINDINGS_TIME_S
        rows, self._rows = self._rows, None  # If the list cannot be read, it begins again.
        if rows is None:
            rows = watchdog.open_rows(self._store)
            self._begun_s = time.monotonic()
            self._seen, self._unread = set(), set()
        for row in rows:
            self._look(row)
            if time.monotonic() >= ends_s:
                self._rows = rows
                break
        else:
            self._end()
        self._turn_s = time.monotonic()
        if self.age_of is None:
            self.runs, self.unread = len(self._seen), len(self._unread)

    def _look(self, row: RunRow) -> None:
        damaged = len(self._survey.damaged)
        self._seen.add(row.run_no)
        self._found[row.run_no] = self._survey.findings(row)
        if len(self._survey.damaged) > damaged:
            self._unread.add(row.run_no)
            self._survey.damaged.clear()

    def _end(self) -> None:
        self._found = {number: it for number, it in self._found.items() if number in self._seen}
        self.age_of = self._begun_s
        self.runs, self.unread = len(self._seen), len(self._unread)


_rounds: weakref.WeakKeyDictionary[Store, Round] = weakref.WeakKeyDictionary()


def _findings(store: Store) -> Reading:
    looked = _rounds.get(store)
    if looked is None:
        looked = _rounds[store] = Round(store)
    looked.go_on()
    return Reading(list(_finding_figures(looked)), looked.complete)


def _finding_figures(looked: Round) -> Iterator[Gauge]:
    kinds = Counter((str(it.kind), str(it.severity)) for it in looked.findings)
    samples = [
        ({"kind": kind, "severity": severity}, float(n)) for (kind, severity), n in kinds.items()
    ]
    missing = {str(kind) for kind in Found} - {kind for kind, _ in kinds}
    none = 0.0 if looked.complete else math.nan
    samples += [({"kind": kind, "severity": "warning"}, none) for kind in sorted(missing)]
    text = "What the watchdog finds, in the runs that were looked at; NaN: not all were, so unknown"
    yield Gauge("findings", text, samples)
    yield single("findings_runs", "Open and failed runs that were looked at", looked.runs)
    yield single("findings_unread", "Those of them that could not be read", looked.unread)
    yield single("findings_complete", "1 if all were looked at, and could be read", looked.complete)
    age = math.nan if looked.age_of is None else time.monotonic() - looked.age_of
    yield single(
        "findings_age_seconds", "How long ago the oldest of them was looked at, at most", age
    )


OPERATOR_SIDE = OperatorSide(name="watchdog", warn=about_findings, figures={"findings": _findings})
