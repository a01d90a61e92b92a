"""Small generated flows: steps, effects of every policy, loops and branches, as plain data."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from holdfast._engine.scripts.retry import Retry
from holdfast.testing.internals import Settings, Step

POLICIES = ("hold", "retry", "fail", "function")


class Flaky(Exception):
    """What a step raises now and then."""


class Refused(Exception):
    """What an effect raises when it is known not to have happened."""


class Act(msgspec.Struct):
    """One call of a step or an effect."""

    name: str
    number: int
    policy: str = ""
    """Empty for a plain step."""
    attempts: int = 1
    shared: bool = False
    """An effect with a business key that other runs use too."""
    timeout_s: float | None = None
    grouped: bool = False
    handled: bool = True
    """Whether the flow goes on when the step gives up."""


class Loop(msgspec.Struct):
    """A loop of turns."""

    turns: int
    acts: list[Any]


class Branches(msgspec.Struct):
    """Branches that run at once."""

    branches: list[list[Any]]


class Hear(msgspec.Struct):
    """A wait for a signal."""


Op = Act | Loop | Branches | Hear


def with_waits(rng: random.Random, ops: list[Op]) -> list[Op]:
    """Return the flow with waits for signals in between."""
    for _ in range(rng.randint(1, 4)):
        ops.insert(rng.randint(0, len(ops)), Hear())
    return ops


def generate(rng: random.Random) -> list[Op]:
    """Return the flow of one run."""
    return [_op(rng, number) for number in range(rng.randint(1, 4))]


def _op(rng: random.Random, number: int) -> Op:
    chance = rng.random()
    if chance < 0.15:
        return Loop(rng.randint(2, 4), [_act(rng, n) for n in range(rng.randint(1, 2))])
    if chance < 0.3:
        return Branches([[_act(rng, n)] for n in range(rng.randint(2, 3))])
    return _act(rng, number)


def _act(rng: random.Random, number: int) -> Act:
    handled = rng.random() < 0.8
    attempts = rng.randint(1, 3)
    if rng.random() < 0.4:
        return Act(
            f"step{number}", number, "", attempts, grouped=rng.random() < 0.2, handled=handled
        )
    policy = rng.choice(POLICIES)
    shared = rng.random() < 0.25
    return Act(
        f"{'shared' if shared else 'effect'}-{policy}",
        1 if shared else number,
        policy,
        attempts,
        shared,
        rng.choice((None, 10.0)),
        handled=handled,
    )


def edited(rng: random.Random, ops: list[Op]) -> list[Op]:
    """Return the flow as somebody changed it: other arguments, or another order."""
    changed = list(ops)
    index = rng.randrange(len(changed))
    op = changed[index]
    if isinstance(op, Act) and not op.shared and rng.random() < 0.6:
        changed[index] = msgspec.structs.replace(op, number=op.number + 100)
    elif rng.random() < 0.5:
        changed.reverse()
    else:
        changed.insert(index, Act("new step", 7))
    return changed


def step_of(act: Act) -> Step[..., Any]:
    """Return the step or effect that an act calls, as a user would have declared it."""
    options: dict[str, Any] = {
        "name": act.name,
        "effect": bool(act.policy),
        "retry": Retry(attempts=act.attempts, initial_wait_s=0.5) if act.attempts > 1 else None,
        "timeout": act.timeout_s,
        "commit": "grouped" if act.grouped else "each",
        "registered": False,
    }
    if act.policy:
        options |= {
            "not_done_on": (Refused,),
            "on_doubt": _ask if act.policy == "function" else act.policy,
            "key": "letter:{number}" if act.shared else None,
        }
    return Step(Settings(_body, **options))


def _body(number: int, before: str) -> str:
    """Stands for a body; the outside world answers for it."""
    raise AssertionError((number, before))


def _ask(number: int, before: str) -> None:
    """Stands for an `on_doubt` function; the outside world answers for it."""
