"""Budgets: the limits of a family of runs, and how an attempt pays for itself. Pure.

A run with a budget writes the start of every attempt ahead, and takes what the attempt may cost
from its account in that same transaction: the store refuses the write if the account has not got it, and
then nothing is executed. The write that ends the attempt settles what it really cost. So whatever
dies in between, the account never knows of less than was spent.

    begin ── Append(start, Spend: 1 step, declared cost) ─┬─ Call ── Append(outcome, Spend: the rest)
                                                          └─ exhausted ► held, raise-budget goes on
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.changes import Exhausted, Spend, is_exhausted, spent
from holdfast._engine.journal.rows import Account, Change, Refused, Write
from holdfast._engine.scripts.requests import Append, Gate, Now, Poll, Script, StepCall
from holdfast._engine.scripts.stops import Unwind
from holdfast._engine.values.durations import Duration, as_text, micros
from holdfast._engine.values.money import COUNT_MAX, USD_MAX, Amount, dollars, exact, nanos
from holdfast.errors import RunHeld, UsageError


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a run, together with the runs that it starts. None is no limit.

    `usd` in dollars; `tokens` of models, in and out; `steps` counts every executed attempt; `wall`
    is the time since the run was first taken up: seconds, a timedelta, or a string such as "2h".
    """

    usd: Amount | None = None
    tokens: int | None = None
    steps: int | None = None
    wall: Duration | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense, at the line where it is written."""
        if self.usd is not None:
            nanos(self.usd, "Budget(usd=…)")
        for name in ("tokens", "steps"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 0 <= value <= COUNT_MAX):
                raise UsageError(f"Budget({name}={value!r}): a whole number, not below 0")
        if self.wall is not None:
            micros(self.wall, "Budget(wall=…)")
        if not limits_of(self):
            raise UsageError("Budget() has no limit: give usd=, tokens=, steps= or wall=")


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The price of a model, in dollars for a million input or output tokens."""

    input_mtok: Amount
    output_mtok: Amount

    def __post_init__(self) -> None:
        """Refuse what is no price."""
        nanos(self.input_mtok, "Price(input_mtok=…)")
        nanos(self.output_mtok, "Price(output_mtok=…)")

    def usd(self, input_tokens: int, output_tokens: int) -> float:
        """Return what so many tokens cost, in dollars."""
        millionths = exact(self.input_mtok) * input_tokens + exact(self.output_mtok) * output_tokens
        return float(millionths / 1_000_000)


# -- usage -------------------------------------------------------------------------------------


def added(name: str, before: float, amount: float) -> float:
    """Add this usage to what `record_usage` got before; refuse at once what no account could count. Once the
    body has returned it is too late: its effect has happened."""
    most = USD_MAX if name == "cost" else COUNT_MAX
    if amount > most or before + amount > most:
        raise UsageError(f"record_usage({name}={amount!r:.80}): a step counts up to {most:,}")
    return before + amount


# -- limits ------------------------------------------------------------------------------------


def limits_of(budget: Budget) -> dict[str, int]:
    """Return the limits that a budget sets, as `run_started` records them and an account has them."""
    limits: dict[str, int] = {}
    if budget.usd is not None:
        limits["usd_nanos"] = nanos(budget.usd, "Budget(usd=…)")
    if budget.tokens is not None:
        limits["tokens"] = budget.tokens
    if budget.steps is not None:
        limits["steps"] = budget.steps
    if budget.wall is not None:
        limits["wall_us"] = micros(budget.wall, "Budget(wall=…)")
    return limits


def checked_budget(budget: Any, what: str) -> Budget | None:
    """Return what `budget=` was given, or refuse it where it is written."""
    if budget is None or isinstance(budget, Budget):
        return budget
    raise UsageError(f"budget={budget!r:.80} of {what}: a holdfast.Budget(usd=…, tokens=…, …)")


def new_account(root: str, limits: Mapping[str, int], opened_us: int) -> Account:
    """Return the account that a run opens for itself and those that it starts."""
    return Account(
        root,
        opened_us,
        usd_nanos=limits.get("usd_nanos"),
        tokens=limits.get("tokens"),
        steps=limits.get("steps"),
        wall_us=limits.get("wall_us"),
    )


