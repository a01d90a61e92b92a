"""Views of open questions and approvals.

A question is found by its run and its name; an approval by its run and the step.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.lifecycle import ENDED
from holdfast._engine.journal.rows import Question, RunRow
from holdfast._engine.journal.step_keys import APPROVE
from holdfast._engine.scripts.inbox_messages import answer_id
from holdfast._engine.values.moments import at
from holdfast._operator.read.answer_schema import placeholder
from holdfast._operator.read.message_views import did_not_fit, messages_of
from holdfast._operator.read.run_views import Page, fold, wrong_cursor
from holdfast._stores import readable_values
from holdfast._stores.contract import Store
from holdfast._stores.lookups import existing_row
from holdfast._stores.readable_values import Reader
from holdfast.errors import Corrupt

LISTED = 10_000
"""How many questions are looked through for those of one person."""
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
        reject = command("reject", self.run_id, self.name, "--reason", "REASON")
        if self.kind == "approval":
            digest = ("--digest", str(self.digest))
            return command("approve", self.run_id, self.name, *digest), reject
        if not self.offered:
            value = placeholder(self.schema)
            return command("answer", self.run_id, self.name) + f" {value}", reject
        answers = (command("answer", self.run_id, self.name, it, values=3) for it in self.offered)
        return *answers, reject

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


# -- looking -----------------------------------------------------------------------------------


def questions(
    store: Store,
    *,
    to: str | None = None,
    run_id: str | None = None,
    limit: int = 100,
    after: str | None = None,
    plain: bool = False,
    unreadable: list[Unreadable] | None = None,
) -> Page[QuestionView]:
    """Return what is asked and not answered, oldest first. With `unreadable`, a damaged run is put
    there, and does not keep the others from being shown."""
    behind = None if after is None else _cursor(after)
    if run_id is not None:
        existing_row(store, run_id)
    views: list[QuestionView] = []
    runs: dict[str, _Run] = {}
    last: str | None = None
    for question in sorted(store.questions(run_id, LISTED), key=_place):
        if to is not None and question.to != to:
            continue
        if behind is not None and _place(question) <= behind:
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
        if view is None:
            continue
        if len(views) >= limit:
            return Page(views, last)
        views.append(view)
        last = msgspec.json.encode(_place(question)).decode()
    return Page(views)


def _place(question: Question) -> tuple[int, str, str]:
    return question.asked_us, question.run_id, question.name


def _cursor(after: str) -> tuple[int, str, str]:
    try:
        return msgspec.json.decode(after, type=tuple[int, str, str])
    except (msgspec.DecodeError, TypeError):
        raise wrong_cursor("questions", after) from None


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
        args_text=readable_values.text_of(store, row, node),
        digest=said["digest"],
        holds_s=None if expires_us is None else expires_us / 1e6,
    )


def _refused(store: Store, row: RunRow, question: Question) -> tuple[str, ...]:
    """Describe the answers since the last accepted one that did not fit."""
    told: list[str] = []
    for message in reversed(messages_of(store, row, plain=True)):
        if message.kind != "answer" or message.name != question.name:
            continue
        if message.status != "refused":
            break
        told.append(did_not_fit(message))
    return tuple(reversed(told))
