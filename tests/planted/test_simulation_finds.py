"""A test that cannot fail proves nothing: each removed check must be found by the simulation."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast._engine.journal import fold as folding, rows
from holdfast._engine.journal.changes import ClaimKey, SetKey, TakeMessage
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import CLAIMABLE, ClaimedBecause, Status
from holdfast._engine.scripts import attempts, effect_script as effect_scripts, requests
from holdfast._engine.scripts.stops import Unwind
from holdfast._operator.act import fork as forks
from holdfast._runtime.execution import inbox, run_end
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.recorder import Recorder
from holdfast._runtime.inbox_poller import RunInbox
from holdfast._runtime.worker import recovery_pass
from holdfast._stores import claim_rules, lineage
from holdfast._stores.store_clock import StoreClock
from holdfast.errors import RunHeld
from tests.model import memory_store
from tests.model.memory_store import MemoryStore
from tests.simulation.laws import Violation
from tests.simulation.scheduler import Faults, simulate

ROUGH = Faults(dies=4, stalls=6, wakes=8, leases_run_out=6, clock_goes_back=1, code_is_edited=0)
EDITED = Faults(dies=4, stalls=3, wakes=6, leases_run_out=2, code_is_edited=0.5)
STOPPED = Faults(dies=1, stalls=2, wakes=6, people_stop_runs=8)
SIGNALS = Faults(signals=6)
STALE_VIEWS = Faults(stale_views=6)
DEPLOYS = Faults(dies=2, stalls=2, wakes=6, deploys=6)
SEEDS = 150

Plant = Callable[[pytest.MonkeyPatch], None]


def fence_off(patch: pytest.MonkeyPatch) -> None:
    """A stale owner's write is taken."""
    patch.setattr(MemoryStore, "_holds", lambda self, write, row, seen: row.owner is not None)


def epoch_stays(patch: pytest.MonkeyPatch) -> None:
    """A claim does not raise the epoch."""
    real = claim_rules.claim_write

    def claim_write(row: Any, *rest: Any) -> Any:
        write = real(row, *rest)
        write.row["epoch"] = row.epoch
        return write

    patch.setattr(claim_rules, "claim_write", claim_write)


def live_owners_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """A run is taken from an owner who is alive."""

    def why(row: Any, *rest: Any) -> Any:
        return ClaimedBecause.OWNER_DEAD if row.status in CLAIMABLE else None

    patch.setattr(claim_rules, "why_claimable", why)


def no_intent(patch: pytest.MonkeyPatch) -> None:
    """An effect is called before its intent is recorded."""

    def claim(call: Any, run_id: str) -> Any:
        yield from attempts.begin(call)
        return effect_scripts.NOTHING

    patch.setattr(effect_scripts, "_claim", claim)


def doubts_are_repeated(patch: pytest.MonkeyPatch) -> None:
    """An effect in doubt is executed again, whatever its policy."""

    def settle(call: Any, left: Any, run_id: str) -> Any:
        return (yield from effect_scripts._claim(call, run_id))

    patch.setattr(effect_scripts, "_settle", settle)


def every_claim_proves_death(patch: pytest.MonkeyPatch) -> None:
    """A lease that ran out is taken as a proof of death."""

    def claimed(self: History, entry: Any) -> None:
        for record in self.records.values():
            record.ended = True

    patch.setitem(folding.FOLD, Kind.RUN_CLAIMED, claimed)


def arguments_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """A replay does not compare arguments."""
    real = History.match
    patch.setattr(
        History, "match", lambda self, key, position, digest: real(self, key, position, None)
    )


def keys_change(patch: pytest.MonkeyPatch) -> None:
    """Each attempt shows another key."""
    numbers = itertools.count()
    patch.setattr(Execution, "derived_key", lambda self, step: f"hf_{next(numbers)}")


def keys_are_shared(patch: pytest.MonkeyPatch) -> None:
    """A derived key does not depend on the run."""
    patch.setattr(Execution, "derived_key", lambda self, step: f"hf_{step}")


def taken_keys_are_given(patch: pytest.MonkeyPatch) -> None:
    """A business key that another call has is given to the next one."""
    patch.setattr(ClaimKey, "is_free", lambda *args: True)
    patch.setattr(
        SetKey,
        "changed",
        lambda self, found, row: msgspec.structs.replace(
            found, state=self.state, result_seq=row.last_seq
        ).sealed(),
    )


def outcomes_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """An acknowledged entry is gone."""
    real = MemoryStore._keep

    def keep(self: MemoryStore, applied: Any, chunks: Any) -> None:
        real(self, applied, chunks)
        journal = self.world.journals[applied.row.run_no]
        if len(journal) == 6:
            del journal[4]

    patch.setattr(MemoryStore, "_keep", keep)


