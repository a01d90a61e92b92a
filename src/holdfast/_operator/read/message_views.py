"""Views of the messages to a run: signals and answers, and the state of each."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.lifecycle import ENDED, FINAL
from holdfast._engine.journal.rows import Message, RunRow
from holdfast._engine.journal.step_keys import APPROVE
from holdfast._engine.journal.step_record import facts
from holdfast._engine.scripts.inbox_messages import ANSWER, SIGNAL
from holdfast._engine.text import brief_json, moment
from holdfast._engine.values.moments import at
from holdfast._stores.contract import Store
from holdfast._stores.readable_values import Reader
from holdfast.errors import Corrupt


class SignalView(msgspec.Struct, frozen=True):
    """A signal or an answer."""

    kind: str
    """"signal" or "answer"."""
    name: str
    id: str
    actor: str
    sent_at: dt.datetime
    status: str
    """"waiting": the run has not taken it yet; "received"; "refused": it was not what the run asked
    for, and `why` says so; "expired": the run ended, and never took it."""
    value: Any = None
    why: str | None = None


def waiting_for(store: Store, row: RunRow) -> str | None:
    """Return in a few words what a run waits for, from its row; how many children, if it is several,
    stands in its last entry."""
    if row.waiting_on is None or row.status in ENDED:
        return None
    what, _, name = row.waiting_on.partition(":")
    if what == "answer" and name.startswith(APPROVE):
        told = f"approval of {name.removeprefix(APPROVE)}"
    elif what == "code":
        told = "other code"
    elif what == "key":
        told = f"key {name.partition(':')[2]}"
    else:
        told = f"{what} {name}".strip()
    if what == "child" and (more := _others(store, row)):
        told += f" and {more:,} more"
    return told if row.wake_us is None else f"{told} until {moment(row.wake_us)}"


def _others(store: Store, row: RunRow) -> int:
    """Return how many other things a run waits for that waits for a child."""
    try:
        last = store.entry(row.run_no, row.last_seq)
    except Corrupt:
        return 0  # The concern of `verify`, and no reason to list nothing.
    if last is None or last.kind is not Kind.RUN_WAITING:
        return 0
    lines: list[Any] = facts(last).get("for") or []
    return max(len(lines) - 1, 0)


def did_not_fit(said: SignalView) -> str:
    """Return why the flow's process could not take a signal or an answer."""
    if said.name.startswith(APPROVE):
        return f"{said.actor}'s approval did not fit: {said.why}"
    return f"{said.actor}'s {said.kind} {brief_json(said.value, 80)} did not fit: {said.why}"


def messages_of(store: Store, row: RunRow, *, plain: bool) -> list[SignalView]:
    """Return the messages to a run, oldest first."""
    found = [
        (message, taken)
        for message, taken in store.messages(row.run_no)
        if message.kind.startswith((SIGNAL, ANSWER))
    ]
    if not found:
        return []
    reader = Reader(store, row)
    refused = {} if all(taken is None for _, taken in found) else _refused(store.load(row))
    is_over = row.status in FINAL
    return [
        _view(message, _status(message, taken, refused, is_over=is_over), refused, reader, plain)
        for message, taken in found
    ]


def _refused(entries: list[Entry]) -> dict[str, str]:
    refused = (facts(entry) for entry in entries if entry.kind is Kind.MESSAGE_DISCARDED)
    return {said["id"]: said["why"] for said in refused}


def _status(message: Message, taken: int | None, refused: dict[str, str], *, is_over: bool) -> str:
    if message.message_id in refused:
        return "refused"
    if taken is not None:
        return "received"
    return "expired" if is_over else "waiting"


def _view(
    message: Message, status: str, refused: dict[str, str], reader: Reader, plain: bool
) -> SignalView:
    kind, _, name = message.kind.partition(":")
    data: dict[str, msgspec.Raw] = msgspec.json.decode(message.body, type=dict[str, msgspec.Raw])
    value: Any = None
    if "value" in data:
        value = reader.value(bytes(data["value"]), plain=plain)
    elif data:
        value = msgspec.json.decode(message.body)
    return SignalView(
        kind=kind,
        name=name,
        id=message.message_id.removeprefix(SIGNAL) if kind == "signal" else message.message_id,
        actor=message.actor,
        sent_at=at(message.at_us),
        status=status,
        value=value,
        why=refused.get(message.message_id),
    )
