"""What runs ask people, and what people answer.

A question is found by its run and its name; an approval by its run and the step. An answer is a
message to the run whose id is made of the name and the number of the question: the first one that is
committed is the answer, and whoever comes later is told who gave it.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from holdfast._core import codec
from holdfast._core.approvals import APPROVE
from holdfast._core.commands import command
from holdfast._core.keys import check_label
from holdfast._core.lifecycle import ENDED, HeldReason, Status
from holdfast._core.messages import ANSWER, answer_id
from holdfast._core.moments import at
from holdfast._core.rows import Message, Question, RunRow
from holdfast._core.secrets import masked_value
from holdfast._ops import exact
from holdfast._ops.actions import check_actor
from holdfast._ops.fitting import misfit, placeholder
from holdfast._ops.inspect import fold, found
from holdfast._ops.messages import did_not_fit, messages_of
from holdfast._ops.readable import Reader
from holdfast._store.contract import Posted, Store
from holdfast.errors import AnswerConflict, Corrupt, RunEnded, StaleView, UsageError

LISTED = 10_000
"""How many questions are looked through for those of one person."""
REASON_MAX_CHARS = 10_000
CHOICES_SHOWN = 8
"""Up to so many choices have a command of their own."""


class QuestionView(msgspec.Struct, frozen=True):
    """Something that a run asks, with all that is needed to answer it."""

    run_id: str
    name: str
    """What it is answered by: the name that the flow gave it; of an approval, the step."""
    number: int
    kind: str
    """"question" or "approval"."""
    text: str
    to: str | None
    asked_at: dt.datetime
    until: dt.datetime | None
    """When the flow goes on without an answer."""
    step: str
    choices: list[Any] | None = None
    schema: dict[str, Any] | None = None
    """The JSON schema of the answer, if the flow said a type."""
    effect: str | None = None
    """Of an approval: the effect that is to be executed, with its stored arguments and their digest,
    which an approval brings back."""
    args: Any = None
    args_text: str | None = None
    """The arguments exactly as they are stored, as indented JSON: what is approved."""
    digest: str | None = None
    holds_s: float | None = None
    """How long an approval holds once it is given; None: until it is used."""
    refused: tuple[str, ...] = ()
    """Answers that the flow's process could not take, and why; so it is asked again."""

    @property
    def commands(self) -> tuple[str, ...]:
        """Command lines that answer it."""
        refuse = command("answer", self.run_id, self.name, "--refuse", "REASON")
        if self.kind == "approval":
            digest = ("--digest", str(self.digest))
            return command("approve", self.run_id, self.name, *digest), refuse
        if not self.offered:
            value = placeholder(self.schema)
            return command("answer", self.run_id, self.name) + f" {value}", refuse
        answers = (command("answer", self.run_id, self.name, it, values=3) for it in self.offered)
        return *answers, refuse

    @property
    def offered(self) -> list[str]:
        """The answers that have a command of their own, as they stand in it."""
        kind = (self.schema or {}).get("type")
        choices = [True, False] if kind == "boolean" else self.choices or []
        if self.kind == "approval" or len(choices) > CHOICES_SHOWN:
            return []
        return [it if isinstance(it, str) else msgspec.json.encode(it).decode() for it in choices]


class Unreadable(msgspec.Struct, frozen=True):
    """A run that may wait for a person, and cannot be read."""

    run_id: str
    error: str


class Answered(msgspec.Struct, frozen=True):
    """What was said to a run: it is recorded, and the run takes it."""

    run_id: str
    name: str
    number: int
    actor: str
    did: str
    early: bool = False
    """Whether the run has not asked yet: it is kept until then."""
    held: str | None = None
    """Why the run is held, if it is: it does not go on with the answer alone."""


# -- looking -----------------------------------------------------------------------------------


def questions(
    store: Store,
    *,
    to: str | None = None,
    run_id: str | None = None,
    limit: int = 100,
    plain: bool = False,
    unreadable: list[Unreadable] | None = None,
) -> list[QuestionView]:
    """Return what is asked and not answered, oldest first. With `unreadable`, a damaged run is put
    there, and does not keep the others from being shown."""
    if run_id is not None:
        found(store, run_id)
    views: list[QuestionView] = []
    runs: dict[str, _Run] = {}
    for question in store.questions(run_id, LISTED):
        if to is not None and question.to != to:
            continue
        try:
            run = runs.get(question.run_id)
            if run is None:
                run = runs[question.run_id] = _Run(store, question.run_id)
            view = run.view(question, plain=plain)
        except Corrupt as damage:
            if unreadable is None:
                raise
            unreadable.append(Unreadable(question.run_id, str(damage)))
            continue
        if view is not None:
            views.append(view)
        if len(views) >= limit:
            break
    return views


