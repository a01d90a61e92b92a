"""People who act on what they saw some time ago, and who send more signals than anybody waits for."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import RunRow, etag_of
from holdfast._stores.contract import Committed, Outcome, Posted, Started, Store
from holdfast.errors import HoldfastError
from holdfast.testing.internals import Store as Opened
from holdfast.testing.store_proxy import Through
from tests.simulation.laws import Laws
from tests.simulation.workers import SIGNAL

FORKS_MAX = 3
FLOOD_MAX = 5
MEANWHILE_MAX = 2
"""How often others are quicker than one action."""
FREED = ("paused", "quarantined")
"""What is resumed without a look at the world."""


class Deciding(Through):
    """The store as one action has it: just before it writes, others may do something."""

    def __init__(
        self, inner: Store, laws: Laws, run_id: str, seen: str, meanwhile: Callable[[], None]
    ) -> None:
        super().__init__(inner)
        self.wrote = False
        self._laws = laws
        self._run_id = run_id
        self._seen = seen
        self._meanwhile = meanwhile
        self._left = MEANWHILE_MAX

    def around(self, operation: str, what: str, perform: Callable[[], Any]) -> Any:
        """Hold each write to the law."""
        if operation not in ("start", "append", "post"):
            return perform()
        if self._left:
            self._left -= 1
            self._meanwhile()
        before = self.inner.get(self._run_id)
        result = perform()
        if _has_written(result) and not self.wrote:
            self.wrote = True
            self._laws.acted(before, self._seen, f"{what} for {self._run_id}")
        return result


def _has_written(result: list[Outcome] | Posted | Started) -> bool:
    if isinstance(result, list):
        return any(isinstance(it, Committed) for it in result)
    return result is Posted.ACCEPTED if isinstance(result, Posted) else result.created


class People:
    """What they have seen and sent."""

    def __init__(
        self, operator: Opened, laws: Laws, rng: random.Random, meanwhile: Callable[[], None]
    ) -> None:
        self._operator = operator
        self._kept = operator._backend
        self._laws = laws
        self._rng = rng
        self._meanwhile = meanwhile
        self._views: list[tuple[str, str]] = []
        self._firsts: dict[str, str] = {}
        """The run from which a fork came at first."""
        self._sent: dict[str, int] = {}
        self._acts = 0

    def first(self, run_id: str) -> str:
        """Return the run whose input this one has."""
        return self._firsts.get(run_id, run_id)

    def see(self, row: RunRow) -> str:
        """Somebody looks at a run, and thinks about it."""
        self._views.append((row.run_id, etag_of(row)))
        return f"somebody sees {row.run_id} as {etag_of(row)}"

    def act(self) -> tuple[str, str | None, str]:
        """Act on something that was seen; returns what came of it, and the fork that was made."""
        if not self._views:
            return "nobody acts", None, ""
        run_id, seen = self._views.pop(self._rng.randrange(len(self._views)))
        self._acts += 1
        fork = None
        deciding = Deciding(self._kept, self._laws, run_id, seen, self._meanwhile)
        opened = Opened(deciding.as_store(), self._operator._engine)
        what, perform = self._chosen(opened, run_id, seen)
        if what == "fork":
            fork = f"{run_id}-{self._acts}"
        try:
            perform()
        except HoldfastError as error:
            self._laws.refused(f"{what} of {run_id}", wrote=deciding.wrote, fork=fork)
            return f"{what} of {run_id}: {type(error).__name__}", None, run_id
        if fork is not None:
            self._firsts[fork] = self.first(run_id)
        return f"{what} of {run_id} on {seen}: done", fork, run_id

    def _chosen(self, store: Opened, run_id: str, seen: str) -> tuple[str, Callable[[], Any]]:
        row = self._kept.get(run_id)
        assert row is not None
        steps = [
            entry.step
            for entry in self._kept.load(row)
            if entry.kind is Kind.STEP_STARTED and entry.step is not None
        ]
        who = f"person {self._acts}"
        ways: list[tuple[str, Callable[[], Any]]] = [
            (
                "pause",
                lambda: store.pause(run_id, actor=who, wait_s=0, expected_version=seen),
            ),
            (
                "cancel",
                lambda: store.cancel(run_id, actor=who, wait_s=0, expected_version=seen),
            ),
        ]
        if steps and len(self._firsts) < FORKS_MAX:
            before, name = self._rng.choice(steps), f"{run_id}-{self._acts}"

            def fork() -> object:
                return store.fork(
                    run_id, name, before=before, actor=who, confirm=True, expected_version=seen
                )

            ways += [("fork", fork)] * 3
        if row.status is Status.HELD and row.held_reason in FREED:
            ways.append(("resume", lambda: store.resume(run_id, actor=who, expected_version=seen)))
        return self._rng.choice(ways)

    def send_what_is_waited_for(self, rows: Sequence[RunRow]) -> str:
        """Send a signal to a run that waits for one and has none in its inbox."""
        for row in rows:
            if row.status is Status.WAITING and not self._kept.inbox(row.run_no):
                return self.flood(row.run_id, 1)
        return "nobody waits for a signal in vain"

    def flood(self, run_id: str, count: int | None = None) -> str:
        """Send signals to a run, whether it waits or not: the last one of those before once more."""
        first = self._sent.get(run_id, 0)
        count = self._rng.randint(1, FLOOD_MAX) if count is None else count
        for number in range(max(first - 1, 0), first + count):
            name = f"{run_id}/{number}"
            try:
                sent = self._operator.signal(
                    run_id, SIGNAL, number, signal_id=name, actor="operator"
                )
            except HoldfastError as error:
                return f"{run_id} takes no signal: {type(error).__name__}"
            self._laws.signalled(run_id, name, new=sent.new)
            self._sent[run_id] = number + 1
        return f"{count} signals to {run_id}"
