"""A store in memory: the contract in its plainest form, for tests and simulation.

Several handles may share one `MemoryWorld`; each stands for a process, and `world.kill(owner)`
is that process's death. Nothing survives the world itself.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.lifecycle import ENDED, Status, status_of
from holdfast._engine.journal.rows import (
    GENESIS,
    Applied,
    KeyState,
    Lease,
    Message,
    Question,
    RunRow,
    Write,
    apply,
    entry_digest,
)
from holdfast._stores import claim_rules, lineage
from holdfast._stores.contract import (
    LOST_END,
    Broken,
    Busy,
    Committed,
    Damage,
    Fenced,
    NewRun,
    Outcome,
    Progress,
    Query,
    Started,
    no_progress,
)
from holdfast._stores.side_tables import Overlay
from holdfast._stores.store_clock import StoreClock, system_clock_us
from holdfast.errors import (
    Corrupt,
    RunDeleted,
    RunNotFound,
    StoreFailed,
    StoreLostData,
    StoreUnusable,
)
from tests.model.memory_fleet import Fleet, MemoryFleet
from tests.model.memory_side_tables import Beside, MemoryBeside


class MemoryWorld:
    """What the handles of one memory store share."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self.clock = clock or system_clock_us
        self._clock = StoreClock(clock)
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.rows: dict[int, RunRow] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.journals: dict[int, list[Entry]] = {}
        self.chunks: dict[int, dict[int, bytes]] = {}
        self.keys: dict[tuple[str, str, str], KeyState] = {}
        self.inboxes: dict[int, list[Message]] = {}
        self.untaken: dict[int, dict[str, int]] = {}
        """The numbers of the messages that no entry has taken, by their ids, oldest first."""
        self.taken: dict[tuple[int, str], int] = {}
        self.owners = 0
        self.dead: set[int] = set()
        self.commits = 0
        self.lost: str | None = None
        self.accepted_through = 0
        self.fleet = Fleet()
        self.beside = Beside()

    def kill(self, owner: int) -> None:
        """Prove the death of an owner, as the release of its kernel lock would."""
        with self.changed:
            self.dead.add(owner)
            self.changed.notify_all()

    def now_us(self) -> int:
        """Return the time; it never runs backwards and never stands still."""
        return self._clock.now_us()

    def committed(self) -> None:
        """Wake everybody who waits for a change."""
        self.commits += 1
        self.changed.notify_all()


