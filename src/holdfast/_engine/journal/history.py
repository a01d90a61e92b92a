"""The fold of a run's entries: everything that replay asks of the past. Pure.

As in event sourcing, a run's state is computed from its event log. What was written is checked again:
gapless numbers, one outcome per step, legal transitions. `match` is the heart of replay: it returns
the record of a call, or None (the call is new, execute it), or raises `Divergence`: the flow is
non-deterministic, or its code changed. That non-determinism holds the run as `diverged`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from holdfast._engine.journal.drift_record import DriftRecord
from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.fold import FOLD, Folding
from holdfast._engine.journal.lifecycle import Status, next_status
from holdfast._engine.journal.step_keys import is_marker, name_of, scope_of
from holdfast._engine.journal.step_record import OUTCOMES, Accepted, Record, State, facts
from holdfast.errors import Corrupt

__all__ = ["OUTCOMES", "Divergence", "History", "Record", "State"]


class Divergence(Exception):
    """The flow makes a different call than the journal has at this place."""

    def __init__(self, step: str, expected: str, found: str, other: Record | None = None) -> None:
        super().__init__(f"the journal has {expected}, the flow now calls {found}")
        self.step = step
        self.expected = expected
        self.found = found
        self.other = other
        """The record of this very call, if only its arguments differ."""


class History(Folding):
    """Everything that replay needs to know about a run."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.status: Status | None = None
        self.generation = 1
        self.last_seq = 0
        self.records: dict[str, Record] = {}
        self.placed: dict[tuple[str, int], Record] = {}
        self.old: dict[str, Record] = {}
        """Records from before an accepted change: matched by key alone."""
        self.accepted: Accepted | None = None
        """The last accepted change, if the code that it was accepted for is known."""
        self.saved: dict[str, Entry] = {}
        self.lent: dict[str, Entry] = {}
        """Of a fork: the states of loops that it borrowed or was given."""
        self.origin: str | None = None
        """Of a fork: the run that it came from."""
        self.superseded: list[Record] = []
        self.started: Entry | None = None
        self.failed: Entry | None = None
        self.held: Entry | None = None
        self.unfit: dict[str, Entry] = {}
        """The code that could not replay it since the last decision, by version and fingerprint."""
        self.tried: list[str] = []
        """The same, with what did not fit because of a class or a name: see `upgrades.mark`."""
        self.again: Entry | None = None
        """The last entry that released it for code that had not tried it."""
        self.cancel: Entry | None = None
        """A cancel that waits for a doubt to be settled."""
        self.completed: Entry | None = None
        self.over = False
        """Whether the run has ended, as far as it was read."""
        self.closed = False
        """Whether it is only replayed: a completed block that is entered again."""
        self.reborn: Entry | None = None
        """The last entry that resumed it after its end."""
        self.decided_seq = 0
        """The last decision about the run; a snapshot must not hide it."""
        self.rollback: Entry | None = None
        """The requested rollback, where the run is only resumed to undo its effects."""
        self.confirmed = False
        """Whether somebody accepted that recorded effects are no longer called."""
        self.drift = DriftRecord()
        self.differing: set[str] = set()
        """Calls of a fork whose arguments differ from those of the borrowed outcome."""
        self._reach: Reach | None = None

    @classmethod
    def fold(
        cls,
        run_id: str,
        entries: Iterable[Entry],
        *,
        gaps: bool = False,
        onto: History | None = None,
    ) -> History:
        """Fold entries in order. With `gaps`, ranges between snapshots may be missing. `onto` is
        what a fork borrows from another run."""
        history = onto or cls(run_id)
        for entry in entries:
            if not gaps and entry.first_seq != history.last_seq + 1:
                raise Corrupt(f"entry {history.last_seq + 1}", run_id=run_id, why="it is missing")
            history.add(entry)
        return history

    def add(self, entry: Entry) -> None:
        """Fold the next entry."""
        try:
            self.status = next_status(self.status, entry.kind)
        except AssertionError as error:
            raise Corrupt(f"entry {entry.seq}", run_id=self.run_id, why=str(error)) from None
        self.last_seq = entry.seq
        self._reach = None
        FOLD[entry.kind](self, entry)
        self.drift.last = entry

    # -- replay ------------------------------------------------------------------------------

    def look_up(
        self, key: str, position: int | None, args_digest: bytes | None
    ) -> Record | Divergence | None:
        """Return the record of a call as it takes its key, or why it does not fit."""
        try:
            return self.match(key, position, args_digest)
        except Divergence as divergence:
            return divergence

    def match(self, key: str, position: int | None, args_digest: bytes | None) -> Record | None:
        """Return the record of this call, None if there is none, or raise Divergence."""
        if position is None:
            if key in self.old:
                return self._whatever(self.old[key], args_digest)
            record = self.records.get(key)
        else:
            record = self.placed.get((key.rpartition("/")[0], position))
            if record is None:
                if key not in self.old and key not in self.records:
                    return None
                record = self._elsewhere(key, position)
                return record if record is None else self._whatever(record, args_digest)
        if record is None:
            return None
        if record.borrowed:
            return self._whatever(record, args_digest)
        if record.key != key:
            raise Divergence(key, f"{record.key} at call {position}", f"{key}")
        fits = args_digest is None or record.args_digest in (None, args_digest)
        if not fits and record.keeps_place:
            raise Divergence(key, f"{key} with another first state", f"{key} with this one", record)
        if not fits and not record.is_unsaid:
            raise Divergence(key, f"{key} with other arguments", f"{key} with these", record)
        return record

    def _elsewhere(self, key: str, position: int) -> Record | None:
        """Handle a place without a record. A call behind an accepted change finds its older record
        by key alone; otherwise a record under this key means that the call was moved."""
        if key in self.old:
            return self.old[key]
        moved = self.records.get(key)
        if moved is not None and moved.position is not None:
            raise Divergence(key, f"{key} at call {moved.position}", f"it as call {position}")
        return None

    def _whatever(self, record: Record, args_digest: bytes | None) -> Record:
        """Return a record that is matched by key alone, whatever the arguments; remember it if they
        differ from those of the run that it was borrowed from."""
        known = None not in (args_digest, record.args_digest)
        if record.borrowed and known and record.args_digest != args_digest:
            self.differing.add(record.key)
        return record

    def is_read_by(self, code: str) -> None:
        """Note the code that replays the run. A change that was accepted for other code, which has
        not continued the run, is not accepted for this one."""
        accepted = self.accepted
        if accepted is None or accepted.code == code or accepted.is_used(self.records.values()):
            return
        self.old, self.placed = dict(accepted.old), dict(accepted.placed)
        self.confirmed, self.accepted, self._reach = accepted.confirmed, None, None

    def known_key(self, key: str, aliases: tuple[str, ...]) -> str:
        """Return the key under which a step was recorded before it was renamed."""
        if key not in self.records:
            path, _, last = key.rpartition("/")
            tail = last[len(name_of(key)) :]
            for alias in aliases:
                former = f"{path}/{alias}{tail}" if path else alias + tail
                if former in self.records:
                    return former
        return key

    def match_quietly(self, key: str, position: int | None) -> Record | None:
        """Return the record of a call if it has one, without checking that it fits."""
        try:
            return self.match(key, position, None)
        except Divergence:
            return None

    def recorded(self) -> int:
        """Return how many steps have an outcome that a replay would consume."""
        missed, old = self.unconsumed(set())
        return sum(record.has_outcome for record in (*missed, *old))

    def unconsumed(self, consumed: set[str]) -> tuple[list[Record], list[Record]]:
        """Return the records that a finished flow never asked for: those that it should have
        reached, and those from before an accepted change."""
        passed = self.passed()

        def is_left_out(record: Record) -> bool:
            return record.key not in consumed and not passed(record.key)

        missed = [record for record in self.placed.values() if is_left_out(record)]
        return missed, [record for record in self.old.values() if is_left_out(record)]

    def passed(self) -> Callable[[str], bool]:
        """Return a function that tells whether a step key lies in a finished turn of a loop."""
        turns = [(f"{loop}[", _turn(entry)) for loop, entry in self.saved.items()]

        def is_over(key: str) -> bool:
            return any(
                key.startswith(path) and int(key[len(path) :].partition("]")[0]) < turn
                for path, turn in turns
            )

        return is_over

    def goes_beyond(self, path: str, position: int, consumed: set[str]) -> bool:
        """Return whether something is recorded behind a place: in its scope from this position on, or
        behind the scopes that it lies in. Records that have no position, or whose position an
        accepted change has made void, count until they are `consumed`."""
        if self._reach is None:
            self._reach = Reach(self)
        return self._reach.beyond(path, position, consumed)

    def open_doubts(self) -> list[Record]:
        """Return the effects that started and have no known outcome."""
        return [record for record in self.records.values() if record.is_in_doubt]


