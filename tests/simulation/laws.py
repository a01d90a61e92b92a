"""The laws: what must hold after every move, whoever made it. A broken one is a `Violation`.

They are written from the promises, not from the code: the store is looked at through its contract,
and compared with what the simulation itself saw (acknowledged entries, called bodies, deaths).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._engine.decisions.control import MESSAGES
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.lifecycle import CLAIMABLE, FINAL, Status
from holdfast._engine.journal.rows import Lease, RunRow, Write, etag_of
from holdfast._engine.scripts.requests import StepCall
from holdfast._engine.scripts.stops import Tried
from holdfast._stores.contract import Busy, Committed, Fenced, NewRun, Outcome, Started, Store
from holdfast.testing.store_proxy import Through

if TYPE_CHECKING:
    from tests.simulation.outside import Outside, Request
    from tests.simulation.workers import Life

CLAIMS_MAX = 4
"""The fifth claim in a row that brings nothing holds the run instead."""

_BRINGS = frozenset(
    {Kind.STEP_COMPLETED, Kind.STEP_FAILED, Kind.STEP_SETTLED, Kind.SKIPPED_DUPLICATE}
    | {Kind.STATE_SAVED, Kind.RUN_RELEASED, Kind.RUN_RESUMED}
    | {Kind.RUN_WAITING, Kind.SIGNAL_RECEIVED}
)


class Violation(AssertionError):
    """A promise was broken."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class Laws:
    """What the simulation remembers of the past, and holds the store to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.dead: set[int] = set()
        self._pulses: dict[int, int] = {}
        """Until when each owner said that it is sure to live."""
        self._acked: dict[int, dict[int, bytes]] = {}
        self._final: dict[int, RunRow] = {}
        self._keys: dict[tuple[str, int, str], tuple[str, bytes | None]] = {}
        self._users: dict[str, tuple[str, int, str]] = {}
        self._given_back: dict[tuple[int, str], int] = {}
        """How often a run went on to others with a message that stops it in its inbox."""
        self._signals: dict[str, set[str]] = {}
        """The ids of the signals that each run has accepted."""
        self.codes: dict[int, str] = {}
        """Of which code each owner is, where code is deployed."""
        self._recorded_by: dict[int, set[str]] = {}
        """Whose steps the journal of each run has."""
        self.zombie_calls = 0

    def now_us(self) -> int:
        return self._store.now_us()

    def check_clock(self, before_us: int, passed_us: int) -> None:
        """I9: the clock never runs backwards and never stands still."""
        moved_us = self.now_us() - before_us
        _hold("I9", moved_us >= 0, f"the clock went back by {-moved_us} us")
        _hold("I9", moved_us >= passed_us, f"in {passed_us} us the clock moved by {moved_us} us")

    def journal(self, run_id: str) -> tuple[RunRow, list[Entry]]:
        row = self._store.get(run_id)
        assert row is not None
        return row, self._store.load(row)

    # -- at each write -------------------------------------------------------------------------

    def wrote(
        self, owner: int | None, before: Sequence[RunRow], writes: Sequence[Write], outcomes: Any
    ) -> None:
        """I8: an owner writes under its own epoch, and a stale one changes nothing."""
        for row, write, outcome in zip(before, writes, outcomes, strict=True):
            after = self._store.by_number(row.run_no)
            assert after is not None
            epoch = write.lease.row.epoch
            if isinstance(outcome, Committed):
                self._remember(row.run_no, outcome.entries)
                self._check_code(row, self.codes.get(owner or 0, ""), outcome.entries)
                if write.lease.acting:
                    free = row.owner is None or row.owner in self.dead
                    _hold("I8", free, f"an actor wrote to {row.run_id}, which {row.owner} owns")
                else:
                    mine = row.epoch == epoch and row.owner == owner
                    _hold(
                        "I8",
                        mine,
                        f"owner {owner} wrote to {row.run_id} under epoch {epoch}; "
                        f"owner {row.owner} has it under epoch {row.epoch}",
                    )
                    self._goes_on(after)
            elif isinstance(outcome, Fenced) and len(writes) == 1:
                _hold("I8", after == row, f"a refused write changed {row.run_id}")

    def _check_code(self, row: RunRow, code: str, entries: Sequence[Entry]) -> None:
        """I15: a run does not diverge from what its own code has recorded."""
        by = self._recorded_by.setdefault(row.run_no, set())
        for entry in entries:
            if code and entry.step is not None:
                by.add(code)
            if code and entry.kind is Kind.RUN_HELD and b'"reason":"diverged"' in entry.body:
                others = row.origin is not None or by - {code}
                _hold("I15", bool(others), f"{code} diverges from itself in {row.run_id}")

    def tries_again(self, run_id: str, code: str) -> None:
        """I15: what is held as diverged is tried once per code without a person."""
        _, journal = self.journal(run_id)
        held = [
            entry.body
            for entry in journal
            if entry.kind is Kind.RUN_HELD and b'"reason":"diverged"' in entry.body
        ]
        again = [body for body in held if msgspec.json.decode(body).get("code") == code]
        _hold("I15", not again, f"{run_id} is tried again by {code}, which could not replay it")

    def check_put_back(self, rows: Sequence[RunRow], code: str) -> None:
        """I15: code that was put back tries what other code could not replay, without a person."""
        for row in rows:
            if row.status is Status.HELD and row.held_reason == "diverged":
                tried = has_been_tried(row, code)
                _hold(
                    "I15", tried, f"{row.run_id} is held as diverged, and {code} has not tried it"
                )

    def _goes_on(self, row: RunRow) -> None:
        """I10: what stops a run is carried out within two claims. Who has the run may give it back
        before the message is heard; who claims it next hears of it first."""
        if row.owner is not None or row.status not in CLAIMABLE:
            return
        for message in self._store.inbox(row.run_no):
            if message.kind in MESSAGES:
                at = (row.run_no, message.message_id)
                times = self._given_back[at] = self._given_back.get(at, 0) + 1
                told = f"{row.run_id} was given back {times} times, and {message.kind} is not done"
                _hold("I10", times < 2, told)

    def claimed(self, before: RunRow | None, owner: int, at_us: int, result: Lease | Busy) -> None:
        """I8, I11: a claim raises the epoch, takes from nobody alive, and not for ever."""
        assert before is not None
        if isinstance(result, Busy):
            return
        row, journal = self.journal(before.run_id)
        _hold("I8", row.epoch == before.epoch + 1, f"a claim of {row.run_id} left the epoch")
        free = (
            before.owner in (None, owner)
            or before.owner in self.dead
            or max(before.lease_until_us, self._pulses.get(before.owner or 0, 0)) <= at_us
        )
        _hold("I8", free, f"{row.run_id} was taken from owner {before.owner}, who is alive")
        _hold("I12", before.status in CLAIMABLE, f"{row.run_id} was claimed while {before.status}")
        streak = 0
        for entry in journal:
            if entry.kind in _BRINGS:
                streak = 0
            elif entry.kind is Kind.RUN_CLAIMED:
                streak += 1
        _hold("I11", streak <= CLAIMS_MAX, f"{row.run_id} was claimed {streak} times for nothing")
        self._remember(row.run_no, journal[-1:])

    def pulsed(
        self, owner: int, began_us: int, working: Sequence[tuple[int, int]], lost: Sequence[int]
    ) -> None:
        """I8: a pulse keeps the leases of its owner, who is told what others have taken."""
        self._pulses[owner] = began_us + int(self._store.lease_s * 1_000_000)
        for run_no, epoch in working:
            row = self._store.by_number(run_no)
            assert row is not None
            told = (run_no in lost) == (row.epoch != epoch)
            _hold("I8", told, f"owner {owner} was not told the truth about {row.run_id}")

    def started(self, before: RunRow | None, result: Started) -> None:
        """I14: the same id is the same run, and starting it again changes nothing."""
        if before is not None:
            same = not result.created and result.row == before == self._store.get(before.run_id)
            _hold("I14", same, f"{before.run_id} was started again and changed")
        else:
            self._remember(result.row.run_no, self._store.load(result.row))

    def _remember(self, run_no: int, entries: Sequence[Entry]) -> None:
        acked = self._acked.setdefault(run_no, {})
        for entry in entries:
            _hold("I3", entry.seq not in acked, f"entry {entry.seq} was written twice")
            acked[entry.seq] = entry.digest

    # -- at each call of a body ----------------------------------------------------------------

    def body_called(self, life: Life, call: StepCall) -> None:
        """I3, I4, I6: what may be called, and under which key."""
        execution = life.execution
        row, journal = self.journal(execution.run_id)
        mine = [entry for entry in journal if entry.step == call.key]
        stale = row.epoch != execution.lease.row.epoch
        if stale:
            self.zombie_calls += 1
        else:
            valid = _of_generation(journal)
            done = [entry for entry in valid if entry.step == call.key and _is_outcome(entry)]
            _hold("I3", not done, f"{call.key} of {row.run_id} was called after its outcome")
        if call.spec.effect:
            self._effect_called(life, call, mine)

    def _effect_called(self, life: Life, call: StepCall, mine: list[Entry]) -> None:
        run_id, generation = life.execution.run_id, life.execution.generation
        begun = life.execution.history.records.get(call.key)
        if begun is not None:  # A later generation goes on with what it did not supersede.
            generation = begun.generation
        intended = any(
            entry.kind is Kind.STEP_STARTED
            and entry.attempt == call.attempt.number
            and entry.args_digest == call.args_digest
            for entry in mine
        )
        _hold("I4", intended, f"{call.key} of {run_id} was called without an intent")
        place = (run_id, generation, call.key)
        shown = (call.idempotency_key, call.args_digest)
        first = self._keys.setdefault(place, shown)
        _hold("I6", first == shown, f"{call.key} of {run_id} showed two keys or arguments")
        if call.business_key is None:
            user = self._users.setdefault(call.idempotency_key, place)
            _hold("I6", user == place, f"{call.idempotency_key} is of {user} and of {place}")
        age_s = (
            call.attempt.started_us - (call.attempt.first_started_us or call.attempt.started_us)
        ) / 1e6
        _hold(
            "I6",
            age_s < call.spec.key_ttl_s,
            f"{call.key} of {run_id} sent a key that was {age_s:.0f} s old",
        )

    def took(self, run_id: str, call: StepCall, right: bool, value: object) -> None:
        """I15: no result is given to another step."""
        _hold("I15", right, f"{call.key} of {run_id} was given {value!r}")

    # -- at each act of people -----------------------------------------------------------------

    def signalled(self, run_id: str, signal_id: str, *, new: bool) -> None:
        """I13: the same id is acknowledged, and not delivered again."""
        accepted = self._signals.setdefault(run_id, set())
        known = signal_id in accepted
        _hold(
            "I13", new != known, f"signal {signal_id} to {run_id}: new is {new}, known is {known}"
        )
        accepted.add(signal_id)

    def acted(self, row: RunRow | None, seen: str, what: str) -> None:
        """I22: who acts on what was seen writes to a run that is as it was seen."""
        assert row is not None
        there = etag_of(row)
        _hold("I22", there == seen, f"{what} was written on {there}, and {seen} was seen")

    def refused(self, what: str, *, wrote: bool, fork: str | None) -> None:
        """I22: an action that is refused has changed nothing."""
        _hold("I22", not wrote, f"{what} was refused, and has written")
        there = fork is not None and self._store.get(fork) is not None
        _hold("I22", not there, f"{what} was refused, and the fork is there")

    # -- after each move -----------------------------------------------------------------------

    def check(self, rows: Sequence[RunRow]) -> None:
        """I12: what is final stays as it is."""
        for row in rows:
            final = self._final.get(row.run_no)
            if final is not None:
                _hold("I12", row == final, f"{row.run_id} changed after it was {final.status}")
            elif row.status in FINAL:
                self._final[row.run_no] = row

    def check_all(self, rows: Sequence[RunRow]) -> None:
        """I1, I2, I3: all that was acknowledged is there, in place, and the rows agree with it."""
        findings = self._store.verify()
        _hold("I2", not findings, f"verify found {findings}")
        for row in rows:
            entries = {entry.seq: entry.digest for entry in self._store.load(row)}
            for seq, digest in self._acked.get(row.run_no, {}).items():
                there = entries.get(seq) == digest
                _hold("I1", there, f"entry {seq} of {row.run_id} was acknowledged and is lost")
            _one_outcome(row.run_id, self._store.load(row))
            self._check_signals(row)

    def _check_signals(self, row: RunRow) -> None:
        """I13: each signal that was accepted is received once, or still waits to be."""
        accepted = self._signals.get(row.run_id, set())
        received = [
            msgspec.json.decode(entry.body)["id"].removeprefix("signal:")
            for entry in self._store.load(row)
            if entry.kind is Kind.SIGNAL_RECEIVED
        ]
        waiting = [
            message.message_id.removeprefix("signal:")
            for message in self._store.inbox(row.run_no)
            if message.kind.startswith("signal:")
        ]
        known = sorted([*received, *waiting])
        _hold("I13", len(set(known)) == len(known), f"{row.run_id} has a signal twice: {known}")
        lost = accepted - set(known)
        _hold("I13", not lost, f"{row.run_id} has lost the signals {sorted(lost)}")

    def check_world(self, rows: Sequence[RunRow], outside: Outside) -> None:
        """I5, I7: what happened in the world is what the declared policies allow."""
        for (effect, key), requests in outside.happened.items():
            by_policy = [request for request in requests if request.policy != "retry"]
            _hold("I7", len(by_policy) <= 1, _twice(effect, key, by_policy))
        for row in rows:
            for entry in self._store.load(row):
                if entry.kind is Kind.STEP_COMPLETED and entry.started_us is None:
                    self._really_happened(row.run_id, entry, outside)

    def _really_happened(self, run_id: str, entry: Entry, outside: Outside) -> None:
        result = msgspec.json.decode(entry.data()["result"])
        landed = {request.value for requests in outside.happened.values() for request in requests}
        effect = isinstance(result, str) and result.startswith(("effect-", "shared-"))
        true = not effect or result in landed
        _hold("I5", true, f"{entry.step} of {run_id} is recorded as done and did not happen")

    def check_progress(self, rows: Sequence[RunRow]) -> None:
        """I10: with a healthy worker, every run ends or is held with a reason."""
        for row in rows:
            at_rest = row.status in FINAL | {Status.FAILED} or (
                row.status is Status.HELD and bool(row.held_reason)
            )
            _hold("I10", at_rest, f"{row.run_id} is {row.status} and nobody gets it on")


def has_been_tried(row: RunRow, code: str) -> bool:
    """Tell whether code of this fingerprint is among what a diverged run is held by."""
    tried = Tried.read(row.waiting_on)
    return tried is not None and code in tried.codes


def _twice(effect: str, key: str, requests: Sequence[Request]) -> str:
    who = ", ".join(f"{request.run_id} by owner {request.owner}" for request in requests)
    return f"{effect} with key {key} happened {len(requests)} times: {who}"


def _of_generation(journal: Sequence[Entry]) -> list[Entry]:
    """Return the entries of the present generation, and of earlier ones what still counts."""
    kept: list[Entry] = []
    for entry in journal:
        if entry.kind is Kind.RUN_RESUMED:
            gone = msgspec.json.decode(entry.body).get("superseded", ())
            kept = [old for old in kept if old.step not in gone]
        kept.append(entry)
    return kept


def _is_outcome(entry: Entry) -> bool:
    if entry.kind is Kind.STEP_FAILED:
        return b'"final":true' in entry.body
    if entry.kind is Kind.STEP_SETTLED:
        return b'"outcome":"not_done"' not in entry.body
    return entry.kind in (Kind.STEP_COMPLETED, Kind.SKIPPED_DUPLICATE)


def _one_outcome(run_id: str, journal: Sequence[Entry]) -> None:
    outcomes: dict[str, int] = {}
    for entry in journal:
        if entry.kind is Kind.RUN_RESUMED:
            for step in msgspec.json.decode(entry.body).get("superseded", ()):
                outcomes.pop(step, None)
        elif entry.step is not None and _is_outcome(entry):
            _hold("I3", entry.step not in outcomes, f"{entry.step} of {run_id} has two outcomes")
            outcomes[entry.step] = entry.seq


def _hold(invariant: str, holds: bool, what: str) -> None:
    if not holds:
        raise Violation(invariant, what)


class Lawful(Through):
    """A worker's handle, with every write held to the laws."""

    def __init__(self, inner: Store, laws: Laws) -> None:
        super().__init__(inner)
        self._laws = laws
        self.owner: int | None = None

    def start(self, new: NewRun, owner: int | None) -> Started:
        before = self.inner.get(new.run_id)
        started = self.inner.start(new, owner)
        self._laws.started(before, started)
        return started

    def start_all(self, news: Sequence[tuple[NewRun, int | None]]) -> list[Started]:
        return [self.start(new, owner) for new, owner in news]

    def claim(self, run_id: str, owner: int, at_us: int) -> Lease | Busy:
        before = self.inner.get(run_id)
        result = self.inner.claim(run_id, owner, at_us)
        self._laws.claimed(before, owner, at_us, result)
        return result

    def pulse(self, owner: int, facts: str, working: Sequence[tuple[int, int]] = ()) -> list[int]:
        began_us = self.inner.now_us()
        lost = self.inner.pulse(owner, facts, working)
        self._laws.pulsed(owner, began_us, working, lost)
        return lost

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        before = [self.inner.by_number(write.lease.row.run_no) for write in writes]
        held = [msgspec.structs.replace(write.lease) for write in writes]
        outcomes = self.inner.append(writes)
        shown = [
            msgspec.structs.replace(write, lease=lease)
            for write, lease in zip(writes, held, strict=True)
        ]
        rows = [row for row in before if row is not None]
        self._laws.wrote(self.owner, rows, shown, outcomes)
        return outcomes

    def around(self, operation: str, what: str, perform: Callable[[], Any]) -> Any:
        """Hand everything else through."""
        return perform()
