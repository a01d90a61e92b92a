"""Measures: what each process did, minute by minute, kept in the store for trends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._runtime.feature import CommitListener, Feature

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine


def _listener(engine: Engine) -> CommitListener:
    from holdfast._features.measures.runtime import Measuring

    return Measuring(engine)


FEATURE = Feature(name="measures", listener=_listener)
