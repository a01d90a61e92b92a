"""How a run comes to be executed here: started or found, claimed, loaded, folded.

admit ─► start ─┬─ made here ───────────────────────────────► Execution
                └─ exists: same flow and input?
                     ├─ completed ► its result   cancelled ► RunCancelled
                     ├─ failed ► next generation ┐
                     ├─ held ► RunHeld, or again ┤ one transaction
                     └─ claim ◄──────────────────┘ busy ► RunBusy
                          └─ what stops it is carried out ► RunHeld, RunCancelled
                               └─ load, verify, fold ───────► Execution
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from typing import Any

import msgspec

from holdfast import errors
from holdfast._engine.command_lines import another_id
from holdfast._engine.decisions import resume
from holdfast._engine.journal.entries import FORMAT, Draft, Entry, Kind
from holdfast._engine.journal.history import History, State
from holdfast._engine.journal.lifecycle import CLAIMABLE, ENDED, HeldReason, Status
from holdfast._engine.journal.rows import Lease, RunRow, Write
from holdfast._engine.values.chunks import Values
from holdfast._runtime import observer_registry
from holdfast._runtime.engine import Engine
from holdfast._runtime.execution import claim_entries, inbox
from holdfast._runtime.execution.execution import Code, Execution
from holdfast._runtime.execution.version_rules import Upgrade, has_tried
from holdfast._runtime.feature import installed
from holdfast._runtime.queues import Placing
from holdfast._stores import claim_rules
from holdfast._stores.contract import Committed, NewRun, Started

_encode = msgspec.json.encode


LOOKS = 5
"""How often a run is looked at again that others take, and bring to an end, before it is claimed."""


class RunRequest(msgspec.Struct):
    """A request to start a run."""

    run_id: str
    flow: str
    names: tuple[str, ...]
    """The flow's name and its aliases."""
    version: str
    input: dict[str, Any]
    defaults: Mapping[str, Any]
    fingerprint: Callable[[], str]
    code: Callable[[], str]
    """The fingerprint of a deploy of the flow; see `Execution.code`."""
    awaits: bool
    tags: dict[str, str] = {}
    placing: Placing = Placing()
    parent: str | None = None
    """The run that starts it, and the one at the top of the family."""
    root: str | None = None
    facts: dict[str, Any] = {}
    """Facts of features, recorded with the start of the run."""
    replays_ended: bool = False
    """A block executes its body even if the run has ended: its steps replay."""


class Ended(msgspec.Struct):
    """The run has completed before; this is its result."""

    result: Any


def admit(engine: Engine, request: RunRequest) -> Execution | Ended:
    """Start the run or take it up; raises what the caller of `run` gets to see."""
    with engine.admitting(request.run_id):
        return _admit(engine, request)


def _admit(engine: Engine, request: RunRequest) -> Execution | Ended:
    started = _start(engine, request, engine.owner())
    lease, row, looks = started.lease, started.row, LOOKS
    while lease is None:
        row = _same_run(engine, request, row)
        if row.status is Status.COMPLETED:
            return _completed(engine, request, row)
        if row.status is Status.CANCELLED:
            raise cancelled_error(engine, row)
        if row.status is Status.ROLLED_BACK:
            raise rolled_back_error(engine, row)
        looks -= 1
        try:
            lease = _taken_up(engine, row, request.code())
        except (errors.RunBusy, errors.StaleView):
            now = engine.backend.get(request.run_id)
            if now is None or now.status in CLAIMABLE or looks == 0:
                raise
            row = now  # Another process took it meanwhile, and it goes no further: report that.
    execution = execution_of(
        engine, lease, awaits=request.awaits, version=request.version, entries=started.entries
    )
    execution.code = Code(request.code())
    return execution


def submit(engine: Engine, request: RunRequest) -> RunRow:
    """Create the run without executing it, or find it."""
    started = _start(engine, request, None)
    assert started.lease is None
    return _same_run(engine, request, started.row)


def claim(engine: Engine, run_id: str) -> Lease:
    """Take a run for execution in this process."""
    at_us = engine.now_us()
    claimed = engine.backend.claim(run_id, engine.owner(), at_us)
    if isinstance(claimed, Lease):
        return claimed
    if claimed.row.status is Status.HELD:
        claim_entries.quarantined(engine, [claimed.row], at_us)
        raise held_error(engine, claimed.row)
    raise errors.RunBusy(run_id, claimed.owner)


def execution_of(
    engine: Engine,
    lease: Lease,
    *,
    awaits: bool,
    version: str | None = None,
    entries: list[Entry] | None = None,
) -> Execution:
    """Load, verify and fold a claimed run, which code of this version executes. Damage holds it as
    corrupt; after any other error it is given back. `entries` are those of one just made."""
    try:
        try:
            # Messages to the run come before its journal, however long that is to read.
            messages = inbox.obey(engine, lease) if entries is None else None
            row = lease.row
            history = engine.load(row) if entries is None else _folded(row, entries)
            execution = Execution(engine, lease, history, engine.values(row), awaits=awaits)
            for begin in installed.begin:
                begin(execution, entries is not None)
            if version is not None and version != row.version:
                execution.recorder.upgrade = Upgrade(row.flow, version)
            if messages is not None:
                inbox.cancel_if_requested(engine, lease, history)
                execution.inbox.begin(messages)
        except errors.Corrupt as damage:
            hold_as_corrupt(engine, lease, damage)
            raise
        engine.enter(execution)
        observer_registry.run_claimed(
            engine.backend, lease.row, execution.history, resumed=row.epoch > 1
        )
    except BaseException:
        if lease.row.owner is not None:  # Else it is given back: held or cancelled.
            engine.abandon(lease)
        raise
    return execution


