"""Signals: something that is said to a run, kept until the run takes it."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from holdfast._core import codec
from holdfast._core.keys import check_label
from holdfast._core.messages import SIGNAL
from holdfast._core.rows import Message, RunRow
from holdfast._core.secrets import masked_value
from holdfast._ops.actions import check_actor
from holdfast._ops.inspect import found
from holdfast._store.addresses import place
from holdfast._store.contract import Posted, Store
from holdfast.errors import RunEnded, RunNotFound, UsageError

ID_MAX_CHARS = 200


class Sent(msgspec.Struct, frozen=True):
    """What became of a signal."""

    run_id: str
    name: str
    id: str
    new: bool
    """False: one with this id was sent before, and is not delivered again."""


def signal(
    store: Store, run_id: str, name: str, payload: Any, *, signal_id: str | None, actor: str
) -> Sent:
    """Send a signal to a run. It is kept if the run does not wait for it yet."""
    check_actor(actor)
    check_label("the name of a signal", name)
    if signal_id is None:
        signal_id = uuid.uuid4().hex
    elif not isinstance(signal_id, str) or not 0 < len(signal_id) <= ID_MAX_CHARS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"signal(…, signal_id={signal_id!r:.80}): 1 to {ID_MAX_CHARS} characters")
    body = b'{"value":%b}' % codec.encode(
        masked_value(payload, name), f"the payload of signal {name!r}"
    )
    message = Message(f"{SIGNAL}{signal_id}", SIGNAL + name, actor, store.now_us(), body)
    try:
        posted = store.post(run_id, message)
    except RunNotFound:
        raise RunNotFound(run_id, place(store.url, store.namespace)) from None
    if posted is Posted.REFUSED:
        raise RunEnded(run_id, found(store, run_id).status, f"signal {name!r}")
    return Sent(run_id, name, signal_id, posted is Posted.ACCEPTED)


def is_kept(store: Store, row: RunRow, name: str) -> bool:
    """Say whether a signal of this name is there that the run has not taken yet."""
    return any(message.kind == SIGNAL + name for message in store.inbox(row.run_no))
