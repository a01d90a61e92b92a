"""Cheap steps that share a commit, recorded values, and an effect that shows them to the world."""

from __future__ import annotations

import holdfast
from holdfast import effect, flow, step
from holdfast.context import now, rng, uuid4
from tests.crash import probe

CHEAP = 20


@step(commit="grouped")
def cheap(i: int) -> int:
    probe.executed(f"cheap {i}")
    probe.point(f"cheap {i}")
    return i


@effect(on_doubt="retry")
def show(token: str, when: str, chance: float, total: int) -> str:
    probe.executed("show", note=f"{token} {when} {chance} {total} {holdfast.idempotency_key()}")
    probe.point("shown")
    return token


@flow
def work() -> list[object]:
    token, when, chance = str(uuid4()), now().isoformat(), rng().random()
    total = sum(cheap(i) for i in range(CHEAP))
    return [show(token, when, chance, total), total]


if __name__ == "__main__":
    with probe.open_store():
        probe.end(lambda: work.run("r"))
