"""Workers of the simulation, and the third driver: scripts are performed with no thread at all.

A worker is a process: its own handle on the store and its own engine. What it does with a run is a
generator (`Life`) that yields at every place where time may pass: before and after each write, and
around each call into the world. The scheduler decides who goes on; a worker that is never asked
again has stalled, and one whose generator is dropped has died.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any, cast

from holdfast._engine.journal.rows import KeyState, Lease, Refused
from holdfast._engine.journal.step_keys import Scope
from holdfast._engine.scripts.requests import (
    Append,
    Await,
    Call,
    Chance,
    CopyResult,
    Now,
    Script,
    Sleep,
    StepCall,
    Wrote,
)
from holdfast._engine.scripts.step_script import step_script
from holdfast._engine.scripts.stops import Unwind
from holdfast._engine.scripts.waits import wait_script
from holdfast._stores.contract import Store, Wanted
from holdfast.errors import (
    Corrupt,
    HoldfastError,
    LeaseLost,
    RunCancelled,
    RunHeld,
    StepFailed,
)
from holdfast.testing.internals import (
    Code,
    Committer,
    Engine,
    Execution,
    Frame,
    Heartbeat,
    InboxPoller,
    Ticket,
    Untried,
    admission,
    calling_line,
    current,
    finishing,
    here,
    inbox,
    is_stale,
    look,
    loop_over,
    payload_reader,
    place,
    run_end,
    settle_down,
)
from tests.simulation.laws import Lawful, Laws, Violation
from tests.simulation.outside import Moves, Outside, is_of, is_of_another
from tests.simulation.programs import Act, Branches, Hear, Op, step_of

SIGNAL = "go"
"""What runs wait for."""
FLOW = "simulated"


class _Deployed:
    """What a worker has of a flow, for who looks which runs its code has not tried."""

    runs_versions = ("1",)

    def __init__(self, code: str) -> None:
        self._code = code

    def code(self) -> str:
        """Return its version and fingerprint."""
        return self._code


class _QuietCommitter(Committer):
    """Commits when somebody waits for a write or flushes; has no thread of its own."""

    def submit_background(self, ticket: Ticket) -> None:
        """Queue a write that nobody leads; it goes with the next one."""
        self.submit_lazily(ticket)


class _QuietHeartbeat(Heartbeat):
    """Beats when the scheduler says so; has no thread."""

    def ensure(self) -> None:
        """There is no thread to start."""


class _QuietInboxPoller(InboxPoller):
    """Inboxes are looked after when the scheduler says so, and not by a thread."""

    def ensure(self) -> None:
        """Start nothing."""


class Worker:
    """A process that executes runs, one at a time."""

    def __init__(self, name: str, kept: Store, laws: Laws, outside: Outside) -> None:
        self.name = name
        self.kept = Lawful(kept, laws)
        self.laws = laws
        self.outside = outside
        self.engine = Engine(self.kept.as_store())
        self.engine.committer = _QuietCommitter(self.kept.as_store())
        self.engine.heartbeat = _QuietHeartbeat(self.engine, every_s=0)
        self.engine.inbox_poller = _QuietInboxPoller(self.engine)
        self.owner = self.engine.owner()
        self.kept.owner = self.owner
        self.life: Life | None = None
        self.stalled = False
        self.code = ""
        """Version and fingerprint of its flows; empty where nobody deploys anything."""

    def take_up(self, run_id: str, ops: Sequence[Op], rng: random.Random) -> str:
        """Claim a run that is free; the life begins with the claim committed."""
        claimed = self.kept.claim(run_id, self.owner, self.engine.now_us())
        if not isinstance(claimed, Lease):
            return "busy"
        self.life = Life(self, claimed, ops, rng)
        return "claimed"

    def try_again(self, program: Callable[[str], Sequence[Op]], rng: random.Random) -> str:
        """Take up a run that is held as diverged, if this code has not tried it: as workers do."""
        flows = cast("Any", {FLOW: _Deployed(self.code)})
        for tried, again in Untried(self.engine).look(flows, None):
            wanted = Wanted(
                owner=self.owner,
                limit=1,
                at_us=self.engine.now_us(),
                flows={FLOW: _Deployed.runs_versions},
                queues=[tried.queue],
                again=again,
            )
            for lease in self.kept.take(wanted):
                run_id = lease.row.run_id
                self.laws.tries_again(run_id, self.code)
                self.life = Life(self, lease, program(run_id), rng)
                return f"{run_id}: {self.code} tries it again"
        return "finds nothing to try again"

    def admit(self, request: admission.RunRequest, ops: Sequence[Op], rng: random.Random) -> str:
        """Do what `flow.run` does: start the run, or find it and take it up."""
        try:
            admitted = admission.admit(self.engine, request)
        except Corrupt as damage:
            raise Violation("I16", f"nobody damaged the store, and yet: {damage}") from damage
        except HoldfastError as error:
            return type(error).__name__
        if not isinstance(admitted, Execution):
            return "ended before"
        self.life = Life(self, admitted.lease, ops, rng, admitted)
        return "admitted"

    def go_on(self) -> str:
        """Make the next move of the life at work here."""
        assert self.life is not None
        try:
            return next(self.life.moves)
        except StopIteration as stop:
            self.life = None
            return f"came to an end: {stop.value}"

    def hear(self) -> None:
        """Do what the poller of inboxes does."""
        self.engine.inbox_poller.look()

    def beat(self) -> None:
        """Do what the heartbeat does."""
        self.engine.heartbeat.beat()
        self.engine.committer.flush()

    def die(self) -> None:
        """Be gone at once: no farewell, and the kernel lock is released."""
        for execution in self.engine.executing():
            self.engine.leave(execution)
        if self.life is not None:
            self.life.moves.close()
            self.life = None
        self.laws.dead.add(self.owner)
        self.outside.died(self.owner, self.laws.now_us())
        self.engine.closed = True
        self.kept.inner.close()


class Life:
    """A worker's work on one run, from the claim on."""

    def __init__(
        self,
        worker: Worker,
        lease: Lease,
        ops: Sequence[Op],
        rng: random.Random,
        execution: Execution | None = None,
    ) -> None:
        self.laws = worker.laws
        self.owner = worker.owner
        self.run_id = lease.row.run_id
        self.until_us = 0
        """While it sleeps: when it wakes."""
        self.waits = False
        """Whether another run has the business key that this one needs."""
        self._worker = worker
        self._lease = lease
        self._ops = ops
        self._rng = rng
        self._given = execution
        self.moves = self._live()

    @property
    def execution(self) -> Execution:
        """The run at work."""
        assert self._given is not None
        return self._given

    def _live(self) -> Moves:
        yield "has it"
        engine = self._worker.engine
        if self._given is None:
            try:
                self._given = admission.execution_of(engine, self._lease, awaits=False)
            except (LeaseLost, RunCancelled, RunHeld) as stopped:
                return type(stopped).__name__
            self._given.waits.unloads = True
            self._given.code = Code(self._worker.code, is_chosen=False)
        execution = self._given
        frame = Frame(execution, execution.root, here(awaits=False), awaits=False)
        try:
            run_end.check_tried(execution)
            value = yield from self._all(self._ops, frame)
            end = run_end.returned(execution, value)
        except (Unwind, Exception) as error:
            if isinstance(error, AssertionError):
                raise
            end = run_end.raised(execution, error)
        yield "is about to end"
        try:
            end = inbox.carried_out(execution, end)
            if end.drafts:
                ticket = finishing.end_write(execution, end, None)
                engine.committer.wait(ticket)
                execution.recorder.settled(ticket)
        except (Unwind, HoldfastError) as error:
            if not execution.fenced:
                engine.abandon(execution.lease)
            return f"could not write its end: {error}"
        finally:
            engine.leave(execution)
        if end.asked:
            yield "has given it back"
            finishing.take_in_rest(execution, end)
        return type(end.error).__name__ if end.error is not None else "completed"

    # -- the flow ------------------------------------------------------------------------------

    def _all(self, ops: Sequence[Op], frame: Frame) -> Moves:
        values: list[str] = []
        for op in ops:
            before = values[-1] if values else ""
            if isinstance(op, Act):
                values.append((yield from self._act(op, frame, before)))
            elif isinstance(op, Branches):
                values += yield from self._branches(op, frame)
            elif isinstance(op, Hear):
                values.append((yield from self._hear(frame)))
            else:
                values += yield from self._loop(op.turns, op.acts, frame)
        return values

    def _act(self, act: Act, frame: Frame, before: str) -> Moves:
        step = step_of(act)
        prepared = step._prepared(
            frame, None, (), {"number": act.number, "before": _of(act, before)}
        )  # pyright: ignore[reportPrivateUsage]
        call = prepared.call
        try:
            history, decode = self.execution.history, self.execution.decode
            script = step_script(call, history, decode, prepared.found)
            value = yield from self._perform(call, script, frame)
        except StepFailed:
            if act.handled:
                return f"{call.key} failed"
            raise
        except HoldfastError as error:
            return f"{call.key}: {type(error).__name__}"
        # What a fork borrows is matched by the step's key alone.
        borrowed = self.execution.lease.row.origin is not None and is_of_another(
            value, call, self.run_id
        )
        self.laws.took(self.run_id, call, borrowed or is_of(value, call), value)
        return str(value)

    def _hear(self, frame: Frame) -> Moves:
        call = place(frame, f"wait:{SIGNAL}")
        history, decode = self.execution.history, self.execution.decode
        script = wait_script(call, history, SIGNAL, None, payload_reader(None), decode)
        value = yield from self._perform(call, script, frame)
        return str(value)

    def _branches(self, op: Branches, frame: Frame) -> Moves:
        key, _ = frame.scope.take("gather")
        works: list[Moves] = []
        for number, acts in enumerate(op.branches):
            inner = Frame(self.execution, Scope(f"{key}[{number}]"), frame.owner, awaits=False)
            works.append(self._all(acts, inner))
        found: dict[int, Any] = {}
        errors: dict[int, BaseException] = {}
        left = list(range(len(works)))
        while left:
            number = self._rng.choice(left)
            try:
                yield next(works[number])
            except StopIteration as stop:
                found[number] = stop.value
                left.remove(number)
            except (Unwind, HoldfastError) as error:
                errors[number] = error
                left.remove(number)
        if errors:
            # A stop first, then the first failure in the order of the branches.
            raise min(errors.items(), key=lambda it: (not isinstance(it[1], Unwind), it[0]))[1]
        return [value for number in sorted(found) for value in found[number]]

    def _loop(self, turns: int, acts: Sequence[Op], frame: Frame) -> Moves:
        token = current.set(frame)
        try:
            first: dict[str, Any] = {"turn": 0, "values": []}
            loop = loop_over(first, max_turns=turns + 1)
        finally:
            current.reset(token)
        for state in loop:
            state["turn"] += 1
            state["values"] += yield from self._all(acts, frame)
            if state["turn"] == turns:
                return state["values"]
            yield "ends a turn"
        raise AssertionError

    # -- the third driver ----------------------------------------------------------------------

    def _perform(self, call: StepCall, script: Script, frame: Frame) -> Moves:
        execution = self.execution
        answer: Any = None
        try:
            while True:
                request = script.send(answer)
                if isinstance(request, Now):
                    answer = self.laws.now_us()
                elif isinstance(request, Chance):
                    answer = self._rng.random()
                elif isinstance(request, Append):
                    answer = yield from self._append(request)
                elif isinstance(request, Call):
                    execution.recorder.open_calls[call.key] = call
                    call.attempt.begun = True
                    answer = yield from self._worker.outside.perform(self, call, request.what)
                elif isinstance(request, CopyResult):
                    answer = self._copied(request.key)
                elif isinstance(request, Sleep):
                    yield from self._sleep(request.until_us)
                    answer = None
                elif isinstance(request, Await):
                    answer = yield from self._await(request, frame)
                else:
                    execution.check()
                    self.waits = True
                    yield "waits for a key"
                    self.waits = False
                    execution.check()
                    answer = None
        except StopIteration as stop:
            return stop.value
        except Unwind as unwind:
            raise execution.stop(unwind) from None

    def _append(self, request: Append) -> Moves:
        yield "is about to write"
        execution = self.execution
        if not request.waits:
            _, copy = execution.recorder.append(request, execution.recorder.in_background)
            return Wrote(copy)
        ticket, copy = execution.recorder.append(request, None)
        self._worker.engine.committer.wait(ticket)
        yield "has written"
        outcome = execution.recorder.settled(ticket)
        if isinstance(outcome, Refused):
            execution.recorder.withdraw(ticket.write, request.call)
            return Wrote(refused=outcome)
        return Wrote(copy)

    def _await(self, request: Await, frame: Frame) -> Moves:
        """Wait for a message; a run that a worker has claimed is unloaded meanwhile."""
        execution = self.execution
        with contextlib.ExitStack() as stack:
            token = current.set(frame)
            try:
                wait = stack.enter_context(execution.waits.wait(request, calling_line()))
            finally:
                current.reset(token)
            while True:
                now_us = self.laws.now_us()
                if is_stale(execution, request, now_us):
                    execution.inbox.refresh()
                over, message, _ = look(execution, request, now_us, wait)
                if over:
                    return message
                yield "waits for a signal"
                settle_down(execution, wait)
                # What it says in the background goes by itself in a real process.
                self._worker.engine.committer.flush()

    def _sleep(self, until_us: int) -> Moves:
        self.until_us = until_us
        while self.laws.now_us() < until_us:
            yield "sleeps"
            self.execution.check()
        self.until_us = 0

    def _copied(self, key: KeyState) -> Any:
        return self._worker.engine.result_of(key)


def _of(act: Act, before: str) -> str:
    """A shared effect has the same arguments in all runs, or its key could not be shared."""
    return "" if act.shared else before
