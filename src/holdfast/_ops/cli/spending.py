"""The command that lets a run spend more: raise-budget."""

from __future__ import annotations

import click

from holdfast._core.budgets import Budget
from holdfast._ops import budgets
from holdfast._ops.cli.acting import duration, tell
from holdfast._ops.cli.session import Session, command
from holdfast.errors import UsageError


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "raise-budget", acts=True)(_raise_budget)


@click.argument("run_id")
@click.option("--usd", type=float, metavar="DOLLARS", help="The new limit in dollars.")
@click.option("--tokens", type=int, metavar="NUMBER", help="The new limit of tokens.")
@click.option("--steps", type=int, metavar="NUMBER", help="The new limit of executed attempts.")
@click.option(
    "--wall", metavar="TIME", help="The new limit of time since it began: 2h, 3d, or seconds."
)
def _raise_budget(
    session: Session,
    run_id: str,
    usd: float | None,
    tokens: int | None,
    steps: int | None,
    wall: str | None,
    actor: str,
) -> None:
    """Set new limits of a run's budget, and let it go on if it was held for it.

    A limit is the whole, with what is spent already. Limits that are not given stay as they are. The
    budget is that of the run at the top of the family; RUN_ID may be any run of it.
    """
    if usd is None and tokens is None and steps is None and wall is None:
        raise UsageError("say at least one of --usd, --tokens, --steps and --wall")
    to = Budget(usd=usd, tokens=tokens, steps=steps, wall=duration(wall))
    tell(session, budgets.raise_budget(session.store(), run_id, to, actor=actor))