def _turn(saved: Entry) -> int:
    return int(facts(saved).get("turn", 0))


class Reach:
    """Whether anything is recorded behind a place of the flow.

    A place is a scope (one branch in one turn) and a position in it. Records in parallel branches
    do not count; records behind the enclosing loop or branches do, because the flow reaches them
    only after it has left this place.
    """

    def __init__(self, history: History) -> None:
        self._records = history.records
        self._last: dict[str, int] = {}
        for path, position in history.placed:
            self._last[path] = max(position, self._last.get(path, position))
        self._unplaced: defaultdict[str, list[str]] = defaultdict(list)
        for key, record in history.records.items():
            if (record.position is None or key in history.old) and not is_marker(key):
                self._unplaced[scope_of(key)].append(key)

    def beyond(self, path: str, position: int, consumed: set[str]) -> bool:
        """Return whether something is recorded at this place or behind it."""
        while True:
            if self._last.get(path, -1) >= position:
                return True
            if any(key not in consumed for key in self._unplaced.get(path, ())):
                return True
            if not path:
                return False
            # Continue with the place of the loop or branches that this scope belongs to.
            opener = self._records.get(path.rpartition("[")[0])
            if opener is None or opener.position is None:
                return False
            path, position = scope_of(opener.key), opener.position + 1
