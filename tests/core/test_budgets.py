"""Budgets, pure: amounts, and that the account never knows of less than was spent, whatever dies."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, strategies as st

from holdfast._engine.journal.changes import Exhausted, Spend, is_exhausted, spent
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import Account, Change, Write
from holdfast._engine.scripts.attempts import started
from holdfast._engine.scripts.requests import (
    Append,
    Attempt,
    Note,
    Now,
    Poll,
    Spec,
    StepCall,
    Wrote,
)
from holdfast._engine.scripts.stops import Unwind
from holdfast._engine.values.money import NANOS, dollars, nanos
from holdfast._features.budgets.model import (
    Budget,
    BudgetGate,
    Price,
    Spending,
    limits_of,
    new_account,
)
from holdfast.errors import RunHeld, UsageError

CENT = NANOS // 100


# -- amounts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0.1, NANOS // 10),
        (0.3, 3 * NANOS // 10),
        (1, NANOS),
        (Decimal("0.000000001"), 1),
        (1e-9, 1),
        (1e-12, 0),
        (123456.789, 123_456_789_000_000),
        (0, 0),
    ],
)
def test_money_is_what_it_says(amount, expected):
    assert nanos(amount, "x") == expected


@pytest.mark.parametrize("amount", [-1, -0.01, math.nan, math.inf, Decimal("NaN"), True, "1", 1e10])
def test_what_is_no_money_is_refused(amount):
    with pytest.raises(UsageError, match="dollars"):
        nanos(amount, "x")


@given(st.integers(0, 10**17))
def test_a_tenth_of_a_cent_survives_the_way_through_a_float(amount):
    amount -= amount % 1000
    assert nanos(amount / NANOS, "x") == pytest.approx(amount, abs=100)
    assert nanos(Decimal(amount) / NANOS, "x") == amount


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0.00"),
        (30 * CENT, "$0.30"),
        (NANOS, "$1.00"),
        (1234 * NANOS + 5, "$1,234.000000005"),
        (-CENT, "-$0.01"),
    ],
)
def test_dollars_are_written_as_people_write_them(amount, text):
    assert dollars(amount) == text


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"usd": -1},
        {"usd": math.nan},
        {"tokens": 1.5},
        {"steps": -1},
        {"steps": True},
        {"wall": -1},
        {"wall": "soon"},
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_where_it_is_written(wrong: Any):
    with pytest.raises(UsageError, match="Budget"):
        Budget(**wrong)


def test_limits_are_whole_numbers():
    budget = Budget(usd=Decimal("0.3"), tokens=10, steps=2, wall=dt.timedelta(hours=1))
    limits = {"usd_nanos": 30 * CENT, "tokens": 10, "steps": 2, "wall_us": 3_600_000_000}
    assert limits_of(budget) == limits
    assert limits_of(Budget(wall="1h")) == {"wall_us": 3_600_000_000}
    assert new_account("r", limits, 5) == Account("r", 5, 30 * CENT, 10, 2, 3_600_000_000)


def test_tokens_are_priced_by_the_million():
    price = Price(input_mtok=2.5, output_mtok=Decimal(10))
    assert price.usd(1_000_000, 0) == 2.5
    assert price.usd(1000, 500) == pytest.approx(0.0075)
    with pytest.raises(UsageError, match="Price"):
        Price(input_mtok=-1, output_mtok=1)


# -- an attempt pays ---------------------------------------------------------------------------


class Till:
    """An account as a store keeps it, and what was really spent outside."""

    def __init__(self, limit: int) -> None:
        self.account = Account("r", 0, usd_nanos=limit)
        self.spent_outside = 0
        self.settled = 0
        self.reserved_by_the_dead = 0

    def attempt(self, declared: int, actual: int, dies: str) -> bool:
        """Pay for one attempt that dies before, after or never; False if the account refused it."""
        gate = BudgetGate(Spending(self.account), "s", declared)
        call = call_with(gate)
        if dies == "before":
            return True
        try:
            self._drive(started(call, [Note(Kind.STEP_STARTED)], "r"))
        except Unwind as unwind:
            return not isinstance(unwind.error, RunHeld)
        if dies == "unbegun":
            self.reserved_by_the_dead += declared
            return True
        call.attempt.begun = True
        self.spent_outside += actual
        if dies == "inside":
            self.reserved_by_the_dead += declared
            return True
        call.attempt.usage = {"cost": actual / NANOS}
        for rest in settlement(gate, call):
            self.account = spent(self.account, rest)
        self.settled += actual
        return True

    def _drive(self, script: Any) -> None:
        answer: Any = None
        try:
            while True:
                request = script.send(answer)
                if isinstance(request, Append):
                    answer = self._append(request)
                else:
                    assert isinstance(request, Poll | Now)
                    answer = 0 if isinstance(request, Now) else request.look(0)
                    assert answer is not None, "no other branch can give anything back"
        except StopIteration:
            return

    def _append(self, request: Append) -> Wrote:
        for gate in request.call.gates:
            assert not gate.changes(request)
        for spend in request.changes:
            assert isinstance(spend, Spend)
            if is_exhausted(self.account, spend, 0):
                for gate in request.call.gates:
                    gate.withdrawn(write_of(request.changes))
                return Wrote(refused=Exhausted(self.account))
            self.account = spent(self.account, spend)
        return Wrote()


CENTS = st.integers(0, 100).map(lambda cents: cents * CENT)
DEATHS = st.sampled_from(["never", "never", "before", "unbegun", "inside"])
ATTEMPTS = st.lists(st.tuples(CENTS, st.fractions(0, 1), DEATHS, st.booleans()), max_size=30)


def played(limit: int, attempts: list[Any]) -> tuple[Till, int]:
    till, highest = Till(limit), limit
    for declared, share, dies, raises in attempts:
        went_on = till.attempt(declared, int(declared * share), dies)
        if not went_on and raises:
            highest += 50 * CENT
            till.account.usd_nanos = highest
    return till, highest


def check(till: Till, highest: int) -> None:
    assert till.account.spent_usd_nanos == till.settled + till.reserved_by_the_dead
    assert till.spent_outside <= till.account.spent_usd_nanos <= highest


@given(CENTS, ATTEMPTS)
def test_whatever_dies_the_account_knows_of_all_that_was_spent_and_the_limit_holds(limit, attempts):
    check(*played(limit, attempts))


def test_without_a_reservation_deaths_would_overspend(monkeypatch):
    """The planted bug: the cost is counted only when the outcome is there."""

    def free(gate: BudgetGate, call: StepCall) -> list[Spend]:
        return [Spend("r", steps=1, checks=True)]

    deaths = [(30 * CENT, 1, "inside", False)] * 4
    check(*played(100 * CENT, deaths))
    monkeypatch.setattr(BudgetGate, "start", free)
    till, highest = played(100 * CENT, deaths)
    assert till.spent_outside > highest
    with pytest.raises(AssertionError):
        check(till, highest)


def call_with(gate: BudgetGate, **fields: Any) -> StepCall:
    return StepCall(Spec("s"), "s", 0, None, "", None, gates=[gate], attempt=Attempt(**fields))


def reserving(cost_nanos: int, **fields: Any) -> tuple[BudgetGate, StepCall]:
    """Return a gate that has reserved so much for an attempt, and the call."""
    gate = BudgetGate(Spending(Account("r", 0)), "s", cost_nanos)
    call = call_with(gate, **fields)
    reserve(gate, call)
    return gate, call


def write_of(changes: Sequence[Change]) -> Write:
    """Return a write of any run."""
    return Write(cast("Any", None), [], changes=changes)


def reserve(gate: BudgetGate, call: StepCall) -> None:
    start = Append(call, [Note(Kind.STEP_STARTED)], changes=gate.start(call))
    assert not gate.changes(start), "the start has the reservation itself"


def settlement(gate: BudgetGate, call: StepCall) -> list[Spend]:
    """Return what a write behind the start takes from the account."""
    found = gate.changes(Append(call, [Note(Kind.STEP_IN_DOUBT)]))
    return [change for change in found if isinstance(change, Spend)]


def test_an_attempt_costs_what_it_reports_or_else_what_it_declares():
    unreserved = BudgetGate(Spending(Account("r", 0)), "s", 30)
    assert settlement(unreserved, call_with(unreserved)) == []
    assert settlement(*reserving(30, begun=True)) == [], "the reservation is what it cost"
    [free] = settlement(*reserving(30 * CENT, begun=True, usage={"cost": 0}))
    assert free.usd_nanos == -30 * CENT
    usage = {"cost": 0.5, "input_tokens": 7, "output_tokens": 3}
    gate, call = reserving(30 * CENT, begun=True, usage=usage)
    [paid] = settlement(gate, call)
    assert (paid.usd_nanos, paid.tokens, paid.steps, paid.checks) == (20 * CENT, 10, 0, False)
    assert settlement(gate, call) == [], "it is settled once"


def test_a_body_that_was_never_called_gives_everything_back():
    [back] = settlement(*reserving(30, begun=False))
    assert (back.usd_nanos, back.steps) == (-30, -1)


def test_what_an_attempt_in_doubt_reported_is_not_counted_again():
    gate, call = reserving(10 * CENT, begun=True, usage={"cost": 0.2, "input_tokens": 5})
    [first] = settlement(gate, call)
    assert first.usd_nanos == 10 * CENT
    reserve(gate, call)
    assert settlement(gate, call) == [], "the second reported nothing: as declared"
    reserve(gate, call)
    call.attempt.usage = {"cost": 0.25, "input_tokens": 8}
    [paid] = settlement(gate, call)
    assert (paid.usd_nanos, paid.tokens) == (-5 * CENT, 3)


def test_a_settlement_that_was_not_written_goes_with_the_next_one():
    gate, call = reserving(10 * CENT, begun=True, usage={"cost": 0.25})
    owed = settlement(gate, call)
    gate.withdrawn(write_of(owed))
    assert settlement(gate, call) == owed


def test_a_branch_waits_only_for_what_others_have_reserved():
    spending, account = Spending(Account("r", 0, usd_nanos=CENT)), Account("r", 0, usd_nanos=CENT)
    gate, other = BudgetGate(spending, "s", CENT), BudgetGate(spending, "t", CENT)
    full = msgspec.structs.replace(account, spent_usd_nanos=CENT)
    call = call_with(gate)

    def poll() -> Poll:
        reserve(gate, call)
        gate.withdrawn(write_of(gate.start(call)))
        request: Any = next(gate.refused(call, Exhausted(full), "r"))
        assert isinstance(request, Poll)
        return request

    assert poll().look(0) is False, "nobody can give anything back"
    reserve(other, call_with(other))
    waiting = poll()
    assert waiting.look(0) is None
    settlement(other, call_with(other, begun=True))
    assert waiting.look(0) is True
