"""The world outside: what really happened, and answers to everything that flows ask of it.

It is the oracle. Bodies are called here, effects happen here (at once, late, or never), and
`on_doubt` functions get the truth from here. Nothing here is read from the store.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._engine.scripts.doubt_policies import NOT_DONE, UNKNOWN, Done
from holdfast._engine.scripts.requests import Called, StepCall
from tests.simulation.programs import Flaky, Refused

if TYPE_CHECKING:
    from tests.simulation.workers import Life

BIG = 700
"""Characters that make a value too long to stand in its entry: it becomes a chunk."""

Moves = Generator[str, None, Any]


class Request(msgspec.Struct):
    """An effect on its way to the other side."""

    run_id: str
    step: str
    effect: str
    key: str
    policy: str
    value: str
    owner: int
    deadline_us: int | None
    abandoned: bool = False
    """Whether nobody waits for its answer any more."""


class Outside:
    """Everything that happened, and what is still on its way."""

    def __init__(self, rng: random.Random, big_values: float = 0.0) -> None:
        self._rng = rng
        self._big_values = big_values
        self.calls = 0
        self.happened: dict[tuple[str, str], list[Request]] = {}
        """What happened, by effect and key."""
        self.flying: list[Request] = []

    def perform(self, life: Life, call: StepCall, what: str) -> Moves:
        """Call a body or ask an `on_doubt` function; yields wherever time may pass."""
        yield f"{what} is about to be called"
        if what == "on_doubt":
            return self._ask(call)
        life.laws.body_called(life, call)
        self.calls += 1
        value = token(call, f"{life.execution.run_id} {self.calls}")
        if self._big_values and self._rng.random() < self._big_values:
            value += "." * BIG
        if not call.spec.effect:
            return Called(error=Flaky()) if self._rng.random() < 0.2 else Called(value)
        return (yield from self._effect(life, call, value))

    def _effect(self, life: Life, call: StepCall, value: str) -> Moves:
        timeout_s = call.spec.timeout_s
        request = Request(
            life.execution.run_id,
            call.key,
            call.spec.name,
            call.idempotency_key,
            "function" if callable(call.spec.on_doubt) else str(call.spec.on_doubt),
            value,
            life.owner,
            None if timeout_s is None else call.attempt.started_us + int(timeout_s * 1e6),
        )
        chance = self._rng.random()
        if chance < 0.12:
            return Called(error=Refused())
        self.flying.append(request)
        yield "the request is on its way"
        if timeout_s is not None and chance < 0.3:
            # The thread is abandoned; what it sent may still arrive.
            request.abandoned = True
            error = TimeoutError("too late")
            return Called(error=error, timed_out=True, ended=False)
        if chance < 0.45:
            self.flying.remove(request)
            return Called(error=ConnectionError("refused, but who knows"))
        landed = self.land(request, life.laws.now_us())
        yield "the answer is on its way"
        if chance < 0.6 or not landed:
            return Called(error=ConnectionError("cut after it was sent"))
        return Called(self.happened[request.effect, request.key][0].value)

    def land(self, request: Request, now_us: int) -> bool:
        """Let a request arrive; the other side refuses one whose deadline has passed."""
        if request in self.flying:
            self.flying.remove(request)
        if request.deadline_us is not None and now_us > request.deadline_us:
            return False
        self.happened.setdefault((request.effect, request.key), []).append(request)
        return True

    def _ask(self, call: StepCall) -> Called:
        chance = self._rng.random()
        if chance < 0.1:
            return Called(error=ConnectionError("nobody answers"))
        if chance < 0.2:
            return Called(UNKNOWN)
        return Called(self.truth(call.spec.name, call.idempotency_key))

    def truth(self, effect: str, key: str) -> Any:
        """Return what a truthful answer is at this moment."""
        found = self.happened.get((effect, key))
        return Done(found[0].value) if found else NOT_DONE

    def died(self, owner: int, now_us: int) -> None:
        """A process is gone: what it had sent arrives now, and what it had not, never."""
        for request in [request for request in self.flying if request.owner == owner]:
            if self._rng.random() < 0.5:
                self.land(request, now_us)
            else:
                self.flying.remove(request)


def token(call: StepCall, who: str) -> str:
    """Return a value that says of which call it is the result."""
    digest = (call.args_digest or b"").hex()
    return f"{call.spec.name}|{digest}|{who}"


def is_of(value: object, call: StepCall) -> bool:
    """Say whether a value is the result of this very call."""
    return isinstance(value, str) and value.startswith(token(call, ""))


def is_of_another(value: object, call: StepCall, run_id: str) -> bool:
    """Say whether a value is the result of this step in another run."""
    name, _, rest = str(value).partition("|")
    return name == call.spec.name and not rest.partition("|")[2].startswith(f"{run_id} ")
