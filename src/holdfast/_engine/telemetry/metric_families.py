"""Families of metrics, as the operator side reads them from a store."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Family(msgspec.Struct, array_like=True):
    """Figures that belong together."""

    name: str
    kind: str
    text: str
    samples: list[tuple[str, dict[str, str], float]] = []
    """Each with its own name and its labels."""


class Reading(msgspec.Struct):
    """Figures that are read together, and whether they say everything."""

    families: list[Family]
    complete: bool = True


def single(name: str, text: str, value: float) -> Family:
    return gauge(name, text, [({}, value)])


def gauge(name: str, text: str, samples: Sequence[tuple[dict[str, str], float]]) -> Family:
    named = f"holdfast_{name}"
    return Family(named, "gauge", text, [(named, labels, float(n)) for labels, n in samples])
