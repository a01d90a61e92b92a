"""Receivers of alerts: each alert is sent at least once, by one process of the fleet.

`on_alert` registers a function. Alerts about writes of this process are sent at once; workers also sweep
the store, so that another process sends the alert of one that died (`alerter.py`).
"""

from __future__ import annotations

import atexit
import hashlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast._engine.journal.rows import RunRow
from holdfast._engine.telemetry.observer_events import ObservedEntry, ObservedRun, Observer
from holdfast._features.alerts import model as alerts
from holdfast._features.alerts.model import Alert
from holdfast._features.watchdog.model import Finding, Severity
from holdfast._runtime import observer_registry
from holdfast._runtime.feature import PeriodicJob
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._features.alerts.alerter import Alerter, Receiver
    from holdfast._runtime.engine import Engine


UNANSWERED_S = 15 * 60
ASKED_MAX = 1000
"""How many open questions are looked at, the oldest first."""


receivers: tuple[Receiver, ...] = ()
_alerters: weakref.WeakKeyDictionary[Engine, Alerter] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_ends_hearing: Callable[[], None] | None = None


def on_alert(
    function: Callable[[Alert], object],
    *,
    name: str | None = None,
    unanswered_s: float = UNANSWERED_S,
) -> Callable[[], None]:
    """Have a function called with an `Alert` when a run is held or fails, when the watchdog finds
    something, when a budget is nearly used up, and when nobody has answered a question for
    `unanswered_s`. Returns a function that ends it.

    It is called in a thread of its own, at least once for each state and usually once in the whole
    fleet: processes that give a function of the same name (`name=`, else the function's own) share
    the work. If it raises, it is called again later.
    """
    global receivers, _ends_hearing
    if not callable(function):
        raise UsageError(f"holdfast.observers.on_alert({function!r:.80}): a function of an alert")
    from holdfast._features.alerts.alerter import Receiver

    named = name or getattr(function, "name", None) or _name_of(function)
    mark = hashlib.sha256(str(named).encode()).hexdigest()[:12]
    if not 0 < unanswered_s < float("inf"):
        raise UsageError(f"unanswered_s={unanswered_s!r}: positive seconds")
    stop, waits_us = getattr(function, "stop", None), round(unanswered_s * 1e6)
    receiver = Receiver(function, str(named), mark, stop, waits_us)
    with _lock:
        receivers = (*receivers, receiver)
        if _ends_hearing is None:
            _ends_hearing = observer_registry.observe(_Ear())

    def end() -> None:
        global receivers, _ends_hearing
        with _lock:
            receivers = tuple(one for one in receivers if one is not receiver)
            if not receivers and _ends_hearing is not None:
                _ends_hearing()
                _ends_hearing = None

    return end


def _name_of(function: Any) -> str:
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    return f"{module}.{name}" if name else type(function).__qualname__


class _Ear(Observer):
    """Hears of runs that are held or fail in this process, so that they need no sweep."""

    def entries_committed(self, run: ObservedRun, entries: Sequence[ObservedEntry]) -> None:
        """Entries of a run were committed by this process."""
        if any(entry.kind in alerts.ENTRIES.values() for entry in entries):
            from holdfast._runtime import engine as engines

            for engine in engines.opened():
                kept = engine.backend
                if (kept.store_id, kept.namespace) == (run.store_id, run.namespace):
                    alerter(engine).hear(run.run_id)
                    return


def alerter(engine: Engine) -> Alerter:
    """Return what sends the alerts of a store in this process."""
    with _lock:
        found = _alerters.get(engine)
        if found is None:
            from holdfast._features.alerts.alerter import Alerter

            found = _alerters[engine] = Alerter(engine, lambda: receivers)
        return found


@atexit.register
def _at_exit() -> None:
    """Send the queued alerts of a program that ends without closing its store."""
    for engine in list(_alerters):
        close(engine)


def close(engine: Engine) -> None:
    """Send what can be sent in a moment: the store is about to be closed."""
    with _lock:
        found = _alerters.pop(engine, None)
    if found is not None:
        found.close()


# -- what workers do ---------------------------------------------------------------------------


def sweep(engine: Engine) -> None:
    """Look at held and failed runs now and then, if there is a receiver."""
    if receivers:
        alerter(engine).sweep()


def report_findings(engine: Engine, row: RunRow, found: Iterable[Finding]) -> bool:
    """Send alerts about what the watchdog found in a run, and about a budget that is nearly used up.
    Returns whether there was room for all of them."""
    if not receivers:
        return True
    store_id, now_us = engine.backend.store_id, engine.now_us()
    goes_on = row.status not in alerts.ENTRIES
    told = alerter(engine)
    taken = True
    for finding in found:
        if finding.severity is not Severity.INFO:
            # Of a run that stands still, what is found is as old as its state.
            began = finding.noted_at if goes_on else finding.since
            at_us = None if began is None else round(began.timestamp() * 1e6)
            taken &= told.offer(alerts.of_finding(store_id, row, finding), at_us)
    account = engine.backend.account(row.root or row.run_id) if goes_on else None
    nearly = None if account is None else alerts.of_budget(store_id, row, account, now_us)
    return taken if nearly is None else told.offer(nearly, None) and taken


def report_unanswered(engine: Engine) -> None:
    """Send alerts about questions and approvals that nobody has answered for a while."""
    if not receivers:
        return
    kept, now_us = engine.backend, engine.now_us()
    for question in kept.questions(None, ASKED_MAX):
        late = [it for it in receivers if now_us - question.asked_us >= it.unanswered_us]
        row = kept.get(question.run_id) if late else None
        if row is None or row.deleted_us is not None:
            continue
        told = alerts.of_question(kept.store_id, row, question)
        for receiver in late:
            since_us = question.asked_us + receiver.unanswered_us
            alerter(engine).offer(told, since_us, (receiver,))


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _alerters.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class AlertSweep(PeriodicJob):
    """Looks at held and failed runs now and then, in a worker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self) -> None:
        """Look, if there is a receiver."""
        sweep(self._engine)
