"""Drift of code: a journal compared with the code of this process. Pure.

The result is the preview of a resume. Watched facts are not among what is compared here: they
are looked at when the flow passes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast._engine.decisions.redo import behind, effects_behind
from holdfast._engine.journal.drift_record import Change
from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.step_keys import is_undo, name_of
from holdfast._engine.journal.step_record import STEP, facts
from holdfast._engine.scripts import doubt_policies
from holdfast._engine.values.durations import as_text
from holdfast._features.drift.model import DEFAULTS

USED = ("model", "prompt", "tools")
"""Facts of `record_usage` about a model call that are compared by name, like declared versions."""


class StepNow(msgspec.Struct, frozen=True):
    """A step in the code of this process."""

    code: str = ""
    versions: dict[str, str] = {}
    valid_for_us: int | None = None
    on_expired: str | None = None
    key_ttl_s: float = doubt_policies.KEY_TTL_S


class CodeNow(msgspec.Struct, frozen=True):
    """A flow and its steps in the code of this process."""

    flow: str = ""
    steps: dict[str, StepNow] = {}
    policies: dict[str, str] = {}

    def policy(self, kind: str) -> str:
        """Return what the flow does about a kind of change."""
        return self.policies.get(kind) or DEFAULTS.get(kind, "keep")


class ResumePreview(msgspec.Struct, frozen=True):
    """The changes that a run finds when it goes on after a gap."""

    run_id: str
    flow: str
    status: str
    gap_s: float
    """How long nothing was written."""
    last: str
    """The kind of the last entry before the gap."""
    died: bool
    """Whether the process that had the run is gone without having given it back."""
    changes: tuple[Change, ...] = ()
    redone: tuple[str, ...] = ()
    """Steps that were at work and have no outcome: they are executed again."""
    in_doubt: tuple[str, ...] = ()
    """Effects that were started and whose outcome is not known."""
    unseen: tuple[str, ...] = ()
    """Facts that could not be looked at, with the errors."""
    generation: int | None = None
    """The generation that a resume begins, if the run failed."""
    superseded: tuple[str, ...] = ()
    """Steps that this generation leaves behind: they are executed again if the flow comes to them."""
    refused: str = ""
    """Why a resume would be refused, of a run that failed or has ended."""

    def __str__(self) -> str:
        lines = [f"Run {self.run_id} of flow {self.flow}, {self._gap()}."]
        for title, said in (
            ("Changed", [f"{change} [{change.did or change.policy}]" for change in self.changes]),
            (f"Executed again in generation {self.generation}", self.superseded),
            ("Executed again, since no outcome is recorded", self.redone),
            ("In doubt", self.in_doubt),
            ("Not looked at", self.unseen),
        ):
            lines += [f"{title}:", *(f"  - {line}" for line in said)] if said else []
        if self.generation is not None and not self.superseded:
            lines.append(f"A resume begins generation {self.generation}.")
        if self.refused:
            lines.append(f"A resume would be refused: {self.refused}")
        if not self.changes:
            lines.append("Nothing that was looked at has changed.")
        return "\n".join(lines)

    def _gap(self) -> str:
        how = "its process died" if self.died else f"last entry {self.last}"
        return f"{as_text(int(self.gap_s * 1e6)) or '0 s'} without an entry ({how})"


def redone(history: History) -> tuple[str, ...]:
    """Return the steps that were at work and have no outcome."""
    return tuple(
        record.key
        for record in history.records.values()
        if record.intent is not None
        and not record.effect
        and record.state in (State.RUNNING, State.CANCELLED, State.RETRYING)
    )


def code_changes(history: History, flow: str, now: CodeNow, at_us: int) -> list[Change]:
    """Return what has changed, but for watched facts."""
    changes = _flow_code(history, flow, now)
    changes += _steps(history, now)
    changes += _expired(history, now, at_us)
    changes += _keys(history, now, at_us)
    return [change for change in changes if not _is_known(history, change)]


def _is_known(history: History, change: Change) -> bool:
    """Return whether it was reported before, and the run went on with it."""
    return change.kind != "expired" and history.drift.accepted.get(change.token) == change.now


def _flow_code(history: History, flow: str, now: CodeNow) -> list[Change]:
    was = "" if history.started is None else facts(history.started).get("fingerprint", "")
    if not was or not now.flow or was == now.flow:
        return []
    return [Change("flow", flow, str(was), now.flow, now.policy("flow"))]


def _steps(history: History, now: CodeNow) -> list[Change]:
    """Compare the code and the versions of steps with those that made the recorded outcomes."""
    changes: list[Change] = []
    for name, records in _by_name(history, now).items():
        step = now.steps[name]
        latest = made_with(max(records, key=lambda record: record.last_seq))
        code, versions = latest.get("code", ""), latest.get("versions", {})
        differ = {k: v for k, v in step.versions.items() if versions.get(k, v) != v}
        if not differ and not _differs(code, step.code):
            continue
        made = [(record.key, made_with(record)) for record in records]
        if _differs(code, step.code):
            keys = [key for key, was in made if _differs(was.get("code", ""), step.code)]
            changes.append(_change(history, now, "step", name, code, step.code, keys))
        for kind, version in differ.items():
            keys = [key for key, was in made if was.get("versions", {}).get(kind) != version]
            changes.append(_change(history, now, kind, name, versions[kind], version, keys))
    return changes


def _change(
    history: History, now: CodeNow, kind: str, name: str, was: str, is_now: str, keys: Sequence[str]
) -> Change:
    again = effects_behind(history, keys)
    return Change(kind, name, was, is_now, now.policy(kind), tuple(keys), again)


def _differs(was: str, now: str) -> bool:
    """Return whether code was changed; what another version of Python compiled cannot be compared."""
    return bool(was and now) and was != now and was.partition(":")[0] == now.partition(":")[0]


def _by_name(history: History, now: CodeNow) -> dict[str, list[Record]]:
    """Return, for each step that is known here, its records that have an outcome."""
    records: dict[str, list[Record]] = {}
    for record in history.records.values():
        name = name_of(record.key)
        is_step = record.outcome is not None and record.sort == STEP and not is_undo(record.key)
        if is_step and name in now.steps:
            records.setdefault(name, []).append(record)
    return records


def made_with(record: Record) -> dict[str, Any]:
    """Return what a recorded outcome says of the code and the versions that made it."""
    assert record.outcome is not None
    body = record.outcome.body
    if b'"code":' not in body and b'"versions":' not in body and b'"usage":' not in body:
        return {}
    data: Mapping[str, msgspec.Raw] = record.outcome.data()
    told: dict[str, Any] = {
        name: msgspec.json.decode(data[name]) for name in ("code", "versions") if name in data
    }
    if "usage" in data:
        used = msgspec.json.decode(data["usage"])
        versions = {name: str(used[name]) for name in USED if name in used}
        if versions:
            told["versions"] = {**versions, **told.get("versions", {})}
    return told


def used_by(history: History, name: str) -> dict[str, str]:
    """Return what the last recorded call of a step said that it used."""
    used: dict[str, str] = {}
    for record in sorted(history.records.values(), key=lambda record: record.last_seq):
        if record.outcome is not None and name_of(record.key) == name:
            used |= made_with(record).get("versions", {})
    return used


def _expired(history: History, now: CodeNow, at_us: int) -> list[Change]:
    """Find results that are older than they are good for."""
    by_name: dict[str, list[Record]] = {}
    for record in history.records.values():
        name = name_of(record.key)
        step = now.steps.get(name)
        if step is None or step.valid_for_us is None or record.state is not State.COMPLETED:
            continue
        since_us = max(
            record.ended_us or 0, int(history.drift.accepted.get(f"expired:{name}", "0"))
        )
        if at_us - since_us > step.valid_for_us:
            by_name.setdefault(name, []).append(record)
    return [_gone_bad(history, now, name, records, at_us) for name, records in by_name.items()]


def _gone_bad(
    history: History, now: CodeNow, name: str, records: list[Record], at_us: int
) -> Change:
    step = now.steps[name]
    assert step.valid_for_us is not None
    keys = tuple(record.key for record in records)
    oldest_us = min(record.ended_us or at_us for record in records)
    policy = step.on_expired or now.policy("expired")
    if policy == "hold" and len(behind(history, keys)) == len(keys):
        policy = "redo"  # Nothing was made of it yet: it is asked for again.
    return Change(
        "expired",
        name,
        f"is {as_text(at_us - oldest_us)} old",
        f"it is good for {as_text(step.valid_for_us)}",
        policy,
        keys,
        effects_behind(history, keys),
    )


def _keys(history: History, now: CodeNow, at_us: int) -> list[Change]:
    """Find effects in doubt whose key the other side may have forgotten."""
    changes: list[Change] = []
    for record in history.open_doubts():
        shown_key = record.shown_key()
        if shown_key is None or record.transaction:
            continue
        ttl_s = _key_ttl_s(record, now)
        if not doubt_policies.may_send(record.first_started_us, at_us, ttl_s):
            was = f"was first shown {as_text(at_us - record.first_started_us)} ago"
            is_now = f"may be forgotten after {as_text(int(ttl_s * 1e6))}: it is not sent again"
            changes.append(Change("key", record.key, was, is_now, now.policy("key"), (record.key,)))
    return changes


def _key_ttl_s(record: Record, now: CodeNow) -> float:
    step = now.steps.get(name_of(record.key))
    if step is not None:
        return step.key_ttl_s
    intent = {} if record.intent is None else facts(record.intent)
    return float(intent.get("key_ttl_s", doubt_policies.KEY_TTL_S))