class _Run:
    """A run that asks, read once for all its questions."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._row = store.get(run_id)
        self._said: set[str] | None = None

    def view(self, question: Question, *, plain: bool) -> QuestionView | None:
        """Return an open question, or None if nobody needs to answer it."""
        row = self._row
        if row is None or row.status in ENDED:
            return None
        if self._said is None:
            self._said = {message.message_id for message in self._store.inbox(row.run_no)}
        if answer_id(question.name, question.number) in self._said:
            return None
        return view_of(self._store, row, question, plain=plain)


def view_of(store: Store, row: RunRow, question: Question, *, plain: bool) -> QuestionView | None:
    """Return a question as people see it. None if an approval has just changed its arguments: what
    is shown is what is stored, or nothing."""
    said: dict[str, Any] = msgspec.json.decode(question.body)
    until = None if question.until_us is None else at(question.until_us)
    view = QuestionView(
        run_id=row.run_id,
        name=question.name.removeprefix(APPROVE),
        number=question.number,
        kind=question.kind,
        text=said.get("text", ""),
        to=question.to,
        asked_at=at(question.asked_us),
        until=until,
        step=said["step"],
        choices=said.get("choices"),
        schema=said.get("schema"),
        refused=_refused(store, row, question) if question.number > 1 else (),
    )
    if question.kind != "approval":
        return view
    record = fold(store, row).records.get(said["step"])
    asked = None if record is None else record.begun
    if asked is None or asked.args_digest is None or asked.args_digest.hex() != said["digest"]:
        return None
    node = bytes(asked.data()["args"])
    args = Reader(store, row).value(node, plain=plain)
    expires_us = said.get("expires_us")
    return msgspec.structs.replace(
        view,
        text=f"Execute the effect {said['effect']}?",
        effect=said["effect"],
        args=args,
        args_text=exact.text_of(store, row, node),
        digest=said["digest"],
        holds_s=None if expires_us is None else expires_us / 1e6,
    )


def _refused(store: Store, row: RunRow, question: Question) -> tuple[str, ...]:
    """Say which answers did not fit, of those that were given since it was answered last."""
    told: list[str] = []
    for message in reversed(messages_of(store, row, plain=True)):
        if message.kind != "answer" or message.name != question.name:
            continue
        if message.status != "refused":
            break
        told.append(did_not_fit(message))
    return tuple(reversed(told))


# -- answering ---------------------------------------------------------------------------------


def answer(
    store: Store, run_id: str, name: str, value: Any, *, actor: str, number: int | None = None
) -> Answered:
    """Answer a question of a run; kept, if it is not asked yet."""
    check_actor(actor)
    row, question = _open(store, run_id, name)
    if question is not None and question.kind == "approval":
        raise UsageError(
            f"{name} of run {run_id!r} asks for an approval: store.approve(…), or "
            + command("approve", run_id, name)
        )
    _check_fits(run_id, name, value, question)
    body = b'{"value":%b}' % codec.encode(masked_value(value, name), f"the answer to {name!r}")
    return _post(store, row, name, question, body, actor, number, "answered")


def refuse(
    store: Store, run_id: str, name: str, *, actor: str, reason: str = "", number: int | None = None
) -> Answered:
    """Refuse what a run asks: the flow gets `Rejected`. The name is that of a question, or the step
    of an approval."""
    check_actor(actor)
    if len(reason) > REASON_MAX_CHARS:
        raise UsageError(f"reason= has at most {REASON_MAX_CHARS:,} characters")
    row, question = _open(store, run_id, name)
    body = msgspec.json.encode({"refused": reason})
    return _post(store, row, name, question, body, actor, number, "refused")


def approve(
    store: Store,
    run_id: str,
    step: str,
    *,
    actor: str,
    digest: str | None = None,
    number: int | None = None,
) -> Answered:
    """Approve one call of an effect, with the arguments that are stored now; with `digest`, only if
    they are those that were shown."""
    check_actor(actor)
    row, question = _open(store, run_id, APPROVE + step.removeprefix(APPROVE))
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
    return _post(store, row, step, question, body, actor, number, "given")


def _open(store: Store, run_id: str, name: str) -> tuple[RunRow, Question | None]:
    row = found(store, run_id)
    if row.status in ENDED:
        given = _given(store, row, name) or _given(store, row, APPROVE + name)
        if given is not None:
            raise AnswerConflict(run_id, repr(name.removeprefix(APPROVE)), given.actor)
        raise RunEnded(run_id, row.status, f"an answer to {name.removeprefix(APPROVE)!r}")
    fold(store, row)  # Nothing is said to a run that is damaged.
    asked = {question.name: question for question in store.questions(run_id, LISTED)}
    question = asked.get(name) or asked.get(APPROVE + name)
    if question is None:
        check_label("the name of a question", name)
    return row, question


def _nothing_to_approve(store: Store, row: RunRow, step: str) -> Exception:
    given = _given(store, row, APPROVE + step)
    if given is not None:
        return AnswerConflict(row.run_id, f"the approval of {step}", given.actor)
    return UsageError(
        f"run {row.run_id!r} asks for no approval of {step!r} now; what it asks: "
        + command("questions", "--run", row.run_id)
    )


def _given(store: Store, row: RunRow, name: str) -> Message | None:
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
        return  # The process that has the class tells.
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
    done: str,
) -> Answered:
    known = name if question is None else question.name
    now = 1 if question is None else question.number
    shown = f"the approval of {name}" if known.startswith(APPROVE) else f"question {name!r}"
    if question is None or (number is not None and number < now):
        # Nobody asks this now. What was answered before is not answered again by accident.
        given = _given(store, row, known) or _given(store, row, APPROVE + known)
        if given is not None:
            raise AnswerConflict(row.run_id, shown, given.actor)
    if number is not None and number != now:
        raise StaleView(row.run_id)
    message = Message(answer_id(known, now), ANSWER + known, actor, store.now_us(), body)
    posted = store.post(row.run_id, message)
    if posted is Posted.REFUSED:
        raise RunEnded(row.run_id, found(store, row.run_id).status, f"an answer to {shown}")
    if posted is Posted.DUPLICATE:
        given = _given(store, row, known)
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
    row = found(store, run_id)
    return (row.held_reason or "held") if row.status is Status.HELD else None
