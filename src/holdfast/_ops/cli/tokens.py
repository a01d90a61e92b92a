"""The commands `token …`: who may use the page, the API and the metrics of a store."""

from __future__ import annotations

from typing import Any

import click

from holdfast._core.durations import micros
from holdfast._ops import audit
from holdfast._ops.cli.session import OK, Session, command, os_user
from holdfast._ops.cli.tables import cell, table
from holdfast._ops.tokens import Role, Token, Tokens


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    command(token, "create")(_create)
    command(token, "list")(_list)
    command(token, "revoke")(_revoke)
    command(token, "rotate")(_rotate)
    group.add_command(token)


@click.group("token")
def token() -> None:
    """Make and revoke tokens for the page, the API and the metrics."""


@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.word for role in Role]),
    default="viewer",
    show_default=True,
    help="viewer looks, operator decides about runs, admin changes queues and schedules too.",
)
@click.option("--expires", metavar="AGE", default="30d", show_default=True, help="12h, 30d …")
def _create(session: Session, name: str, role: str, expires: str) -> int:
    """Make a token. It is shown once, and kept only as a hash."""
    store = session.store()
    secret = Tokens.of(store).create(name, role, micros(expires, "--expires") / 1e6)
    audit.record(store, os_user(), f"token {name}", "created", role=role, expires=expires)
    _show(session, name, secret)
    return OK


def _list(session: Session) -> int:
    """List the tokens of this store, without their secrets."""
    found = Tokens.of(session.store()).list()
    if session.as_json:
        session.answer(tokens=[_data(it) for it in found])
        return OK
    if not found:
        make = session.pasteable("token create NAME --role operator")
        session.say(f"No tokens. Make one with: {make}")
        return OK
    rows = table("NAME", "ROLE", "MADE", "UNTIL", "")
    for it in found:
        over = "" if it.holds() else "over"
        made, until = (f"{at:%Y-%m-%d %H:%M} UTC" for at in (it.created_at, it.expires_at))
        rows.add_row(cell(it.name), cell(it.role), cell(made), cell(until), cell(over, "dim"))
    session.show(rows)
    return OK


@click.argument("name")
def _revoke(session: Session, name: str) -> int:
    """Remove a token; who is signed in with it is signed out."""
    store = session.store()
    gone = Tokens.of(store).revoke(name)
    audit.record(store, os_user(), f"token {name}", "revoked", role=gone.role)
    if session.as_json:
        session.answer(revoked=_data(gone))
    else:
        session.say(f"The token {name} is revoked.")
    return OK


@click.argument("name")
def _rotate(session: Session, name: str) -> int:
    """Give a token a new secret; the old one ends at once."""
    store = session.store()
    secret = Tokens.of(store).rotate(name)
    audit.record(store, os_user(), f"token {name}", "rotated")
    _show(session, name, secret)
    return OK


def _data(it: Token) -> dict[str, Any]:
    return {
        "name": it.name,
        "role": it.role,
        "created_at": it.created_at,
        "expires_at": it.expires_at,
        "holds": it.holds(),
    }


def _show(session: Session, name: str, secret: str) -> None:
    if session.as_json:
        session.answer(name=name, token=secret)
        return
    session.note(f"The token of {name}; it is shown only now:")
    session.say(secret)
