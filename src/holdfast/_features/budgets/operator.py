"""The budgets of runs as operators see them: the view, why one holds a run, and new limits.

A decision on limits is recorded first, then the account is changed, then the runs that were held for it
are freed. If the process dies in between, each change that it made is recorded, and the same command
does the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.decisions.action_result import TRIES, Answer, check_actor
from holdfast._engine.decisions.resume import draft, facts_of, held_facts, refuse_moved
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import FINAL, HeldReason, Status
from holdfast._engine.journal.rows import Account, Lease, Message, RunRow, Write, is_moved
from holdfast._engine.journal.step_record import facts
from holdfast._engine.text import count
from holdfast._engine.values.durations import as_text
from holdfast._engine.values.money import NANOS, dollars
from holdfast._features.budgets.model import Budget, limits_of, more, new_account, why_not
from holdfast._features.operator_side import Action, Case, HeldRun, Holds, OperatorSide
from holdfast._stores import lineage
from holdfast._stores.contract import Committed, Query, Store
from holdfast._stores.expected_version import checked_etag
from holdfast._stores.families import account_of
from holdfast._stores.lookups import existing_row
from holdfast.errors import RunEnded, StaleView, UsageError

PAGE = 1000


# -- the view ----------------------------------------------------------------------------------


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


# -- explanation -------------------------------------------------------------------------------


def about_budget(case: Case) -> None:
    """Explain the spending of a run with a budget."""
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
    """Explain why a run is held for its budget, and what lets it go on."""
    facts, row = held_facts(case.past), case.row
    told = held_detail(case.store, row, case.past) or ""
    case.said.case = f"{case.name} is held, since its budget is used up: {told}."
    case.said.unknown.append("What the rest of it will cost.")
    account, was = account_of(case.store, row), facts.get("actions", ())
    others = 0 if account is None else others_for(case.store, row, account)
    if others:
        runs = count(others, "other run")
        case.said.known.append(
            f"{runs} of its family {'is' if others == 1 else 'are'} held for it."
        )
    goes_on = "they all go on" if others else "it goes on"
    cmd = "" if account is None else raise_command(case.store, account, row, was)
    for action in [cmd] if cmd else was:
        case.do(f"Raise its limit (as a whole, not what is added), and {goes_on}:", str(action))
    if account is None or not why_used_up(account, case.now_us):
        case.do("If it was raised, or can do with what is left, let it go on:", case.cmd("resume"))


def raise_command(store: Store, account: Account, row: RunRow, was: Iterable[Any] = ()) -> str:
    """Return the command that raises a budget by what is spent of it now. It names the run whose
    budget it is; if that has ended, the one that is held. `was` is what was recorded when it was
    held: that holds where only the declared cost of a step stands in the way."""
    options = raise_options(account, store.now_us())
    root = store.get(account.root)
    over = root is None or root.deleted_us is not None or root.status in FINAL
    name = row.run_id if over else account.root
    if options:
        return command("set-budget", name, *options)
    for action in was:
        return str(action).partition("  ")[0]
    return ""


def others_for(store: Store, row: RunRow, account: Account) -> int:
    """Return how many other runs of a family are held for the same budget."""
    query = Query(status=[Status.HELD], held_reason=HeldReason.BUDGET.value, limit=PAGE)
    family = row.root or row.run_id
    alike = [
        other
        for other in store.list(query)
        if (other.root or other.run_id) == family and other.run_id != row.run_id
    ]
    return sum(1 for other in alike if (it := account_of(store, other)) and it.root == account.root)


def _shared(store: Store, row: RunRow) -> tuple[str, Account] | None:
    """Return the account that a held run shares with others."""
    account = account_of(store, row)
    return None if account is None else (account.root, account)


def _cause(store: Store, account: Account, together: Sequence[HeldRun]) -> tuple[str, list[Action]]:
    """Explain an account that holds these runs, and return the command that frees all of them."""
    what = f"the budget of run {account.root} is used up"
    spent = why_used_up(account, store.now_us())
    last = together[-1]
    cmd = raise_command(store, account, last.row, last.facts.get("actions", ()))
    all_of_them = f"all {len(together):,} go on" if len(together) > 1 else "it goes on"
    meaning = f"Raise its limit (as a whole, not what is added), and {all_of_them}:"
    detail = str(last.facts.get("detail", ""))
    return f"{what}: {spent or detail}", [Action(meaning, cmd)] if cmd else []


# -- new limits --------------------------------------------------------------------------------


def set_budget(
    store: Store, run_id: str, budget: Budget, *, actor: str, expected_version: str | None = None
) -> Answer:
    """Set new limits of the budget that a run spends from; a limit that is not given stays. Runs that
    were held for the budget are released."""
    check_actor(actor)
    if not isinstance(budget, Budget):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"set_budget(…, budget={budget!r:.80}): a holdfast.Budget(usd=…, …)")
    row = existing_row(store, run_id)
    checked_etag(store, row, expected_version)
    before = _account(store, row)
    after = msgspec.structs.replace(before, **limits_of(budget))
    _check(store, row, after)
    _refuse_moved(store, row)
    shared = before.root != run_id
    _record(store, before, limits_of(budget), actor, None if shared else expected_version)
    store.put_account(after)
    # A move from now on takes the account along; one that came in between has not seen it.
    _refuse_moved(store, existing_row(store, before.root))
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
    """Return the account that a run spends from; a run that has not begun has no account yet."""
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
    """Refuse limits below the amount spent, and a run that has ended."""
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
                f"`{name}` of the budget of run {account.root!r} cannot be {told[0]}: {told[1]} is "
                "spent already; set at least as much"
            )
    elapsed_us = store.now_us() - account.opened_us
    if account.wall_us is not None and account.wall_us <= elapsed_us:
        raise UsageError(
            f"`wall` of the budget of run {account.root!r} cannot be {as_text(account.wall_us)}: it was "
            f"opened {as_text(elapsed_us)} ago; set more than that"
        )


def _record(
    store: Store,
    before: Account,
    limits: dict[str, int],
    actor: str,
    expected_version: str | None,
) -> None:
    """Write the decision into the journal of the run that has the budget. If a live process owns that
    run, leave the decision in its inbox."""
    facts = {"actor": actor, "to": limits, "before": _account_facts(before)}
    for _ in range(TRIES):
        row = existing_row(store, before.root)
        etag = checked_etag(store, row, expected_version)
        _refuse_moved(store, row)
        if row.status in FINAL:
            return  # Its children are still at work; their journals record the release.
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
                etag,
            )
            return
    raise StaleView(before.root)


def _refuse_moved(store: Store, row: RunRow) -> None:
    if is_moved(row):
        refuse_moved(lineage.fold(store, row))


def _account_facts(account: Account) -> dict[str, int]:
    names = ("usd_nanos", "tokens", "steps", "wall_us")
    limits = {name: getattr(account, name) for name in names}
    spent = {
        name: getattr(account, name) for name in ("spent_usd_nanos", "spent_tokens", "spent_steps")
    }
    return {name: value for name, value in {**limits, **spent}.items() if value is not None}


def _held(store: Store, account: Account) -> Iterator[RunRow]:
    """Yield the runs that are held because this account is exhausted."""
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


OPERATOR_SIDE = OperatorSide(
    name="budgets",
    explain=about_budget,
    holds={HeldReason.BUDGET: Holds(explain=held_for_budget, shared=_shared, cause=_cause)},
)
