"""The targets, and how far the results are from them."""

from __future__ import annotations

import operator
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from benchmarks.workloads import Store

if TYPE_CHECKING:
    from benchmarks.results import Results

Bound = Literal["at least", "at most"]
COMPARE = {"at least": operator.ge, "at most": operator.le}


@dataclass(frozen=True, slots=True)
class Reference:
    """Whose number Holdfast's is divided by; `case` defaults to the same one."""

    subject: str
    case: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    what: str
    case: str
    metric: str
    bound: Bound
    limit: float | None
    unit: str = "×"
    against: Reference | None = None
    subject: str = "holdfast"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`lowest` and `highest` are of the repetitions: how much the noise moves it."""

    target: Target
    value: float
    lowest: float
    highest: float

    @property
    def met(self) -> bool | None:
        """None where nothing was aimed at."""
        if self.target.limit is None:
            return None
        return bool(COMPARE[self.target.bound](self.value, self.target.limit))


SQLITE: dict[str, float | None] = {
    "w1/steps floor": 0.6,
    "w1/steps dbos": 6,
    "w1/steps dbos-default": None,
    "w1/steps langgraph-sync": 3,
    "w1/effects floor": 0.3,
    "w1/grouped floor": 5,
    "w2 floor": 0.2,
    "w2 dbos": 40,
    "w6/latency": 20,
}
POSTGRESQL: dict[str, float | None] = {
    "w1/steps floor-pg": 0.6,
    "w1/steps dbos-pg": 4,
    "w1/steps absurd-pg": 1.5,
    "w1/steps langgraph-pg": None,
    "w1/effects floor-pg": 0.3,
    "w1/grouped floor-pg": 5,
    "w2 floor-pg": 0.2,
    "w2 dbos-pg": 20,
    "w2 absurd-pg": 4,
    "w6/latency": 10,
}
WHAT = {
    "w1/steps": "W1 plain steps",
    "w1/effects": "W1 effects (two commits)",
    "w1/grouped": 'W1 commit="grouped"',
    "w2/async": "W2 many runs, async",
    "w2/threads": "W2 many runs, threads",
}
PASSED = {
    "new": "new message passed",
    "whole": "whole conversation passed",
    "state": "conversation in turns()",
}


def _targets(ours: str, limits: dict[str, float | None]) -> list[Target]:
    found: list[Target] = []
    for pair, limit in limits.items():
        case, _, subject = pair.partition(" ")
        if case == "w2":
            found += _many_runs(ours, subject, limit)
        elif subject:
            reference = "w1/steps" if case.startswith("w1/") else ""
            found.append(_speed(ours, case, subject, limit, reference))
    return [*found, *_growing(ours), *_resuming(ours), *_waiting(ours, limits["w6/latency"])]


def _speed(
    ours: str, case: str, subject: str, limit: float | None, reference: str = "", note: str = ""
) -> Target:
    named = "shared floor" if reference == "w2/shared" else subject
    what = f"{WHAT[case]}{note} ÷ {named}"
    against = Reference(subject, reference)
    return Target(what, case, "steps_per_s", "at least", limit, against=against, subject=ours)


def _many_runs(ours: str, subject: str, limit: float | None) -> list[Target]:
    cases = ("w2/async", "w2/threads")
    if not subject.startswith("floor"):
        return [_speed(ours, case, subject, limit) for case in cases]
    shared = [_speed(ours, case, subject, limit, "w2/shared") for case in cases]
    alike = [_speed(ours, case, subject, None, note=", handed over alike") for case in cases]
    return [*shared, *alike]


def _growing(ours: str) -> list[Target]:
    def target(what: str, case: str, metric: str, limit: float | None) -> Target:
        return Target(what, case, metric, "at most", limit, subject=ours)

    stored = [
        target(
            f"W3 stored ÷ content, {what}, {size}",
            f"w3/{variant}/stored-{size}",
            "per_content",
            1.6,
        )
        for variant, what in PASSED.items()
        for size in ("short", "long")
    ]
    growth = [
        target(f"W3 last ÷ first steps, {PASSED[variant]}", f"w3/{variant}/growth", "growth", limit)
        for variant, limit in (("new", 1.1), ("whole", 2.0))
    ]
    floor = "floor" if ours == "holdfast" else "floor-pg"
    aside = target(f"{growth[0].what} ÷ {floor}", growth[0].case, "growth", None)
    return [*stored, *growth, replace(aside, against=Reference(floor))]


def _resuming(ours: str) -> list[Target]:
    return [
        Target("W4 resume", "w4/killed", "resume_s", "at most", 0.25, "s", subject=ours),
        Target("W4 re-executed", "w4/killed", "re_executed", "at most", 0, "steps", subject=ours),
    ]


def _waiting(ours: str, latency_ms: float | None) -> list[Target]:
    def target(
        what: str, case: str, metric: str, limit: float | None, unit: str, peer: str = ""
    ) -> Target:
        against = Reference(peer) if peer else None
        what = f"{what} ÷ {peer}" if peer else what
        return Target(what, case, metric, "at most", limit, unit, against, ours)

    peers = ["dbos"] if ours == "holdfast" else ["dbos-pg", "absurd-pg"]
    latency, metric = "W6 submit to first step, p50", "latency_p50_ms"
    return [
        target("W6 idle worker, share of a core", "w6/idle", "idle_percent", 0.5, "%"),
        *(target("W6 idle", "w6/idle", "idle_percent", None, "×", peer) for peer in peers),
        target(latency, "w6/latency", metric, latency_ms, "ms"),
        target("W6 submit to first step, p95", "w6/latency", "latency_p95_ms", None, "ms"),
        *(target(latency, "w6/latency", metric, None, "×", peer) for peer in peers),
    ]


TARGETS: dict[Store, list[Target]] = {
    "sqlite": [
        *_targets("holdfast", SQLITE),
        Target("W5 import", "w5/import", "import_ms", "at most", 80, "ms"),
        Target("W5 distributions", "w5/import", "distributions", "at most", 8, ""),
    ],
    "postgresql": _targets("holdfast-pg", POSTGRESQL),
}


def judge(results: Results, store: Store) -> list[Outcome]:
    """One outcome for each target whose numbers, and its reference's, exist."""
    outcomes = (_judge(target, results) for target in TARGETS[store])
    return [outcome for outcome in outcomes if outcome is not None]


def _judge(target: Target, results: Results) -> Outcome | None:
    ours = results.values(target.case, target.subject, target.metric)
    if target.against is None:
        theirs = [1.0] * len(ours)
    else:
        case = target.against.case or target.case
        theirs = results.values(case, target.against.subject, target.metric)
    if not ours or not theirs or not statistics.median(theirs):
        return None
    ratio = statistics.median(ours) / statistics.median(theirs)
    pairs = [own / other for own, other in zip(ours, theirs, strict=False) if other]
    return Outcome(target, ratio, min(pairs), max(pairs))
