"""Drift: what has changed while nobody was at work on a run, and what is done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._runtime.feature import Feature

if TYPE_CHECKING:
    from holdfast._runtime.execution.execution import Execution


def _begin(execution: Execution, is_new: bool) -> None:
    if not is_new:
        from holdfast._features.drift import runtime

        runtime.compare(execution)


FEATURE = Feature(name="drift", begin=_begin)
