"""Messages of people and programs to runs: answers, approvals, rejections, and signals (a webhook, say).

An answer is a message whose id is made of the run and of the name and number of the question. The first
one that is committed is the answer; a later one is refused, with the actor of the first.
"""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.decisions.action_result import check_actor
from holdfast._engine.decisions.resume import refuse_moved
from holdfast._engine.journal.lifecycle import ENDED, HeldReason, Status
from holdfast._engine.journal.rows import Message, Question, RunRow
from holdfast._engine.journal.step_keys import APPROVE, check_label
from holdfast._engine.scripts.inbox_messages import ANSWER, SIGNAL, answer_id
from holdfast._engine.values import codec
from holdfast._engine.values.secrets import masked_value
from holdfast._operator.read.answer_schema import misfit
from holdfast._operator.read.question_views import LISTED
from holdfast._operator.read.run_views import fold
from holdfast._stores.addresses import place
from holdfast._stores.contract import Posted, Store
from holdfast._stores.expected_version import checked_etag
from holdfast._stores.lookups import existing_row
from holdfast.errors import AnswerConflict, RunEnded, RunHeld, RunNotFound, StaleView, UsageError


class Sent(msgspec.Struct, frozen=True):
    """The result of sending a signal."""

    run_id: str
    name: str
    id: str
    new: bool
    """False: one with this id was sent before, and is not delivered again."""


def signal(
    store: Store,
    run_id: str,
    name: str,
    payload: Any,
    *,
    signal_id: str | None,
    actor: str,
    expected_version: str | None = None,
) -> Sent:
    """Send a signal to a run. It is kept if the run does not wait for it yet."""
    check_actor(actor)
    check_label("the name of a signal", name)
    if signal_id is None:
        signal_id = uuid.uuid4().hex
    body = b'{"value":%b}' % codec.encode(
        masked_value(payload, name), f"the payload of signal {name!r}"
    )
    message = Message(f"{SIGNAL}{signal_id}", SIGNAL + name, actor, store.now_us(), body)
    etag = None
    if expected_version is not None:
        etag = checked_etag(store, existing_row(store, run_id), expected_version)
    try:
        posted = store.post(run_id, message, etag)
    except RunNotFound:
        raise RunNotFound(run_id, place(store.url, store.namespace)) from None
    if posted is Posted.REFUSED:
        raise _refused(store, run_id, f"signal {name!r}")
    return Sent(run_id, name, signal_id, posted is Posted.ACCEPTED)


def _refused(store: Store, run_id: str, what: str) -> Exception:
    """Return the error for a message that the store refused: the run was moved, or has ended."""
    row = existing_row(store, run_id)
    try:
        refuse_moved(fold(store, row))
    except RunHeld as moved:
        return moved
    return RunEnded(run_id, row.status, what)


def is_kept(store: Store, row: RunRow, name: str) -> bool:
    """Return whether the run has a signal of this name that it has not taken yet."""
    return any(message.kind == SIGNAL + name for message in store.inbox(row.run_no))


# -- answers and approvals ----------------------------------------------------------------------


class Answered(msgspec.Struct, frozen=True):
    """A message to a run: it is recorded, and the run takes it."""

    run_id: str
    name: str
    number: int
    actor: str
    did: str
    early: bool = False
    """Whether the run has not asked yet: it is kept until then."""
    held: str | None = None
    """Why the run is held, if it is: it does not go on with the answer alone."""


def answer(
    store: Store,
    run_id: str,
    name: str,
    value: Any,
    *,
    actor: str,
    expected_number: int | None = None,
    expected_version: str | None = None,
) -> Answered:
    """Answer a question of a run; kept, if it is not asked yet."""
    check_actor(actor)
    row, question, etag = _open(store, run_id, name, expected_version)
    if question is not None and question.kind == "approval":
        raise UsageError(
            f"{name} of run {run_id!r} asks for an approval, not for an answer; approve it: "
            + command("approve", run_id, name)
        )
    _check_fits(run_id, name, value, question)
    body = b'{"value":%b}' % codec.encode(masked_value(value, name), f"the answer to {name!r}")
    return _post(store, row, name, question, body, actor, expected_number, etag, "answered")


def reject(
    store: Store,
    run_id: str,
    name: str,
    *,
    actor: str,
    reason: str = "",
    expected_number: int | None = None,
    expected_version: str | None = None,
) -> Answered:
    """Reject a question or an approval: the flow gets `Rejected`. The name is that of the question, or
    the step of the approval."""
    check_actor(actor)
    row, question, etag = _open(store, run_id, name, expected_version)
    body = msgspec.json.encode({"refused": reason})
    return _post(store, row, name, question, body, actor, expected_number, etag, "refused")


