"""Findings of the runs in a store: looking for them, and doing what is decided about one.

Nothing is decided here: the checks say what is found. A decision goes into the run's inbox under
the id of the finding, so that it is taken once; on a run that nobody has, the entry is made of it at
once, together with the hold or the cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast._engine.journal.changes import TakeMessage
from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import CLAIMABLE, FINAL, Status
from holdfast._engine.journal.rows import Lease, RunRow, is_moved
from holdfast._engine.journal.step_record import facts
from holdfast._engine.values.moments import at
from holdfast._features.watchdog import model as findings
from holdfast._features.watchdog.model import FINDING, Finding, Found, limits_in
from holdfast._features.watchdog.partial_failure import partial_failure
from holdfast._features.watchdog.repeated_actions import duplicate_action, is_deed, looping
from holdfast._features.watchdog.runaway_cost import runaway_cost
from holdfast._features.watchdog.stuck import durations_us, stuck
from holdfast._features.watchdog.subject import Deed, Subject
from holdfast._stores import lineage
from holdfast._stores.claim_rules import queue_of
from holdfast._stores.contract import Committed, Posted, Query, Store
from holdfast._stores.families import account_of, open_children
from holdfast.errors import Corrupt, RunDeleted, StoreError, UsageError

OTHERS = 20
"""How many other runs of a flow are asked how long its steps take."""
COMPARED = 200
"""With how many other runs of a flow effects are compared, if that was asked for."""
FRESH_US = 60_000_000
"""How long what is known of the fleet and of other runs is good for."""
TRIES = 5
PAGE = 200
OPEN = (*sorted(CLAIMABLE), Status.HELD, Status.FAILED)
"""Runs in which something may be found that concerns a person now."""


class Worker(msgspec.Struct):
    """The flows and queues of a live worker."""

    flows: dict[str, list[str]]
    queues: list[str] | None = None
    draining: bool = False


class Served(msgspec.Struct):
    """The live owners, and the flows that they execute."""

    owners: set[int]
    workers: list[Worker]
    paused: set[str]

    def takes(self, row: RunRow) -> bool:
        """Return whether a run is taken when its turn comes; a paused queue is somebody's decision."""
        queue = queue_of(row)
        return queue in self.paused or any(
            row.version in worker.flows.get(row.flow, ())
            and (worker.queues is None or queue in worker.queues)
            and not worker.draining
            for worker in self.workers
        )


_READS = msgspec.json.Decoder(Worker)  # Made once, since several threads use it.


def _worker(facts: str) -> Worker | None:
    """Return what a pulse says of a worker; a process that is none, or a newer one, says less."""
    try:
        return _READS.decode(facts)
    except msgspec.MsgspecError:
        return None