def outcomes_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """A replay does not find what is recorded."""
    patch.setattr(History, "match", lambda self, key, position, digest: None)


def no_quarantine(patch: pytest.MonkeyPatch) -> None:
    """A poison run is claimed for ever."""
    patch.setattr(claim_rules, "is_poison", lambda row: False)


def starts_overwrite(patch: pytest.MonkeyPatch) -> None:
    """Starting a run again changes it."""
    real = MemoryStore.start

    def start(self: MemoryStore, new: Any, owner: Any) -> Any:
        existing = self.get(new.run_id)
        if existing is not None:
            existing.tags = '{"again":"1"}'
            self.world.rows[existing.run_no] = existing.sealed()
        return real(self, new, owner)

    patch.setattr(MemoryStore, "start", start)
    # The runtime looks before it starts; without that look, the store alone decides.
    patch.setattr("holdfast._runtime.execution.admission._start", _start_without_a_look)


def _start_without_a_look(engine: Any, request: Any, owner: Any) -> Any:
    from holdfast._engine.journal.entries import Draft
    from holdfast._engine.values.digest import digest as digest_of
    from holdfast._stores.contract import NewRun

    draft = Draft(Kind.RUN_STARTED, engine.now_us(), body=b'{"input":null}')
    digest = digest_of(request.input)
    new = NewRun(request.run_id, request.flow, "1", digest, [draft])
    return engine.backend.start(new, owner)


def ends_are_touched(patch: pytest.MonkeyPatch) -> None:
    """A completed run changes when somebody looks for work."""
    real = MemoryStore.claimable

    def claimable(self: MemoryStore, *args: Any) -> Any:
        for row in self.world.rows.values():
            if row.status is Status.COMPLETED:
                row.updated_us += 1
                row.sealed()
        return real(self, *args)

    patch.setattr(MemoryStore, "claimable", claimable)


def rows_do_not_follow(patch: pytest.MonkeyPatch) -> None:
    """The row says another status than the journal."""
    real = rows.apply

    def apply(row: Any, write: Any, lease_until_us: int) -> Any:
        applied = real(row, write, lease_until_us)
        if applied.row.status is Status.HELD:
            applied.row.status = Status.FAILED
            applied.row.sealed()
        return applied

    patch.setattr(memory_store, "apply", apply)


def failures_count_as_done(patch: pytest.MonkeyPatch) -> None:
    """An effect that raised is recorded as done."""

    def effect_script(call: Any, record: Any, run_id: str) -> Any:
        if record is None:
            yield from effect_scripts._claim(call, run_id)
        yield requests.Call(call, "body")
        return (yield from effect_scripts._effect_returned(call, f"{call.spec.name}|never", run_id))

    monkey = "holdfast._engine.scripts.step_script.effect_script"
    patch.setattr(monkey, effect_script)


def stops_come_after_the_release(patch: pytest.MonkeyPatch) -> None:
    """A run that is to stop is given back first, and a claim reads the journal before the inbox."""
    patch.setattr(inbox, "carried_out", lambda execution, end: end)
    patch.setattr(inbox, "obey", lambda engine, lease: engine.backend.inbox(lease.row.run_no))


def the_clock_stands_still(patch: pytest.MonkeyPatch) -> None:
    """A machine whose time goes back stops the clock of the store until it has caught up."""

    def moved(self: StoreClock) -> int:
        self._at_us = max(self._at_us, self._reference_us())
        return self._at_us

    patch.setattr(StoreClock, "_moved", moved)


def signals_are_not_taken(patch: pytest.MonkeyPatch) -> None:
    """The entry that receives a signal leaves it in the inbox."""
    real = Recorder.append

    def append(self: Recorder, request: Any, *rest: Any) -> Any:
        request.changes = [it for it in request.changes if not isinstance(it, TakeMessage)]
        return real(self, request, *rest)

    patch.setattr(Recorder, "append", append)


def signals_are_overlooked(patch: pytest.MonkeyPatch) -> None:
    """Of several signals that came together, one is seen, and all count as heard."""
    real = RunInbox._saw

    def saw(self: RunInbox, found: Any) -> Any:
        new = real(self, found[:1])
        self.heard = max([self.heard, *(message.number for message in found)])
        return new

    patch.setattr(RunInbox, "_saw", saw)


def ids_are_delivered_again(patch: pytest.MonkeyPatch) -> None:
    """A signal with an id that was sent before is another one."""
    real = MemoryStore.post
    numbers = itertools.count()

    def post(self: MemoryStore, run_id: str, message: Any, seen: Any = None) -> Any:
        message.message_id += f"/{next(numbers)}"
        return real(self, run_id, message, seen)

    patch.setattr(MemoryStore, "post", post)


