"""The command `holdfast`: inspect runs, and make the decisions that need a person.

The module of a command is imported when the command is used, so a list of runs does not load the
dependencies of workers or of the page. Help loads all modules.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import json
import sys
from collections.abc import Generator, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import click

from holdfast._operator.cli.command_list import COMMANDS, OTHERS, SECTIONS, SHORT
from holdfast._operator.cli.exit_codes import EXIT_CODES
from holdfast._operator.cli.session import no_pager_option, print_nowhere, store_options

SIMILAR = 3
"""How many commands are suggested for an unknown one."""


class Commands(MutableMapping[str, click.Command]):
    """Commands by name. All names are known; a command's module is imported when the command is
    looked up."""

    def __init__(self, package: str, modules: Mapping[str, Sequence[str]]) -> None:
        self._package = package
        self._module = {name: module for module, names in modules.items() for name in names}
        self._loaded: dict[str, click.Command] = {}
        self.group: click.Group | None = None
        """The group that has these commands."""

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module = importlib.import_module(f"{self._package}.{self._module[name]}")
            module.add_to(self.group)
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        from holdfast._operator.cli.completion import let_complete

        let_complete(command)
        command.short_help = SHORT.get(name, command.short_help)
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._module, **self._loaded})

    def __len__(self) -> int:
        return len({**self._module, **self._loaded})


class Sections(click.Group):
    """A group that lists its commands in sections in its help."""

    def __init__(self, *, commands: Commands, **options: Any) -> None:
        super().__init__(commands=commands, **options)
        self._given: list[str] = []
        commands.group = self

    def main(self, *args: Any, **options: Any) -> Any:
        """Invoke a command, and flush its output here, where a failure to write can still be
        reported."""
        try:
            try:
                given = args[0] if args else options.get("args")
                self._given = list(sys.argv[1:] if given is None else given)
                return super().main(*args, **options)
            finally:
                sys.stdout.flush()
        except BrokenPipeError as error:
            print_nowhere()  # The reader (head, less) has seen enough.
            ended = error.__context__
            raise SystemExit(ended.code if isinstance(ended, SystemExit) else 0) from None
        except OSError as error:
            if error.filename is not None:  # The error is about a file, not about the output.
                raise
            print_nowhere()
            why = error.strerror or str(error)
            click.echo(f"holdfast: the output cannot be written: {why}", err=True)
            raise SystemExit(1) from None

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Parse the options before the command."""
        with self._told_as_json():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the rest, and perform the command."""
        with self._told_as_json():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of a name; for an unknown name, suggest similar commands, including
        those of groups."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            like = [] if args[0].startswith("-") else self._similar(args[0])
            if not like:
                raise
            meant = " or ".join(repr(f"holdfast {name}") for name in like)
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant}?")

    def _similar(self, word: str) -> list[str]:
        paths: dict[str, list[str]] = {name: [name] for name in self.commands}
        for name, command in self.commands.items():
            if isinstance(command, click.Group):
                for part in command.commands:
                    paths.setdefault(part, []).append(f"{name} {part}")
        words = [word] if word in paths else difflib.get_close_matches(word, paths)
        return [path for each in words for path in paths[each]][:SIMILAR]

    @contextlib.contextmanager
    def _told_as_json(self) -> Generator[None]:
        """With --json, report a usage error as JSON too, because a program reads the output."""
        try:
            yield
        except click.UsageError as error:
            if "--json" in self._given:
                facts = {"type": "UsageError", "message": error.format_message()}
                path = "" if error.ctx is None else error.ctx.command_path
                told = {
                    "version": 1,
                    "command": path.partition(" ")[2],
                    "error": facts,
                    "exit_code": error.exit_code,
                }
                error.show = lambda file=None: click.echo(json.dumps(told, ensure_ascii=False))  # type: ignore[method-assign]
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands into the help."""
        known = {name for names in SECTIONS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in known)
        for title, names in {**SECTIONS, OTHERS: others}.items():
            there = [self.commands[name] for name in names if name in self.commands]
            width = formatter.width - 6 - max(map(len, self.commands))
            rows = [(each.name or "", each.get_short_help_str(width)) for each in there]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


@click.group(
    cls=Sections,
    commands=Commands("holdfast._operator.cli", COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES,
)
@click.version_option(package_name="holdfast", message="holdfast %(version)s")
@no_pager_option
@store_options
def main(url: str | None, namespace: str | None, as_json: bool, no_pager: bool) -> None:
    """Durable runs for AI agents.

    Commands read the store of a program while it runs, or after it died. Decisions are recorded
    with their actor; a process that has the flow performs them.
    """