def approve(
    store: Store,
    run_id: str,
    step: str,
    *,
    actor: str,
    digest: str | None = None,
    expected_number: int | None = None,
    expected_version: str | None = None,
) -> Answered:
    """Approve one call of an effect, with the arguments that are stored now; with `digest`, only if
    it is theirs."""
    check_actor(actor)
    name = APPROVE + step.removeprefix(APPROVE)
    row, question, etag = _open(store, run_id, name, expected_version)
    if question is None:
        raise _nothing_to_approve(store, row, step)
    said: dict[str, Any] = msgspec.json.decode(question.body)
    if digest is not None and digest != said["digest"]:
        raise StaleView(
            run_id,
            f"{digest!r} is not the digest of what run {run_id!r} asks to approve as {step!r} now; "
            "look at its arguments again: " + command("questions", "--run", run_id),
        )
    grant = {"digest": said["digest"], "generation": said["generation"]}
    body = msgspec.json.encode({"approved": grant})
    return _post(store, row, step, question, body, actor, expected_number, etag, "given")


def _open(
    store: Store, run_id: str, name: str, expected_version: str | None
) -> tuple[RunRow, Question | None, str | None]:
    """Return a run, its open question of this name, and the etag that the answer requires."""
    row = existing_row(store, run_id)
    etag = checked_etag(store, row, expected_version)
    if row.status in ENDED:
        given = _last_answer(store, row, name) or _last_answer(store, row, APPROVE + name)
        if given is not None:
            raise AnswerConflict(run_id, repr(name.removeprefix(APPROVE)), given.actor)
        raise RunEnded(run_id, row.status, f"an answer to {name.removeprefix(APPROVE)!r}")
    refuse_moved(fold(store, row))  # `fold` raises for a damaged run, which takes no messages.
    asked = {question.name: question for question in store.questions(run_id, LISTED)}
    question = asked.get(name) or asked.get(APPROVE + name)
    if question is None:
        check_label("the name of a question", name)
    return row, question, etag


def _nothing_to_approve(store: Store, row: RunRow, step: str) -> Exception:
    given = _last_answer(store, row, APPROVE + step)
    if given is not None:
        return AnswerConflict(row.run_id, f"the approval of {step}", given.actor)
    return UsageError(
        f"run {row.run_id!r} asks for no approval of {step!r} now; what it asks: "
        + command("questions", "--run", row.run_id)
    )


def _last_answer(store: Store, row: RunRow, name: str) -> Message | None:
    """Return the last answer that was given by this name."""
    kind = ANSWER + name
    given = [message for message, _ in store.messages(row.run_no) if message.kind == kind]
    return given[-1] if given else None


def _check_fits(run_id: str, name: str, value: Any, question: Question | None) -> None:
    if question is None:
        return
    said: dict[str, Any] = msgspec.json.decode(question.body)
    try:
        plain = msgspec.to_builtins(value)
    except TypeError:
        return  # The process that has the class checks it.
    why = misfit(plain, said.get("choices"), said.get("schema"))
    if why is not None:
        raise UsageError(f"the answer does not fit what run {run_id!r} asks by {name!r}: {why}")


def _post(
    store: Store,
    row: RunRow,
    name: str,
    question: Question | None,
    body: bytes,
    actor: str,
    number: int | None,
    etag: str | None,
    done: str,
) -> Answered:
    known = name if question is None else question.name
    now = 1 if question is None else question.number
    shown = f"the approval of {name}" if known.startswith(APPROVE) else f"question {name!r}"
    if question is None or (number is not None and number < now):
        # The question is not open now. A question that has an answer takes no second one.
        given = _last_answer(store, row, known) or _last_answer(store, row, APPROVE + known)
        if given is not None:
            raise AnswerConflict(row.run_id, shown, given.actor)
    if number is not None and number != now:
        raise StaleView(row.run_id)
    message = Message(answer_id(known, now), ANSWER + known, actor, store.now_us(), body)
    posted = store.post(row.run_id, message, etag)
    if posted is Posted.REFUSED:
        raise _refused(store, row.run_id, f"an answer to {shown}")
    if posted is Posted.DUPLICATE:
        given = _last_answer(store, row, known)
        raise AnswerConflict(row.run_id, shown, given.actor if given else "somebody else")
    did = f"{shown} of run {row.run_id!r} is {done} by {actor}"
    if question is None:
        what = "refusal of" if done == "refused" else "answer to"
        did = f"the {what} {shown} is kept until run {row.run_id!r} asks"
    held = _held(store, row.run_id)
    if held is not None:
        paused = held == HeldReason.PAUSED
        until = "it is resumed" if paused else "that is settled"
        way_on = command("resume" if paused else "explain", row.run_id)
        did += f"; the run stays held ({held}) until {until}: {way_on}"
    return Answered(row.run_id, name, now, actor, did, early=question is None, held=held)


def _held(store: Store, run_id: str) -> str | None:
    """Return why a run does not go on with an answer, or None."""
    row = existing_row(store, run_id)
    return (row.held_reason or "held") if row.status is Status.HELD else None
