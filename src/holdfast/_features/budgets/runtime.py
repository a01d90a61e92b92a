"""A run with a budget, performed: its account is opened, a raise is taken in, models have prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._engine.journal.changes import TakeMessage
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.rows import Account, Lease, Message, RunRow, Write
from holdfast._engine.scripts.requests import StepCall
from holdfast._engine.values.money import nanos
from holdfast._features.budgets import prices
from holdfast._features.budgets.model import BudgetGate, Spending, new_account
from holdfast._runtime import log as logs
from holdfast._stores.families import account_of

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.execution.execution import Execution

Cost = float | Callable[..., Any] | None

_unpriced: set[str] = set()
"""Models without a price that the log has told of already."""


class RunBudget:
    """The budget of one run at work: gives each of its calls a gate."""

    def __init__(self, account: Account) -> None:
        self.counts_usd = account.usd_nanos is not None
        self._spending = Spending(account)

    def gate(self, call: StepCall, cost: Cost, arguments: Mapping[str, Any]) -> BudgetGate:
        """Return the gate of a call; its declared cost may be worked out from its arguments."""
        amount = cost(**arguments) if callable(cost) else cost
        cost_nanos = 0 if amount is None else nanos(amount, f"reserve_usd= of {call.spec.name}")
        return BudgetGate(self._spending, call.key, cost_nanos)


def opened(engine: Engine, row: RunRow, history: History) -> RunBudget | None:
    """Return the budget of a run that has a budget, or whose family has one. The account is opened
    before the first step; one that is there stays as it is."""
    limits = _declared(history)
    if row.root is None and limits is None:
        return None
    prices.read_file()
    account = account_of(engine.backend, row)
    if account is None and limits is not None:
        made = new_account(row.run_id, limits, engine.now_us())
        account = engine.backend.put_account(made, only_new=True)
    return None if account is None else RunBudget(account)


def _declared(history: History) -> dict[str, int] | None:
    started = history.started
    if started is None or b'"budget":' not in started.body:
        return None
    recorded = started.data().get("budget")
    return None if recorded is None else msgspec.json.decode(recorded, type=dict[str, int])


# -- raised while it is at work -----------------------------------------------------------------


def budget_set(message: Message) -> Draft:
    """Return the entry of a decision that was taken while this process had the run."""
    return Draft(Kind.BUDGET_SET, message.at_us, body=message.body)


def take_in(execution: Execution, message: Message) -> None:
    """Write the entry of a raise beside the run's work."""
    entry = budget_set(message)
    execution.recorder.write(
        [entry], execution.recorder.in_background, changes=[TakeMessage(message.message_id)]
    )


def decided(lease: Lease, message: Message) -> Write:
    """Return the write of a raise that came while this process had the run."""
    return Write(lease, [budget_set(message)])


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
    """Return what so many tokens of a model cost. A model without a price costs nothing; for a run with
    a budget in dollars, that is logged once and recorded."""
    model = str(used.get("model", ""))
    price = prices.price_of(model)
    if price is not None:
        return price.usd(input_tokens, output_tokens)
    budget = budget_of(execution)
    if budget is not None and budget.counts_usd:
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


def begin(execution: Execution) -> None:
    """Give each call of a run with a budget a gate."""
    budget = opened(execution.engine, execution.lease.row, execution.history)
    if budget is not None:
        execution.gates.append(budget)


def budget_of(execution: Execution) -> RunBudget | None:
    """Return the budget of a run at work."""
    return next((it for it in execution.gates if isinstance(it, RunBudget)), None)
