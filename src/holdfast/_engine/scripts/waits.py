"""Waits: a durable timer, and a wait for a message to the run.

A wait is two entries under one key: what the run waits for and until when, and how the wait ended.
Between the two a process may die, a worker may unload the run, days may pass: the next owner finds the
first entry and waits for the rest of the time.

    sleep     timer_set ─────────────── timer_fired
    wait      signal_awaited ─┬──────── signal_received      the message is taken in the same
                              ├──────── wait_timed_out       transaction
                              └──────── message_discarded: it does not fit; goes on waiting
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast._engine.journal.changes import TakeMessage
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.rows import Message
from holdfast._engine.journal.step_record import SLEEP, Record, facts
from holdfast._engine.scripts.attempts import marked
from holdfast._engine.scripts.inbox_messages import SIGNAL, message_facts, misfit, why_not
from holdfast._engine.scripts.requests import (
    Append,
    Await,
    Decode,
    Note,
    Now,
    Script,
    StepCall,
    Wrote,
)
from holdfast._engine.scripts.step_script import find
from holdfast.errors import ClassChanged, WaitTimedOut


def until(record: Record | None) -> int | None:
    """Return the end of a wait that began before."""
    if record is None or record.begun is None:
        return None
    deadline: int | None = facts(record.begun).get("until_us")
    return deadline


def sleep_script(call: StepCall, history: History, ends: Callable[[int], int]) -> Script:
    """Wait until a time, which is computed once from the beginning of the wait."""
    record = find(call, history, sort=SLEEP)
    if record is not None and record.has_outcome:
        return None
    if record is None:
        now_us: int = yield Now()
        until_us = ends(now_us)
        yield Append(call, [Note(Kind.TIMER_SET, {"until_us": until_us})])
    else:
        until_us = until(record) or 0
    yield Await(call, until_us)
    yield Append(call, [Note(Kind.TIMER_FIRED)])
    return None


def wait_script(
    call: StepCall,
    history: History,
    name: str,
    timeout_us: int | None,
    read: Callable[[bytes], Any],
    decode: Decode,
) -> Script:
    """Wait for a signal of this name, also one that came early, and take it exactly once."""
    record = find(call, history)
    if record is not None and record.has_outcome:
        return received(call, record, f"signal {name!r}", decode)
    if record is None:
        now_us: int = yield Now()
        until_us = None if timeout_us is None else now_us + timeout_us
        begins: dict[str, Any] = {"name": name}
        if until_us is not None:
            begins["until_us"] = until_us
        yield Append(call, [Note(Kind.SIGNAL_AWAITED, begins)])
    else:
        until_us = until(record)
    while True:
        message: Message | None = yield Await(call, until_us, SIGNAL + name)
        if message is None:
            return (yield from timed_out(call, f"signal {name!r}"))
        try:
            note = Note(Kind.SIGNAL_RECEIVED, message_facts(message), {"value": read(message.body)})
            wrote: Wrote = yield Append(call, [note], changes=[TakeMessage(message.message_id)])
        except Exception as error:
            if isinstance(error, ClassChanged) and error.today is not None:
                raise  # A changed class of the user: the message waits for its upgrade.
            # It does not have the type that the flow asked for. The journal records it and the
            # reason.
            yield Append(
                call, [misfit(message, why_not(error))], changes=[TakeMessage(message.message_id)]
            )
        else:
            return wrote.value


def timed_out(call: StepCall, what: str) -> Script:
    """Record the timeout, and raise it in the flow."""
    yield Append(call, [Note(Kind.WAIT_TIMED_OUT, {"what": what})])
    raise marked(WaitTimedOut(call.key, what), call.key)


def received(call: StepCall, record: Record, what: str, decode: Decode) -> Any:
    """Return or raise the outcome of an ended wait again."""
    assert record.outcome is not None
    if record.outcome.kind is Kind.WAIT_TIMED_OUT and "value" not in record.outcome.data():
        raise marked(WaitTimedOut(call.key, what), call.key)
    return decode(bytes(record.outcome.data()["value"]))
