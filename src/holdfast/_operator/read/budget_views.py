"""Views of a run's budget: its limits, and what is spent."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast._engine.decisions.resume import held_facts
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import HeldReason
from holdfast._engine.journal.rows import Account, RunRow
from holdfast._engine.journal.step_record import facts
from holdfast._engine.values.durations import as_text
from holdfast._features.budgets.model import NANOS, dollars, more, why_not
from holdfast._stores.contract import Store
from holdfast._stores.families import account_of


class BudgetView(msgspec.Struct, frozen=True):
    """A budget as it stands: limits (null is no limit), what is spent, what is left."""

    root: str
    """The run whose budget it is; the runs that it started spend from it too."""
    usd: float | None
    spent_usd: float
    left_usd: float | None
    tokens: int | None
    spent_tokens: int
    left_tokens: int | None
    steps: int | None
    spent_steps: int
    left_steps: int | None
    wall_s: float | None
    elapsed_s: float
    left_s: float | None
    unpriced: tuple[str, ...] = ()
    """Models of this run whose tokens cost nothing in it, since nobody gave them a price."""


def budget_of(store: Store, row: RunRow, past: History) -> BudgetView | None:
    """Return the budget of a run, or of the family that it belongs to; None without one."""
    account = account_of(store, row)
    if account is None:
        return None
    elapsed_us = max(0, store.now_us() - account.opened_us)
    return BudgetView(
        root=account.root,
        usd=None if account.usd_nanos is None else account.usd_nanos / NANOS,
        spent_usd=account.spent_usd_nanos / NANOS,
        left_usd=None
        if account.usd_nanos is None
        else (account.usd_nanos - account.spent_usd_nanos) / NANOS,
        tokens=account.tokens,
        spent_tokens=account.spent_tokens,
        left_tokens=None if account.tokens is None else account.tokens - account.spent_tokens,
        steps=account.steps,
        spent_steps=account.spent_steps,
        left_steps=None if account.steps is None else account.steps - account.spent_steps,
        wall_s=None if account.wall_us is None else account.wall_us / 1e6,
        elapsed_s=elapsed_us / 1e6,
        left_s=None if account.wall_us is None else (account.wall_us - elapsed_us) / 1e6,
        unpriced=unpriced(past),
    )


def unpriced(past: History) -> tuple[str, ...]:
    """Return the models that a run used and that had no price."""
    found: dict[str, None] = {}
    for record in (*past.records.values(), *past.superseded):
        for entry in (record.outcome, record.failure):
            if entry is not None and b'"unpriced":' in entry.body:
                usage: dict[str, Any] = facts(entry).get("usage") or {}
                if "unpriced" in usage:
                    found[str(usage["unpriced"])] = None
    return tuple(found)


def why_used_up(account: Account, now_us: int) -> str:
    """Name the limits of an account that are reached now; empty if none is."""
    return why_not(account, 0, now_us) if more(account, 0, now_us) else ""


def raise_options(account: Account, now_us: int) -> list[str]:
    """Return the options of the command that raises what is used up of an account now; none if nothing is."""
    return more(account, 0, now_us)


def held_detail(store: Store, row: RunRow, past: History) -> str | None:
    """Return why a run is held. Other runs spend from the same budget, so the amounts are those of now,
    not those of the moment when it was held."""
    told = held_facts(past)
    detail: str | None = told.get("detail")
    account = account_of(store, row) if row.held_reason == HeldReason.BUDGET else None
    now = "" if account is None else why_used_up(account, store.now_us())
    if account is None or not now:
        return detail
    whose = "" if account.root == row.run_id else f"; the budget is that of run {account.root!r}"
    return f"{told.get('step') or 'the next step'} was not executed: {now}{whose}"


def line(view: BudgetView) -> str:
    """Return a budget in a line: what is spent, of what."""
    spent = _of(_dollars(view.spent_usd), None if view.usd is None else _dollars(view.usd))
    steps = _of(f"{view.spent_steps:,}", None if view.steps is None else f"{view.steps:,}")
    tokens = _of(f"{view.spent_tokens:,}", None if view.tokens is None else f"{view.tokens:,}")
    parts = [
        f"{spent} spent",
        f"{steps} {_noun('attempt', view.steps, view.spent_steps)}",
        f"{tokens} {_noun('token', view.tokens, view.spent_tokens)}",
    ]
    if view.wall_s is not None:
        parts.append(
            f"{as_text(round(view.elapsed_s * 1e6))} of {as_text(round(view.wall_s * 1e6))}"
        )
    return ", ".join(parts)


def _noun(noun: str, limit: int | None, spent: int) -> str:
    """Return the noun of what is counted: "0 of 1 token", "1 token", "1 of 5 tokens"."""
    return noun if (spent if limit is None else limit) == 1 else noun + "s"


def _dollars(usd: float) -> str:
    return dollars(round(usd * NANOS))


def _of(spent: str, limit: str | None) -> str:
    return spent if limit is None else f"{spent} of {limit}"
