"""Work that is done in part: effects of a run that goes no further, branches of which some failed.
Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.journal.step_keys import is_undo, scope_of, undo_key
from holdfast._features.watchdog.model import Finding, Found, Severity
from holdfast._features.watchdog.subject import Subject


def partial_failure(subject: Subject) -> Iterator[Finding]:
    """Part of the work is done and part of it is not: effects of a run that goes no further, or
    branches of which some failed."""
    row, history = subject.row, subject.history
    stopped = {Status.FAILED: history.failed, Status.HELD: history.held}.get(row.status)
    if stopped is not None and row.held_reason != HeldReason.PAUSED and history.rollback is None:
        done = [it for it in history.records.values() if happened(history, it)]
        if done:
            names = ", ".join(it.key for it in done[:10])
            failed = row.status is Status.FAILED
            yield subject.finding(
                Found.PARTIAL_FAILURE,
                Severity.ERROR if failed else Severity.INFO,
                str(stopped.seq),
                f"it is {row.status}, and what it did stays as it is: {names}",
                since_us=stopped.at_us,
                steps=[it.key for it in done],
                entries=[stopped.seq, *(it.last_seq for it in done)],
                actions=[subject.cmd("explain"), subject.cmd("rollback", "--dry-run")],
            )
    yield from _failed_branches(subject)


def happened(history: History, record: Record) -> bool:
    """Return whether a record is an effect that this run executed, and that is not undone."""
    if not record.effect or record.borrowed or is_undo(record.key):
        return False
    undone = history.records.get(undo_key(record.key, record.generation))
    is_undone = undone is not None and undone.state is State.COMPLETED
    return record.state is State.COMPLETED and not is_undone


def _failed_branches(subject: Subject) -> Iterator[Finding]:
    fans: dict[str, dict[str, list[Record]]] = {}
    for record in subject.history.records.values():
        fan, branch = _branch(record.key)
        if fan and not record.borrowed:
            fans.setdefault(fan, {}).setdefault(branch, []).append(record)
    for fan, branches in fans.items():
        failed = {
            branch: bad
            for branch, records in branches.items()
            if (bad := [it for it in records if it.state is State.FAILED])
        }
        done = [b for b, them in branches.items() if all(it.has_outcome for it in them)]
        if not failed or not set(done) - set(failed):
            continue
        bad = [it for them in failed.values() for it in them]
        yield subject.finding(
            Found.PARTIAL_FAILURE,
            Severity.WARNING,
            f"{subject.row.generation}:{fan}",
            f"{len(failed)} of {len(branches)} branches of {fan} failed: "
            f"{', '.join(it.key for it in bad[:10])}",
            since_us=bad[0].started_us,
            steps=[it.key for it in bad],
            entries=[it.last_seq for it in bad],
            actions=[subject.cmd("show"), subject.cmd("explain")],
        )


def _branch(key: str) -> tuple[str, str]:
    """Return the fan-out that a step lies in, and the branch of it; the outermost of several."""
    path = ""
    for part in scope_of(key).split("/"):
        name, bracket, rest = part.partition("[")
        if bracket and not name.startswith("turns") and not name.startswith("undo"):
            return path + name, rest.rstrip("]")
        path += f"{part}/"
    return "", ""
