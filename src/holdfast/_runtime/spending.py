"""A run with a budget, performed: its pot, what its branches have reserved, what it still owes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._core.budgets import nanos, new_pot, settlement, together
from holdfast._core.changes import Spend, TakeMessage, is_exhausted, spent
from holdfast._core.entries import Draft, Kind
from holdfast._core.history import History
from holdfast._core.requests import Append, StepCall, Unreserved
from holdfast._core.rows import Message, Pot, RunRow, Write
from holdfast._runtime import logs, prices
from holdfast._runtime.mail import handlers
from holdfast._store.families import pot_of

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.execution import Execution

Cost = float | Callable[..., Any] | None

POLL_S = 0.02
"""A branch that the pot refused looks this often whether another has given something back."""

BUDGET_RAISED = "budget_raised"
"""The kind of a message that says so; the pot itself is raised already."""

_unpriced: set[str] = set()
"""Models without a price that the log has told of already."""


class Spending:
    """What one execution knows of its pot. The pot itself is the store's."""

    def __init__(self, pot: Pot) -> None:
        self.root = pot.root
        self.counts_usd = pot.usd_nanos is not None
        self._reserved: dict[str, int] = {}
        """What was taken from the pot for calls that are under way, by step key."""
        self._asked: dict[str, int] = {}
        """How many calls had settled when a call asked the pot."""
        self._settled = 0
        self._owed: Spend | None = None

    def prepare(self, call: StepCall, cost: Cost, arguments: Mapping[str, Any]) -> None:
        """Give a call its pot, and what each of its attempts is declared to cost."""
        call.pot = self.root
        amount = cost(**arguments) if callable(cost) else cost
        if amount is not None:
            call.cost_nanos = nanos(amount, f"reserve_usd= of {call.spec.name}")

    def of(self, request: Append) -> Spend | None:
        """Return what a write takes from the pot beside what it reserves; called under the run's
        lock."""
        call = request.call
        if any(isinstance(change, Spend) for change in request.changes):
            self._reserved[call.key] = call.cost_nanos
            self._asked[call.key] = self._settled
            return None
        if call.pot is None:
            return None
        spend = settlement(call)
        self._reserved.pop(call.key, None)
        self._settled += 1
        if request.notes and request.notes[-1].ends_attempt:
            call.counted = (0, 0)  # What it used is recorded now, and counted from nought again.
        owed, self._owed = self._owed, None
        return together(spend, owed)

    def refused(self, write: Write) -> None:
        """A write was refused: what it would have settled goes with the next one."""
        for spend in write.of(Spend):
            if not spend.checks:
                self._owed = together(self._owed, spend)
        for draft in write.drafts:
            self._reserved.pop(str(draft.step), None)

    def has_settled(self, call: StepCall) -> bool:
        """Say whether any call has settled since this one asked the pot, which refused it."""
        return self._asked.get(call.key) != self._settled

    def may_get(self, call: StepCall, pot: Pot, now_us: int) -> bool:
        """Say whether a pot that refused a call would have enough for it, if the other branches of
        the run gave back all that they have reserved."""
        self._reserved.pop(call.key, None)
        others = sum(self._reserved.values())
        if not others or pot.usd_nanos is None:
            return False
        cost = Spend(pot.root, usd_nanos=call.cost_nanos, steps=1)
        gives_back = Spend(pot.root, usd_nanos=-others)
        return not is_exhausted(spent(pot, gives_back), cost, now_us)


def opened(engine: Engine, row: RunRow, history: History) -> Spending | None:
    """Return the spending of a run that has a budget, or whose family has one. The pot is opened
    before the first step; one that is there stays as it is."""
    limits = _declared(history)
    if row.root is None and limits is None:
        return None
    prices.read_file()
    pot = pot_of(engine.kept, row)
    if pot is None and limits is not None:
        made = new_pot(row.run_id, limits, engine.now_us())
        pot = engine.kept.put_pot(made, only_new=True)
    return None if pot is None else Spending(pot)


def _declared(history: History) -> dict[str, int] | None:
    started = history.started
    if started is None or b'"budget":' not in started.body:
        return None
    recorded = started.data().get("budget")
    return None if recorded is None else msgspec.json.decode(recorded, type=dict[str, int])


def wait_for_others(execution: Execution, request: Unreserved) -> bool:
    """Wait until another branch has settled what it reserved; False if that cannot help."""
    spending, call = execution.spending, request.call
    assert spending is not None
    if not spending.has_settled(call):
        if not spending.may_get(call, request.pot, execution.engine.now_us()):
            return False
        while not spending.has_settled(call):
            execution.interrupted.wait(POLL_S)
            execution.check()
    return True


async def await_others(execution: Execution, request: Unreserved) -> bool:
    """The same in an event loop."""
    import asyncio

    spending, call = execution.spending, request.call
    assert spending is not None
    if not spending.has_settled(call):
        if not spending.may_get(call, request.pot, execution.engine.now_us()):
            return False
        while not spending.has_settled(call):
            await asyncio.sleep(POLL_S)
            execution.check()
    return True


# -- raised while it is at work -----------------------------------------------------------------


def budget_raised(message: Message) -> Draft:
    """Return the entry of a decision that was taken while this process had the run."""
    return Draft(Kind.BUDGET_RAISED, message.at_us, body=message.body)


def _take_in(execution: Execution, message: Message) -> None:
    entry = budget_raised(message)
    execution.write([entry], execution.in_background, changes=[TakeMessage(message.message_id)])


handlers[BUDGET_RAISED] = _take_in


# -- what is declared --------------------------------------------------------------------------


def checked_cost(cost: Any, name: str) -> Cost:
    """Return what `reserve_usd=` of a step was given, or refuse it where it is written."""
    if cost is None or callable(cost):
        return cost  # type: ignore[no-any-return]
    nanos(cost, f"reserve_usd= of {name}")
    return cost  # type: ignore[no-any-return]


# -- what a model call cost --------------------------------------------------------------------


def priced(
    execution: Execution, used: dict[str, Any], input_tokens: int, output_tokens: int
) -> float | None:
    """Return what so many tokens of a model cost. A model that nobody gave a price costs nothing,
    which a run with a budget in dollars is told: once in the log, and in its record."""
    model = str(used.get("model", ""))
    price = prices.price_of(model)
    if price is not None:
        return price.usd(input_tokens, output_tokens)
    if execution.spending is not None and execution.spending.counts_usd:
        used["unpriced"] = model or "unknown"
        _tell(model)
    return None


def _tell(model: str) -> None:
    if model in _unpriced:
        return
    _unpriced.add(model)
    logs.warning(
        "the model %r has no price, so its tokens cost nothing in a budget of dollars; give it one: "
        "holdfast.pricing.set_prices({%r: holdfast.pricing.Price(input_mtok=…, output_mtok=…)}), or record_usage(cost_usd=…)",
        model,
        model or "model",
    )
