"""What an explanation says of findings."""

from __future__ import annotations

from holdfast._core.findings import Severity
from holdfast._ops.explanation import Case
from holdfast._ops.text import moment
from holdfast._store import watchdog


def about_findings(case: Case) -> None:
    """Say what is found in the run now, and what the watchdog did about it."""
    known = {action.command for action in case.said.actions}
    for finding in watchdog.of_run(case.store, case.row, only_open=True):
        if finding.severity is Severity.INFO:
            continue  # What is held says so itself.
        name = str(finding.kind).replace("_", " ")
        did = ""
        if finding.noted_at is not None:
            at_us = round(finding.noted_at.timestamp() * 1e6)
            did = f" Noted {moment(at_us)}" + (f" ({finding.did})." if finding.did else ".")
        case.said.known.append(f"Finding, {name}: {finding.text}.{did}")
        for action in finding.actions:
            if action not in known and not action.startswith("holdfast explain"):
                known.add(action)
                case.do(_MEANING.get(action.split()[1], "It can be done now:"), action)


_MEANING = {
    "history": "To see its entries:",
    "show": "To see its steps:",
    "pause": "To hold it until somebody resumes it:",
    "cancel": "To cancel it:",
    "rollback": "To see what could be undone:",
    "run": "To execute it here:",
    "worker": "To start a worker, which takes it when it is due:",
}
