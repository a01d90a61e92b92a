"""Agent loops: `turns` saves a snapshot of the state after each turn, so a resume starts at the last turn.

Snapshots bound the history that a resume reads, so no loop needs continue-as-new. Each turn gets a
decoded copy of the state and its own scope: keys inside are `turns[i]/name`. The yielded object is
saved when the loop asks for the next turn. A loop that is left by break, return or an exception saves
nothing: that turn replays from its start.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from types import FrameType
from typing import Any, Generic, TypeVar, cast

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.step_keys import Scope, check_name
from holdfast._engine.scripts.requests import Spec, StepCall
from holdfast._engine.scripts.step_script import diverged
from holdfast._engine.scripts.stops import Unwind
from holdfast._engine.values.class_registry import KNOWN
from holdfast._engine.values.node_writer import is_plain
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.fingerprints import LoopCode, loop_code
from holdfast._runtime.execution.frames import Frame, check_owner, in_flow
from holdfast._runtime.execution.operations import take_place
from holdfast._runtime.execution.recorder import Loop, is_in_branch
from holdfast.errors import TurnLimitReached, UsageError

S = TypeVar("S")


class Turns(Generic[S]):
    """A loop over turns; `loop.state = new` replaces what is saved."""

    def __init__(self, state: S, max_turns: int, name: str | None, *, awaits: bool) -> None:
        self._called = called = "aio.turns" if awaits else "turns"
        if not isinstance(max_turns, int) or max_turns < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"{called}(…, max_turns={max_turns!r}): a positive number of turns")
        self._awaits = awaits
        self._name = None if name is None else check_name("loop", name)
        self._limit = max_turns
        self._begun = False
        self.here()
        KNOWN.learn(type(state))
        self.state = state

    def __iter__(self) -> Iterator[S]:
        return self._begin()

    def __aiter__(self) -> AsyncIterator[S]:
        return _AsyncTurning(self._begin())

    def _begin(self) -> _Turning[S]:
        if self._begun:
            raise UsageError(f"one loop object is looped over once; call {self._called}(…) again")
        self._begun = True
        return _Turning(self, self.here(), self._limit)

    def place(self, caller: FrameType) -> tuple[Frame, str]:
        """Take the loop's place, and return it. With the first turn and not in `turns(…)`: the loop
        object may be made elsewhere, by a helper or long before, and here is where its loop is."""
        frame = self.here()
        return frame, _begun(frame, self.state, self._name, caller)

    def here(self) -> Frame:
        """Return the frame that this is called in, if it fits the loop."""
        frame = in_flow(self._called)
        if frame.awaits != self._awaits:
            other = "async for … in holdfast.aio.turns(…)" if frame.awaits else "for … in turns(…)"
            raise UsageError(f"{self._called} does not fit this flow; write `{other}`")
        check_owner(frame, self._called)
        frame.execution.check()
        return frame


def _begun(frame: Frame, state: object, name: str | None, caller: FrameType) -> str:
    """Take the place of a loop, and return its key. Its record tells the loop from others: by place,
    name and first state, and without a name by its code. A snapshot is for this loop and no other."""
    execution = frame.execution
    called = "turns" if name is None else f"turns:{name}"
    key, position = frame.scope.take(called)
    with execution.lock:
        digest = execution.values.digest(state, f"{key}: state")
    code = loop_code(caller, in_branch=is_in_branch(key)) if name is None else None
    body = b"{}" if code is None else b'{"code":%b}' % msgspec.json.encode(code)
    if not is_plain(state) and execution.history.match_quietly(key, position) is None:
        with execution.lock:  # Its class may change: then its digest alone says nothing any more.
            first = execution.values.encode(state, f"{key}: state")
        body = body[:-1] + (b"," if code is not None else b"") + b'"state":%b}' % first
    call = StepCall(Spec("turns"), key, position, digest, "", None)
    record = take_place(frame, call, body)
    if record is None or code is None or record.outcome is None:
        return key
    was = record.outcome.data().get("code")
    if was is not None:
        is_accepted = record.borrowed or key in execution.history.old
        _check_code(execution, key, msgspec.json.decode(was, type=LoopCode), code, is_accepted)
    return key


def _check_code(
    execution: Execution, key: str, was: LoopCode, now: LoopCode, is_accepted: bool
) -> None:
    """Stop the run if the recorded loop is another one than this; or, where somebody has accepted a
    change, if nothing says that it is this one."""
    edited = was.is_edited(now)
    if edited is not None and was.is_reached(now):
        return
    if edited is False and is_accepted:
        return
    run_id = execution.run_id
    found = (
        f"the journal has another loop as {key}, as far as its code tells; a loop that has a name= "
        "is known by that"
    )
    way_on = command("fork", run_id, f"{run_id}-2", "--before", key) if is_accepted else None
    raise execution.stop(Unwind(diverged(run_id, key, found, way_on)))


class _Turning(Iterator[S]):
    """The iteration itself. When it is dropped (break, return, exception) its scope ends."""

    def __init__(self, turns: Turns[S], frame: Frame, limit: int) -> None:
        self._turns = turns
        self._frame = frame
        self._key = ""
        self._limit = limit
        self._outer: Scope = frame.scope
        self._scope: Scope | None = None
        self._turn = 0
        self._digest = b""
        self._loop: Loop | None = None

    def __next__(self) -> S:
        return self.turn(None if self.is_under_way else _caller(2))

    def turn(self, caller: FrameType | None) -> S:
        """Begin the next turn; the first one receives the frame that asks for it."""
        try:
            self._frame.execution.check()
            state = self._save() if caller is None else self._enter(caller)
            if self._turn >= self._limit:
                raise TurnLimitReached(self._key, self._limit)
        except BaseException:
            self._leave()
            raise
        self._scope = Scope(f"{self._key}[{self._turn}]")
        self._frame.scope = self._scope
        self._turns.state = state
        return state

    @property
    def is_under_way(self) -> bool:
        """Whether it has had a turn."""
        return self._scope is not None

    def __del__(self) -> None:
        self._leave()

    def _enter(self, caller: FrameType) -> S:
        """Begin at the last snapshot, or with a copy of the first state."""
        if not self._key:
            self._frame, self._key = self._turns.place(caller)
            self._outer = self._frame.scope
        execution = self._frame.execution
        saved = execution.history.saved.get(self._key)
        with execution.lock:
            self._loop = execution.recorder.enter_loop(self._key)
            values = execution.values
            if saved is None:
                state: Any = values.copy(self._turns.state, f"{self._key}: state")[1]
            else:
                data = saved.data()
                self._turn = int(msgspec.json.decode(data["turn"]))
                state = execution.read(bytes(data["state"]), self._key)
            self._digest = values.digest(state)
        return cast("S", state)

    def _save(self) -> S:
        """Save the state that the turn left, and return the copy for the next one."""
        assert self._scope is not None
        assert self._loop is not None
        execution = self._frame.execution
        with execution.lock:
            node, state = execution.values.copy(self._turns.state, f"{self._key}: state")
            digest = execution.values.digest(state)
            if digest == self._digest and self._scope.position:
                raise UsageError(
                    f"turn {self._turn} of {self._key} called steps but left its state as it was; "
                    "was it rebound? Change the object that the loop gave, or set loop.state"
                )
            self._turn += 1
            self._digest = digest
            body = b'{"turn":%d,"state":%b}' % (self._turn, node)
            draft = Draft(Kind.STATE_SAVED, execution.engine.now_us(), self._key, body=body)
            execution.recorder.write(
                [draft], row=execution.recorder.snapshots.with_snapshot(self._loop), lazily=True
            )
        return cast("S", state)

    def _leave(self) -> None:
        if self._loop is not None:
            self._frame.execution.recorder.leave_loop(self._loop)
            self._loop = None
            self._frame.scope = self._outer


class _AsyncTurning(AsyncIterator[S]):
    """The same, awaited."""

    def __init__(self, turning: _Turning[S]) -> None:
        self._turning = turning

    async def __anext__(self) -> S:
        return self._turning.turn(None if self._turning.is_under_way else _caller(2))


def _caller(depth: int) -> FrameType:
    return sys._getframe(depth)  # pyright: ignore[reportPrivateUsage]


def turns(state: S, *, max_turns: int = 1000, name: str | None = None) -> Turns[S]:
    """Loop over the turns of an agent; see the module. At the limit it raises TurnLimitReached. A loop with
    a `name` keeps its identity whatever becomes of its code."""
    return Turns(state, max_turns, name, awaits=False)


def aio_turns(state: S, *, max_turns: int = 1000, name: str | None = None) -> Turns[S]:
    """Loop over the turns of an agent in an async flow: `async for chat in aio.turns(…)`."""
    return Turns(state, max_turns, name, awaits=True)
