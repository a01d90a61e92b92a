"""Queues of a flow: where its runs wait, and their concurrency and rate limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast._engine.journal.rows import Memo
from holdfast._engine.journal.step_keys import check_label
from holdfast._engine.values import codec
from holdfast._engine.values.durations import Duration, micros, seconds
from holdfast._stores.contract import Limits, Store
from holdfast._stores.queue_limits import has_limits
from holdfast.errors import UsageError

PRIORITY_MAX = 2**31 - 1


class _Named(msgspec.Struct, frozen=True):
    name: str


class Queue(_Named, frozen=True, kw_only=True):
    """A queue and its limits, which hold across all workers of a store.

    `concurrency` runs are at work at one time, `concurrency_per_key` of those that share a `limit_key`; `rate`
    runs are begun in any `period` (seconds, a timedelta, "1m"), `rate_per_key` of those that share a
    key. None means no limit. Of a queue that is `paused` nothing is taken; what is at work goes on.
    """

    concurrency: int | None = None
    concurrency_per_key: int | None = None
    rate: int | None = None
    rate_per_key: int | None = None
    period: Duration = 60.0
    paused: bool = False

    def __post_init__(self) -> None:
        """Refuse what makes no sense, at the line where it is written."""
        check_label("the name of a queue", self.name)
        for name in ("concurrency", "concurrency_per_key", "rate", "rate_per_key"):
            value = getattr(self, name)
            if value is not None and not _is_count(value):
                raise UsageError(
                    f"Queue({self.name!r}, {name}={value!r}): a whole number above 0, or None for "
                    "no limit (paused=True takes nothing)"
                )
        micros(self.period, f"Queue({self.name!r}, period=…)", positive=True)

    @property
    def has_limits(self) -> bool:
        """Whether it says more than a name."""
        return has_limits(self.limits)

    @property
    def limits(self) -> Limits:
        """Return the limits as the store keeps them."""
        return Limits(
            self.name,
            concurrency=self.concurrency,
            concurrency_per_key=self.concurrency_per_key,
            rate=self.rate,
            rate_per_key=self.rate_per_key,
            period_us=micros(self.period, f"Queue({self.name!r}, period=…)", positive=True),
            paused=self.paused,
        )


class Placing(msgspec.Struct, frozen=True):
    """Where a run waits to be taken, and from when on."""

    queue: str | None = None
    priority: int | None = None
    delay_s: float | None = None
    limit_key: str | None = None
    deadline_us: int | None = None
    """How long a run may take, from its start on."""


def declared(flow: str, queue: str | Queue | None) -> Queue | None:
    """Return the queue that a flow declares; a plain name has no limits of its own."""
    if queue is None or isinstance(queue, Queue):
        return queue
    return Queue(check_label(f"the queue of flow {flow}", queue))


def placed(
    before: Placing,
    *,
    queue: str | Queue | None = None,
    priority: int | None = None,
    delay: Duration | None = None,
    limit_key: str | None = None,
    deadline: Duration | None = None,
) -> Placing:
    """Return a placing with some of it changed; what is wrong is refused at once."""
    changes: dict[str, object] = {}
    if queue is not None:
        name = queue.name if isinstance(queue, Queue) else queue
        changes["queue"] = check_label("the name of a queue", name)
    if priority is not None:
        if type(priority) is not int or abs(priority) > PRIORITY_MAX:
            raise UsageError(f"priority={priority!r}: a whole number; larger comes first")
        changes["priority"] = priority
    if delay is not None:
        changes["delay_s"] = seconds(delay, "delay=")
    if limit_key is not None:
        changes["limit_key"] = check_label("a limit key", limit_key)
    if deadline is not None:
        changes["deadline_us"] = micros(deadline, "timeout=")
    return msgspec.structs.replace(before, **changes) if changes else before


def _is_count(value: object) -> bool:
    return type(value) is int and 0 < value <= PRIORITY_MAX


# -- what flows declare ------------------------------------------------------------------------

DECLARED = "holdfast.queues"
"""The memory of what code declared last, by queue."""


def declare_limits(store: Store, flows: Iterable[Any]) -> None:
    """Write the limits that flows declare, if the code declares others than before: what somebody
    has set since then stays. A queue that somebody paused stays paused."""
    declared = {flow.queue.name: flow.queue for flow in flows if flow.queue}
    limited = [queue.limits for queue in declared.values() if queue.has_limits]
    if not limited:
        return
    known = {state.limits.queue: state.limits for state in store.queues(counted=False)}
    for limits in limited:
        before = known.get(limits.queue)
        told = codec.encode(msgspec.to_builtins(limits), "limits")
        last = store.memo(DECLARED, limits.queue)
        if before is not None and last is not None and last.value == told:
            continue
        limits.paused = limits.paused or (before is not None and before.paused)
        if limits != before:
            store.set_limits(limits)
        store.put_memo(Memo(DECLARED, limits.queue, told))
