"""Effects in doubt: the facts about one, the ways to settle it, and the list of all that need a
person.

Open questions and approvals are in `question_views`; the inbox shows both.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast._engine.decisions.resume import facts_of
from holdfast._engine.journal.history import History, Record
from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.journal.rows import KeyState, RunRow, etag_of
from holdfast._engine.scripts.doubt import DOUBTS
from holdfast._engine.scripts.doubt_policies import KEY_TTL_S, may_send
from holdfast._engine.text import ago, clipped, length, moment, visible
from holdfast._engine.values.moments import at
from holdfast._operator.read.answer_schema import type_in_words
from holdfast._operator.read.question_views import Unreadable
from holdfast._operator.read.run_views import fold
from holdfast._operator.read.step_views import error_of
from holdfast._stores import readable_values
from holdfast._stores.contract import Query, Store
from holdfast._stores.readable_values import Reader
from holdfast.errors import Corrupt

_WILL = {
    "hold": "The next process that takes the run holds it, and asks a person.",
    "retry": "The next process that takes the run sends it again under the same key.",
    "fail": "The next process that takes the run gives the step up.",
    "function": "The next process that takes the run asks its on_doubt function.",
}
_POLICY = {
    "hold": "a person is asked",
    "retry": "it is sent again under the same key, while the key is young enough",
    "fail": "it is given up",
    "function": "its on_doubt function is asked",
}


def verdict(record: Record, names: str) -> str:
    """Return what the doubt is, in one sentence."""
    why = _why(record)
    if why == "repeated":
        return f"{names} may be the repetition of {_other(record)}."
    if why == "value_lost":
        return f"{names} happened, but its result could not be stored."
    return f"{names} may or may not have happened: {DOUBTS.get(why, why)}."


def _other(record: Record) -> str:
    return str(facts_of(record.doubt).get("other")) if record.doubt is not None else ""


def about_effect(
    store: Store,
    row: RunRow,
    record: Record,
    now_us: int,
    *,
    of: str = "",
    owner_died: bool = False,
) -> list[str]:
    """Return what the journal knows of an effect: arguments, key, age, policy."""
    if _why(record) == "repeated":
        text = (
            f"{record.key}{of} was not called: the run has done the same, or may have done it, as "
            f"{_other(record)}, and has not come back to that. A model that is asked again chooses "
            "new ids for its calls."
        )
        known = [text]
    elif record.intent is None:
        known = [f"This store has no record that {record.key}{of} was started: that may be lost."]
    else:
        started = f"{ago(record.first_started_us, now_us)} ({moment(record.first_started_us)})"
        tries = f", {record.attempts} times in all" if record.attempts > 1 else ""
        known = [f"{record.key}{of} was first started {started}{tries}."]
        known += _approved(record)
    first = record.intent or record.doubt
    if first is not None and "args" in first.data():
        args = readable_values.on_one_line(
            readable_values.text_of(store, row, bytes(first.data()["args"]))
        )
        known.append(f"Its arguments: {clipped(visible(args))}")
    known += _key_and_policy(record, now_us)
    error = error_of(record)
    if error is not None:
        known.append(f"The error it met: {clipped(str(error))}")
    if not record.ended and not owner_died:
        known.append("It is not proven that the attempt has ended: it may still be acting.")
    return known


def _approved(record: Record) -> list[str]:
    """Report the approver of the last attempt; a new one may need another approval."""
    grant: dict[str, Any] = _intent(record).get("approved") or {}
    if "sent_us" not in grant:
        return []
    return [f"{clipped(str(grant['actor']))} approved it ({moment(grant['sent_us'])})."]


def _key_and_policy(record: Record, now_us: int) -> list[str]:
    facts = _intent(record)
    known: list[str] = []
    if record.intent is None and record.doubt is not None and "key" in facts_of(record.doubt):
        key = facts_of(record.doubt)["key"]
        known.append(f"The idempotency key that it shows to the other side: {key}")
    if "key" in facts:
        age = length((now_us - record.first_started_us) / 1e6)
        known.append(f"Its idempotency key, shown to the other side: {facts['key']} ({age} old)")
        if _is_too_old(record, now_us):
            known.append(
                "The other side may have forgotten it (key_ttl=), so it is not sent again. Given up "
                "and taken up again, the step is executed under a new key."
            )
    if "on_doubt" in facts:
        policy = str(facts["on_doubt"])
        known.append(f"What is declared for a doubt: {_POLICY.get(policy, policy)}.")
    return known


def policy(record: Record) -> str:
    """Return what is declared for a doubt, in words."""
    declared = str(_intent(record).get("on_doubt", "hold"))
    return _POLICY.get(declared, declared)


def not_known(record: Record) -> list[str]:
    """Return what only the other side can tell."""
    if _why(record) == "value_lost":
        return [f"What {record.key} returned."]
    if _why(record) == "repeated":
        return [f"Whether {record.key} is meant to happen beside {_other(record)}."]
    return [f"Whether {record.key} happened. Only the other side can tell: look there for its key."]


def ways_out(record: Record, now_us: int) -> list[tuple[str, tuple[str, ...]]]:
    """Return what a person can decide: meaning, and arguments of `settle`."""
    step = record.key
    kind = _returns(record)
    done = (f"{step} happened (JSON stands for its result{kind}):", ("--done", "JSON"))
    not_done = (f"{step} did not happen (it will be executed):", ("--not-done",))
    if _why(record) == "repeated":
        done = (f"{step} is the same and happened (JSON: its result{kind}):", ("--done", "JSON"))
        not_done = (
            f"{step} is another, or has not happened (it will be executed):",
            ("--not-done",),
        )
    give_up = (f"Give {step} up (the flow gets StepFailed):", ("--fail", "REASON"))
    if _why(record) == "value_lost":
        return [done, give_up]
    if _is_too_old(record, now_us):
        anew = f"{step} did not happen, or you give it up (the flow gets StepFailed):"
        return [done, (anew, ("--fail", "REASON"))]
    return [done, not_done, give_up]


def _returns(record: Record) -> str:
    """Explain what its result has to be, if the entry of the doubt says so."""
    schema = None if record.doubt is None else facts_of(record.doubt).get("returns")
    kind = type_in_words(schema)
    return "" if kind is None else f", {kind}"


def _is_too_old(record: Record, now_us: int) -> bool:
    """Return whether the other side may have forgotten the key, so that it is not sent again."""
    if record.intent is None:
        return False
    ttl_s = float(_intent(record).get("key_ttl_s", KEY_TTL_S))
    return not may_send(record.first_started_us, now_us, ttl_s)


def what_will_be_done(record: Record) -> str:
    """Return what the declared policy makes of the doubt when the run goes on."""
    return _WILL.get(str(_intent(record).get("on_doubt", "hold")), "")


def key_waited_for(store: Store, row: RunRow) -> KeyState | None:
    """Return the business key of another run that this one waits for."""
    if not (row.waiting_on or "").startswith("key:"):
        return None
    _, effect, key = str(row.waiting_on).split(":", 2)
    return store.key(effect, key)


def about_key(key: KeyState) -> list[str]:
    """Return the holder and the state of a business key."""
    state = key.state.replace("_", " ")
    return [
        f"The key {key.key} of {key.effect} belongs to run {key.run_id} at {key.step}: {state}."
    ]


def _why(record: Record) -> str:
    return "process_died" if record.doubt is None else str(facts_of(record.doubt)["why"])


def _intent(record: Record) -> dict[str, Any]:
    return {} if record.intent is None else facts_of(record.intent)


# -- the doubts of all runs ---------------------------------------------------------------------


PAGE = 100


class DoubtView(msgspec.Struct, frozen=True):
    """An effect that may or may not have happened, in a run that is held for it."""

    run_id: str
    flow: str
    step: str
    args: Any
    """The stored arguments."""
    args_text: str | None
    """The same exactly as they are stored, as indented JSON."""
    key: str | None
    """The idempotency key that was shown to the other side."""
    digest: str | None
    """Of the arguments."""
    since: dt.datetime
    """When it was first started."""
    verdict: str
    """What the doubt is, in one sentence."""
    policy: str
    """What is declared for a doubt."""
    etag: str
    """The version of the run, which a decision sends back as If-Match."""


def doubts(
    store: Store, limit: int = PAGE, unreadable: list[Unreadable] | None = None
) -> list[DoubtView]:
    """Return the effects in doubt of runs that are held for them, the newest runs first. A damaged
    run is left out, and told in `unreadable`."""
    found: list[DoubtView] = []
    query = Query(status=[Status.HELD], held_reason=HeldReason.IN_DOUBT.value, limit=PAGE)
    while len(found) < limit:
        rows = store.list(query)
        for row in rows:
            found += _of(store, row, unreadable)
            query.before_run_no = row.run_no
        if len(rows) < PAGE:
            break
    return found[:limit]


def doubts_of(store: Store, row: RunRow, past: History) -> list[DoubtView]:
    """Return the effects in doubt of one run."""
    return [_view(store, row, record) for record in past.open_doubts()]


def _of(store: Store, row: RunRow, unreadable: list[Unreadable] | None) -> Iterator[DoubtView]:
    try:
        yield from doubts_of(store, row, fold(store, row))
    except Corrupt as damage:  # The concern of `verify`, and no reason to show nothing.
        if unreadable is not None:
            unreadable.append(Unreadable(row.run_id, str(damage)))


def _view(store: Store, row: RunRow, record: Record) -> DoubtView:
    args = text = None
    first = record.intent or record.doubt
    if first is not None and "args" in first.data():
        node = bytes(first.data()["args"])
        args, text = (
            Reader(store, row).value(node, plain=True),
            readable_values.text_of(store, row, node),
        )
    return DoubtView(
        run_id=row.run_id,
        flow=row.flow,
        step=record.key,
        args=args,
        args_text=text,
        key=record.shown_key(),
        digest=None if record.args_digest is None else record.args_digest.hex(),
        since=at(record.first_started_us),
        verdict=verdict(record, record.key),
        policy=policy(record),
        etag=etag_of(row),
    )
