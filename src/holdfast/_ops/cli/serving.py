"""The command `ui`: the page and the API of a store, for a browser."""

from __future__ import annotations

import contextlib
import tempfile
import webbrowser
from collections.abc import Generator
from pathlib import Path

import click

from holdfast._ops.cli.session import OK, Session, command, open_store, os_user
from holdfast._ops.lasting import lasting
from holdfast._ops.tokens import Tokens
from holdfast.errors import UsageError

PORT = 8321


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "ui")(_ui)


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
    made for this start, and ends with it; others are made with `holdfast token create`.
    """
    try:
        from holdfast._ops.web import server
    except ImportError as error:
        raise UsageError(
            f"the page needs more packages ({error.name} is missing): pip install -e '.[web]' in a clone"
        ) from None
    serving = server.Serving(
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
    server.check(serving)
    store = lasting(
        session.store(), lambda: open_store(session.url, session.namespace, create=False)
    )
    tokens = Tokens.of(store)
    with server.listening(serving) as listener:
        at = server.address_of(serving, server.port_of(serving, listener))
        made = server.made(store, tokens, serving, listener)
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
