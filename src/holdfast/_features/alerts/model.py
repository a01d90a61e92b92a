"""An alert: the message that a run needs a person. Pure.

An alert is about a state (held since entry 12, failed since entry 40, this finding, this share of this
budget), and has an id made of it: the same state gives the same alert, in every process and
however often it is made. It names the run, its state and the command that explains it; values of runs
and texts of errors, which may hold anything, are no part of it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.journal.rows import Account, Question, RunRow
from holdfast._engine.journal.step_record import facts
from holdfast._engine.values.moments import at
from holdfast._features.watchdog.model import WATCHDOG, Finding

NEARLY = 0.8
"""From which spent share of a budget on an alert is sent."""
TYPE_MAX_CHARS = 200

ASKED = "asked"
ENTRIES = {Status.HELD: Kind.RUN_HELD, Status.FAILED: Kind.RUN_FAILED}
"""The entry with which a state began that wants a person."""

_HELD: dict[str, str] = {
    HeldReason.IN_DOUBT: "an effect may or may not have happened, and somebody has to settle it",
    HeldReason.BUDGET: "its budget is used up",
    HeldReason.DIVERGED: "its code does not fit its journal any more",
    HeldReason.DRIFT: "what it relies on has changed while it stood still",
    HeldReason.CORRUPT: "its record is damaged",
    HeldReason.QUARANTINED: "its process died again and again without bringing it on",
    HeldReason.PAUSED: "it was paused",
    HeldReason.MOVED: "it goes on in another store",
}


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person should look at, without any value of the run."""

    version: int = 1
    """Of this shape; fields may be added without a new one."""
    id: str
    """The same for the same state, however often it is sent."""
    kind: str
    """"held", "failed", "finding", "asked" (and not answered for some time) or "budget" (nearly used
    up; used up is held)."""
    severity: str
    """"info", "warning" or "error"."""
    run_id: str
    flow: str
    queue: str
    namespace: str
    reason: str | None = None
    """Why it is held; the type of the error that it failed with; the limit that is nearly reached."""
    finding: str | None = None
    """The kind of the finding, such as "stuck"."""
    step: str | None = None
    generation: int
    since: dt.datetime
    text: str
    """The state of the run, in a sentence for people."""
    command: str
    """The command to run first."""

    def json(self) -> bytes:
        """Return it as one JSON object."""
        return msgspec.json.encode(self)


def of_state(store_id: str, row: RunRow, entries: Sequence[Entry]) -> Alert | None:
    """Return the alert about a run that is held or failed, by the end of its journal; None if that
    does not go back to where it began. Without any entries, its journal cannot be read."""
    kind = ENTRIES[row.status]
    entry = next((it for it in reversed(entries) if it.kind is kind), None)
    if entry is None and entries:
        return None
    said = {} if entry is None else facts(entry)
    step = said.get("step") or next(iter(said.get("steps") or ()), None)
    if row.status is Status.HELD:
        reason = row.held_reason or "held"
        what = f"is held ({reason.replace('_', ' ')}): {_HELD.get(reason, reason)}"
        if reason == HeldReason.PAUSED and isinstance(said.get("actor"), str):
            what += f" by {said['actor']}"
    else:
        reason = _type(said, step, entries)
        what = f"failed: {reason}"
    return _alert(
        store_id,
        row,
        kind=str(row.status),
        mark=str(row.last_seq if entry is None else entry.seq),
        severity=_severity(reason, said),
        since_us=row.updated_us if entry is None else entry.at_us,
        text=what + (f" (at {step})" if step else ""),
        reason=reason,
        step=step if isinstance(step, str) else None,
    )


def _severity(reason: str, said: dict[str, Any]) -> str:
    """A person who paused or moved a run knows of it; of a hold by the watchdog nobody does."""
    if reason not in (HeldReason.PAUSED, HeldReason.MOVED):
        return "error"
    return "warning" if said.get("actor") == WATCHDOG else "info"


def _type(said: dict[str, Any], step: Any, entries: Sequence[Entry]) -> str:
    """Return the type of the error that a run failed with: that of its step, if one gave up."""
    of_step = next(
        (it for it in reversed(entries) if it.kind is Kind.STEP_FAILED and it.step == step), None
    )
    error: Any = said.get("error") if of_step is None else facts(of_step).get("error")
    name = error.get("type") if isinstance(error, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return plain(str(name or "unknown"))[:TYPE_MAX_CHARS]  # pyright: ignore[reportUnknownArgumentType]


def of_finding(store_id: str, row: RunRow, finding: Finding) -> Alert:
    """Return the alert about something that the watchdog found."""
    return _alert(
        store_id,
        row,
        kind="finding",
        mark=finding.id,
        severity=str(finding.severity),
        since_us=round(finding.since.timestamp() * 1e6),
        text=f"has a finding, {str(finding.kind).replace('_', ' ')}: {finding.text}",
        finding=str(finding.kind),
        step=finding.steps[0] if finding.steps else None,
    )


def of_question(store_id: str, row: RunRow, question: Question) -> Alert:
    """Return the alert about a question, or an approval, that nobody has answered."""
    return _alert(
        store_id,
        row,
        kind=ASKED,
        mark=f"{question.name}:{question.number}:{question.asked_us}",
        severity="warning",
        since_us=question.asked_us,
        text=f"asks, and nobody has answered yet ({question.kind} {question.name})",
        reason=question.kind,
    )


def of_budget(store_id: str, row: RunRow, account: Account, now_us: int) -> Alert | None:
    """Return the alert about a budget that is nearly used up, or None. Raised, it is another one."""
    for name, limit, spent in _spent(account, now_us):
        if spent < limit and spent >= NEARLY * limit:
            share = f"{100 * spent / limit:.0f} %"
            return _alert(
                store_id,
                row,
                kind="budget",
                mark=f"{account.root}:{name}:{limit}",
                severity="warning",
                since_us=now_us,
                text=f"has used {share} of its budget ({name})",
                reason=name,
            )
    return None


def _spent(account: Account, now_us: int) -> Iterable[tuple[str, int, int]]:
    for name, said in _LIMITS.items():
        limit = getattr(account, name)
        if limit:
            spent = (
                now_us - account.opened_us
                if name == "wall_us"
                else getattr(account, f"spent_{name}")
            )
            yield said, limit, spent


_LIMITS = {"usd_nanos": "usd", "tokens": "tokens", "steps": "steps", "wall_us": "time"}


def _alert(
    store_id: str,
    row: RunRow,
    *,
    kind: str,
    mark: str,
    severity: str,
    since_us: int,
    text: str,
    reason: str | None = None,
    finding: str | None = None,
    step: str | None = None,
) -> Alert:
    named = f"{store_id}\0{row.namespace}\0{row.run_id}\0{kind}\0{mark}"
    return Alert(
        id=hashlib.sha256(named.encode()).hexdigest()[:32],
        kind=kind,
        severity=severity,
        run_id=row.run_id,
        flow=row.flow,
        queue=row.queue or "default",
        namespace=row.namespace,
        reason=reason,
        finding=finding,
        step=step,
        generation=row.generation,
        since=at(since_us),
        text=plain(f"run {row.run_id} of {row.flow} {text}"),
        command=command("explain", row.run_id),
    )


def plain(text: str) -> str:
    """Return text without anything that could end a line or move a cursor."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