def cancelled_error(engine: Engine, row: RunRow) -> errors.RunCancelled:
    """Return the error that tells who cancelled a run."""
    entry = engine.backend.entry(row.run_no, row.last_seq)
    told: dict[str, Any] = {} if entry is None else msgspec.json.decode(entry.body)
    return errors.RunCancelled(row.run_id, told.get("actor", ""), told.get("reason", ""))


def _folded(row: RunRow, entries: list[Entry]) -> History:
    history = History.fold(row.run_id, entries)
    history.generation = row.generation
    return history


def hold_as_corrupt(engine: Engine, lease: Lease, damage: errors.Corrupt) -> None:
    """Hold a damaged run; if even that cannot be written, the error says enough."""
    body = {
        "reason": HeldReason.CORRUPT.value,
        "detail": str(damage),
        "step": "",
        "actions": ["holdfast store verify", "holdfast store restore BACKUP"],
    }
    draft = Draft(Kind.RUN_HELD, engine.now_us(), body=_encode(body))
    write = Write(lease, [draft], row={"held_reason": HeldReason.CORRUPT.value})
    if isinstance(engine.backend.append([write])[0], Committed):
        engine.wrote(write)


def _start(engine: Engine, request: RunRequest, owner: int | None) -> Started:
    existing = engine.backend.get(request.run_id)
    if existing is not None:
        return Started(existing, created=False)
    new = new_run(engine, request)
    if owner is None and request.placing.delay_s is not None:
        new.wake_us = engine.now_us() + int(request.placing.delay_s * 1_000_000)
    return engine.committer.start(new, owner)


def new_run(engine: Engine, request: RunRequest) -> NewRun:
    """Return what a store needs to start the run."""
    values = Values(_no_chunks)  # A new run has no chunks yet.
    values.redact = engine.redact
    with _naming(request):
        node = values.encode(request.input, "input")
    told: dict[str, Any] = {"fingerprint": request.fingerprint(), "format": FORMAT}
    if request.placing.deadline_us is not None:
        told["deadline_us"] = engine.now_us() + request.placing.deadline_us
    told |= request.facts
    for record_start in installed.record_start:
        record_start(engine, told)
    if request.replays_ended:
        told["block"] = True
    facts = _encode(told)
    body = b'{"input":' + node + b"," + facts[1:]
    return NewRun(
        run_id=request.run_id,
        flow=request.flow,
        version=request.version,
        input_digest=values.digest(request.input),
        drafts=[Draft(Kind.RUN_STARTED, engine.now_us(), body=body)],
        chunks=values.take_fresh(),
        tags=_encode(request.tags).decode(),
        queue=request.placing.queue,
        priority=request.placing.priority,
        limit_key=request.placing.limit_key,
        parent=request.parent,
        root=request.root,
    )


@contextlib.contextmanager
def _naming(request: RunRequest) -> Generator[None]:
    """Let a refused input say of which run and flow it is."""
    try:
        yield
    except errors.NotSerializable as refused:
        whose = f"run {request.run_id!r} of {request.flow}"
        raise errors.NotSerializable(refused.path, refused.why, whose=whose) from None


def _no_chunks(_number: int) -> dict[int, bytes]:
    return {}


def _same_run(engine: Engine, request: RunRequest, row: RunRow) -> RunRow:
    """Check that the id belongs to this flow with this input."""
    if row.deleted_us is not None:
        raise errors.RunDeleted(row.run_id)
    if row.flow not in request.names:
        why = f"as a run of {row.flow!r}, not {request.flow!r}"
        raise errors.RunConflict(row.run_id, why, another_id(row.run_id))
    values = engine.values(row)
    with _naming(request):
        if values.digest(request.input, "input") == row.input_digest:
            return row
    entry = engine.backend.entry(row.run_no, 1)
    if entry is None:
        raise errors.Corrupt("entry 1", run_id=row.run_id, why="it is missing")
    try:
        recorded: dict[str, Any] = values.decode(bytes(entry.data()["input"]))
    except errors.ClassChanged as changed:
        # Not to be compared. Who takes the run up holds it; one that has ended stays as it is.
        if row.status in ENDED:
            raise changed.in_run(row.run_id) from None
        return row
    theirs = {**request.defaults, **recorded}
    ours = {**theirs, **request.input} if theirs.keys() <= request.input.keys() else request.input
    if values.digest(theirs) == values.digest(ours):
        return row
    names = [
        name
        for name in dict.fromkeys([*theirs, *ours])
        if name not in theirs
        or name not in ours
        or values.digest(theirs[name]) != values.digest(ours[name])
    ]
    why = f"with another input (it differs in: {', '.join(names)})"
    raise errors.RunConflict(row.run_id, why, another_id(row.run_id))


