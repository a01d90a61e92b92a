"""The session of a command: its store, its output and pager, and its errors.

A command never prints a traceback for an error of Holdfast, never colours output that is not a
terminal, and never prints untrusted text unescaped. With `--json` it prints one object, with
"version": 1, on standard output, also when it fails.

Long output on a terminal goes through a pager; short output, a file and a pipe never do.
HOLDFAST_PAGER names the pager, else PAGER, else `less -FRX`; an empty value or `cat` means none.
Control characters are escaped before the output reaches the pager. The only remaining sequences are
our own colours, which are removed for pagers that may not support them.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
import msgspec
from msgspec import UNSET
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast._api.actions import SUPPLIED, Action, Parameter, declared
from holdfast._api.handle import PATIENCE_S
from holdfast._api.store_actions import Acting, actor_or_user
from holdfast._engine.decisions.action_result import confirmed_by
from holdfast._engine.text import length, visible
from holdfast._engine.values.durations import LONGEST_US, micros
from holdfast._operator.cli.command_list import SECTIONS
from holdfast._operator.cli.exit_codes import DAMAGED, OK, code_of
from holdfast._operator.cli.tables import fitted, folded
from holdfast._stores.addresses import without_password as shown_url
from holdfast._stores.contract import Progress, Store, no_progress
from holdfast.errors import (
    ConfirmationRequired,
    HoldfastError,
    RunError,
    RunHeld,
    RunNotFound,
    StoreUnusable,
    UsageError,
)

# -- the pager ----------------------------------------------------------------------------------


DEFAULT = "less -FRX"
_NONE = ("", "cat")


def pager(environ: Mapping[str, str]) -> list[str] | None:
    """Return the command that shows long output, or None."""
    for name in ("HOLDFAST_PAGER", "PAGER"):
        if name in environ:
            wanted = environ[name].strip()
            break
    else:
        wanted = DEFAULT
    with contextlib.suppress(ValueError):  # An unclosed quote.
        words = shlex.split(wanted)
        return None if wanted in _NONE or not words else words
    return None


@contextmanager
def paged(out: Console, command: Sequence[str] | None) -> Generator[None, None, None]:
    """Collect the output on a terminal, and show it through a pager if it is too long."""
    if command is None or not out.is_terminal or not sys.stdin.isatty():
        yield
        return
    out.begin_capture()
    try:
        yield
    finally:
        text = out.end_capture()
        if not (_rows(text, out.width) >= out.height and _show_in_pager(text, command)):
            sys.stdout.write(text)
            sys.stdout.flush()


def _rows(text: str, width: int) -> int:
    """Return how many rows of a terminal a text takes."""
    lines = text.splitlines()
    if len(lines) > 1000:
        return len(lines)
    return sum(max(1, -(-Text.from_ansi(line).cell_len // max(width, 1))) for line in lines)


def _show_in_pager(text: str, command: Sequence[str]) -> bool:
    """Show a text; False if there is no such pager."""
    if Path(command[0]).name != "less":
        text = Text.from_ansi(text).plain
    environ = {"LESS": "FRX", **os.environ}
    try:
        process = subprocess.Popen(  # noqa: S603 - the pager that this user has chosen
            command, stdin=subprocess.PIPE, env=environ
        )
    except OSError:
        return False
    # The user may leave the pager early; Ctrl-C belongs to the pager.
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        process.communicate(text.encode())
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            process.wait()
            return True


# -- the session --------------------------------------------------------------------------------


JSON_VERSION = 1
UNFOLDED_CHARS = 10_000
DEFAULT_URL = "sqlite:///holdfast.db"


_DENIED = "permission denied; check the permissions of the file and its folders"
_NO_SPACE = "the disk is full: no space left there; free some space, then try again"
_REFUSALS = {
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: "its file system is read-only; give another path",
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
}
"""The messages for a file that the operating system refuses."""

F = TypeVar("F", bound=Callable[..., Any])
_NAMES = sorted({name for names in SECTIONS.values() for name in names})
_ELSEWHERE = ("demo", "store move", "store backup")
"""Commands that concern another store than this one, or that name their stores themselves."""
_OURS = re.compile(
    rf"\bholdfast (?!(?:{'|'.join(_ELSEWHERE)})\b)(?:{'|'.join(map(re.escape, _NAMES))})(?![\w-])"
    r"(?!(?:(?!\bholdfast )[^\n])* --url )"
)
"""A holdfast command in a text, unless it names its store. Its arguments follow it and stay."""


_NO_OPTIONS: Mapping[str, str] = {}


class Session:
    """One invocation of a command."""

    def __init__(
        self, command: str, url: str | None, namespace: str | None, *, as_json: bool
    ) -> None:
        self.command = command
        named = os.environ.get("HOLDFAST_URL") or None
        self.url = url if url is not None else named or DEFAULT_URL
        self.namespace = namespace if namespace is not None else "default"
        self.as_json = as_json
        self._options = _pointing(url, namespace)
        self._says_where = (url, named) != (None, None)
        self.out = console(stderr=False)
        self.err = console(stderr=True)
        self.pager: list[str] | None = None
        """The pager for long output on a terminal, if this command has one."""
        self.one_line = False
        """Whether a JSON object is printed on one line, because it is one of several."""
        self.warning: str | None = None
        self._store: Store | None = None

    # -- the store -----------------------------------------------------------------------------

    def store(self, *, create: bool = False) -> Store:
        """Open the store. A missing store is an error unless `create` is true."""
        if self._store is None:
            self._store = open_store(self.url, self.namespace, create=create)
            self.warning = self._store.regression()
            if self.warning is not None and not self.as_json:
                self.banner(
                    f"This store has lost acknowledged commits: {self.warning}",
                    f"It can be read. Effects are blocked until you accept it: {self.pasteable('store accept-data-loss')}",
                )
        return self._store

    def follow(self, modules: Sequence[str]) -> None:
        """Use the store that the user's modules open, if no option or variable names one."""
        if self._says_where:
            return
        from holdfast._operator.cli import default_store

        opened = default_store.of(modules)
        if opened is None or (opened.url, opened.namespace) == (self.url, self.namespace):
            return
        self.url = opened.url
        if not any(option.startswith("--namespace ") for option in self._options):
            self.namespace = opened.namespace
        named = None if self.namespace == "default" else self.namespace
        self._options = _pointing(self.url, named)

    def close(self) -> None:
        """Release the store."""
        if self._store is not None:
            self._store.close()

    def pasteable(self, command: str) -> str:
        """Return a holdfast command with the options that name this store, unless it names another."""
        if " --url " in command:
            return command
        return " ".join(["holdfast", *self._options, command.removeprefix("holdfast ")])

    def pointed(self, text: str) -> str:
        """Return a text in which all holdfast commands have the options that name this store."""
        if not self._options:
            return text
        return _OURS.sub(lambda found: self.pasteable(found[0]), text)

    # -- asking --------------------------------------------------------------------------------

    @property
    def can_ask(self) -> bool:
        """Whether a person at a terminal can be asked."""
        return not self.as_json and at_a_terminal()

    def confirmed(self, asked: str, instead: str, refusal: Exception | None = None) -> bool:
        """Ask for confirmation at the terminal. With `--json` or without a terminal, refuse, and
        name the option to give `instead`."""
        if not self.can_ask:
            why = "with --json" if self.as_json else "without a terminal"
            told = f"{self.command} asks before it acts, and cannot ask {why}"
            raise refusal or UsageError(f"{told}: give {instead}. Nothing was changed.")
        return click.confirm(visible(asked), err=True)

    # -- answering -----------------------------------------------------------------------------

    def answer(self, **data: Any) -> None:
        """Print the one object of `--json`."""
        whole: dict[str, Any] = {"version": JSON_VERSION, "command": self.command}
        if self.warning is not None:
            whole["warning"] = self.warning
        text = msgspec.json.encode(whole | data)
        click.echo((text if self.one_line else msgspec.json.format(text, indent=2)).decode())

    def say(self, text: str = "", style: str = "") -> None:
        """Print a line for people, with control characters escaped. On a terminal prose is folded
        between words; a command stays on one line, so that it can be copied."""
        told = visible(text, lines=True)
        if self.out.is_terminal:
            told = "\n".join(
                row
                for line in told.split("\n")
                for row in ([line] if "holdfast " in line else folded(line, self.out.width))
            )
        self.out.print(Text(told, style=style), soft_wrap=True)

    def show(self, table: Table) -> None:
        """Print a table: folded to the width of a terminal, and one line per row elsewhere."""
        out = self.out
        if self.width is None:
            out = console(stderr=False, width=UNFOLDED_CHARS)
        out.print(table)

    def show_rows(
        self, titles: Sequence[str], rows: Sequence[Sequence[Text]], least: Sequence[str] = ()
    ) -> None:
        """Print a table; on a narrow terminal without the columns that matter `least`."""
        self.show(fitted(titles, rows, self.width, least))

    @property
    def width(self) -> int | None:
        """The maximum width of a table; None if each row stays on one line."""
        known = self.out.is_terminal or "COLUMNS" in os.environ
        return self.out.width if known else None

    def note(self, text: str, style: str = "") -> None:
        """Print a line beside the answer (standard error)."""
        self.err.print(Text(visible(text, lines=True), style=style), soft_wrap=True)

    def banner(self, *lines: str) -> None:
        """Print lines that the user must not overlook."""
        for line in lines:
            self.note(f"! {line}", "bold red")

    @contextlib.contextmanager
    def progress(self) -> Generator[Progress]:
        """Show the progress of a long command on a terminal."""
        if self.as_json or not self.err.is_terminal:
            yield no_progress
            return
        from rich import progress  # Slow to import.

        with progress.Progress(console=self.err, transient=True) as bars:
            tasks: dict[str, progress.TaskID] = {}

            def tell(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = bars.add_task(what, total=total or None)
                bars.update(tasks[what], completed=done, total=total or None)

            yield tell

    def act(
        self,
        name: str,
        asked: Mapping[str, Any],
        *,
        create: bool = False,
        options: Mapping[str, str] = _NO_OPTIONS,
    ) -> Any:
        """Perform an action with the arguments of its command; see `takes`. `options` names the options
        that the command declares itself."""
        action = declared(name)
        given = {it.name: asked[it.name] for it in action.parameters if it.name in asked}
        for it in action.parameters:
            if it.default is UNSET and given.get(it.name) is None:
                given[it.name] = UNSET
            elif given.get(it.name) is NONE:
                given[it.name] = None
        supplied = {it: asked[it] for it in SUPPLIED if it in asked}
        acting = Acting(self.store(create=create))
        with spelled_as_options(action, options) as words:
            return action.perform(acting, given, words.__getitem__, **supplied)

    def exit_code(self, code: int = OK) -> int:
        """Return the exit code: never 0 for a store that lost commits."""
        return DAMAGED if code == OK and self.warning is not None else code

    def fail(self, error: Exception) -> int:
        """Print an error, and return its exit code."""
        code = code_of(error)
        if isinstance(error, ConfirmationRequired):  # A line of Python confirms nothing here.
            error = confirmed_by(error, *(it for it in error.ways if not it.startswith("store.")))
        message = str(error) + self._meant(error)
        if self.as_json:
            told: dict[str, Any] = {"type": type(error).__name__, "message": message}
            if isinstance(error, RunError):
                told["run_id"] = error.run_id
            if isinstance(error, RunHeld):
                told |= {"reason": error.reason, "step": error.step, "actions": error.actions}
            if isinstance(error, ConfirmationRequired):
                told["effects"] = error.effects
            self.answer(error=told, exit_code=code)
        elif code == DAMAGED:
            self.banner(
                self.pointed(message),
                f"Nothing is repaired silently. To see all damage: {self.pasteable('store verify')}",
            )
        else:
            self.note(f"holdfast: {self.pointed(message)}")
        return code

    def _meant(self, error: Exception) -> str:
        """Suggest an existing run for an unknown id."""
        if not isinstance(error, RunNotFound) or self._store is None:
            return ""
        from holdfast._operator.read.run_views import nearest

        with contextlib.suppress(HoldfastError):  # Report the first error.
            like = nearest(self._store, error.run_id)
            return f"; did you mean {like!r}?" if like else ""
        return ""


def _pointing(url: str | None, namespace: str | None) -> list[str]:
    """Return the options that name this store."""
    given = (("--url", None if url is None else shown_url(url)), ("--namespace", namespace))
    return [f"{name} {shlex.quote(value)}" for name, value in given if value is not None]


def console(*, stderr: bool, width: int | None = None) -> Console:
    """Return a console that prints text unchanged: no markup, no highlighting, no emoji."""
    return _Console(stderr=stderr, markup=False, highlight=False, emoji=False, width=width)


class _Console(Console):
    """A console that leaves a broken pipe to `perform`, which ends the command."""

    def on_broken_pipe(self) -> None:
        """Leave the error to the caller."""
        raise BrokenPipeError


def print_line(out: Console, line: Text) -> None:
    """Print one line: cut to the width of a terminal, whole in a file."""
    if out.is_terminal or out.record:
        out.print(line, overflow="ellipsis", no_wrap=True)
    else:
        out.print(line, soft_wrap=True)


def open_store(url: str, namespace: str, *, create: bool = True) -> Store:
    """Open a store by its address."""
    from holdfast._stores import locate

    return locate.open_store(url, namespace=namespace, create=create)


def at_a_terminal() -> bool:
    """Return whether standard input is a terminal."""
    return sys.stdin.isatty()


def os_user() -> str:
    """Return the name of the operating system's user."""
    return actor_or_user(None)


def print_nowhere() -> None:
    """Discard all further output, and the output that is still buffered."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


# -- options that commands share ---------------------------------------------------------------


def command(
    group: click.Group, name: str, *, acts: bool = False, pages: bool = False
) -> Callable[[F], F]:
    """Add a command that receives a session as its first argument and ends with the exit code that
    it returns. `pages`: it may print more than a screen."""

    def add(function: F) -> F:
        @functools.wraps(function)
        def invoked(
            url: str | None,
            namespace: str | None,
            as_json: bool,
            no_pager: bool = False,
            **options: Any,
        ) -> NoReturn:
            context = click.get_current_context()
            given = _given_before(context)
            session = Session(
                name if group.name == "main" else f"{group.name} {name}",
                url if url is not None else given.get("url"),
                namespace if namespace is not None else given.get("namespace"),
                as_json=as_json or bool(given.get("as_json")),
            )
            live = bool(options.get("follow"))
            if (
                pages
                and not live
                and not session.as_json
                and not (no_pager or given.get("no_pager"))
            ):
                session.pager = pager(os.environ)
            context.exit(perform(session, function, options))

        wrapped: Any = invoked
        # Copy the list: the options added below do not belong to the function.
        wrapped.__click_params__ = list(getattr(function, "__click_params__", ()))
        for option in _options(acts=acts, pages=pages):
            wrapped = option(wrapped)
        group.command(name)(wrapped)
        return function

    return add


def _given_before(context: click.Context) -> dict[str, Any]:
    """Return the options before a command: those of its group, then those of `holdfast`."""
    given: dict[str, Any] = {}
    while context.parent is not None:
        context = context.parent
        given |= {
            name: value
            for name, value in context.params.items()
            if given.get(name) in (None, False)
        }
    return given


def subgroup(name: str, text: str, *, lists: bool = False) -> click.Group:
    """Return a group of commands, which accepts their common options too. If it `lists`, it
    performs its command `list` when called without a command."""
    if lists:
        text += "\n\nWithout a command: list."

    @click.group(name, help=text, invoke_without_command=lists)
    @no_pager_option
    @store_options
    def group(**_options: Any) -> None:
        context = click.get_current_context()
        if lists and context.invoked_subcommand is None:
            context.invoke(group.commands["list"])

    return group


def perform(session: Session, function: Callable[..., Any], options: dict[str, Any]) -> int:
    """Call a command; turn errors of Holdfast into one line and an exit code."""
    try:
        with paged(session.out, session.pager):
            code = function(session, **options)
        return session.exit_code(code or OK)
    except HoldfastError as error:
        return session.fail(error)
    except BrokenPipeError:
        print_nowhere()  # The reader (head, less) has seen enough.
        return OK
    except OSError as error:
        if error.filename is None or error.errno not in _REFUSALS:
            raise
        return session.fail(StoreUnusable(f"{error.filename}: {_REFUSALS[error.errno]}"))
    finally:
        session.close()


def store_options(function: Any) -> Any:
    """Add the options for the store's address and the output format."""
    for option in _options(acts=False):
        function = option(function)
    return function


def no_pager_option(function: Any) -> Any:
    """Add the option that turns the pager off."""
    told = "Print without a pager. Pager on a terminal: HOLDFAST_PAGER, PAGER, or less."
    return click.option("--no-pager", is_flag=True, help=told)(function)


def takes(name: str, *, but: Sequence[str] = ()) -> Callable[[F], F]:
    """Give a command the arguments, the options and the first line of help of an action. The
    command's own docstring follows. `but` names parameters that the command declares itself or
    omits."""
    action = declared(name)
    names = {it.name for it in action.parameters}

    def add(function: F) -> F:
        made: Any = function
        if action.takes("wait_s"):
            made = _wait(made)
        for it in reversed(action.parameters):
            if it.name not in but:
                made = _asked(it, names)(made)
        made.__doc__ = f"{action.help}\n\n{inspect.cleandoc(function.__doc__ or '')}".strip()
        return function

    return add


def _asked(asked: Parameter, names: Collection[str]) -> Callable[[Any], Any]:
    """Return the argument or option of a parameter."""
    if asked.is_positional:
        word = asked.word if asked.is_required else f"[{asked.word}]"
        return click.argument(asked.name, metavar=word, required=asked.is_required)
    about = _spelled(asked.help, {it: _flag(it) for it in names})
    if bool in asked.kinds:
        return click.option(_flag(asked.name), asked.name, is_flag=True, help=about)
    # Click treats `default=None` as a value: such an option is never missing.
    default: dict[str, Any] = {"default": asked.default} if isinstance(asked.default, str) else {}
    return click.option(
        _flag(asked.name),
        asked.name,
        type=_type(asked),
        metavar=None if {str, float} <= asked.kinds else asked.word,
        required=asked.is_required,
        help=about,
        **default,
    )


_SUPPLIED_OPTIONS = {"actor": "--actor", "wait_s": "--wait"}


@contextmanager
def spelled_as_options(
    action: Action, options: Mapping[str, str] = _NO_OPTIONS
) -> Generator[Mapping[str, str], None, None]:
    """Name parameters in refusals of an action as the user of its command writes them; yield that."""
    asked = {it.name: it.word if it.is_positional else _flag(it.name) for it in action.parameters}
    words = {**asked, **_SUPPLIED_OPTIONS, **options}
    try:
        yield words
    except UsageError as error:
        if type(error) is not UsageError:
            raise
        raise UsageError(_spelled(str(error), words)) from error


def _spelled(text: str, words: Mapping[str, str]) -> str:
    """Return a text whose parameters are named as their options are."""
    return re.sub(r"`(\w+)`", lambda it: words.get(it[1], it[0]), text)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _type(asked: Parameter) -> Any:
    if {str, float} <= asked.kinds:
        return DurationType(0.001 if asked.default is UNSET else 0)
    if int in asked.kinds:
        return _LimitType() if asked.default is UNSET else int
    return float if float in asked.kinds else str


NONE = object()
"""The value of the word `none`: no limit."""


class _LimitType(click.types.IntParamType):
    """A number, or `none`; the action checks its limits."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or NONE."""
        if value == "none":
            return NONE
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is not a number above 0, or none for no limit", param, ctx)


def _wait(function: Any) -> Any:
    return click.option(
        "--wait",
        "wait_s",
        type=DurationType(),
        default=f"{PATIENCE_S:.0f}s",
        show_default=True,
        help="How long to wait for the process that owns the run.",
    )(function)


class DurationType(click.types.FloatParamType):
    """A duration: `20s`, `2h`, `1h30m`, or a number of seconds. Commands receive seconds."""

    name = "time"

    def __init__(self, min_s: float = 0, max_s: float = LONGEST_US / 1e6) -> None:
        self._min_s, self._max_s = min_s, max_s

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return a time in seconds."""
        try:
            number: float | str = float(value)
        except ValueError:
            number = value
        try:
            seconds = micros(number, "time") / 1e6
        except UsageError:
            self.fail(f"{value!r} is not a time such as 20s, 10m, 2h or 3d", param, ctx)
        if not self._min_s <= seconds <= self._max_s:
            self.fail(
                f"{value!r} is not from {length(self._min_s)} to {length(self._max_s)}", param, ctx
            )
        return seconds


def _options(*, acts: bool, pages: bool = False) -> list[Callable[[Any], Any]]:
    options = [
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option("--namespace", metavar="NAME", help="Default: default."),
        click.option(
            "--url",
            metavar="URL",
            help=f"The address of the store. Default: HOLDFAST_URL, or {DEFAULT_URL}.",
        ),
    ]
    if pages:
        options.insert(0, no_pager_option)
    if acts:
        options.insert(
            0,
            click.option(
                "--actor",
                default=os_user,
                show_default="the user of the system",
                help="The person who decides.",
            ),
        )
    return options
