"""A run that does the same again: a step in circles, or an effect a second time. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from holdfast._engine.journal.history import History, Record
from holdfast._engine.journal.step_keys import is_undo, name_of, scope_of
from holdfast._engine.values.durations import as_text
from holdfast._features.watchdog.model import Finding, Found, Severity
from holdfast._features.watchdog.partial_failure import happened
from holdfast._features.watchdog.subject import Subject

CYCLE_MAX = 50
"""How many steps a cycle has at most."""


class _Call(msgspec.Struct, frozen=True):
    line: str
    name: str
    args_digest: bytes


def looping(subject: Subject) -> Iterator[Finding]:
    """The same step with the same arguments again and again, alone or in a cycle of steps."""
    limit, since_seq = subject.limits.loops, subject.since_seq
    records = [it for it in subject.history.records.values() if _counts(it, since_seq)]
    records.sort(key=lambda record: record.first_seq)
    calls = [_Call(_line(it.key), name_of(it.key), it.args_digest or b"") for it in records]
    places: dict[_Call, list[int]] = {}
    for place, call in enumerate(calls):
        places.setdefault(call, []).append(place)
    told: set[int] = set()
    for at in places.values():
        if len(at) < limit:
            continue
        cycle = _cycle(calls, at[-limit:])
        first = min(records[places[call][0]].first_seq for call in cycle)
        if first in told:
            continue
        told.add(first)
        names = list(dict.fromkeys(call.name for call in cycle))
        again = [records[place] for place in at]
        yield subject.finding(
            Found.LOOPING,
            Severity.WARNING,
            f"{since_seq}:{first}",
            f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'} called {len(at)} times "
            "with the same arguments",
            since_us=again[0].first_started_us,
            steps=[it.key for it in (again[0], again[-1])],
            entries=[it.first_seq for it in again[-limit:]],
            actions=[subject.cmd("history"), *subject.stops()],
        )


def _counts(record: Record, since_seq: int) -> bool:
    """Return whether a record is an executed call of a step that does not poll."""
    if not record.attempts or record.borrowed or record.first_seq <= since_seq:
        return False
    if record.args_digest is None or is_undo(record.key) or record.begun is not None:
        return False
    said = (record.outcome, record.intent)
    return not any(entry is not None and b'"polls":true' in entry.body for entry in said)


def _line(key: str) -> str:
    """Return the line of calls that a step is in: the turns of a loop are one, branches are not."""
    parts = scope_of(key).split("/")
    return "/".join(it.partition("[")[0] if it.startswith("turns") else it for it in parts)


def _cycle(calls: Sequence[_Call], at: Sequence[int]) -> list[_Call]:
    """Return the calls that are repeated each time between two of these places, if they are the
    same each time; else the one call alone."""
    line = calls[at[0]].line
    rounds = [
        [call for call in calls[one:other] if call.line == line]
        for one, other in itertools.pairwise(at)
    ]
    first = rounds[0]
    if len(first) <= CYCLE_MAX and all(each == first for each in rounds):
        return first
    return [calls[at[0]]]


# -- duplicate action --------------------------------------------------------------------------


def duplicate_action(subject: Subject) -> Iterator[Finding]:
    """Two effects with the same name and arguments, that no business key tells apart."""
    done: dict[tuple[str, bytes], Record] = {}
    for record in sorted(subject.history.records.values(), key=lambda it: it.first_seq):
        if not is_deed(subject.history, record):
            continue
        name, digest = name_of(record.key), record.args_digest or b""
        before = done.setdefault((name, digest), record)
        if before is not record:
            yield _twice(
                subject,
                record,
                f"{before.first_seq}:{record.first_seq}",
                f"{record.key} did the same as {before.key}: the same effect with the same arguments",
                [before.key, record.key],
                [before.last_seq, record.last_seq],
            )
    within_us = subject.limits.duplicates_us
    if within_us is None:
        return
    for deed in subject.deeds:
        record_ = done.get((name_of(deed.step), deed.args_digest))
        if record_ is None or deed.run_id == subject.row.run_id:
            continue
        apart_us = (record_.ended_us or record_.started_us) - deed.at_us
        if 0 <= apart_us <= within_us:
            yield _twice(
                subject,
                record_,
                f"{record_.first_seq}:{deed.run_id}:{deed.step}",
                f"{record_.key} did the same as {deed.step} of run {deed.run_id} "
                f"{as_text(apart_us)} before: the same effect with the same arguments",
                [record_.key],
                [record_.last_seq],
            )


def is_deed(history: History, record: Record) -> bool:
    """Return whether a record is an effect that happened, that is not undone, and that no business key
    guards."""
    if record.args_digest is None or not happened(history, record):
        return False
    return record.intent is not None and b'"business_key":' not in record.intent.body


def _twice(
    subject: Subject, record: Record, mark: str, text: str, steps: list[str], entries: list[int]
) -> Finding:
    return subject.finding(
        Found.DUPLICATE_ACTION,
        Severity.ERROR,
        mark,
        text,
        since_us=record.started_us,
        steps=steps,
        entries=entries,
        actions=[subject.cmd("show"), subject.cmd("rollback", "--dry-run")],
    )
