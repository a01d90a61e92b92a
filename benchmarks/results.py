"""What was measured, repetition by repetition, and the medians of it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.worker import Numbers


@dataclass(slots=True)
class Results:
    repetitions: dict[str, dict[str, list[Numbers]]] = field(default_factory=dict)

    def add(self, case: str, subject: str, numbers: Numbers) -> None:
        of_case = self.repetitions.setdefault(case, {})
        of_case.setdefault(subject, []).append(numbers)

    def values(self, case: str, subject: str, metric: str) -> list[float]:
        taken = self.repetitions.get(case, {}).get(subject, [])
        return [numbers[metric] for numbers in taken if metric in numbers]

    def metrics(self, case: str) -> list[str]:
        taken = self.repetitions.get(case, {}).values()
        return sorted({metric for numbers in taken for each in numbers for metric in each})

    def median(self, case: str, subject: str, metric: str) -> float | None:
        values = self.values(case, subject, metric)
        return statistics.median(values) if values else None
