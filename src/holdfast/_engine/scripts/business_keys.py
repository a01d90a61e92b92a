"""The effect name under which a business key is stored. Pure.

A key belongs to an effect name and a string. A renamed effect (`aliases=`) has keys under each of
its names. A new claim uses today's name, unless another name has the key already. A claimed key
stays where it is; the intent records the name if it does not follow from the step.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast._engine.journal.changes import ClaimKey
from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.rows import KeyState
from holdfast._engine.journal.step_keys import name_of
from holdfast._engine.journal.step_record import Record, State, facts
from holdfast._engine.scripts.requests import LookUpKey, Script, StepCall

CLAIMED_AS = "claimed_as"
"""The fact of an intent with the effect name under which its key was claimed."""


def find_name(call: StepCall, record: Record | None) -> Script:
    """Find the effect name under which this call has its key, or should claim it."""
    if call.business_key is None or call.claimed_as:
        return None
    known = None if record is None or record.intent is None else claimed_key(record.intent)
    if known is not None and known[1] == call.business_key:
        call.claimed_as = known[0]
        return None
    for name in (call.spec.name, *call.spec.aliases) if call.spec.aliases else ():
        state: KeyState | None = yield LookUpKey(name, call.business_key)
        if state is not None and state.state != "not_done":
            call.claimed_as = name
            return None
    return None


def claimed_name(call: StepCall) -> str:
    """Return the name under which a call claims its key."""
    return call.claimed_as or call.spec.name


def claim_of(call: StepCall) -> ClaimKey | None:
    """Return the claim of a call's business key, if it has one."""
    if call.business_key is None:
        return None
    assert call.args_digest is not None
    return ClaimKey(claimed_name(call), call.business_key, call.key, call.args_digest)


def claimed_key(intent: Entry) -> tuple[str, str] | None:
    """Return the effect and the key that an intent claimed, or None."""
    if b'"business_key":' not in intent.body:
        return None
    told = facts(intent)
    key = told.get("business_key")
    return None if key is None else (str(told.get(CLAIMED_AS) or name_of(intent.step or "")), key)


def keys_of_done(records: Iterable[Record]) -> set[str]:
    """Return the business keys of completed effects: no other call can have claimed one of them."""
    done = [it for it in records if it.state is State.COMPLETED and not it.degraded]
    found = [claimed_key(it.intent) for it in done if it.intent is not None and not it.borrowed]
    return {claimed[1] for claimed in found if claimed is not None}
