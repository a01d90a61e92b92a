"""Retention: runs that have ended are removed after the time that their flow declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from holdfast._runtime.feature import Feature, PeriodicJob

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.registry import RegisteredFlow


def _broom(engine: Engine, flows: Callable[[], Mapping[str, RegisteredFlow]]) -> PeriodicJob:
    from holdfast._features.retention.runtime import Broom

    return Broom(engine, flows)


FEATURE = Feature(name="retention", periodic=_broom)