# -- an attempt pays ---------------------------------------------------------------------------


class Spending:
    """The account of one execution: the reservations of its calls, and their debts.
    The account itself is the store's."""

    def __init__(self, account: Account) -> None:
        self.root = account.root
        self.counts_usd = account.usd_nanos is not None
        self._reserved: dict[str, int] = {}
        """The reservations for calls that are under way, by step key."""
        self._asked: dict[str, int] = {}
        """How many calls had settled when a call asked the account."""
        self._settled = 0
        self._owed: Spend | None = None

    def reserve(self, key: str, cost_nanos: int) -> None:
        """Take note that an attempt asks the account for what it may cost."""
        self._reserved[key] = cost_nanos
        self._asked[key] = self._settled

    def settle(self, key: str, spend: Spend | None) -> Spend | None:
        """Take note that an attempt settles; returns that with what earlier ones still owe."""
        self._reserved.pop(key, None)
        self._settled += 1
        owed, self._owed = self._owed, None
        return together(spend, owed)

    def owe(self, spend: Spend) -> None:
        """A settlement was not written: it goes with the next one."""
        self._owed = together(self._owed, spend)

    def give_back(self, key: str) -> None:
        """Forget what was reserved for a call."""
        self._reserved.pop(key, None)

    def has_settled(self, key: str) -> bool:
        """Return whether any call has settled since this one asked the account, which refused it."""
        return self._asked.get(key) != self._settled

    def may_get(self, cost_nanos: int, account: Account, now_us: int) -> bool:
        """Return whether an account that refused a call would have enough for it if the other branches of
        the run gave back all that they have reserved."""
        others = sum(self._reserved.values())
        if not others or account.usd_nanos is None:
            return False
        cost = Spend(account.root, usd_nanos=cost_nanos, steps=1)
        gives_back = Spend(account.root, usd_nanos=-others)
        return not is_exhausted(spent(account, gives_back), cost, now_us)


class BudgetGate(Gate):
    """Reserves what an attempt of one call may cost, and settles what it did cost."""

    def __init__(self, spending: Spending, key: str, cost_nanos: int = 0) -> None:
        self._spending = spending
        self._key = key
        self._cost_nanos = cost_nanos
        self._reserved_nanos: int | None = None
        """The reservation for the attempt that is under way."""
        self._counted = (0, 0)
        """The part of the call's usage that the account has counted: nano dollars and tokens."""

    def start(self, call: StepCall) -> Sequence[Change]:
        cost = self._cost_nanos
        return (Spend(self._spending.root, usd_nanos=cost, steps=1, checks=True),)

    def refused(self, call: StepCall, refusal: Refused, run_id: str) -> Script:
        if not isinstance(refusal, Exhausted):
            return None
        account = refusal.account

        def look(now_us: int) -> bool | None:
            if self._spending.has_settled(self._key):
                return True
            return None if self._spending.may_get(self._cost_nanos, account, now_us) else False

        # What other branches have reserved may come back: then there is enough after all.
        changed: bool = yield Poll(call, look)
        if not changed:
            now_us: int = yield Now()
            raise self._held(call, account, now_us, run_id)
        return None

    def changes(self, request: Append) -> Sequence[Change]:
        call = request.call
        if any(isinstance(change, Spend) for change in request.changes):
            self._reserved_nanos = self._cost_nanos
            self._spending.reserve(self._key, self._cost_nanos)
            return ()
        spend = self._spending.settle(self._key, self._settlement(call))
        if request.notes and request.notes[-1].ends_attempt:
            self._counted = (0, 0)  # The usage is recorded now; the next attempt starts at zero.
        return () if spend is None else (spend,)

    def withdrawn(self, write: Write) -> None:
        for spend in write.of(Spend):
            if spend.checks:
                self._reserved_nanos = None
            else:
                self._spending.owe(spend)
        self._spending.give_back(self._key)

    def _settlement(self, call: StepCall) -> Spend | None:
        """Return what the end of an attempt takes from the account beside what was reserved for it.

        It cost what `record_usage(cost_usd=…)` said, or what it was declared to cost. An attempt whose body was
        never called gives everything back.
        """
        reserved, root = self._reserved_nanos, self._spending.root
        if reserved is None:
            return None
        self._reserved_nanos = None
        if not call.attempt.begun:
            return Spend(root, usd_nanos=-reserved, steps=-1)
        usage = call.attempt.usage or {}
        reported = nanos(min(usage.get("cost", 0), USD_MAX), "record_usage(cost_usd=…)")
        tokens = min(COUNT_MAX, int(usage.get("input_tokens", 0) + usage.get("output_tokens", 0)))
        # What an earlier attempt that is in doubt has reported stands in the same record.
        reported_before, tokens_before = self._counted
        self._counted = (reported, tokens)
        says_nothing = "cost" not in usage or reported == reported_before > 0
        cost = reserved if says_nothing else reported - reported_before
        spend = Spend(root, usd_nanos=cost - reserved, tokens=tokens - tokens_before)
        return spend if spend.usd_nanos or spend.tokens else None

    def _held(self, call: StepCall, account: Account, now_us: int, run_id: str) -> Unwind:
        cost = self._cost_nanos
        detail = f"{call.key} was not executed: {why_not(account, cost, now_us)}"
        if account.root != run_id:
            detail += f"; the budget is that of run {account.root!r}"
        action = command("set-budget", run_id, *more(account, cost, now_us))
        return Unwind(RunHeld(run_id, "budget", detail, (action,), step=call.key))


