"""Records that a failed run leaves behind when it is resumed. Pure.

Borrowed records of a fork belong to another run and are not superseded. The exceptions are the
failure itself, and a changed dependency with the records that depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.step_keys import are_parallel, scope_of

_decoder = msgspec.json.Decoder()


def escaped(error: BaseException) -> list[str]:
    """Return the steps whose failures an exception contains: causes, contexts and groups."""
    found: list[str] = []
    seen: set[int] = set()
    queue: list[BaseException | None] = [error]
    while queue:
        current = queue.pop(0)
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        step = getattr(current, "__holdfast_step__", None)
        if isinstance(step, str) and step not in found:
            found.append(step)
        # Branches that failed beside the one whose failure was raised.
        beside: tuple[BaseException, ...] = getattr(current, "__holdfast_beside__", ())
        queue += [current.__cause__, current.__context__, *beside]
        if isinstance(current, BaseExceptionGroup):
            queue += list(cast("BaseExceptionGroup[BaseException]", current).exceptions)
    return found


def superseded_by_resume(history: History) -> list[Record]:
    """Return the records that the next generation supersedes: the escaped failures, and the later
    records of their branches and of the branches that those returned to."""
    if history.failed is None:
        return []
    steps = [
        step
        for step in _decoder.decode(history.failed.body).get("steps", ())
        if step in history.records
    ]
    gone: dict[str, Record] = {}
    for step in steps:
        failed = history.records[step]
        gone[step] = failed
        for record in history.records.values():
            stays = record.borrowed and step not in history.drift.broken
            if came_after(record, failed) and not stays:
                gone[record.key] = record
    return list(gone.values())


def came_after(record: Record, other: Record) -> bool:
    """Return whether a step was begun when another had ended, and not in a branch beside it."""
    begun = record.first_seq > other.last_seq
    begun = begun and record.first_started_us >= (other.ended_us or 0)
    return begun and not are_parallel(scope_of(other.key), scope_of(record.key))


def loops_begun_anew(history: History, superseded: list[Record]) -> list[str]:
    """Return the loops that began after a superseded failure: they start over."""
    failed = [
        record
        for record in superseded
        if record.state is State.FAILED or record.key in history.drift.broken
    ]
    return [
        path
        for path, saved in history.saved.items()
        if any(
            saved.seq > record.last_seq
            and not record.key.startswith(path + "[")
            and not are_parallel(scope_of(record.key), scope_of(path))
            for record in failed
        )
    ]


def starting_over(
    history: History, loops: Sequence[str], anew: Iterable[Record] = ()
) -> dict[str, Any]:
    """Return the facts about loops whose snapshots are void. In a fork, a loop returns to the
    borrowed state, if there is one: the turns before it belong to another run. It starts at its
    first turn only if something borrowed before that state is done `anew`."""
    facts: dict[str, Any] = {"loops": list(loops)} if loops else {}
    first = list(anew)
    lent = [path for path in loops if path in history.lent and not _needs(history, path, first)]
    if lent:
        facts["lent"] = lent
    return facts


def turns_lost(history: History, loops: Iterable[str], anew: Iterable[Record]) -> list[str]:
    """Return the turns of another run that would be executed again if these loops started over.
    Their effects are not known here: the state replaces them."""
    first = list(anew)
    lost: list[str] = []
    for path in loops:
        if path in history.lent and _needs(history, path, first):
            until = int(_decoder.decode(history.lent[path].body).get("turn", 0))
            if until:
                lost.append(f"{path}[0]" + (f" to {path}[{until - 1}]" if until > 1 else ""))
    return lost


def _needs(history: History, path: str, anew: Iterable[Record]) -> bool:
    """Return whether a borrowed state was made of something that is done anew."""
    state = history.lent[path]
    return any(
        record.borrowed
        and record.last_seq < state.seq
        and not record.key.startswith(path + "[")
        and not are_parallel(scope_of(record.key), scope_of(path))
        for record in anew
    )
