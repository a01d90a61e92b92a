"""What a failed run leaves behind when it is taken up again. Pure."""

from __future__ import annotations

from typing import cast

import msgspec

from holdfast._core.history import History, Record, State
from holdfast._core.keys import are_parallel, scope_of

_decoder = msgspec.json.Decoder()


def escaped(error: BaseException) -> list[str]:
    """Return the steps whose failures are in an exception: causes, contexts and groups."""
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
    """Return what the next generation leaves behind: the escaped failures, and what their
    branches (and the branches that those came back to) recorded after them."""
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
            if came_after(record, failed):
                gone[record.key] = record
    return list(gone.values())


def came_after(record: Record, other: Record) -> bool:
    """Tell whether a step was begun when another had ended, and not in a branch beside it."""
    begun = record.first_seq > other.last_seq
    begun = begun and record.first_started_us >= (other.ended_us or 0)
    return begun and not are_parallel(scope_of(other.key), scope_of(record.key))


def loops_begun_anew(history: History, superseded: list[Record]) -> list[str]:
    """Return the loops that were begun after a failure that is superseded: they start over."""
    failed = [
        record
        for record in superseded
        if record.state is State.FAILED or record.key in history.gap.broken
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
