"""Commands that serve a store: the page and its API (`ui`), their tokens (`tokens`), and the tools of an
assistant (`mcp`)."""

from __future__ import annotations

import contextlib
import tempfile
import webbrowser
from collections.abc import Generator
from pathlib import Path
from typing import Any

import click

from holdfast._engine.text import length
from holdfast._operator.cli.exit_codes import OK
from holdfast._operator.cli.reconnecting_store import reconnecting
from holdfast._operator.cli.session import (
    DurationType,
    Session,
    command,
    open_store,
    os_user,
    subgroup,
)
from holdfast._operator.cli.tables import cell, table
from holdfast._operator.web.access_tokens import Role, Token, Tokens
from holdfast._stores import audit_log
from holdfast.errors import UsageError

# -- ui -----------------------------------------------------------------------------------------


PORT = 8321


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    command(group, "ui")(_ui)
    tokens = subgroup(
        "tokens", "Create and revoke tokens for the page, API and metrics.", lists=True
    )
    command(tokens, "list")(_list)
    command(tokens, "create")(_create)
    command(tokens, "revoke")(_revoke)
    command(tokens, "rotate")(_rotate)
    group.add_command(tokens)
    command(group, "mcp")(_mcp)


@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True)
@click.option("--socket", metavar="PATH", help="Listen on a Unix socket instead.")
@click.option("--tls-cert", metavar="FILE", help="Speak TLS with this certificate (PEM).")
@click.option("--tls-key", metavar="FILE", help="The key of the certificate (PEM).")
@click.option(
    "--behind-proxy", metavar="ORIGIN", help="A proxy of yours stands before it: https://NAME."
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="That proxy is on another machine; it is believed where a request came from.",
)
@click.option("--origin", metavar="ORIGIN", help="How browsers reach it, if that is not the host.")
@click.option(
    "--four-eyes",
    metavar="TAG",
    help="Runs name in this tag who started them; that one may not approve what they ask.",
)
@click.option("--open", "open_", is_flag=True, help="Open it in a browser.")
def _ui(
    session: Session,
    host: str,
    port: int,
    socket: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    behind_proxy: str | None,
    trusted_proxies: tuple[str, ...],
    origin: str | None,
    four_eyes: str | None,
    open_: bool,
) -> int:
    """Serve the page and the HTTP API of this store.

    It listens on this machine only, unless TLS or a proxy is stated, and always wants a token. One is
    made for this start, and ends with it; others are made with `holdfast tokens create`.
    """
    try:
        from holdfast._operator.web import http_server
    except ImportError as error:
        raise UsageError(
            f"the page needs more packages ({error.name} is missing): pip install -e '.[web]' in a clone"
        ) from None
    serving = http_server.Serving(
        host=host,
        port=port,
        socket=socket,
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        trusted_proxies=trusted_proxies,
        origin=origin,
        four_eyes=four_eyes,
    )
    http_server.check(serving)
    store = reconnecting(
        session.store(), lambda: open_store(session.url, session.namespace, create=False)
    )
    tokens = Tokens.of(store)
    with http_server.listening(serving) as listener:
        at = http_server.address_of(serving, http_server.port_of(serving, listener))
        made = http_server.made(store, tokens, serving, listener)
        secret = tokens.create_here(os_user(), "operator")
        _tell(session, at, secret, serving.socket)
        with _opened(f"{at}/#token={secret}") if open_ else contextlib.nullcontext():
            made.run(sockets=[listener])
    return OK


@contextlib.contextmanager
def _opened(address: str) -> Generator[None]:
    """Open an address in a browser. It has a token in it, and arguments of processes are seen by all
    users of the machine: so the browser is given a file of ours that leads there."""
    with tempfile.NamedTemporaryFile("w", prefix="holdfast-", suffix=".html") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">')
        file.flush()
        webbrowser.open(Path(file.name).as_uri())
        yield


def _tell(session: Session, at: str, secret: str, socket: str | None) -> None:
    address = f"{at}/#token={secret}"
    if session.as_json:
        session.answer(url=address, token=secret, socket=socket)
    elif socket is not None:
        session.say(f"Listening on {socket}. The token of this start, shown once:")
        session.say(f"  {secret}")
    else:
        session.say(
            "Open this address; it holds a token that is shown once and ends with this start:"
        )
        session.say(f"  {address}")
    session.out.file.flush()


# -- tokens -------------------------------------------------------------------------------------


@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.word for role in Role]),
    default="viewer",
    show_default=True,
    help="viewer looks, operator decides about runs, admin changes queues and schedules too.",
)
@click.option("--expires", type=DurationType(), default="30d", show_default=True)
def _create(session: Session, name: str, role: str, expires: float) -> int:
    """Create a token; it is shown once, and kept as a hash."""
    store = session.store()
    secret = Tokens.of(store).create(name, role, expires)
    audit_log.record(
        store, os_user(), f"token {name}", "created", role=role, expires=length(expires)
    )
    _show(session, name, secret)
    return OK


def _list(session: Session) -> int:
    """List tokens, without their secrets."""
    found = Tokens.of(session.store()).list()
    if session.as_json:
        session.answer(tokens=[_data(it) for it in found])
        return OK
    if not found:
        make = session.pasteable("tokens create NAME --role operator")
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
    """Revoke a token; sessions that use it end."""
    store = session.store()
    gone = Tokens.of(store).revoke(name)
    audit_log.record(store, os_user(), f"token {name}", "revoked", role=gone.role)
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
    audit_log.record(store, os_user(), f"token {name}", "rotated")
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


# -- mcp ----------------------------------------------------------------------------------------


@click.option(
    "--allow-actions",
    is_flag=True,
    help="Let the assistant decide about runs too: answer, approve, settle, cancel …",
)
@click.option("--actor", metavar="NAME", help="Who the assistant acts for; with --allow-actions.")
def _mcp(session: Session, allow_actions: bool, actor: str | None) -> int:
    """Show the runs of this store to an assistant, over MCP on standard input and output.

    An assistant starts it by itself: give it this command. It lists, shows and explains runs, and
    changes nothing. With --allow-actions it has tools that decide about runs, each recorded as done
    by NAME via mcp.
    """
    if allow_actions and not (actor or "").strip():
        raise UsageError(
            "--allow-actions records who decided: --actor NAME says who the assistant acts for"
        )
    if actor is not None and not allow_actions:
        raise UsageError("--actor is for what the assistant may do: --allow-actions")
    try:
        from holdfast.integrations.mcp.server import serve
    except ImportError as error:
        raise UsageError(str(error)) from None
    import holdfast

    session.store()  # One that is not there is said, and not made.
    with holdfast.open(session.url, namespace=session.namespace, default=False) as store:
        serve(store, actor=actor)
    return OK
