"""Check a store: problems of its runs, and problems of the store itself that need a person."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.text import count
from holdfast._features.watchdog import store as watchdog
from holdfast._features.watchdog.model import Finding, Severity
from holdfast._operator.read import question_views, queue_views
from holdfast._stores.addresses import without_password
from holdfast._stores.contract import Query, Store
from holdfast.errors import Corrupt

LOOKED_AT = 1000
"""How many runs are looked at, the newest first."""
CLAIMABLE_MAX = 1000
ASKED_MAX = 10_000
FREE_BYTES, FREE_SHARE = 256 * 2**20, 0.02
WAL_BYTES = 256 * 2**20
"""From this size on, something keeps SQLite from writing its log back."""


class Trouble(msgspec.Struct, frozen=True):
    """Something about the store as a whole."""

    what: str
    severity: Severity
    text: str
    actions: tuple[str, ...] = ()


class Checkup(msgspec.Struct, frozen=True):
    """A store as a whole."""

    url: str
    schema_version: int | None
    file_bytes: int | None
    wal_bytes: int | None
    free_bytes: int | None
    """Of the disk; None on a server."""
    looked_at: int
    """How many open and failed runs were looked at, the newest first."""
    complete: bool
    """Whether those are all of them."""
    troubles: list[Trouble]
    unchecked: list[str] = []
    """What was not read, and so may be damaged; `verify` reads it."""

    @property
    def is_damaged(self) -> bool:
        """Whether a run cannot be read, or acknowledged commits are missing."""
        return any(it.what in ("damage", "regression") for it in self.troubles)


def needs_somebody(found: Iterable[Trouble | Finding]) -> bool:
    """Return whether there is something that a person should decide or put right."""
    return any(
        it.severity is not Severity.INFO and (isinstance(it, Trouble) or it.open) for it in found
    )


def of_run(store: Store, row: RunRow) -> list[Trouble]:
    """Return what a run waits for that a person decides or puts right."""
    see = (command("explain", row.run_id),)
    reason = row.held_reason
    if row.status is Status.HELD and reason != HeldReason.MOVED:
        what = "somebody to resume it" if reason == HeldReason.PAUSED else "a decision"
        text = f"it waits for {what}"
        return [Trouble(f"held ({reason})" if reason else "held", Severity.WARNING, text, see)]
    if row.status is Status.FAILED:
        text = "it can be taken up again when the cause is mended"
        return [Trouble("failed", Severity.WARNING, text, see)]
    if question_views.questions(store, run_id=row.run_id, limit=1, plain=True):
        listing = (command("questions", "--run", row.run_id),)
        return [Trouble("asks", Severity.WARNING, "it waits for an answer", listing)]
    return []


def checkup(store: Store, limit: int = LOOKED_AT) -> tuple[Checkup, list[Finding]]:
    """Look at a store and its open and failed runs."""
    survey = watchdog.Survey(store)
    rows = list(islice(watchdog.open_rows(store), limit + 1))
    size, wal, free = _files(store)
    found = [it for row in rows[:limit] for it in survey.findings(row)]
    told = Checkup(
        without_password(store.url),
        store.schema_version(),
        size,
        wal,
        free,
        looked_at=min(len(rows), limit),
        complete=len(rows) <= limit,
        troubles=_once([*_damages(survey), *_troubles(store, wal, free)]),
        unchecked=_unchecked(complete=len(rows) <= limit),
    )
    return told, found


def _unchecked(*, complete: bool) -> list[str]:
    """Return the checks that were not made."""
    older = [] if complete else ["open and failed runs that are older"]
    return [*older, "runs that have ended", "keys of effects", "memories", "measures"]


def _once(troubles: Iterable[Trouble]) -> list[Trouble]:
    """Return what is wrong, each once: what is damaged may be met in several places."""
    return list(dict.fromkeys(troubles))


# -- the store ---------------------------------------------------------------------------------


def _files(store: Store) -> tuple[int | None, int | None, int | None]:
    path = store.path
    if path is None:
        return None, None, None
    log = Path(f"{path}-wal")
    wal = log.stat().st_size if log.exists() else 0
    return Path(path).stat().st_size, wal, shutil.disk_usage(Path(path).parent).free


def _troubles(store: Store, wal: int | None, free: int | None) -> Iterator[Trouble]:
    lost = store.regression()
    if lost is not None:
        text = f"acknowledged commits are missing: {lost}; effects are blocked until somebody accepts the loss"
        yield Trouble("regression", Severity.ERROR, text, ("holdfast store accept-data-loss",))
    yield from _disk(store, wal, free)
    for look in (_people, _queues, _leases):
        try:
            yield from look(store)
        except Corrupt as damage:
            text = f"it cannot be read: {damage}"
            yield Trouble("damage", Severity.ERROR, text, ("holdfast store verify",))


def _damages(survey: watchdog.Survey) -> Iterator[Trouble]:
    for damage in survey.damaged:
        verify = command("store verify", *([damage.run_id] if damage.run_id else []))
        yield Trouble("damage", Severity.ERROR, f"it cannot be read: {damage}", (verify,))


def _disk(store: Store, wal: int | None, free: int | None) -> Iterator[Trouble]:
    path = store.path
    if path is None or free is None or wal is None:
        return
    total = shutil.disk_usage(Path(path).parent).total
    if free < max(FREE_BYTES, FREE_SHARE * total):
        text = f"{free / 2**20:,.0f} MiB are free on the disk of {path}"
        actions = ("holdfast store prune --dry-run --older-than 30d",)
        yield Trouble("disk", Severity.ERROR, text, actions)
    if wal > WAL_BYTES:
        text = (
            f"the log beside the file has {wal / 2**20:,.0f} MiB: a process that reads for a very "
            "long time keeps it from being written back"
        )
        yield Trouble("wal", Severity.WARNING, text)


def _people(store: Store) -> Iterator[Trouble]:
    """Report the runs that wait for a decision."""
    reasons: Counter[str] = Counter()
    for row in watchdog.open_rows(store, Query(status=[Status.HELD])):
        reasons[row.held_reason or "held"] += 1
    for reason, number in sorted(reasons.items()):
        if reason != HeldReason.MOVED:
            waits = "waits" if number == 1 else "wait"
            what = "somebody to resume it" if reason == HeldReason.PAUSED else "a decision"
            text = f"{count(number, 'run')} held: {reason.replace('_', ' ')}; {waits} for {what}"
            listing = command("runs", "--held-reason", reason)
            yield Trouble(reason, Severity.WARNING, text, (listing,))
    number = sum(queue.failed for queue in queue_views.queues(store))
    if number:
        text = f"{count(number, 'run')} failed, and can be taken up again when the cause is mended"
        listing = command("runs", "--status", "failed")
        yield Trouble("failed", Severity.WARNING, text, (listing,))
    yield from _asking(store)


def _asking(store: Store) -> Iterator[Trouble]:
    """Count the runs with open questions; an unreadable run may be one of them."""
    unreadable: list[question_views.Unreadable] = []
    asked = question_views.questions(store, limit=ASKED_MAX, plain=True, unreadable=unreadable)
    for run_id, error in {it.run_id: it.error for it in unreadable}.items():
        text = f"it cannot be read: {error}"
        yield Trouble("damage", Severity.ERROR, text, (command("store verify", run_id),))
    number = len({it.run_id for it in asked})
    if number:
        least = "at least " if len(asked) == ASKED_MAX else ""
        asks = "asks somebody, and waits" if number == 1 else "ask somebody, and wait"
        text = f"{least}{count(number, 'run')} {asks} for an answer"
        yield Trouble("asks", Severity.WARNING, text, (command("questions"),))


def _queues(store: Store) -> Iterator[Trouble]:
    for queue in queue_views.queues(store):
        if queue.ready and not queue.workers and not queue.paused:
            text = f"{count(queue.ready, 'run')} in queue {queue.name}, and no live worker takes from it"
            start = command("worker", "MODULE", "--queue", queue.name)
            yield Trouble("queue", Severity.WARNING, text, (start,))
    for worker in queue_views.workers(store):
        if worker.stands_back is not None:
            see = ("explain", worker.alone.run_id) if worker.alone is not None else ("queues",)
            text = f"{worker.stands_back}; for a minute at most"
            yield Trouble("alone", Severity.INFO, text, (command(*see),))


def _leases(store: Store) -> Iterator[Trouble]:
    """Report runs that were at work and whose owner is not known to be alive."""
    free = store.claimable(store.now_us(), CLAIMABLE_MAX)
    least = "at least " if len(free) == CLAIMABLE_MAX else ""
    alive = queue_views.workers(store)
    left = {
        row.run_id: store.owner_is_dead(row.owner)
        for row in free
        if row.owner is not None and not any(worker.executes(row) for worker in alive)
    }
    stalled = [run_id for run_id, is_dead in left.items() if not is_dead]
    if stalled:
        text = (
            f"{least}{count(len(stalled), 'run')}, such as {stalled[0]}: the lease expired, and the "
            "process that has it may be paused, cut off or dead"
        )
        yield Trouble("lease", Severity.WARNING, text, (command("explain", stalled[0]),))
    dead = [run_id for run_id, is_dead in left.items() if is_dead]
    if dead:
        text = (
            f"{least}{count(len(dead), 'run')}, such as {dead[0]}: abandoned, since the process that "
            "had it died; no live worker executes it"
        )
        yield Trouble("abandoned", Severity.WARNING, text, (command("explain", dead[0]),))
