"""The results of a crash matrix, in words."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.testing.store_proxy import When


class Boundary(msgspec.Struct, frozen=True):
    """A place at which a process was killed."""

    number: int
    when: When
    what: str

    def __str__(self) -> str:
        return f"{self.when} write {self.number} ({self.what})"


class Point(msgspec.Struct):
    """One run that was killed and resumed."""

    kills: list[Boundary]
    executed: dict[str, int] = {}
    """How often the body of each step was called, over all processes."""
    held: list[str] = []
    """Effects that were held for a person, as `on_doubt="hold"` promises."""
    settled: dict[str, str] = {}
    """The decisions of `settle=` about them."""
    given_up: list[str] = []
    """Effects that were given up, as `on_doubt="fail"` promises."""
    result: Any = None
    completed: bool = False

    def __str__(self) -> str:
        kills = ", then ".join(map(str, self.kills))
        parts = ["completed" if self.completed else "stopped"]
        parts += [f"held: {step}" for step in self.held]
        parts += [f"settled: {step} as {said}" for step, said in self.settled.items()]
        parts += [f"given up: {step}" for step in self.given_up]
        more = [f"{step} {count}×" for step, count in self.executed.items() if count != 1]
        if more:
            parts.append("executed " + ", ".join(more))
        return f"killed {kills}: {'; '.join(parts)}"


class CrashReport(msgspec.Struct):
    """All kills of one crash matrix. `str()` of it is for people."""

    flow: str
    run_id: str
    kill: str
    writes: int
    """The number of writes of the undisturbed run."""
    undisturbed: dict[str, int]
    """How often each body is called in the undisturbed run."""
    result: Any = None
    points: list[Point] = []
    left_out: int = 0
    """Boundaries beyond `max_points`."""

    @property
    def held(self) -> list[Point]:
        """The kills after which an effect was held for a person."""
        return [point for point in self.points if point.held]

    def __str__(self) -> str:
        steps = ", ".join(f"{step} {count}×" for step, count in self.undisturbed.items())
        counts = f"{len(self.points)} kills at {self.writes} writes ({self.kill})"
        lines = [
            f"crash matrix of {self.flow}: {counts}, no violation",
            f"  undisturbed: {steps or 'no steps'}",
        ]
        if self.left_out:
            lines.append(f"  left out by max_points: {self.left_out} writes")
        if self.held:
            lines.append(f"  held for a person, as declared: {len(self.held)}")
        return "\n".join([*lines, *(f"  {point}" for point in self.points)])
