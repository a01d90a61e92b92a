"""Set the limits of a run's budget: an entry with the actor who decided it.

The entry comes first, then the pot, then the runs that were held for it are freed. Whoever dies in
between has raised nothing that is not recorded, and the same command once more does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast._engine.decisions.resume import draft, facts_of
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.lifecycle import FINAL, HeldReason, Status
from holdfast._engine.journal.rows import Lease, Message, Pot, RunRow, Write
from holdfast._engine.values.durations import shown
from holdfast._features.budgets.model import Budget, dollars, limits_of, new_pot
from holdfast._operator.act.action_result import TRIES, Answer, check_actor
from holdfast._operator.read.run_views import existing_row
from holdfast._operator.text import count
from holdfast._stores.contract import Committed, Query, Store
from holdfast._stores.families import pot_of
from holdfast.errors import StaleView, UsageError

PAGE = 1000


# -- setting ----------------------------------------------------------------------------------


def set_budget(store: Store, run_id: str, budget: Budget, *, actor: str) -> Answer:
    """Set new limits of the budget that a run spends from; those that are not given stay. Runs that
    were held for it go on."""
    check_actor(actor)
    if not isinstance(budget, Budget):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"set_budget(…, budget={budget!r:.80}): a holdfast.Budget(usd=…, …)")
    row = existing_row(store, run_id)
    before = _pot(store, row)
    after = msgspec.structs.replace(before, **limits_of(budget))
    _check(store, row, after)
    _record(store, before, limits_of(budget), actor)
    store.put_pot(after)
    freed = [held.run_id for held in _held(store, before) if _released(store, held, actor)]
    row = existing_row(store, run_id)
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
    facts = {"actor": actor, "to": limits, "before": _account_facts(before)}
    for _ in range(TRIES):
        row = existing_row(store, before.root)
        if row.status in FINAL:
            return  # Those that it started are still at work; their journals have the release.
        at_us = store.now_us()
        entry = draft(Kind.BUDGET_SET, at_us, facts)
        write = Write(Lease(row, acting=True), [entry])
        if isinstance(store.append([write])[0], Committed):
            return
        if row.owner is not None and existing_row(store, before.root).owner == row.owner:
            number = f"budget_set:{at_us}:{actor}"[:200]
            store.post(
                row.run_id,
                Message(number, "budget_set", actor, at_us, msgspec.json.encode(facts)),
            )
            return
    raise StaleView(before.root)


def _account_facts(pot: Pot) -> dict[str, int]:
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
        facts = {"why": "budget_set", "actor": actor}
        release: Draft = draft(Kind.RUN_RELEASED, store.now_us(), facts)
        write = Write(Lease(row, acting=True), [release], row={"waiting_on": None})
        if isinstance(store.append([write])[0], Committed):
            return True
        row = existing_row(store, row.run_id)
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
