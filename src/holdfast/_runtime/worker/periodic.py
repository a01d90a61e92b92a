"""What a worker does now and then besides taking runs: jobs of features, and runs that nobody can take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast._engine.journal.rows import RunRow
from holdfast._runtime import log as logs
from holdfast._runtime.engine import Engine
from holdfast._runtime.feature import installed

LOOK_US = 20_000_000
"""How often a worker looks for runs whose version no live worker executes."""
SEEN_AT_ONCE = 500

Versions = Mapping[str, Sequence[str]]


class Rounds:
    """The rounds of one worker, made by the thread that takes runs."""

    def __init__(
        self,
        engine: Engine,
        versions: Callable[[], Versions],
        flows: Callable[[], Mapping[str, Any]],
        looks: Callable[[], None],
    ) -> None:
        """`looks` is what the worker looks at itself as often as at runs that wait in vain."""
        self._looks = looks
        self._engine = engine
        self._versions = versions
        self._jobs = [make(engine, flows) for make in installed.periodic]
        self._due_us = 0
        self._look_us = 0
        self._told: set[tuple[str, str]] = set()

    def make(self) -> None:
        """Do what is due."""
        now_us = self._engine.now_us()
        if now_us >= self._look_us:
            self._look_us = now_us + LOOK_US
            self._say_what_waits_in_vain()
            self._looks()
        due_us = [at_us for job in self._jobs if (at_us := job.run()) is not None]
        self._due_us = min(due_us, default=now_us + LOOK_US)

    def until_s(self) -> float:
        """Return how long nothing is due."""
        return max(0.0, (self._due_us - self._engine.now_us()) / 1e6)

    def _say_what_waits_in_vain(self) -> None:
        """A deployment left runs behind that only its own code can go on with: say so, once."""
        kept, known = self._engine.kept, self._versions()
        waiting: dict[tuple[str, str], list[RunRow]] = {}
        for row in kept.claimable(self._engine.now_us(), SEEN_AT_ONCE):
            if row.version not in known.get(row.flow, (row.version,)):
                waiting.setdefault((row.flow, row.version), []).append(row)
        if not waiting:
            return
        alive = [_flows(pulse.facts) for pulse in kept.pulses()]
        for (flow, version), rows in waiting.items():
            served = any(version in flows.get(flow, ()) for flows in alive)
            if served or (flow, version) in self._told:
                continue
            self._told.add((flow, version))
            logs.warning(
                "%s of version %s of flow %s (such as %s) cannot go on: no live worker executes that "
                "version, this one executes %s. Start a worker that has it, or say that newer code "
                "can go on with it: @flow(…, accepts_versions=(%r,))",
                "1 run" if len(rows) == 1 else f"{len(rows)} runs",
                *(version, flow, rows[0].run_id),
                *(" and ".join(known[flow]), version),
            )


def _flows(facts: str) -> dict[str, Any]:
    """Return what a live process says that it executes; one that is no worker says nothing."""
    try:
        told = msgspec.json.decode(facts, type=dict[str, Any])
        return msgspec.convert(told.get("flows", {}), dict[str, Any])
    except msgspec.MsgspecError:
        return {}
