"""Set the limits of a run's budget: an entry with the actor who decided it.

The entry comes first, then the account, then the runs that were held for it are freed. Whoever dies in
between has raised nothing that is not recorded, and the same command once more does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast._engine.decisions.action_result import TRIES, Answer, check_actor
from holdfast._engine.decisions.resume import draft, facts_of
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.lifecycle import FINAL, HeldReason, Status
from holdfast._engine.journal.rows import Account, Lease, Message, RunRow, Write
from holdfast._engine.text import count
from holdfast._engine.values.durations import as_text
from holdfast._features.budgets.model import Budget, dollars, limits_of, new_account
from holdfast._stores.contract import Committed, Query, Store
from holdfast._stores.families import account_of
from holdfast._stores.lookups import existing_row
from holdfast.errors import RunEnded, StaleView, UsageError

PAGE = 1000


# -- setting ----------------------------------------------------------------------------------


def set_budget(store: Store, run_id: str, budget: Budget, *, actor: str) -> Answer:
    """Set new limits of the budget that a run spends from; those that are not given stay. Runs that
    were held for it go on."""
    check_actor(actor)
    if not isinstance(budget, Budget):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"set_budget(…, budget={budget!r:.80}): a holdfast.Budget(usd=…, …)")
    row = existing_row(store, run_id)
    before = _account(store, row)
    after = msgspec.structs.replace(before, **limits_of(budget))
    _check(store, row, after)
    _record(store, before, limits_of(budget), actor)
    store.put_account(after)
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


def _account(store: Store, row: RunRow) -> Account:
    """Return the account that a run spends from; one that has not begun yet has not opened it."""
    account = account_of(store, row)
    if account is not None:
        return account
    started = store.entry(row.run_no, 1)
    limits: dict[str, int] | None = None if started is None else facts_of(started).get("budget")
    if limits:
        return new_account(row.run_id, limits, store.now_us())
    raise UsageError(
        f"run {row.run_id!r} has no budget that could be raised; a run gets one when it is started: "
        "@flow(budget=Budget(…)), or flow.with_options(budget=…)"
    )


def _check(store: Store, row: RunRow, account: Account) -> None:
    """Refuse limits that are below what is spent, and a run that has ended."""
    if row.status in FINAL:
        raise RunEnded(row.run_id, row.status, "a budget", "that is final; it spends nothing")
    for name, limit, spent in (
        ("usd", account.usd_nanos, account.spent_usd_nanos),
        ("tokens", account.tokens, account.spent_tokens),
        ("steps", account.steps, account.spent_steps),
    ):
        if limit is not None and limit < spent:
            told = (dollars(limit), dollars(spent)) if name == "usd" else (limit, spent)
            raise UsageError(
                f"the budget of run {account.root!r} cannot be {name}={told[0]}: {told[1]} is spent "
                "already; set at least as much"
            )
    elapsed_us = store.now_us() - account.opened_us
    if account.wall_us is not None and account.wall_us <= elapsed_us:
        raise UsageError(
            f"the budget of run {account.root!r} cannot be wall={as_text(account.wall_us)}: it was opened "
            f"{as_text(elapsed_us)} ago; set more than that with wall= (--wall)"
        )


def _record(store: Store, before: Account, limits: dict[str, int], actor: str) -> None:
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


def _account_facts(account: Account) -> dict[str, int]:
    names = ("usd_nanos", "tokens", "steps", "wall_us")
    limits = {name: getattr(account, name) for name in names}
    spent = {
        name: getattr(account, name) for name in ("spent_usd_nanos", "spent_tokens", "spent_steps")
    }
    return {name: value for name, value in {**limits, **spent}.items() if value is not None}


def _held(store: Store, account: Account) -> Iterator[RunRow]:
    """Yield the runs that are held because this account had not enough."""
    query = Query(status=[Status.HELD], held_reason=HeldReason.BUDGET.value, limit=PAGE)
    while True:
        rows = store.list(query)
        for row in rows:
            spends_from = account_of(store, row)
            if spends_from is not None and spends_from.root == account.root:
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


def _limits(account: Account) -> str:
    told: list[str] = []
    if account.usd_nanos is not None:
        told.append(dollars(account.usd_nanos))
    if account.tokens is not None:
        told.append(count(account.tokens, "token"))
    if account.steps is not None:
        told.append(count(account.steps, "step"))
    if account.wall_us is not None:
        told.append(as_text(account.wall_us))
    return ", ".join(told)
