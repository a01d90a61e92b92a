"""What an explanation says of findings."""

from __future__ import annotations

import msgspec

from holdfast._core.findings import Finding, Found, Severity
from holdfast._core.history import State
from holdfast._ops.explanation import ALL_IS_WELL, Case
from holdfast._ops.text import moment
from holdfast._store import watchdog


def about_findings(case: Case, found: list[Finding] | None = None) -> None:
    """Say what is found in the run now, and what the watchdog did about it."""
    if found is None:
        found = watchdog.of_run(case.store, case.row, only_open=True)
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
    """Say how a step that will never end is ended, and what that causes."""
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
    """Say it first: who reads only one line must not go back to bed."""
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
