"""The reference of the command line, made from the commands themselves.

`python -m holdfast._ops.cli.reference` prints it as a page for the documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from holdfast._ops.cli.json_page import answer_lines
from holdfast._ops.cli.main import main
from holdfast._ops.cli.session import ERROR_CODES, MEANINGS


def reference() -> str:
    """Return the whole page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield "# Command line"
    yield ""
    yield "This page is made from the commands themselves: `python -m holdfast._ops.cli.reference`."
    yield ""
    yield from _fenced(_help(main, "holdfast"))
    yield "## Exit codes"
    yield ""
    yield from _exit_codes()
    for name in sorted(main.commands):
        yield f"## holdfast {name}"
        yield ""
        yield from _fenced(_help(main.commands[name], f"holdfast {name}"))
        yield from _parts(name)
    yield from _json()


def _exit_codes() -> Iterator[str]:
    """Yield the one table of exit codes: what each says, and the errors that end a command with it."""
    yield "| code | meaning | errors |"
    yield "|---|---|---|"
    for code, meaning in MEANINGS.items():
        errors = ", ".join(f"`{kind.__name__}`" for kind, told in ERROR_CODES if told == code)
        yield f"| {code} | {meaning} | {errors} |"
    yield ""
    yield (
        "The errors are classes of `holdfast.errors`; all others end a command with 1, and so does "
        "a damaged file that is not the store's own, such as an export."
    )
    yield ""


def _parts(name: str) -> Iterator[str]:
    """Yield what is said of the commands of a group, and what a command prints with `--json`."""
    group = main.commands[name]
    if not isinstance(group, click.Group):
        yield "With `--json`:"
        yield ""
        yield from answer_lines(name)
        yield ""
        return
    for part, command in sorted(group.commands.items()):
        yield from _fenced(_help(command, f"holdfast {name} {part}"))
        yield "With `--json`:"
        yield ""
        yield from answer_lines(f"{name} {part}")
        yield ""


def _json() -> Iterator[str]:
    yield "## JSON"
    yield ""
    yield (
        'With `--json` a command prints one object on standard output. It has `"version": 1`, '
        '`"command"`, and `"warning"` if the store lost commits. A command that fails prints `error` '
        "and `exit_code`. [json.md](json.md) has every object and every field, and what a later "
        "version may change."
    )


def _help(command: click.Command, name: str) -> str:
    context = click.Context(
        command,
        info_name=name,
        max_content_width=80,
        terminal_width=80,
        help_option_names=main.context_settings["help_option_names"],
    )
    text = command.get_help(context)
    return text.partition("\n\n  Exit codes:")[0]


def _fenced(text: str) -> Iterator[str]:
    yield "```text"
    yield from (line.rstrip() for line in text.splitlines())
    yield "```"
    yield ""


if __name__ == "__main__":
    click.echo(reference(), nl=False)