def views_are_compared_before_the_write(patch: pytest.MonkeyPatch) -> None:
    """What was seen is compared when an action reads, and not in the transaction that writes."""
    patch.setattr(claim_rules, "check_etag", lambda row, etag: None)
    patch.setattr(lineage, "check_etag", lambda row, etag: None)


def forks_are_compared_afterwards(patch: pytest.MonkeyPatch) -> None:
    """What was seen of the first run is compared once more when its fork is written."""
    real = forks.make

    def make(store: Any, planned: Any) -> Any:
        etag, planned.new.origin_etag = planned.new.origin_etag, None
        made = real(store, planned)
        claim_rules.check_etag(store.get(planned.origin.run_id), etag)
        return made

    patch.setattr(forks, "make", make)


def code_put_back_is_not_tried(patch: pytest.MonkeyPatch) -> None:
    """A run that is held as diverged waits for a person, whatever is deployed."""
    patch.setattr(recovery_pass.Untried, "look", lambda *_: [])


def the_same_code_tries_again(patch: pytest.MonkeyPatch) -> None:
    """A worker tries what is held as diverged with code that could not replay it."""
    patch.setattr(recovery_pass, "has_tried", lambda tried, code: False)


def code_that_fits_is_refused(patch: pytest.MonkeyPatch) -> None:
    """A run that other code could not replay is held, whatever code takes it up."""

    def check_tried(execution: Execution) -> None:
        if execution.history.tried:
            held = RunHeld(execution.run_id, "diverged", "some code does not fit", ())
            raise execution.stop(Unwind(held))

    patch.setattr(run_end, "check_tried", check_tried)


CASES = [
    (fence_off, ROUGH, {"I8"}),
    (epoch_stays, ROUGH, {"I8"}),
    (live_owners_are_ignored, ROUGH, {"I8"}),
    (no_intent, ROUGH, {"I4"}),
    (doubts_are_repeated, ROUGH, {"I7"}),
    (every_claim_proves_death, ROUGH, {"I7"}),
    (arguments_are_ignored, EDITED, {"I15"}),
    (keys_change, ROUGH, {"I6"}),
    (keys_are_shared, ROUGH, {"I6"}),
    (taken_keys_are_given, ROUGH, {"I7", "I3"}),
    (outcomes_are_forgotten, ROUGH, {"I1", "I2"}),
    (outcomes_are_not_looked_for, ROUGH, {"I3"}),
    (no_quarantine, ROUGH, {"I11"}),
    (starts_overwrite, ROUGH, {"I14", "I12"}),
    (ends_are_touched, ROUGH, {"I12"}),
    (rows_do_not_follow, ROUGH, {"I2"}),
    (the_clock_stands_still, ROUGH, {"I9"}),
    (failures_count_as_done, ROUGH, {"I5", "I15"}),
    (stops_come_after_the_release, STOPPED, {"I10"}),
    (signals_are_not_taken, SIGNALS, {"I13"}),
    (signals_are_overlooked, SIGNALS, {"I10"}),
    (ids_are_delivered_again, SIGNALS, {"I13"}),
    (views_are_compared_before_the_write, STALE_VIEWS, {"I22"}),
    (forks_are_compared_afterwards, STALE_VIEWS, {"I22"}),
    (code_put_back_is_not_tried, DEPLOYS, {"I15"}),
    (the_same_code_tries_again, DEPLOYS, {"I15"}),
    (code_that_fits_is_refused, DEPLOYS, {"I15"}),
]


@pytest.mark.parametrize(
    ("plant", "faults", "broken"), CASES, ids=[case[0].__name__ for case in CASES]
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, faults: Faults, broken: Any
):
    plant(monkeypatch)
    found: list[str] = []
    for seed in range(SEEDS):
        violation = simulate(seed, faults=faults).violation
        if isinstance(violation, Violation):
            found.append(str(violation))
            if violation.invariant in broken:
                return
    pytest.fail(f"{plant.__doc__} and nobody noticed; found: {found[:5]}")


@pytest.mark.parametrize(
    "faults",
    [ROUGH, STOPPED, SIGNALS, STALE_VIEWS, DEPLOYS],
    ids=["rough", "stopped", "signals", "views", "deploys"],
)
def test_without_a_planted_bug_nothing_is_found(faults: Faults):
    for seed in range(15 if faults in (SIGNALS, STALE_VIEWS) else 40):
        outcome = simulate(seed, faults=faults)
        assert outcome.violation is None, str(outcome)
