"""`depends_on`: record a fingerprint of something outside, and compare it when the run goes on later.

    prices = depends_on("prices", Path("prices.csv"), on_change="redo")

The first call records a fingerprint of what the function returns. After the run goes on in another
process, the function is called again when the flow passes this place; the flow gets the recorded
fingerprint both times. If the fingerprints differ, `on_change` decides.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, cast

import msgspec

from holdfast._engine.decisions import redo
from holdfast._engine.journal.drift_record import Change
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.history import Record, State
from holdfast._engine.journal.step_keys import check_label, quoted
from holdfast._engine.journal.step_record import facts
from holdfast._engine.scripts.attempts import begin, error_facts, give_up, marked
from holdfast._engine.scripts.requests import Append, Call, Called, Note, Script, Spec, StepCall
from holdfast._engine.scripts.step_script import find, replayed
from holdfast._engine.scripts.stops import Unwind
from holdfast._features.drift import runtime as drift
from holdfast._features.drift.model import DEFAULTS, AfterGap, Policy, checked_policy
from holdfast._runtime.execution.attempt import Body
from holdfast._runtime.execution.blocking_driver import drive
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.fingerprints import File, fingerprint
from holdfast._runtime.execution.frames import Frame, check_owner, in_flow
from holdfast.errors import Drifted, UsageError

Fact = Callable[[], Any] | os.PathLike[str]
UNREADABLE_MAX_CHARS = 200


def depends_on(name: str, fn: Fact, *, on_change: Policy | None = None) -> str:
    """Record a fingerprint of what `fn` returns, and compare it when the run goes on after a gap.

    `fn` is a function of no arguments, or a `Path`: the contents of that file. `on_change` is "hold" (the run
    is held), "keep", "redo" (what was recorded behind it is done again) or "fail" (`Drifted`).
    """
    frame = in_flow("holdfast.versioning.depends_on(…)")
    if frame.awaits:
        raise UsageError("in an async flow write `await holdfast.aio.depends_on(…)`")
    watched = _Watched(frame, name, fn, on_change)
    if watched.body.awaits:
        raise UsageError(f"depends_on({name!r}): the function is async, and this flow is not")
    if watched.is_recorded:
        if not watched.is_compared:
            return watched.recorded()
        return watched.compared(drive(_look(watched.call), watched.execution, watched.body))
    return str(drive(watched.script(), watched.execution, watched.body))


async def aio_depends_on(name: str, fn: Fact, *, on_change: Policy | None = None) -> str:
    """Record a fingerprint of what `fn` returns (or awaits), and compare it after a gap."""
    from holdfast._runtime.execution.awaiting_driver import drive_async

    frame = in_flow("holdfast.aio.depends_on(…)")
    if not frame.awaits:
        raise UsageError("this flow is not async: write `holdfast.versioning.depends_on(…)`")
    watched = _Watched(frame, name, fn, on_change)
    if watched.is_recorded:
        if not watched.is_compared:
            return watched.recorded()
        look = drive_async(_look(watched.call), watched.execution, watched.body)
        return watched.compared(await look)
    return str(await drive_async(watched.script(), watched.execution, watched.body))


def _look(call: StepCall) -> Script:
    """Return the fingerprint of the fact, or the error of looking at it."""
    called: Called = yield Call(call, "look")
    if called.error is None:
        return called.value
    error = error_facts(called.error)
    return f"unreadable ({error['type']}: {error['message']})"[:UNREADABLE_MAX_CHARS]


class _Watched:
    """One call of `depends_on`."""

    def __init__(self, frame: Frame, name: str, fn: Fact, on_change: object) -> None:
        check_owner(frame, "depends_on")
        self.execution: Execution = frame.execution
        self.execution.check()
        self.name = check_label("the name of a fact", name)
        self.policy = self._policy(on_change)
        key, position = frame.scope.take(f"watch:{quoted(name)}")
        self.call = StepCall(Spec("watch"), key, position, None, "", None)
        self.call.attempt.noted = True  # A look has no start of its own in the journal.
        self.record = self._record()
        if self.record is not None:
            self.execution.replay.replayed(key)
        self.file: str | None = None
        self.body = self._body(fn)

    def _policy(self, on_change: object) -> str:
        if on_change is None:
            return self.execution.slot(AfterGap).policies.get("fact") or DEFAULTS["fact"]
        return checked_policy(on_change, "fact", f"on_change of depends_on({self.name!r})")

    def _record(self) -> Record | None:
        try:
            return find(self.call, self.execution.history)
        except Unwind as unwind:
            raise self.execution.stop(unwind) from None

    def _body(self, fn: Any) -> Body:
        if isinstance(fn, os.PathLike):
            path = cast("os.PathLike[str]", fn)
            looks: Callable[[], Any] = File(path)
            self.file = os.path.abspath(path)  # noqa: PTH100
        elif not callable(fn):
            raise UsageError(
                f"depends_on({self.name!r}, …) takes a function without arguments, "
                f"or a Path, not {fn!r:.80}"
            )
        else:
            looks = _fingerprinted(fn)
        awaits = inspect.iscoroutinefunction(looks)
        return Body(self.call, looks, lambda: ((), {}), None, None, awaits=awaits)

    # -- for the first time --------------------------------------------------------------------

    def script(self) -> Script:
        """Look, and record what was seen."""
        yield from begin(self.call)
        self.call.attempt.noted = True
        called: Called = yield Call(self.call, "look")
        if called.error is not None:
            return (yield from give_up(self.call, called.error, self.execution.run_id))
        yield Append(
            self.call, [Note(Kind.DEPENDENCY_RECORDED, self._facts(called.value), {}, True)]
        )
        return called.value

    def _facts(self, seen: str) -> dict[str, Any]:
        said: dict[str, Any] = {"name": self.name, "fingerprint": seen, "on_change": self.policy}
        if self.file is not None:
            said["file"] = self.file
        return said

    # -- again ---------------------------------------------------------------------------------

    @property
    def is_recorded(self) -> bool:
        return self.record is not None and self.record.has_outcome

    @property
    def is_compared(self) -> bool:
        """Whether it is to be looked at again: the first time that it is passed after a gap."""
        assert self.record is not None
        execution = self.execution
        broken = execution.history.drift.broken.get(self.call.key)
        if broken is not None:
            raise self._drifted(broken["was"], broken["now"])
        return execution.slot(AfterGap).compares and self.record.state is not State.FAILED

    def recorded(self) -> str:
        """Return what is recorded, or raise the failure that is."""
        assert self.record is not None
        assert self.record.outcome is not None
        if self.record.state is State.FAILED:
            replayed(self.call, self.record, self.execution.decode, self.execution.run_id)
        return str(facts(self.record.outcome)["fingerprint"])

    def compared(self, now: str) -> str:
        """Do what the policy says, if it is not as it was; return what the flow gets."""
        was = self.recorded()
        key, execution = self.call.key, self.execution
        accepted = execution.history.drift.accepted.get(f"fact:{key}", was)
        if now in (was, accepted):
            return was
        change = Change("fact", self.name, accepted, now, self.policy, (key,))
        change = drift.whole_effects(execution, change)
        seen = execution.slot(AfterGap).seen
        if seen is not None:  # Somebody only looks.
            seen.append(change)
            return was
        return self._treated(drift.decided(change), was)

    def _treated(self, change: Change, was: str) -> str:
        execution, key = self.execution, self.call.key
        again = [key] if change.did == "redo" else []
        drift.write(execution, {"changes": [change]}, again, step=key, position=self.call.position)
        if change.did == "fail":
            raise self._drifted(change.was, change.now)
        if change.did == "hold":
            raise execution.stop(Unwind(redo.held_for(execution.run_id, [change])))
        if not again:
            return was
        with execution.lock:
            body = msgspec.json.encode(self._facts(change.now))
            execution.recorder.write(
                [_draft(self.call, execution.engine.now_us(), body)], lazily=True
            )
        return change.now

    def _drifted(self, was: str, now: str) -> BaseException:
        text = f"{self.call.key}: the fact {self.name} was {was}, and is {now} now"
        return marked(Drifted(text, step=self.call.key, was=was, now=now), self.call.key)


def _draft(call: StepCall, at_us: int, body: bytes) -> Any:
    from holdfast._engine.journal.entries import Draft

    return Draft(Kind.DEPENDENCY_RECORDED, at_us, call.key, position=call.position, body=body)


def _fingerprinted(fn: Callable[[], Any]) -> Callable[[], Any]:
    """Return what looks at a fact and gives its fingerprint."""
    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def awaited() -> str:
            return fingerprint(await fn())

        return awaited

    @functools.wraps(fn)
    def looked() -> str:
        return fingerprint(fn())

    return looked