def together(one: Spend | None, other: Spend | None) -> Spend | None:
    """Return two spends as one."""
    if one is None or other is None:
        return one or other
    return Spend(
        one.root,
        usd_nanos=one.usd_nanos + other.usd_nanos,
        tokens=one.tokens + other.tokens,
        steps=one.steps + other.steps,
        checks=one.checks,
    )


# -- messages ----------------------------------------------------------------------------------


def why_not(account: Account, cost_nanos: int, now_us: int) -> str:
    """Name the limit of an account that is reached."""
    told: list[str] = []
    if account.usd_nanos is not None and _is_over(
        account.usd_nanos, account.spent_usd_nanos, cost_nanos
    ):
        needs = f", and it may cost {dollars(cost_nanos)}" if cost_nanos else ""
        told.append(
            f"{dollars(account.spent_usd_nanos)} of {dollars(account.usd_nanos)} is spent{needs}"
        )
    if account.tokens is not None and account.spent_tokens >= account.tokens:
        told.append(f"{account.spent_tokens:,} of {account.tokens:,} tokens are used")
    if account.steps is not None and account.spent_steps >= account.steps:
        told.append(f"{account.spent_steps:,} of {account.steps:,} steps are used")
    if account.wall_us is not None and now_us - account.opened_us >= account.wall_us:
        told.append(f"the {as_text(account.wall_us)} that it may take are over")
    return " and ".join(told) or "its budget was used up"


def _is_over(limit: int, spent: int, amount: int) -> bool:
    return spent + amount > limit or (amount <= 0 and spent >= limit)


def more(account: Account, cost_nanos: int, now_us: int) -> list[str]:
    """Return the options of a command that sets as much again, and enough for the next step."""
    options: list[str] = []
    if account.usd_nanos is not None and _is_over(
        account.usd_nanos, account.spent_usd_nanos, cost_nanos
    ):
        enough = max(
            2 * account.usd_nanos, account.spent_usd_nanos + max(cost_nanos, account.usd_nanos)
        )
        options += ["--usd", dollars(enough).lstrip("$").replace(",", "")]
    if account.tokens is not None and account.spent_tokens >= account.tokens:
        options += ["--tokens", str(account.spent_tokens + max(account.tokens, 1))]
    if account.steps is not None and account.spent_steps >= account.steps:
        options += ["--steps", str(account.spent_steps + max(account.steps, 1))]
    if account.wall_us is not None and now_us - account.opened_us >= account.wall_us:
        options += [
            "--wall",
            _seconds(now_us - account.opened_us + max(account.wall_us, 1_000_000)),
        ]
    return options


def _seconds(us: int) -> str:
    return f"{us / 1e6:.0f}" if us >= 10_000_000 else f"{us / 1e6:g}"
