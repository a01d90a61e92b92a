"""The command `audit`: who changed queues, schedules and tokens."""

from __future__ import annotations

import click
import msgspec

from holdfast._ops import audit
from holdfast._ops.cli.session import Session, command
from holdfast._ops.cli.tables import cell, table
from holdfast._store.addresses import NoStore


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "audit", pages=True)(_audit)


@click.option(
    "--limit",
    type=click.IntRange(1, audit.LISTED_MAX),
    default=50,
    show_default=True,
    help="How many, the newest first.",
)
def _audit(session: Session, limit: int) -> None:
    """Show who changed what belongs to no run: queues, schedules, tokens, an adopted store.

    What was decided about a run is in its history. This is kept for ninety days.
    """
    try:
        found = audit.listed(session.store(), limit)
    except NoStore as missing:
        if session.as_json:
            session.answer(audit=[])
        else:
            session.say(f"Nothing was changed: {missing}.")
        return
    if session.as_json:
        session.answer(audit=found)
        return
    if not found:
        session.say("Nothing was changed in the last ninety days.")
        return
    rows = table("WHEN", "WHO", "WHAT", "DID")
    for it in found:
        detail = msgspec.json.encode(it.detail).decode() if it.detail else ""
        did = f"{it.did} {detail}".strip()
        rows.add_row(cell(f"{it.at:%Y-%m-%d %H:%M:%S}"), cell(it.actor), cell(it.what), cell(did))
    session.show(rows)
