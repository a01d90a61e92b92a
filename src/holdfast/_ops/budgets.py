"""Raising a budget: a person's decision, an entry with its actor; and what explanations say of it.

The entry comes first, then the pot, then the runs that were held for it are freed. Whoever dies in
between has raised nothing that is not recorded, and the same command once more does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast._core.budgets import Budget, dollars, limits_of, new_pot
from holdfast._core.durations import shown
from holdfast._core.entries import Draft, Kind
from holdfast._core.lifecycle import FINAL, HeldReason, Status
from holdfast._core.resume import draft, facts_of, held_facts
from holdfast._core.rows import Lease, Message, Pot, RunRow, Write
from holdfast._ops.actions import TRIES, Answer, check_actor
from holdfast._ops.budget_view import budget_of, held_detail, line, why_used_up
from holdfast._ops.causes import others_for, raise_command
from holdfast._ops.explanation import Case
from holdfast._ops.inspect import found
from holdfast._ops.text import count
from holdfast._store.contract import Committed, Query, Store
from holdfast._store.families import pot_of
from holdfast.errors import StaleView, UsageError

PAGE = 1000


# -- raising -----------------------------------------------------------------------------------


def raise_budget(store: Store, run_id: str, to: Budget, *, actor: str) -> Answer:
    """Set new limits of the budget that a run spends from; those that are not given stay. Runs that
    were held for it go on."""
    check_actor(actor)
    if not isinstance(to, Budget):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"set_budget(…, budget={to!r:.80}): a holdfast.Budget(usd=…, …)")
    row = found(store, run_id)
    before = _pot(store, row)
    after = msgspec.structs.replace(before, **limits_of(to))
    _check(store, row, after)
    _record(store, before, limits_of(to), actor)
    store.put_pot(after)
    freed = [held.run_id for held in _held(store, before) if _released(store, held, actor)]
    row = found(store, run_id)
    return Answer(
        run_id=row.run_id,
        flow=row.flow,
        status=str(row.status),
        did=f"the budget of run {before.root!r} is now {_limits(after)}",
        recorded=True,
        goes_on=row.status is Status.QUEUED or bool(freed),
        freed=tuple(other for other in freed if other != run_id),
    )


def _pot(store: Store, row: RunRow) -> Pot:
    """Return the pot that a run spends from; one that has not begun yet has not opened it."""
    pot = pot_of(store, row)
    if pot is not None:
        return pot
    started = store.entry(row.run_no, 1)
    limits: dict[str, int] | None = None if started is None else facts_of(started).get("budget")
    if limits:
        return new_pot(row.run_id, limits, store.now_us())
    raise UsageError(
        f"run {row.run_id!r} has no budget that could be raised; a run gets one when it is started: "
        "@flow(budget=Budget(…)), or flow.with_options(budget=…)"
    )


def _check(store: Store, row: RunRow, pot: Pot) -> None:
    """Refuse limits that are below what is spent, and a run that has ended."""
    if row.status in FINAL:
        raise UsageError(
            f"run {row.run_id!r} is {row.status}, and that is final; it spends nothing"
        )
    for name, limit, spent in (
        ("usd", pot.usd_nanos, pot.spent_usd_nanos),
        ("tokens", pot.tokens, pot.spent_tokens),
        ("steps", pot.steps, pot.spent_steps),
    ):
        if limit is not None and limit < spent:
            told = (dollars(limit), dollars(spent)) if name == "usd" else (limit, spent)
            raise UsageError(
                f"the budget of run {pot.root!r} cannot be {name}={told[0]}: {told[1]} is spent "
                "already; set at least as much"
            )
    elapsed_us = store.now_us() - pot.opened_us
    if pot.wall_us is not None and pot.wall_us <= elapsed_us:
        raise UsageError(
            f"the budget of run {pot.root!r} cannot be wall={shown(pot.wall_us)}: it was opened "
            f"{shown(elapsed_us)} ago; set more than that with wall= (--wall)"
        )


def _record(store: Store, before: Pot, limits: dict[str, int], actor: str) -> None:
    """Write the decision into the journal of the run whose budget it is; if a live process has that
    run, it does so."""
    facts = {"actor": actor, "to": limits, "before": _recorded(before)}
    for _ in range(TRIES):
        row = found(store, before.root)
        if row.status in FINAL:
            return  # Those that it started are still at work; their journals have the release.
        at_us = store.now_us()
        entry = draft(Kind.BUDGET_RAISED, at_us, facts)
        write = Write(Lease(row, acting=True), [entry])
        if isinstance(store.append([write])[0], Committed):
            return
        if row.owner is not None and found(store, before.root).owner == row.owner:
            number = f"budget_raised:{at_us}:{actor}"[:200]
            store.post(
                row.run_id,
                Message(number, "budget_raised", actor, at_us, msgspec.json.encode(facts)),
            )
            return
    raise StaleView(before.root)


def _recorded(pot: Pot) -> dict[str, int]:
    names = ("usd_nanos", "tokens", "steps", "wall_us")
    limits = {name: getattr(pot, name) for name in names}
    spent = {
        name: getattr(pot, name) for name in ("spent_usd_nanos", "spent_tokens", "spent_steps")
    }
    return {name: value for name, value in {**limits, **spent}.items() if value is not None}


def _held(store: Store, pot: Pot) -> Iterator[RunRow]:
    """Yield the runs that are held because this pot had not enough."""
    query = Query(status=[Status.HELD], held_reason=HeldReason.BUDGET.value, limit=PAGE)
    while True:
        rows = store.list(query)
        for row in rows:
            spends_from = pot_of(store, row)
            if spends_from is not None and spends_from.root == pot.root:
                yield row
        if len(rows) < PAGE:
            return
        query.before_run_no = rows[-1].run_no


def _released(store: Store, row: RunRow, actor: str) -> bool:
    for _ in range(TRIES):
        if row.status is not Status.HELD or row.held_reason != HeldReason.BUDGET:
            return False
        facts = {"why": "budget_raised", "actor": actor}
        release: Draft = draft(Kind.RUN_RELEASED, store.now_us(), facts)
        write = Write(Lease(row, acting=True), [release], row={"waiting_on": None})
        if isinstance(store.append([write])[0], Committed):
            return True
        row = found(store, row.run_id)
    return False


def _limits(pot: Pot) -> str:
    told: list[str] = []
    if pot.usd_nanos is not None:
        told.append(dollars(pot.usd_nanos))
    if pot.tokens is not None:
        told.append(count(pot.tokens, "token"))
    if pot.steps is not None:
        told.append(count(pot.steps, "step"))
    if pot.wall_us is not None:
        told.append(shown(pot.wall_us))
    return ", ".join(told)


# -- what explanations say ---------------------------------------------------------------------


def about_budget(case: Case) -> None:
    """Say what a run with a budget has spent."""
    view = budget_of(case.store, case.row, case.past)
    if view is not None:
        whose = "" if view.root == case.row.run_id else f" (that of run {view.root})"
        case.said.known.append(f"Its budget{whose}: {line(view)}.")
        for model in view.unpriced:
            case.said.known.append(
                f"Tokens of model {model} cost nothing in it: nobody gave it a price "
                "(holdfast.pricing.set_prices)."
            )


def held_for_budget(case: Case) -> None:
    """Say why a run is held for its budget, and what lets it go on."""
    facts, row = held_facts(case.past), case.row
    told = held_detail(case.store, row, case.past) or ""
    case.said.case = f"{case.name} is held, since its budget is used up: {told}."
    case.progress()
    case.said.unknown.append("What the rest of it will cost.")
    pot, was = pot_of(case.store, row), facts.get("actions", ())
    others = 0 if pot is None else others_for(case.store, row, pot)
    if others:
        runs = count(others, "other run")
        case.said.known.append(
            f"{runs} of its family {'is' if others == 1 else 'are'} held for it."
        )
    goes_on = "they all go on" if others else "it goes on"
    cmd = "" if pot is None else raise_command(case.store, pot, row, was)
    for action in [cmd] if cmd else was:
        case.do(f"Raise its limit (as a whole, not what is added), and {goes_on}:", str(action))
    if pot is None or not why_used_up(pot, case.now_us):
        case.do("If it was raised, or can do with what is left, let it go on:", case.cmd("resume"))
