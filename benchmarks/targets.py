"""The targets, and how far the results are from them."""

from __future__ import annotations

import operator
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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


def _speed(
    what: str, case: str, limit: float | None, subject: str, reference_case: str = ""
) -> Target:
    against = Reference(subject, reference_case)
    reference = "shared floor" if reference_case == "w2/shared" else subject
    what = f"{what} ÷ {reference}"
    return Target(what, case, "steps_per_s", "at least", limit, against=against)


def _targets() -> list[Target]:
    found = [
        _speed("W1 plain steps", "w1/steps", 0.6, "floor"),
        _speed("W1 plain steps", "w1/steps", 6, "dbos"),
        _speed("W1 plain steps", "w1/steps", None, "dbos-default"),
        _speed("W1 plain steps", "w1/steps", 3, "langgraph-sync"),
        _speed("W1 effects (two commits)", "w1/effects", 0.3, "floor", "w1/steps"),
        _speed('W1 commit="grouped"', "w1/grouped", 5, "floor", "w1/steps"),
    ]
    for variant in ("async", "threads"):
        what, case = f"W2 many runs, {variant}", f"w2/{variant}"
        found += [
            _speed(what, case, 0.2, "floor", "w2/shared"),
            _speed(f"{what}, handed over alike", case, None, "floor"),
            _speed(what, case, 40, "dbos"),
        ]
    passed = {
        "new": "new message passed",
        "whole": "whole conversation passed",
        "state": "conversation in turns()",
    }
    for variant, what in passed.items():
        found += [
            Target(
                f"W3 stored ÷ content, {what}, {size}",
                f"w3/{variant}/stored-{size}",
                "per_content",
                "at most",
                1.6,
            )
            for size in ("short", "long")
        ]
    for variant, limit in (("new", 1.1), ("whole", 2.0)):
        what = f"W3 last ÷ first steps, {passed[variant]}"
        found.append(Target(what, f"w3/{variant}/growth", "growth", "at most", limit))
    aside = Target(
        f"W3 last ÷ first steps, {passed['new']} ÷ floor",
        "w3/new/growth",
        "growth",
        "at most",
        None,
        against=Reference("floor"),
    )
    return [
        *found,
        aside,
        Target("W4 resume", "w4/killed", "resume_s", "at most", 0.25, "s"),
        Target("W4 re-executed", "w4/killed", "re_executed", "at most", 0, "steps"),
        Target("W5 import", "w5/import", "import_ms", "at most", 80, "ms"),
        Target("W5 distributions", "w5/import", "distributions", "at most", 8, ""),
    ]


TARGETS = _targets()


def judge(results: Results) -> list[Outcome]:
    """One outcome for each target whose numbers, and its reference's, exist."""
    outcomes = (_judge(target, results) for target in TARGETS)
    return [outcome for outcome in outcomes if outcome is not None]


def _judge(target: Target, results: Results) -> Outcome | None:
    ours = results.values(target.case, "holdfast", target.metric)
    if target.against is None:
        theirs = [1.0] * len(ours)
    else:
        case = target.against.case or target.case
        theirs = results.values(case, target.against.subject, target.metric)
    if not ours or not theirs:
        return None
    ratio = statistics.median(ours) / statistics.median(theirs)
    pairs = [own / other for own, other in zip(ours, theirs, strict=False)]
    return Outcome(target, ratio, min(pairs), max(pairs))
