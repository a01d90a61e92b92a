"""The command `top`: a live full-screen view of a store's workers, queues and runs.

One thread queries the store, so that a store that does not answer does not block the keys; the main
thread draws and reads keys. The terminal is always restored at the end.

While a `Keyboard` is open, keys arrive without Enter and are not echoed; Ctrl-C and Ctrl-Z still
raise signals. The terminal is restored at the end.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Generator, Iterator
from types import FrameType
from typing import Any, NoReturn, Self

import click
from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live

from holdfast._engine.text import length
from holdfast._operator.cli import dashboard
from holdfast._operator.cli.dashboard import Look
from holdfast._operator.cli.exit_codes import INTERRUPTED, OK
from holdfast._operator.cli.queue_commands import about_workers, queues_table
from holdfast._operator.cli.reconnecting_store import WatchedStore
from holdfast._operator.cli.run_details import explained
from holdfast._operator.cli.session import DurationType, Session, command
from holdfast._operator.cli.tables import STYLES, cell, status_told
from holdfast._operator.read.overview import Overview, overview
from holdfast._stores.contract import Store
from holdfast.errors import HoldfastError, StoreError

# -- keys ---------------------------------------------------------------------------------------


_SEQUENCES = {
    b"[A": "up",
    b"OA": "up",
    b"[B": "down",
    b"OB": "down",
    b"[5~": "page up",
    b"[6~": "page down",
    b"[H": "home",
    b"OH": "home",
    b"[1~": "home",
    b"[F": "end",
    b"OF": "end",
    b"[4~": "end",
}
"""The keys whose codes begin with Escape."""
_NAMES = {
    b"\r": "enter",
    b"\n": "enter",
    b"k": "up",
    b"j": "down",
    b"g": "home",
    b"G": "end",
    b" ": "page down",
    b"\x7f": "back",
    b"\x08": "back",
}


class Keyboard:
    """The keys of one terminal."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd, termios.TCSANOW)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def pressed(self, timeout_s: float) -> list[str]:
        """Return the pressed keys; wait at most this long for the first."""
        ready, _, _ = select.select([self._fd], [], [], timeout_s)
        if not ready:
            return []
        typed = os.read(self._fd, 1024)
        if not typed:
            raise EOFError  # The terminal is closed.
        return list(keys_in(typed))


def keys_in(typed: bytes) -> Iterator[str]:
    """Yield the names of keys: a terminal sends one byte for a key, or Escape and more bytes."""
    at = 0
    while at < len(typed):
        if typed[at : at + 1] != b"\x1b":
            char = typed[at : at + 1]
            yield _NAMES.get(char) or char.decode(errors="replace")
            at += 1
            continue
        found = next((it for it in _SEQUENCES if typed.startswith(it, at + 1)), None)
        if found is not None:
            yield _SEQUENCES[found]
            at += 1 + len(found)
        elif typed[at + 1 : at + 2] in (b"[", b"O"):
            at += 2  # An unused key: its sequence ends with a letter or a tilde.
            while at < len(typed) and not 0x40 <= typed[at] <= 0x7E:
                at += 1
            at += 1
        else:
            yield "back"
            at += 1


# -- the command --------------------------------------------------------------------------------


SILENT_S = 3.0
"""The time after which an unanswered query is reported."""
DRAW_S = 0.25
"""The maximum delay until a changed size of the terminal is noticed."""


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "top")(_top)


@click.option("--once", is_flag=True, help="Print once and exit; the default without a terminal.")
@click.option(
    "--every",
    type=DurationType(0.2, 3600),
    default="1s",
    show_default=True,
    help="How often to refresh.",
)
def _top(session: Session, once: bool, every: float) -> int:
    """Watch the workers, the queues, the running runs, and the runs that need a person.

    Keys: arrows or j and k choose a run, Enter explains it, h shows only runs that need a person, ?
    shows help, q quits. Without a terminal, and with --once or --json, it is printed once.
    """
    store = session.store()
    if session.as_json:
        session.answer(overview=overview(store))
        return OK
    fit = session.out.is_terminal and not session.out.is_dumb_terminal and sys.stdin.isatty()
    if once or not fit:
        _print(session, overview(store))
        return OK
    try:
        _live(session, every)
    except KeyboardInterrupt:
        return INTERRUPTED
    except EOFError:
        pass
    return OK


