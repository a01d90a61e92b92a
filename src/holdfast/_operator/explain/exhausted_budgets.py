"""Explain a run's budget: what is spent, and why an exhausted budget holds the run."""

from __future__ import annotations

from holdfast._engine.decisions.resume import held_facts
from holdfast._engine.text import count
from holdfast._operator.explain.causes import others_for, raise_command
from holdfast._operator.explain.explanation import Case
from holdfast._operator.read.budget_views import budget_of, held_detail, line, why_used_up
from holdfast._stores.families import account_of


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
    case.progress()
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
