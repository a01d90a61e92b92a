"""The command `completion`: shell completion of commands, options, run ids, steps, flows and queues.

Run ids, step keys, flows and queues are looked up while the user types. The look-up reads the
newest runs only and takes at most a second. It prints nothing: without a store, or when the store
does not answer, it offers no completions.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from holdfast._operator.cli.exit_codes import OK
from holdfast._operator.cli.session import DEFAULT_URL, Session, command, open_store
from holdfast._stores.contract import Query, Store

PROGRAM = "holdfast"
VARIABLE = "_HOLDFAST_COMPLETE"
PATIENCE_S = 1.0
OFFERED = 100
_SAFE = re.compile(r"[\w.@%+=,/#\[\]-]+")
"""Characters that a shell does not interpret. An id with any other character is not offered: it
would need quotes, and untrusted text must not reach a command line unquoted."""
_HOW = {
    "bash": 'eval "$(holdfast completion bash)"          # in ~/.bashrc',
    "zsh": 'eval "$(holdfast completion zsh)"           # in ~/.zshrc, after compinit',
    "fish": "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
}


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "completion")(_completion)


def let_complete(command: click.Command) -> None:
    """Add completion to the parameters of a command, or of all commands of a group."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            let_complete(each)
    for parameter in command.params:
        find = _FINDS.get(parameter.name or "") or _FINDS.get((parameter.metavar or "").lower())
        if find is not None and type(parameter.type) is type(click.STRING):
            parameter.type = Known(find)


@click.argument("shell", type=click.Choice(list(_HOW)))
def _completion(session: Session, shell: str) -> int:
    """Print the script with which a shell completes commands, options, run ids, step keys, flows
    and queues.

    \b
    bash:  eval "$(holdfast completion bash)"     in ~/.bashrc
    zsh:   eval "$(holdfast completion zsh)"      in ~/.zshrc, after compinit
    fish:  holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """  # noqa: D301 - click looks for the character itself
    script = script_for(shell, click.get_current_context().find_root().command)
    if session.as_json:
        session.answer(shell=shell, script=script)
    else:
        click.echo(script)
    return OK


def script_for(shell: str, main: click.Command) -> str:
    """Return the completion script of a shell. A comment in it explains how to install it."""
    made = get_completion_class(shell)
    assert made is not None
    return (
        f"# To complete holdfast in {shell}:\n#   {_HOW[shell]}\n"
        + made(main, {}, PROGRAM, VARIABLE).source()
    )


# -- look-ups ----------------------------------------------------------------------------------


class Known(click.types.StringParamType):
    """A string that the store already contains."""

    def __init__(self, find: Callable[[Store, click.Context], Iterator[str]]) -> None:
        self._find = find

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the known strings that begin with the typed text; none if the look-up takes too
        long."""
        found: list[str] = []

        def look() -> None:
            try:
                store = open_store(*_where(ctx), create=False)
                found.extend(self._find(store, ctx))
            except Exception:
                return

        looker = threading.Thread(target=look, daemon=True)
        looker.start()
        looker.join(PATIENCE_S)
        unlike = ":" if os.environ.get(VARIABLE, "").startswith("bash") else ""
        return [
            CompletionItem(text)
            for text in dict.fromkeys(found)
            if text.startswith(incomplete) and (_SAFE.fullmatch(text) or _is_child(text, unlike))
        ][:OFFERED]


def _is_child(text: str, unlike: str) -> bool:
    """Return whether this is a child's id: it has colons, which bash treats as the end of a
    word."""
    return not unlike and _SAFE.fullmatch(text.replace(":", "")) is not None


def _where(ctx: click.Context) -> tuple[str, str]:
    given: dict[str, Any] = {}
    at: click.Context | None = ctx
    while at is not None:
        for name in ("url", "namespace"):
            given[name] = given.get(name) or at.params.get(name)
        at = at.parent
    url = given["url"] or os.environ.get("HOLDFAST_URL") or DEFAULT_URL
    return url, given["namespace"] or "default"


def _run_ids(store: Store, _ctx: click.Context) -> Iterator[str]:
    return (row.run_id for row in store.list(Query(limit=1000)))


def _flows(store: Store, _ctx: click.Context) -> Iterator[str]:
    return (row.flow for row in store.list(Query(limit=1000)))


def _steps(store: Store, ctx: click.Context) -> Iterator[str]:
    # After an option that has no value yet, click leaves the arguments unparsed in `ctx.args`.
    row = store.get(str(ctx.params.get("run_id") or next(iter(ctx.args), "")))
    return iter(()) if row is None else (it.step for it in store.load(row) if it.step is not None)


def _queues(store: Store, _ctx: click.Context) -> Iterator[str]:
    return (state.limits.queue for state in store.queues())


_FINDS: dict[str, Callable[[Store, click.Context], Iterator[str]]] = {
    "run_id": _run_ids,
    "parent": _run_ids,
    "flow": _flows,
    "step": _steps,
    "before": _steps,
    "to": _steps,
    "queue": _queues,
}
"""The look-up for each parameter, by its name."""
