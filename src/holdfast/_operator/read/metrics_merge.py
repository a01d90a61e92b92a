"""Merge the metrics of several processes: counters of a worker's processes are added up on read.

A process tells all its figures now and then. Of one that died the counters stay as it told them last, so
that no sum ever falls; what it executed at that moment, it executes no longer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

STAYS = ("counter", "histogram")
"""Kinds of families that only grow."""

Key = tuple[str, tuple[tuple[str, str], ...]]


class Family(msgspec.Struct, array_like=True):
    """Figures that belong together."""

    name: str
    kind: str
    text: str
    samples: list[tuple[str, dict[str, str], float]] = []
    """Each with its own name and its labels."""


class Figures(msgspec.Struct):
    """All that a process counts."""

    figures: list[Family]


def collected(registry: CollectorRegistry) -> list[Family]:
    """Return what a registry has. When a series began is left out: sums have no beginning."""
    return [
        Family(
            found.name,
            found.type,
            found.documentation,
            [
                (it.name, it.labels, it.value)
                for it in found.samples
                if not it.name.endswith("_created")
            ],
        )
        for found in registry.collect()
    ]


class Sums:
    """Adds up what processes tell, each known by the place that it has. Told in one thread, read in
    others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: dict[str, Family] = {}
        self._of: dict[str, str] = {}
        """The family of each name of a sample."""
        self._told: dict[int, dict[Key, float]] = {}
        self._gone: set[int] = set()
        self._before: dict[Key, float] = {}
        """What was counted by processes whose place another has taken."""

    def hear(self, place: int, families: Iterable[Family]) -> None:
        """A process tells its figures; the last ones may be heard when it is gone."""
        with self._lock:
            told = self._told[place] = {}
            for family in families:
                known = msgspec.structs.replace(family, samples=[])
                self._families.setdefault(family.name, known)
                for name, labels, value in family.samples:
                    self._of[name] = family.name
                    told[name, tuple(sorted(labels.items()))] = value

    def ended(self, place: int) -> None:
        """A process is gone: what it counted stays."""
        with self._lock:
            self._gone.add(place)

    def begins(self, place: int) -> None:
        """Another process takes a place, and counts from zero."""
        with self._lock:
            for key, value in self._told.pop(place, {}).items():
                if self._stays(key):
                    self._before[key] = self._before.get(key, 0.0) + value
            self._gone.discard(place)

    def families(self) -> list[Family]:
        """Return the sums."""
        with self._lock:
            sums = dict(self._before)
            for place, told in self._told.items():
                for key, value in told.items():
                    if place not in self._gone or self._stays(key):
                        sums[key] = sums.get(key, 0.0) + value
            made = {
                name: msgspec.structs.replace(family, samples=[])
                for name, family in self._families.items()
            }
            for (name, labels), value in sums.items():
                made[self._of[name]].samples.append((name, dict(labels), value))
            return list(made.values())

    def _stays(self, key: Key) -> bool:
        return self._families[self._of[key[0]]].kind in STAYS


class Given:
    """A collector of families that are made when they are asked for."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Any]:
        """Yield them as the library of Prometheus knows them."""
        from prometheus_client.metrics_core import Metric

        for family in self._families:
            metric = Metric(family.name, family.text, family.kind)
            for name, labels, value in family.samples:
                metric.add_sample(name, labels, value)
            yield metric


def text_of(families: Iterable[Family]) -> str:
    """Return figures as Prometheus reads them, escaped by its own library."""
    client = prometheus()
    registry = client.CollectorRegistry()
    registry.register(Given(families))
    return str(client.generate_latest(registry).decode())


def prometheus() -> Any:
    """Return the library, or say which extra has it."""
    from holdfast.errors import UsageError

    try:
        import prometheus_client
    except ImportError:
        raise UsageError("metrics need the extra: pip install -e '.[metrics]' in a clone") from None
    return prometheus_client