# -- once --------------------------------------------------------------------------------------


def _print(session: Session, fleet: Overview) -> None:
    session.say(session.pointed(about_workers(fleet.workers)))
    if fleet.queues:
        session.say()
        session.show(queues_table(fleet.queues))
    rows = [
        [
            cell("!" if it.needs_a_person else ""),
            cell(it.run.run_id),
            cell(
                "asks a person" if it.why == "asks" else status_told(it.run),
                STYLES.get(it.run.status, ""),
            ),
            cell(it.run.flow),
            cell(it.run.current_step or ""),
            cell(length(max(0.0, (fleet.at - it.run.updated_at).total_seconds()))),
        ]
        for it in fleet.runs
    ]
    session.say()
    if rows:
        session.show_rows(("", "RUN", "STATUS", "FLOW", "AT", "FOR"), rows, ("AT", "FLOW"))
    else:
        session.say("No run is open, held or failed.", "dim")


# -- live --------------------------------------------------------------------------------------


def _live(session: Session, every_s: float) -> None:
    plain = not (session.out.encoding or "").lower().startswith("utf")
    look = Look(session.url, warning=session.warning, plain=plain)
    look.start = session.pasteable(look.start)
    with _signals() as suspended, Looker(session, look, every_s) as looker:
        while True:
            with (
                Keyboard(sys.stdin.fileno()) as keyboard,
                Live(console=session.out, screen=True, auto_refresh=False) as live,
            ):
                if not Screen(looker, session.out, live, keyboard).run(suspended):
                    return
            _suspend()