def _completed(engine: Engine, request: RunRequest, row: RunRow) -> Execution | Ended:
    if request.replays_ended:
        history = engine.load(row)
        replayed = Execution(engine, Lease(row), history, engine.values(row), awaits=request.awaits)
        replayed.ended = history.closed = True
        return replayed
    entry = engine.backend.entry(row.run_no, row.last_seq)
    if entry is None or entry.kind is not Kind.RUN_COMPLETED:
        raise errors.Corrupt(f"entry {row.last_seq}", run_id=row.run_id, why="not run_completed")
    return Ended(engine.value(row, bytes(entry.data()["result"])))


def _taken_up(engine: Engine, row: RunRow, code: str) -> Lease:
    """Claim a run; one that failed or is held is freed in the same transaction, so that no worker
    gets it in between."""
    if row.status not in (Status.FAILED, Status.HELD):
        return claim(engine, row.run_id)
    return Lease(_freed(engine, row, code, owner=engine.owner()))


def _freed(engine: Engine, row: RunRow, code: str = "", owner: int | None = None) -> RunRow:
    """Make a failed or held run claimable where `run` may do so, or raise why it may not. With an
    owner, it has the run then. Returns the row as it is now."""
    # Everything is read: what the next generation leaves behind may stand before a snapshot.
    history = engine.load(row, whole=True)
    at_us = engine.now_us()
    if row.status is Status.FAILED:
        drafts, changes = resume.resume_drafts(history, actor="flow.run", at_us=at_us)
    elif _worth_another_try(history, row):
        told = {"why": "run again", "actor": "flow.run"}
        if history.tried and code and not has_tried(history.tried, code):
            told |= {"why": "other_code", "code": code}
        drafts = [Draft(Kind.RUN_RELEASED, at_us, body=_encode(told))]
        changes = {"waiting_on": None}
    else:
        raise held_error(engine, row, history)
    write = Write(Lease(row, acting=True), drafts, row=changes)
    if owner is not None:
        write = claim_rules.freed_and_claimed(write, owner, at_us)
    if not isinstance(engine.backend.append([write])[0], Committed):
        raise errors.StaleView(row.run_id)
    return write.lease.row


def resumed(engine: Engine, row: RunRow) -> RunRow:
    """Take up a failed run again, for a parent that calls it anew; returns its row."""
    if row.status in (Status.FAILED, Status.HELD):
        _freed(engine, row)
    return engine.backend.get(row.run_id) or row


def _worth_another_try(history: History, row: RunRow) -> bool:
    """A held run is tried again where replay decides anew and nothing can be repeated."""
    anew = (HeldReason.DIVERGED, HeldReason.BUDGET, HeldReason.DRIFT)
    if row.held_reason in anew or row.waiting_on is not None:
        return True
    if row.held_reason != HeldReason.IN_DOUBT:
        return False
    doubts = history.open_doubts()
    return not doubts or all(
        record.state is State.IN_DOUBT
        and record.intent is not None
        and b'"on_doubt":"hold"' not in record.intent.body
        and (record.doubt is None or b'"why":"value_lost"' not in record.doubt.body)
        for record in doubts
    )


def rolled_back_error(engine: Engine, row: RunRow) -> errors.RunRolledBack:
    """Return the error that tells that a run was rolled back, and why."""
    entry = engine.backend.entry(row.run_no, row.last_seq)
    reason = "" if entry is None else msgspec.json.decode(entry.body).get("reason", "")
    return errors.RunRolledBack(row.run_id, str(reason))


def held_error(engine: Engine, row: RunRow, history: History | None = None) -> errors.RunHeld:
    """Return the error that tells why a run is held."""
    history = history or engine.load(row)
    if history.held is None:
        return errors.RunHeld(row.run_id, row.held_reason or "held", "no reason is recorded")
    told = msgspec.json.decode(history.held.body)
    return errors.RunHeld(
        row.run_id,
        told["reason"],
        told.get("detail", ""),
        tuple(told.get("actions", ())),
        step=told.get("step", ""),
    )


def outcome(engine: Engine, row: RunRow) -> Any:
    """Return the result of a run that goes no further, or raise why it has none."""
    if row.status is Status.HELD:
        raise held_error(engine, row)
    if row.status is Status.CANCELLED:
        raise cancelled_error(engine, row)
    if row.status is Status.ROLLED_BACK:
        raise rolled_back_error(engine, row)
    entry = engine.backend.entry(row.run_no, row.last_seq)
    if entry is None:
        raise errors.Corrupt(f"entry {row.last_seq}", run_id=row.run_id, why="it is missing")
    if entry.kind is Kind.RUN_FAILED:
        told = msgspec.json.decode(entry.body)["error"]
        raise errors.RunFailed(row.run_id, told["type"], told["message"])
    return engine.value(row, bytes(entry.data()["result"]))
