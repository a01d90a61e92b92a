"""The concurrency limit and the rate limit of a queue during a claim. Pure.

A store counts the running runs and the recently started ones, inside the transaction of the claim.
The gate decides which candidates may pass, in order, and counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from holdfast._engine.journal.rows import RunRow
from holdfast._stores import claim_rules
from holdfast._stores.contract import Limits, Wanted

T = TypeVar("T")


class Gate:
    """Decides which runs of one queue may be claimed now."""

    def __init__(
        self,
        limits: Limits,
        running: Iterable[tuple[str | None, int]] = (),
        begun: Iterable[tuple[str | None, int]] = (),
    ) -> None:
        self.limits = limits
        self._running = Counter(dict(running))
        """Running runs, by limit key."""
        self._begun = Counter(dict(begun))
        """First claims in the last period, by limit key."""

    @property
    def is_open(self) -> bool:
        """Whether any run that is not running yet may pass."""
        return not self.limits.paused and _below(self._running.total(), self.limits.concurrency)

    @property
    def begins(self) -> bool:
        """Whether a run that was never claimed may pass."""
        return _below(self._begun.total(), self.limits.rate)

    def full_keys(self) -> list[str]:
        """Return the limit keys without room for another run."""
        return _at_limit(self._running, self.limits.concurrency_per_key)

    def spent_keys(self) -> list[str]:
        """Return the limit keys without room for a run that was never claimed."""
        return _at_limit(self._begun, self.limits.rate_per_key)

    def admits(self, row: RunRow) -> bool:
        """Return whether a run may be claimed, and count it if so."""
        if not self.would_admit(row):
            return False
        if row.owner is None:
            self._begun[row.limit_key] += is_first(row)
            self._running[row.limit_key] += 1
        return True

    def would_admit(self, row: RunRow) -> bool:
        """Return whether a run may be claimed."""
        if row.owner is not None:
            return True  # It was running already, so it has its place.
        key, limits = row.limit_key, self.limits
        if not self.is_open or (
            key is not None and not _below(self._running[key], limits.concurrency_per_key)
        ):
            return False
        if not is_first(row):
            return True
        return self.begins and (key is None or _below(self._begun[key], limits.rate_per_key))

    def gives(self, row: RunRow, wanted: Wanted) -> bool:
        """Return whether a candidate matches the request, and count it if so. A skipped suspect is
        noted."""
        if row.run_no in wanted.unfit:
            return False
        if wanted.again is not None:
            return self.admits(row)
        if claim_rules.is_suspect(row) == wanted.suspects:
            return self.admits(row)
        if not wanted.suspects and self.would_admit(row):
            wanted.passed_over = True
        return False


def is_first(row: RunRow) -> bool:
    """Return whether the next claim of a run is its first, which counts for the rate limit."""
    return row.epoch == 0


def counts_starts(limits: Limits) -> bool:
    """Return whether a queue has a rate limit."""
    return limits.rate is not None or limits.rate_per_key is not None


def has_limits(limits: Limits) -> bool:
    """Return whether runs have to be counted before a claim from the queue."""
    chosen = (limits.concurrency, limits.concurrency_per_key, limits.rate, limits.rate_per_key)
    return limits.paused or any(part is not None for part in chosen)


def begun_anywhere(names: Iterable[str], at_us: int) -> list[str]:
    """Rotate the order of queues over time, so that a worker with a single place serves all of
    them."""
    ordered = sorted(names)
    first = at_us % len(ordered) if ordered else 0
    return ordered[first:] + ordered[:first]


def in_turns(
    names: Sequence[str], limit: int, take_from: Callable[[str, int], Sequence[T]]
) -> list[T]:
    """Take from several queues without starvation: each gets an equal share, and unused shares are
    distributed to the others."""
    taken: list[T] = []
    hungry = list(names)
    while hungry and len(taken) < limit:
        share = max(1, (limit - len(taken)) // len(hungry))
        wanting: list[str] = []
        for name in hungry:
            wanted = min(share, limit - len(taken))
            found = take_from(name, wanted) if wanted else ()
            taken.extend(found)
            if len(found) == wanted:
                wanting.append(name)
        hungry = wanting
    return taken


def pairs(flows: Mapping[str, Sequence[str]] | None) -> frozenset[tuple[str, str]] | None:
    """Return the pairs of flow and version that a worker can execute."""
    if flows is None:
        return None
    return frozenset((flow, version) for flow, versions in flows.items() for version in versions)


def can_execute(row: RunRow, flows: Collection[tuple[str, str]] | None) -> bool:
    """Return whether a worker that executes these (flow, version) pairs may take the run."""
    return flows is None or (row.flow, row.version) in flows


def _below(count: int, limit: int | None) -> bool:
    return limit is None or count < limit


def _at_limit(counts: Counter[str | None], limit: int | None) -> list[str]:
    return sorted(key for key in counts if key is not None and not _below(counts[key], limit))
