"""How an entry of a step call is made of what its script says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._core.entries import Draft, Kind
from holdfast._core.redacting import redact_facts
from holdfast._core.requests import Note, StepCall

if TYPE_CHECKING:
    from holdfast._runtime.execution import Execution

_encode = msgspec.json.Encoder().encode


def drafted(execution: Execution, call: StepCall, note: Note) -> tuple[Draft, Any]:
    """Return the entry of a step call, under the run's lock, and the copy of its value that the
    caller gets. A plain step's start is joined with its outcome, unless it was written before."""
    kind = note.kind
    parts: list[bytes] = []
    started_us = None
    if kind is Kind.STEP_STARTED or kind is Kind.SKIPPED_DUPLICATE or call.attempt == 0:
        parts.append(b'"args":' + call.args_node)
        call.noted = kind is Kind.STEP_STARTED
    elif not call.noted and note.ends_attempt and not call.spec.effect:
        parts.append(b'"args":' + call.args_node)
        started_us = call.started_us
    redact, path = execution.values.redact, ""
    if redact is not None:
        path = redact_facts(note.facts, call.key, redact)
    for name, fact in note.facts.items():
        parts.append(b'"%b":%b' % (name.encode(), _encode(fact)))
    copy: Any = None
    for name, value in note.values.items():
        node, copy = execution.values.copy(value, path + name)
        parts.append(b'"%b":%b' % (name.encode(), node))
    begins = kind is Kind.STEP_STARTED
    if call.spec.polls and (begins or note.ends_attempt):
        parts.append(b'"polls":true')
    if begins and call.spec.timeout_s is not None and not call.spec.effect:
        parts.append(b'"timeout_s":' + _encode(call.spec.timeout_s))
    if call.usage and note.ends_attempt:
        parts.append(b'"usage":' + _encode(call.usage))
    if call.made_by and note.ends_attempt:
        parts.append(call.made_by)
    draft = Draft(
        kind,
        execution.engine.now_us() if kind is not Kind.STEP_STARTED else call.started_us,
        call.key,
        call.attempt,
        call.position,
        call.args_digest,
        started_us,
        b"{" + b",".join(parts) + b"}",
    )
    return draft, copy


def track(intents: set[str], call: StepCall, notes: list[Note]) -> None:
    """Keep up which effects have begun, as far as is written, and are not known to have ended."""
    for note in notes:
        if note.kind is Kind.STEP_STARTED:
            intents.add(call.key)
        elif note.ends_attempt or note.kind in _ENDS:
            intents.discard(call.key)


_ENDS = frozenset({Kind.STEP_IN_DOUBT, Kind.STEP_SETTLED, Kind.STEP_CANCELLED})