class MemoryStore(MemoryFleet, MemoryBeside):
    """One process's handle on a memory world."""

    def __init__(
        self,
        world: MemoryWorld | None = None,
        *,
        namespace: str = "default",
        clock: Callable[[], int] | None = None,
        lease_s: float = 30.0,
    ) -> None:
        self.url = "memory:"
        self.path = None
        self.namespace = namespace
        self.store_id = "memory"
        self.lease_s = lease_s
        self.world = world or MemoryWorld(clock)
        self.owner: int | None = None
        self._owned: list[int] = []
        self._local = threading.local()
        self._closed = False

    # -- the store as a whole ------------------------------------------------------------------

    def now_us(self) -> int:
        return self.world.now_us()

    def regression(self) -> str | None:
        return self.world.lost

    def schema_version(self) -> int | None:
        return None

    def accepted_through(self) -> int:
        return self.world.accepted_through

    def accept_data_loss(self, actor: str) -> str:
        with self.world.lock:
            accepted = self.world.lost or "nothing was missing"
            self.world.lost = None
            self.world.accepted_through = len(self.world.rows)
            self.world.committed()
            return accepted

    def register_owner(self) -> int:
        with self.world.lock:
            self._check_open()
            self.world.owners += 1
            self.owner = self.world.owners
            self._owned.append(self.owner)
            return self.owner

    def owner_name(self, owner: int | None) -> str:
        return "nobody" if owner is None else f"owner {owner} in memory"

    def wait_for_change(self, timeout_s: float) -> bool:
        seen = getattr(self._local, "seen", -1)  # Of this thread: others wait for themselves.
        with self.world.changed:
            changed = self.world.changed.wait_for(
                lambda: self.world.commits != seen or self._closed, timeout_s
            )
            self._local.seen = self.world.commits
            return changed

    def close(self, *, at_work: bool = False) -> None:
        with self.world.changed:
            self._closed = True
            if not at_work:
                self.world.dead.update(self._owned)
            self.world.changed.notify_all()

    # -- writes --------------------------------------------------------------------------------

    def start(self, new: NewRun, owner: int | None) -> Started:
        with self.world.lock:
            self._check_open()
            existing = self.get(new.run_id)
            if existing is not None:
                return Started(existing, created=False)
            run_no = len(self.world.rows) + 1
            made = claim_rules.new_run(new, self.namespace, run_no, owner, self._lease_until_us())
            lineage.check_origin(made.row, self.get, new.origin_etag)
            self.world.numbers[self.namespace, new.run_id] = run_no
            self._keep(made, new.chunks)
            self.world.committed()
            lease = None if owner is None else Lease(_copy(made.row))
            return Started(_copy(made.row), created=True, lease=lease)

    def start_all(self, news: Sequence[tuple[NewRun, int | None]]) -> builtins.list[Started]:
        with self.world.lock:
            return [self.start(new, owner) for new, owner in news]

    def claim(self, run_id: str, owner: int, at_us: int) -> Lease | Busy:
        with self.world.lock:
            self._check_open()
            row = self.get(run_id)
            if row is None:
                raise RunNotFound(run_id, f"namespace {self.namespace!r}")
            why = claim_rules.why_claimable(row, owner, at_us, self._is_dead, self._pulse_until_us)
            if why is None:
                return Busy(row, claim_rules.refusal(row, self.owner_name(row.owner)))
            poison = claim_rules.is_poison(row)
            write = (
                claim_rules.quarantine_write(row, at_us)
                if poison
                else claim_rules.claim_write(row, owner, at_us, why)
            )
            applied = apply(row, write, self._lease_until_us())
            self._keep(applied, ())
            self.world.committed()
            row = _copy(applied.row)
            return Busy(row, claim_rules.refusal(row, "nobody")) if poison else Lease(row)

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        with self.world.lock:
            self._check_open()
            seen: dict[int, bytes] = {}
            rows: list[tuple[Lease, RunRow]] = []
            outcomes = [self._append(write, len(writes) == 1, seen, rows) for write in writes]
            for lease, row in rows:
                lease.row = row
            self.world.committed()
            return outcomes

    def _append(
        self, write: Write, alone: bool, seen: dict[int, bytes], rows: list[tuple[Lease, RunRow]]
    ) -> Outcome:
        try:
            return self._write(write, seen, rows)
        except Exception as error:
            if alone:
                raise
            return Broken(error)

    def _write(
        self, write: Write, seen: dict[int, bytes], rows: list[tuple[Lease, RunRow]]
    ) -> Outcome:
        """Decide everything, then change everything: an error leaves nothing half done."""
        if self.world.lost and claim_rules.starts_effect(write):
            raise StoreLostData(
                f"{self.world.lost}; effects wait for `holdfast store accept-data-loss`"
            )
        row = self.world.rows[write.lease.row.run_no]
        if not self._holds(write, row, seen.get(row.run_no, row.digest)):
            return Fenced()
        applied = apply(row, write, self._lease_until_us())
        overlay = Overlay(self._side_row)
        refused = overlay.decide(write.changes, applied, self.now_us())
        if refused is not None:
            return refused
        seen.setdefault(row.run_no, row.digest)
        self._keep(applied, write.chunks)
        for put in overlay.accept():
            self._put_side(*put.place, row=put.after)
        rows.append((write.lease, _copy(applied.row)))
        return Committed(applied.entries)

    def _holds(self, write: Write, row: RunRow, seen: bytes) -> bool:
        """The fence: the epoch is the writer's, and the run is as the writer saw it. Writes of
        one batch stand on each other, so `seen` is its digest before the batch."""
        lease = write.lease
        if row.epoch != lease.row.epoch or seen != lease.row.digest:
            return False
        return claim_rules.may_act(row, self._is_dead) if lease.acting else row.owner is not None

    def _keep(self, applied: Applied, chunks: Sequence[tuple[int, bytes]]) -> None:
        run_no = applied.row.run_no
        self.world.rows[run_no] = _copy(applied.row)
        self.world.journals.setdefault(run_no, []).extend(applied.entries)
        self.world.chunks.setdefault(run_no, {}).update(chunks)

    def owner_is_dead(self, owner: int) -> bool:
        return self._is_dead(owner)

    # -- reads ---------------------------------------------------------------------------------

    def get(self, run_id: str) -> RunRow | None:
        run_no = self.world.numbers.get((self.namespace, run_id))
        return None if run_no is None else self.by_number(run_no)

    def by_number(self, run_no: int) -> RunRow | None:
        row = self.world.rows.get(run_no)
        return None if row is None else _copy(row)

    def list(self, query: Query) -> builtins.list[RunRow]:
        with self.world.lock:
            found = [row for row in self._mine() if claim_rules.matches(row, query)]
        return [_copy(row) for row in reversed(found)][: query.limit]

    def load(self, row: RunRow, skips: Sequence[tuple[int, int]] = ()) -> builtins.list[Entry]:
        row.check()
        with self.world.lock:
            if row.deleted_us is None:
                self._check_not_removed(row.run_no)
            journal = list(self.world.journals.get(row.run_no, ()))
        return [
            entry
            for entry in journal
            if entry.seq <= row.last_seq
            and not any(first <= entry.seq <= last for first, last in skips)
        ]

    def entry(self, run_no: int, seq: int) -> Entry | None:
        for entry in self.world.journals.get(run_no, ()):
            if entry.first_seq <= seq <= entry.seq:
                return entry
        return None

    def chunks(self, run_no: int, number: int) -> Mapping[int, bytes]:
        self._check_not_removed(run_no)
        stored = self.world.chunks.get(run_no, {})
        if number not in stored:
            raise Corrupt(f"chunk {number} of run number {run_no}", why="it is not there")
        first = max(0, number - claim_rules.READ_AHEAD)
        return {n: stored[n] for n in range(first, number + 1) if n in stored}

    def _check_not_removed(self, run_no: int) -> None:
        row = self.world.rows.get(run_no)
        if row is not None and row.deleted_us is not None:
            raise RunDeleted(row.run_id)

    def key(self, effect: str, key: str) -> KeyState | None:
        state = self.world.keys.get((self.namespace, effect, key))
        return None if state is None else msgspec.structs.replace(state)

    def waiting_on(self, token: str) -> builtins.list[RunRow]:
        with self.world.lock:
            return [_copy(row) for row in self._mine() if row.waiting_on == token]

    def held_on(self, prefix: str, after: str = "", limit: int = 500) -> builtins.list[str]:
        first, end = claim_rules.tokens_within(prefix, after)
        with self.world.lock:
            held = {row.waiting_on or "" for row in self._mine() if row.status is Status.HELD}
        return sorted(token for token in held if first < token < end)[:limit]

    def claimable(self, at_us: int, limit: int) -> builtins.list[RunRow]:
        with self.world.lock:
            found = [_copy(row) for row in self._mine() if self._is_claimable(row, at_us)]
        return found[:limit]

    def _is_claimable(self, row: RunRow, at_us: int) -> bool:
        nobody = -1
        free = claim_rules.why_claimable(row, nobody, at_us, self._is_dead, self._pulse_until_us)
        return free is not None and claim_rules.is_due(row, at_us, self._newest(row.run_no))

    def verify(
        self, run_ids: Iterable[str] | None = None, progress: Progress = no_progress
    ) -> builtins.list[Damage]:
        wanted = None if run_ids is None else set(run_ids)
        with self.world.lock:  # One state: what is checked does not change meanwhile.
            found = [] if self.world.lost is None else [Damage(LOST_END, self.world.lost)]
            for run_id in sorted((wanted or set()) - {row.run_id for row in self._mine()}):
                raise RunNotFound(run_id)
            parts = [
                (_copy(row), list(self.world.journals[row.run_no]), self.questions(row.run_id))
                for row in self._mine()
                if row.deleted_us is None and (wanted is None or row.run_id in wanted)
            ]
        for done, (row, journal, questions) in enumerate(parts, 1):
            found.extend(_verify(row, journal, questions))
            progress("runs", done, len(parts))
        return found

    def backup(self, path: str, progress: Progress = no_progress) -> None:
        del progress
        raise StoreUnusable(f"a store in memory cannot be written to {path!r}; use sqlite:///")

    # -- pieces --------------------------------------------------------------------------------

    def _mine(self) -> Sequence[RunRow]:
        return [row for row in self.world.rows.values() if row.namespace == self.namespace]

    def _is_dead(self, owner: int) -> bool:
        return owner in self.world.dead

    def _lease_until_us(self) -> int:
        return self.world.now_us() + int(self.lease_s * 1_000_000)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFailed("this handle is closed; open the store again")


def _copy(row: RunRow) -> RunRow:
    return msgspec.structs.replace(row)


def _verify(
    row: RunRow, journal: Sequence[Entry], questions: Sequence[Question]
) -> Iterable[Damage]:
    head = GENESIS
    for entry in journal:
        head = entry_digest(head, row.run_id, entry.seq, entry)
        if head != entry.digest:
            yield Damage(f"entry {entry.seq}", "the digest does not match", row.run_id)
            return
    if row.digest != row.expected_digest() or head != row.head:
        yield Damage("its row in runs", "the digest does not match", row.run_id)
    elif status_of(claim_rules.kinds(journal)) != row.status:
        yield Damage("its row in runs", "the journal says another status", row.run_id)
    for question in () if row.status not in ENDED else questions:
        yield Damage(f"question {question.name!r}", "its run has ended", row.run_id)
