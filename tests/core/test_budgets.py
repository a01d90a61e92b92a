"""Budgets, pure: amounts, and that the pot never knows of less than was spent, whatever dies."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from holdfast._core import budgets
from holdfast._core.budgets import NANOS, Budget, Price, dollars, limits_of, nanos, new_pot
from holdfast._core.changes import Exhausted, Spend, is_exhausted, spent
from holdfast._core.entries import Kind
from holdfast._core.requests import Append, Note, Now, Spec, StepCall, Unreserved, Wrote
from holdfast._core.rows import Pot
from holdfast._core.stops import Unwind
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
    assert new_pot("r", limits, 5) == Pot("r", 5, 30 * CENT, 10, 2, 3_600_000_000)


def test_tokens_are_priced_by_the_million():
    price = Price(input_mtok=2.5, output_mtok=Decimal(10))
    assert price.usd(1_000_000, 0) == 2.5
    assert price.usd(1000, 500) == pytest.approx(0.0075)
    with pytest.raises(UsageError, match="Price"):
        Price(input_mtok=-1, output_mtok=1)


# -- an attempt pays ---------------------------------------------------------------------------


class Till:
    """A pot as a store keeps it, and what was really spent outside."""

    def __init__(self, limit: int) -> None:
        self.pot = Pot("r", 0, usd_nanos=limit)
        self.spent_outside = 0
        self.settled = 0
        self.reserved_by_the_dead = 0

    def attempt(self, declared: int, actual: int, dies: str) -> bool:
        """Pay for one attempt that dies before, after or never; False if the pot refused it."""
        call = StepCall(Spec("s"), "s", 0, None, "", None, pot="r", cost_nanos=declared)
        if dies == "before":
            return True
        try:
            self._drive(budgets.begun(call, [Note(Kind.STEP_STARTED)], "r"))
        except Unwind as unwind:
            return not isinstance(unwind.error, RunHeld)
        if dies == "unbegun":
            self.reserved_by_the_dead += declared
            return True
        call.begun = True
        self.spent_outside += actual
        if dies == "inside":
            self.reserved_by_the_dead += declared
            return True
        call.usage = {"cost": actual / NANOS}
        rest = budgets.settlement(call)
        if rest is not None:
            self.pot = spent(self.pot, rest)
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
                    assert isinstance(request, Unreserved | Now)
                    answer = 0 if isinstance(request, Now) else False
        except StopIteration:
            return

    def _append(self, request: Append) -> Wrote:
        for spend in request.changes:
            assert isinstance(spend, Spend)
            if is_exhausted(self.pot, spend, 0):
                return Wrote(refused=Exhausted(self.pot))
            self.pot = spent(self.pot, spend)
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
            till.pot.usd_nanos = highest
    return till, highest


def check(till: Till, highest: int) -> None:
    assert till.pot.spent_usd_nanos == till.settled + till.reserved_by_the_dead
    assert till.spent_outside <= till.pot.spent_usd_nanos <= highest


@given(CENTS, ATTEMPTS)
def test_whatever_dies_the_pot_knows_of_all_that_was_spent_and_the_limit_holds(limit, attempts):
    check(*played(limit, attempts))


def test_without_a_reservation_deaths_would_overspend(monkeypatch):
    """The planted bug: the cost is counted only when the outcome is there."""

    def free(call: StepCall, notes: list[Note], run_id: str, claim: Any = None) -> Any:
        yield Append(call, notes)
        call.reserved_nanos = 0

    deaths = [(30 * CENT, 1, "inside", False)] * 4
    check(*played(100 * CENT, deaths))
    monkeypatch.setattr(budgets, "begun", free)
    till, highest = played(100 * CENT, deaths)
    assert till.spent_outside > highest
    with pytest.raises(AssertionError):
        check(till, highest)


def call_with(**fields: Any) -> StepCall:
    return StepCall(Spec("s"), "s", 0, None, "", None, pot="r", **fields)


def settled(call: StepCall) -> Spend:
    spend = budgets.settlement(call)
    assert spend is not None
    return spend


def test_an_attempt_costs_what_it_reports_or_else_what_it_declares():
    assert budgets.settlement(call_with(reserved_nanos=None)) is None
    silent = call_with(reserved_nanos=30, begun=True)
    assert budgets.settlement(silent) is None, "the reservation is what it cost"
    free = call_with(reserved_nanos=30 * CENT, begun=True, usage={"cost": 0})
    assert settled(free).usd_nanos == -30 * CENT
    dear = call_with(
        reserved_nanos=30 * CENT,
        begun=True,
        usage={"cost": 0.5, "input_tokens": 7, "output_tokens": 3},
    )
    paid = settled(dear)
    assert (paid.usd_nanos, paid.tokens, paid.steps, paid.checks) == (20 * CENT, 10, 0, False)
    assert budgets.settlement(dear) is None, "it is settled once"


def test_a_body_that_was_never_called_gives_everything_back():
    back = settled(call_with(reserved_nanos=30, begun=False))
    assert (back.usd_nanos, back.steps) == (-30, -1)


def test_what_an_attempt_in_doubt_reported_is_not_counted_again():
    call = call_with(reserved_nanos=0, begun=True, usage={"cost": 0.2, "input_tokens": 5})
    assert settled(call).usd_nanos == 20 * CENT
    call.reserved_nanos = 10 * CENT
    assert budgets.settlement(call) is None, "the second reported nothing: as declared"
    call.reserved_nanos = 10 * CENT
    call.usage = {"cost": 0.25, "input_tokens": 8}
    paid = settled(call)
    assert (paid.usd_nanos, paid.tokens) == (-5 * CENT, 3)