class Survey:
    """Looks at runs of one store; what it learns of the fleet and of flows is kept for a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._served: tuple[int, Served] | None = None
        self._took: dict[str, tuple[int, dict[str, list[int]]]] = {}
        self._did: dict[int, tuple[int, list[Deed]]] = {}
        self.damaged: list[Corrupt] = []
        """Runs that could not be read."""

    def findings(
        self, row: RunRow, journal: tuple[list[Entry], History] | None = None
    ) -> list[Finding]:
        """Return what is found in a run now, with what was noted of it before. `journal` is what
        `lineage.read` returned, if it was read before. `verify` reports a damaged run. A run that was
        moved is watched where it goes on."""
        if is_moved(row):
            return []
        try:
            entries, history = journal or lineage.read(self._store, row)
            return self._findings_in(row, entries, history)
        except Corrupt as damage:  # Of the run, or of what is known of the fleet.
            self.damaged.append(damage)
            return []
        except RunDeleted:
            return []

    def _findings_in(self, row: RunRow, entries: list[Entry], history: History) -> list[Finding]:
        noted = findings.noted_in(entries)
        return [
            found
            if found.id not in noted
            else msgspec.structs.replace(
                found,
                noted_at=at(noted[found.id].at_us),
                did=str(facts(noted[found.id]).get("did")),
            )
            for found in check(self._subject(row, entries, history))
        ]

    def _subject(self, row: RunRow, entries: list[Any], history: History) -> Subject:
        store, now_us = self._store, self._store.now_us()
        subject = Subject(row, entries, history, now_us)
        if row.status in CLAIMABLE:
            served = self._fleet(now_us)
            subject.at_work = row.owner is not None and (
                row.owner in served.owners or row.lease_until_us > now_us
            )
            subject.at_work = subject.at_work and not store.owner_is_dead(row.owner or 0)
            if row.owner is not None and not subject.at_work:
                subject.left_us = min(now_us, store.heard_us(row.owner))
            subject.served = served.takes(row)
            if subject.at_work:
                subject.durations_us = self._durations(row, now_us)
            if row.usage not in ("", "{}"):
                subject.account = account_of(store, row)
        if subject.limits.duplicates_us is not None:
            subject.deeds = list(self._deeds(row, now_us - subject.limits.duplicates_us))
        return subject

    def _fleet(self, now_us: int) -> Served:
        if self._served is None or now_us - self._served[0] > FRESH_US // 6:
            pulses = self._store.pulses()
            states = self._store.queues()
            paused = {state.limits.queue for state in states if state.limits.paused}
            workers = [worker for it in pulses if (worker := _worker(it.facts)) is not None]
            self._served = (now_us, Served({it.owner for it in pulses}, workers, paused))
        return self._served[1]

    def _durations(self, row: RunRow, now_us: int) -> dict[str, list[int]]:
        """Return how long the steps of a flow took in other runs that went well."""
        known = self._took.get(row.flow)
        if known is None or now_us - known[0] > 10 * FRESH_US:
            took: dict[str, list[int]] = {}
            query = Query(flow=row.flow, status=[Status.COMPLETED], limit=OTHERS)
            for other in self._store.list(query):
                for name, lasted in self._lasted(other).items():
                    took.setdefault(name, []).extend(lasted)
            known = self._took[row.flow] = (now_us, took)
        return known[1]

    def _lasted(self, row: RunRow) -> dict[str, list[int]]:
        try:
            return durations_us(lineage.fold(self._store, row))
        except (Corrupt, RunDeleted):
            return {}

    def _deeds(self, row: RunRow, since_us: int) -> Iterator[Deed]:
        """Yield what other runs of a flow did since a time; each is read once."""
        for other in self._store.list(Query(flow=row.flow, limit=COMPARED)):
            if other.run_no == row.run_no or other.updated_us < since_us:
                continue
            if other.deleted_us is None:
                yield from (deed for deed in self._done(other) if deed.at_us >= since_us)

    def _done(self, row: RunRow) -> list[Deed]:
        known = self._did.get(row.run_no)
        if known is None or known[0] != row.last_seq:
            try:
                history = lineage.fold(self._store, row)
            except (Corrupt, RunDeleted):
                return []
            deeds = [
                Deed(row.run_id, it.key, it.args_digest or b"", it.ended_us or it.started_us)
                for it in history.records.values()
                if is_deed(history, it)
            ]
            if len(self._did) > 10 * COMPARED:
                self._did.clear()
            known = self._did[row.run_no] = (row.last_seq, deeds)
        return known[1]

    def stuck_us(self, row: RunRow) -> int:
        """Return from when on a quiet run is looked at again."""
        try:
            return limits_in(self._store.entry(row.run_no, 1)).stuck_us
        except (Corrupt, StoreError):
            return FRESH_US


# -- asking ------------------------------------------------------------------------------------


def open_rows(store: Store, query: Query | None = None) -> Iterator[RunRow]:
    """Yield the runs in which something may be found, newest first."""
    asked = query or Query(status=list(OPEN))
    asked = msgspec.structs.replace(asked, limit=PAGE)
    while True:
        rows = store.list(asked)
        yield from (row for row in rows if row.deleted_us is None)
        if len(rows) < PAGE:
            return
        asked.before_run_no = rows[-1].run_no


def of_store(store: Store) -> Iterator[Finding]:
    """Yield what is found in the open and the failed runs of a store."""
    survey = Survey(store)
    for row in open_rows(store):
        yield from survey.findings(row)


def of_run(store: Store, row: RunRow) -> list[Finding]:
    """Return what is found in a run now, then what was noted of it and is over."""
    journal = lineage.read(store, row)
    found = Survey(store).findings(row, journal)
    known = {it.id for it in found}
    noted = findings.noted_in(journal[0])
    return found + [findings.from_journal(row, it) for id_, it in noted.items() if id_ not in known]


def having(store: Store, kind: str | None) -> Callable[[RunRow], bool]:
    """Return what says whether something of a kind is found in a run; None asks for nothing."""
    if kind is None:
        return lambda _row: True
    if kind not in list(Found):
        raise UsageError(f"finding={kind!r}: one of {', '.join(Found)}")
    survey = Survey(store)
    of = CLAIMABLE if kind in (Found.STUCK, Found.RUNAWAY_COST) else frozenset(Status)

    def has(row: RunRow) -> bool:
        # What does not go on is neither stuck nor spends, so its journal is not read.
        if row.deleted_us is not None or row.status not in of:
            return False
        return any(found.kind == kind for found in survey.findings(row))

    return has


# -- acting ------------------------------------------------------------------------------------


def is_decided(store: Store, row: RunRow, finding: Finding) -> bool:
    """Return whether somebody has decided about a finding: it is noted, or on its way."""
    if finding.noted_at is not None:
        return True
    known = findings.message_id(finding.id)
    return any(message.message_id == known for message, _ in store.messages(row.run_no))


def tell(store: Store, finding: Finding, did: str) -> None:
    """Decide about a finding: send it to the run, once; without an owner, apply it at once."""
    decision = findings.decided(finding, did)
    message = findings.finding_message(decision, store.now_us())
    if store.post(finding.run_id, message) is Posted.REFUSED:
        _note_ended(store, finding.run_id, decision)
    else:
        take_in(store, finding.run_id)


def take_in(store: Store, run_id: str) -> None:
    """Do what was decided about a run that nobody alive has. A process that has it does so itself."""
    for _ in range(TRIES):
        row = store.get(run_id)
        if row is None or row.status in FINAL or row.status is Status.FAILED:
            return
        waiting = [it for it in store.inbox(row.run_no) if it.kind == FINDING]
        if not waiting:
            return
        write = _write(store, row, findings.read(waiting[0]))
        write.changes = [*write.changes, TakeMessage(waiting[0].message_id)]
        if not isinstance(store.append([write])[0], Committed) and _is_owned(store, run_id):
            return


def _note_ended(store: Store, run_id: str, decision: findings.Decision) -> None:
    """Note it in a run that failed, which reads no messages: by its journal, and once by that."""
    row = store.get(run_id)
    if row is None or row.status is not Status.FAILED:
        return
    write = _write(store, row, decision)
    if write.drafts:
        store.append([write])  # If somebody was quicker, it is looked at again in the next round.


def _write(store: Store, row: RunRow, decision: findings.Decision) -> Any:
    entries, history = lineage.read(store, row)
    children = open_children(store, row.run_id)
    return findings.finding_write(
        Lease(row, acting=True), history, entries, children, decision, store.now_us()
    )


def is_at_work(store: Store, row: RunRow) -> bool:
    """Return whether a process that may be alive has a run."""
    return row.owner is not None and not store.owner_is_dead(row.owner)


def _is_owned(store: Store, run_id: str) -> bool:
    row = store.get(run_id)
    return row is not None and row.owner is not None and not store.owner_is_dead(row.owner)


# -- all checks --------------------------------------------------------------------------------


CHECKS: dict[Found, Callable[[Subject], Iterator[Finding]]] = {
    Found.STUCK: stuck,
    Found.LOOPING: looping,
    Found.DUPLICATE_ACTION: duplicate_action,
    Found.PARTIAL_FAILURE: partial_failure,
    Found.RUNAWAY_COST: runaway_cost,
}


def check(subject: Subject) -> list[Finding]:
    """Return all that is found in a run, most severe first."""
    order = {"error": 0, "warning": 1, "info": 2}
    found = [finding for make in CHECKS.values() for finding in make(subject)]
    return sorted(found, key=lambda it: (order[it.severity], it.since))
