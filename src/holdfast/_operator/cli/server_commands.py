"""Commands that serve a store: the page and its API (`ui`), their tokens (`tokens`), and MCP tools
for assistants (`mcp`)."""

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
@click.option("--tls-cert", metavar="FILE", help="Serve TLS with this certificate (PEM).")
@click.option("--tls-key", metavar="FILE", help="The private key of the certificate (PEM).")
@click.option(
    "--behind-proxy", metavar="ORIGIN", help="The address of your reverse proxy: https://NAME."
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="The address of a proxy on another machine. Its client addresses are trusted.",
)
@click.option(
    "--origin", metavar="ORIGIN", help="The origin that browsers use, if it is not the host."
)
@click.option(
    "--four-eyes",
    metavar="TAG",
    help="The tag that names who started a run. That actor may not approve the run's effects.",
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

    It listens on this machine only, unless you configure TLS or a proxy, and always requires a
    token. The command creates a token that is valid until it stops; `holdfast tokens create`
    creates others.
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
    """Open an address in a browser. The address contains a token, and all users of the machine can
    read the arguments of processes. So the browser opens a private file that redirects there."""
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
        session.say(
            f"Listening on {socket}. The token, shown once and valid until this command stops:"
        )
        session.say(f"  {secret}")
    else:
        session.say(
            "Open this address. It contains a token, shown once and valid until this command stops:"
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
    help="viewer: read; operator: also decide about runs; admin: also queues and schedules.",
)
@click.option("--expires", type=DurationType(), default="30d", show_default=True)
def _create(session: Session, name: str, role: str, expires: float) -> int:
    """Create a token. It is shown once and stored as a hash."""
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
        session.say(f"No tokens. To create one: {make}")
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
    """Give a token a new secret; the old one stops working at once."""
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
    session.note(f"The token of {name}, shown only now:")
    session.say(secret)


# -- mcp ----------------------------------------------------------------------------------------


@click.option(
    "--allow-actions",
    is_flag=True,
    help="Let the assistant also decide about runs: answer, approve, settle, cancel …",
)
@click.option(
    "--actor", metavar="NAME", help="The person for whom the assistant acts; with --allow-actions."
)
def _mcp(session: Session, allow_actions: bool, actor: str | None) -> int:
    """Serve the runs of this store to an assistant, over MCP on standard input and output.

    Configure this command in the assistant, which starts it. Its tools list, show and explain runs,
    and change nothing. With --allow-actions it also has tools that decide about runs; each decision
    is recorded as made by NAME via mcp.
    """
    if allow_actions and not (actor or "").strip():
        raise UsageError(
            "--allow-actions requires --actor NAME: decisions are recorded under this name"
        )
    if actor is not None and not allow_actions:
        raise UsageError("--actor requires --allow-actions")
    try:
        from holdfast.integrations.mcp.server import serve
    except ImportError as error:
        raise UsageError(str(error)) from None
    import holdfast

    session.store()  # Report a missing store; do not create it.
    with holdfast.open(session.url, namespace=session.namespace, default=False) as store:
        serve(store, actor=actor)
    return OK
