"""A run that does not come on: no entry for longer than the history of its step suggests. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast._engine.command_lines import command
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.lifecycle import CLAIMABLE, Status
from holdfast._engine.journal.step_keys import name_of
from holdfast._engine.journal.step_record import facts, is_block
from holdfast._engine.scripts.waits import until
from holdfast._engine.values.durations import as_text
from holdfast._features.watchdog.model import Finding, Found, Severity
from holdfast._features.watchdog.subject import Subject

KNOWN = 5
"""From how many executions of a step on its history is believed."""
SLOWER = 4
"""How many times longer than nearly all executions before one may take."""
UNKNOWN_SLOWER = 6
"""How many times `stuck_after` a step may take of which nothing is known."""


def stuck(subject: Subject) -> Iterator[Finding]:
    """No entry for longer than the history of the step suggests."""
    if subject.row.status not in CLAIMABLE:
        return
    last = _last(subject)
    if subject.at_work:
        yield from _slow_steps(subject, last)
    elif (
        not subject.served
        and _is_due(subject)
        and subject.now_us - last.at_us > subject.limits.stuck_us
    ):
        since_us = max(last.at_us, subject.row.wake_us or 0, subject.left_us)
        if subject.now_us - since_us <= subject.limits.stuck_us:
            return
        waited = as_text(subject.now_us - since_us)
        yield subject.finding(
            Found.STUCK,
            Severity.WARNING,
            str(last.seq),
            f"it could go on for {waited}, nobody has it, and {_left_to(subject)}",
            since_us=since_us,
            steps=[subject.row.current_step] if subject.row.current_step else [],
            entries=[last.seq],
            actions=_executed_by(subject),
        )


def _left_to(subject: Subject) -> str:
    if is_block(subject.history.started):
        return "its script has not been run again"
    return f"no live worker executes version {subject.row.version} of flow {subject.row.flow}"


def _executed_by(subject: Subject) -> list[str]:
    """Return the commands that execute the run; a block goes on when its script is run again."""
    if is_block(subject.history.started):
        return [subject.cmd("explain")]
    return [
        command("run", f"MODULE:{subject.row.flow}", subject.row.run_id),
        command("worker", "MODULE"),
    ]


def _last(subject: Subject) -> Entry:
    """Return the last entry that the run itself wrote."""
    own = (it for it in reversed(subject.entries) if it.kind is not Kind.FINDING_NOTED)
    return next(own)


def _is_due(subject: Subject) -> bool:
    """Return whether the run could go on: it waits for no time, and for nothing outside."""
    if subject.row.status is Status.WAITING:
        return subject.row.wake_us is not None and subject.row.wake_us <= subject.now_us
    return subject.row.wake_us is None or subject.row.wake_us <= subject.now_us


def _slow_steps(subject: Subject, last: Entry) -> Iterator[Finding]:
    """A process has the run: say which of its steps does not come to its end."""
    open_ = [
        it for it in subject.history.records.values() if not it.has_outcome and not it.borrowed
    ]
    waits = [it for it in open_ if it.state is State.WAITING]
    busy = [it for it in open_ if it.state in (State.RUNNING, State.RETRYING)]
    for record in busy:
        began_us = max(record.started_us, record.retry_at_us or 0)
        if record.progress is not None:
            began_us = max(began_us, record.progress.at_us)
        may_take_us, why = patience(subject, record)
        took_us = subject.now_us - began_us
        if took_us > may_take_us:
            yield _slow(subject, record, began_us, f"{as_text(took_us)} without an entry; {why}")
    for record in waits:
        until_us = until(record)
        if until_us is not None and subject.now_us - until_us > subject.limits.stuck_us:
            over = as_text(subject.now_us - until_us)
            yield _slow(
                subject, record, until_us, f"its wait was over {over} ago, and nothing came"
            )
    if not busy and not waits and subject.row.waiting_on is None:
        quiet_us = subject.now_us - last.at_us
        if quiet_us > subject.limits.stuck_us * UNKNOWN_SLOWER:
            yield subject.finding(
                Found.STUCK,
                Severity.WARNING,
                str(last.seq),
                f"a process has it, no step is under way, and it wrote nothing for "
                f"{as_text(quiet_us)}",
                since_us=last.at_us,
                entries=[last.seq],
                actions=[subject.cmd("explain"), subject.cmd("pause")],
            )


def _slow(subject: Subject, record: Record, since_us: int, why: str) -> Finding:
    return subject.finding(
        Found.STUCK,
        Severity.WARNING,
        f"{record.key}:{record.last_seq}",
        f"{record.key} is at work for {why}"
        if record.state is not State.WAITING
        else f"{record.key}: {why}",
        since_us=since_us,
        steps=[record.key],
        entries=[record.last_seq],
        actions=[subject.cmd("explain"), subject.cmd("pause")],
    )


def patience(subject: Subject, record: Record) -> tuple[int, str]:
    """Return how long an attempt of a step may take before it is stuck, and why so long."""
    floor_us = subject.limits.stuck_us
    timeout_s = None if record.intent is None else facts(record.intent).get("timeout_s")
    if timeout_s is not None:
        return int(timeout_s * 1e6) + floor_us, f"it was declared to end within {timeout_s:g} s"
    name = name_of(record.key)
    before = [*durations_us(subject.history).get(name, ()), *subject.durations_us.get(name, ())]
    if len(before) < KNOWN:
        return floor_us * UNKNOWN_SLOWER, "nothing is known of how long it takes"
    usual_us = nearly_all(before)
    return max(floor_us, SLOWER * usual_us), f"nearly all before took {as_text(usual_us)} at most"


def nearly_all(durations: Sequence[int]) -> int:
    """Return what 19 of 20 durations do not exceed."""
    ordered = sorted(durations)
    return ordered[max(0, -(-len(ordered) * 19 // 20) - 1)]


def durations_us(history: History) -> dict[str, list[int]]:
    """Return how long the steps of a run took, by name."""
    took: dict[str, list[int]] = {}
    for record in history.records.values():
        if record.state is State.COMPLETED and record.attempts and record.ended_us is not None:
            lasted_us = max(0, record.ended_us - record.started_us)
            took.setdefault(name_of(record.key), []).append(lasted_us)
    return took
