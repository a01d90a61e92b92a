"""The command `mcp`: the runs of a store, for an assistant."""

from __future__ import annotations

import click

from holdfast._ops.cli.session import OK, Session, command
from holdfast.errors import UsageError


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "mcp")(_mcp)


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