class Looker:
    """Queries the store in its own thread."""

    def __init__(self, session: Session, look: Look, every_s: float) -> None:
        self._session = session
        self._watched = WatchedStore(session)
        self._every_s = every_s
        self._now = threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="holdfast-top", daemon=True)
        self._asked_s: float | None = None
        """The start of the current query."""
        self.look = look
        self.changed = threading.Event()
        self.explaining: str | None = None
        """The run to explain, if any."""
        self.explanation: tuple[str, str] | None = None
        """A run id and its explanation."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending = True
        self._now.set()
        self._thread.join(1.0)

    def at_once(self) -> None:
        """Query the store now."""
        self._now.set()

    def explain(self, run_id: str | None) -> None:
        """Explain this run at every refresh; None stops the explanations."""
        self.explaining, self.explanation = run_id, None
        self._now.set()

    def silence(self) -> str | None:
        """Return a text about how long the store has not answered, if that is too long."""
        begun_s = self._asked_s
        silent_s = 0.0 if begun_s is None else time.monotonic() - begun_s
        return f"no answer for {silent_s:.0f} s" if silent_s >= SILENT_S else None

    def _run(self) -> None:
        while not self._ending:
            self._now.clear()
            self._asked_s = time.monotonic()
            try:
                store = self._watched.opened()
                if (run_id := self.explaining) is not None:
                    self._explain(store, run_id)
                self.look.fleet = overview(store)
                self.look.trouble = None
            except StoreError as error:
                self.look.trouble = str(error)
                self._watched.drop()
            self._asked_s = None
            self.changed.set()
            self._now.wait(self._every_s)

    def _explain(self, store: Store, run_id: str) -> None:
        try:
            said = explained(self._session, store, run_id)
            self.explanation = run_id, str(said)
        except HoldfastError as error:
            self.explanation = run_id, str(error)


class Screen:
    """The screen and its keys."""

    def __init__(self, looker: Looker, out: Console, live: Live, keyboard: Keyboard) -> None:
        self._looker = looker
        self._look = looker.look
        self._out = out
        self._live = live
        self._keyboard = keyboard
        self._page: str | None = None
        """The shown page: `help`, `explain`, or None for the fleet."""
        self._first = 0
        self._last = 0
        self._drawn: tuple[int, int] | None = None

    def run(self, suspended: threading.Event) -> bool:
        """Draw and read keys until the user quits; return True if the user only suspends the
        process."""
        while not suspended.is_set():
            # Ask the terminal itself: an exported COLUMNS does not follow its size.
            size = self._out.size = ConsoleDimensions(*os.get_terminal_size(sys.stdout.fileno()))
            if (silence := self._looker.silence()) not in (None, self._look.trouble):
                self._look.trouble = silence
                self._looker.changed.set()
            if self._looker.changed.is_set() or self._drawn != size:
                self._looker.changed.clear()
                self._drawn = size
                self._draw(size.width, size.height)
            for key in self._keyboard.pressed(DRAW_S):
                if self._take(key):
                    return False
                self._drawn = None
        suspended.clear()
        return True

    def _draw(self, width: int, height: int) -> None:
        if self._page is None:
            lines = dashboard.picture(self._look, width, height)
        else:
            lines, self._last = dashboard.page_of(
                *self._text(), width, height, min(self._first, max(self._last, self._first))
            )
            self._first = min(self._first, self._last)
        for line in lines:
            line.no_wrap, line.overflow = True, "crop"
        self._live.update(Group(*lines), refresh=True)

    def _text(self) -> tuple[str, str]:
        if self._page == "help":
            return "Help", dashboard.HELP
        said = self._looker.explanation
        if said is None:
            return f"Run {self._looker.explaining}", "Looking …"
        return f"Run {said[0]}", said[1]

    # -- keys ----------------------------------------------------------------------------------

    def _take(self, key: str) -> bool:
        """Handle a key; return True if it quits."""
        if self._page is None:
            return self._take_in_fleet(key)
        moves = {
            "up": -1,
            "down": 1,
            "page up": -10,
            "page down": 10,
            "home": -(10**6),
            "end": 10**6,
        }
        if key in moves and (self._page == "explain" or self._last):
            self._first = min(max(0, self._first + moves[key]), self._last)
        elif self._page == "help" or key in ("q", "back", "enter"):
            self._open(None)
        return False

    def _take_in_fleet(self, key: str) -> bool:
        moves = {
            "up": -1,
            "down": 1,
            "page up": -10,
            "page down": 10,
            "home": -(10**6),
            "end": 10**6,
        }
        acts: dict[str, Callable[[], None]] = {
            "h": self._filter,
            "?": lambda: self._open("help"),
            "r": self._looker.at_once,
            "enter": self._explain,
        }
        if key in moves:
            self._move(moves[key])
        elif key in acts:
            acts[key]()
        return key == "q"

    def _move(self, by: int) -> None:
        runs = [it.run.run_id for it in self._look.runs()]
        if runs:
            at = runs.index(self._look.chosen) if self._look.chosen in runs else 0
            self._look.chosen = runs[min(max(0, at + by), len(runs) - 1)]

    def _filter(self) -> None:
        self._look.only_needed = not self._look.only_needed

    def _explain(self) -> None:
        self._move(0)
        if self._look.chosen is not None:
            self._open("explain")
            self._looker.explain(self._look.chosen)

    def _open(self, page: str | None) -> None:
        self._page, self._first, self._last = page, 0, 0
        if page is None:
            self._looker.explain(None)


# -- signals -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _signals() -> Generator[threading.Event, None, None]:
    """While open, restore the terminal before a signal ends the process, and postpone Ctrl-Z until
    the terminal is restored."""
    suspended = threading.Event()

    def later(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        suspended.set()

    handlers = {signal.SIGTERM: _ended, signal.SIGHUP: _ended, signal.SIGTSTP: later}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield suspended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise SystemExit(128 + number)


def _suspend() -> None:
    """Stop the process for Ctrl-Z; return when it is continued."""
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)
