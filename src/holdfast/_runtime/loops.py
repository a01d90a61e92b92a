"""Loops of an agent: `turns` saves the state after each turn, so that a resume starts at the last.

Each turn gets a decoded copy of the state, and its own scope: keys inside are `turns[i]/name`. The
object that was yielded is saved when the loop asks for the next turn. Leaving the loop by break,
return or an exception saves nothing: that turn replays from its start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, TypeVar, cast

import msgspec

from holdfast._core.entries import Draft, Kind
from holdfast._core.keys import Scope
from holdfast._core.known import KNOWN
from holdfast._runtime.frames import Frame, check_owner, in_flow
from holdfast._runtime.recorded import open_scope
from holdfast._runtime.skipping import Loop
from holdfast.errors import TurnLimit, UsageError

S = TypeVar("S")


class Turns(Generic[S]):
    """A loop over turns; `loop.state = new` replaces what is saved."""

    def __init__(self, state: S, limit: int, *, awaits: bool) -> None:
        name = "aio.turns" if awaits else "turns"
        if not isinstance(limit, int) or limit < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"{name}(…, limit={limit!r}): a positive number of turns")
        frame = in_flow(name)
        if frame.awaits != awaits:
            other = "async for … in holdfast.aio.turns(…)" if frame.awaits else "for … in turns(…)"
            raise UsageError(f"{name} does not fit this flow; write `{other}`")
        check_owner(frame, name)
        frame.execution.check()
        KNOWN.learn(type(state))
        self._frame = frame
        self._limit = limit
        self._key = open_scope(frame, "turns")
        self._begun = False
        self.state = state

    def __iter__(self) -> Iterator[S]:
        if self._begun:
            raise UsageError("one loop object is looped over once; call turns(…) again")
        self._begun = True
        return _Turning(self, self._frame, self._key, self._limit)

    def __aiter__(self) -> AsyncIterator[S]:
        if self._begun:
            raise UsageError("one loop object is looped over once; call aio.turns(…) again")
        self._begun = True
        return _AsyncTurning(_Turning(self, self._frame, self._key, self._limit))


class _Turning(Iterator[S]):
    """The iteration itself. When it is dropped (break, return, exception) its scope ends."""

    def __init__(self, turns: Turns[S], frame: Frame, key: str, limit: int) -> None:
        self._turns = turns
        self._frame = frame
        self._key = key
        self._limit = limit
        self._outer: Scope = frame.scope
        self._scope: Scope | None = None
        self._turn = 0
        self._digest = b""
        self._loop: Loop | None = None

    def __next__(self) -> S:
        try:
            self._frame.execution.check()
            state = self._enter() if self._scope is None else self._save()
            if self._turn >= self._limit:
                raise TurnLimit(self._key, self._limit)
        except BaseException:
            self._leave()
            raise
        self._scope = Scope(f"{self._key}[{self._turn}]")
        self._frame.scope = self._scope
        self._turns.state = state
        return state

    def __del__(self) -> None:
        self._leave()

    def _enter(self) -> S:
        """Begin at the last snapshot, or with a copy of the first state."""
        execution = self._frame.execution
        saved = execution.history.saved.get(self._key)
        with execution.lock:
            self._loop = execution.enter_loop(self._key)
            values = execution.values
            if saved is None:
                state: Any = values.copy(self._turns.state, f"{self._key}: state")[1]
            else:
                data = saved.data()
                self._turn = int(msgspec.json.decode(data["turn"]))
                state = values.decode(bytes(data["state"]))
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
            execution.write(
                [draft], changes=execution.skipping.with_snapshot(self._loop), lazily=True
            )
        return cast("S", state)

    def _leave(self) -> None:
        if self._loop is not None:
            self._frame.execution.leave_loop(self._loop)
            self._loop = None
            self._frame.scope = self._outer


class _AsyncTurning(AsyncIterator[S]):
    """The same, awaited."""

    def __init__(self, turning: _Turning[S]) -> None:
        self._turning = turning

    async def __anext__(self) -> S:
        return next(self._turning)


def turns(state: S, *, limit: int = 1000) -> Turns[S]:
    """Loop over the turns of an agent; see the module. At the limit it raises TurnLimit."""
    return Turns(state, limit, awaits=False)


def aio_turns(state: S, *, limit: int = 1000) -> Turns[S]:
    """Loop over the turns of an agent in an async flow: `async for chat in aio.turns(…)`."""
    return Turns(state, limit, awaits=True)
