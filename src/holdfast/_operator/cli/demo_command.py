"""The command `demo`: an agent is killed twice with SIGKILL and continues each time.

The demo prints the journal and compares it with a log that the agent's functions write themselves.
It succeeds only if no recorded step was executed again and one e-mail was sent.
"""

from __future__ import annotations

import io
import os
import re
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast._engine.journal.history import History
from holdfast._engine.text import count
from holdfast._operator.cli.exit_codes import ERROR, OK
from holdfast._operator.cli.progress_lines import Follower, Lines
from holdfast._operator.cli.run_process import Order
from holdfast._operator.cli.session import Session, command, open_store
from holdfast._operator.cli.supervisor import LOOK_S, Child
from holdfast._operator.explain import status_report
from holdfast._operator.read import run_views
from holdfast._stores.contract import Store
from holdfast._stores.lookups import existing_row
from holdfast.errors import HoldfastError

RUN_ID = "tide-pools"
WAIT_S = 30.0
KILLS = ("take_note 1", "send_report")
"""The steps in which the first and the second process are killed."""
EXPECTED = {
    "find_questions": 1,
    "look_up 0": 1,
    "take_note 0": 1,
    "look_up 1": 2,  # It failed once and was tried again.
    "take_note 1": 2,  # Killed in the middle: it has no outcome, so it is executed again.
    "look_up 2": 1,
    "take_note 2": 1,
    "write_report": 1,
    "send_report": 1,  # Killed after sending: the message is found, and not sent again.
}
SVG_WIDTH_CHARS = 82
_ELSEWHERE = re.compile(r"@font-face\s*\{.*?\}\s*|<!--.*?-->\s*", re.DOTALL)


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "demo")(_demo)


@click.option(
    "--svg",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Also write the output as an SVG picture.",
)
def _demo(session: Session, svg: Path | None) -> int:
    """Kill an agent twice, and watch it continue.

    The demo needs no store and leaves no files: it works in a temporary folder.
    """
    out = _console(quiet=session.as_json) if svg is not None or session.as_json else session.out
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as name:
        demo = Demo(Path(name), out)
        demo.play()
        wrong = demo.check()
    if session.as_json:
        session.answer(
            as_promised=not wrong, wrong=wrong, executed=demo.total, e_mails=demo.e_mails
        )
    if svg is not None:
        # The picture is kept in a repository: it must not fetch a font or contain links.
        picture = out.export_svg(title="holdfast demo", clear=False, unique_id="holdfast-demo")
        svg.write_text(_ELSEWHERE.sub("", picture), encoding="utf-8")
    return ERROR if wrong else OK


def _console(*, quiet: bool) -> Console:
    """Return a console that records its output, in the width of the picture."""
    return Console(
        file=io.StringIO() if quiet else None,
        record=True,
        width=SVG_WIDTH_CHARS,
        force_terminal=True if quiet else None,
        markup=False,
        highlight=False,
        emoji=False,
    )


class Demo:
    """One execution of the demo."""

    def __init__(self, folder: Path, out: Console) -> None:
        self.folder = folder
        self.out = out
        self.lines = Lines(out)
        self.url = f"sqlite:///{folder / 'demo.db'}"
        self.executed: list[Counter[str]] = []
        self.e_mails = 0
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """The store that the processes share."""
        if self._store is None:
            self._store = open_store(self.url, "default")
        return self._store

    @property
    def total(self) -> dict[str, int]:
        """The number of executions of each function, from the agent's log."""
        return dict(sum(self.executed, Counter[str]()))

    def say(self, text: str = "", style: str = "") -> None:
        """Print a line."""
        self.out.print(Text(text, style=style))

    # -- the processes -------------------------------------------------------------------------

    def play(self) -> None:
        """Start three processes; kill the first two."""
        self.say("A research agent: it asks a library, takes notes, and e-mails a report.")
        follower = Follower(self.store, RUN_ID, self.lines)
        for number, kill_in in enumerate((*KILLS, None), start=1):
            self.say()
            self._announce(number)
            self._process(follower, number, kill_in)
        self._sum_up()
        self.store.close()

    def _announce(self, number: int) -> None:
        if number == 1:
            self.say(f"Process 1 starts run {RUN_ID}.", "bold")
            return
        self.say(f"Process {number} is started, with the same run id, and goes on.", "bold")
        row = existing_row(self.store, RUN_ID)
        past = History.fold(RUN_ID, self.store.load(row))
        for record in past.records.values():
            if record.has_outcome and not record.keeps_place:
                self.lines.line("kept", record.key, "recorded, not executed again")

    def _process(self, follower: Follower, number: int, kill_in: str | None) -> None:
        from holdfast._operator.cli import demo_agent

        arguments = msgspec.json.encode(
            {"topic": demo_agent.TOPIC, "to": demo_agent.READER}
        ).decode()
        order = Order(
            "holdfast._operator.cli.demo_agent:research", RUN_ID, self.url, "default", arguments
        )
        before = self._log()
        env = {"HOLDFAST_DEMO_FOLDER": str(self.folder), "HOLDFAST_DEMO_PAUSE": kill_in or ""}
        child = Child(order, stdout=None, env=env)
        self._watch(child, follower, kill_in)
        report = child.report()
        follower.follow()
        self.executed.append(self._log() - before)
        if kill_in is not None and report is None and child.process.returncode == -signal.SIGKILL:
            when = "after sending" if kill_in == "send_report" else "in the middle"
            told = f"process {number} gets SIGKILL, {when}"
            self.lines.line("died", step_key(kill_in), told)
        elif kill_in is not None or report is None or report.code != OK:
            raise HoldfastError(f"the demo failed: {report.message if report else child.fate()}")

    def _watch(self, child: Child, follower: Follower, kill_in: str | None) -> None:
        """Follow the journal; kill the process when it is inside that step."""
        inside = self.folder / "inside"
        deadline_s = time.monotonic() + WAIT_S
        while not child.ended():
            follower.follow()
            if kill_in is not None and inside.exists() and inside.read_text() == kill_in:
                follower.follow()
                os.kill(child.pid, signal.SIGKILL)
                child.process.wait()
            elif time.monotonic() > deadline_s:
                child.process.kill()
                raise HoldfastError(f"the demo came no further within {WAIT_S:.0f} s")
            self.store.wait_for_change(LOOK_S)

    def _log(self) -> Counter[str]:
        log = self.folder / "executed.log"
        return Counter(log.read_text(encoding="utf-8").splitlines()) if log.exists() else Counter()

    # -- the summary ---------------------------------------------------------------------------

    def _sum_up(self) -> None:
        outbox = self.folder / "outbox.txt"
        sent = outbox.read_text(encoding="utf-8") if outbox.exists() else ""
        self.e_mails = sent.count("Message-Id:")
        self.say()
        self.say("How often each step was executed, by its own account:", "bold")
        self.out.print(self._table())
        self.say()
        view = run_views.view(self.store, RUN_ID, plain=True)
        entries = run_views.history(self.store, RUN_ID)
        kinds = Counter(entry.kind for entry in entries)
        self.say(
            f"In the outbox: {count(self.e_mails, 'e-mail')}.  In the journal: {len(entries)} entries, "
            f"{kinds['step_completed'] + kinds['step_settled']} outcomes, "
            f"{count(kinds['run_claimed'], 'claim')}."
        )
        self.say()
        self.say(f"$ holdfast explain {view.run_id}", "bold")
        self.say(str(status_report.explain(self.store, RUN_ID)))

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 2), header_style="dim")
        table.add_column("step")
        for number in range(1, len(self.executed) + 1):
            table.add_column(f"process {number}", justify="center")
        for name in EXPECTED:
            cells = [
                _cell(seen[name], killed=number < len(KILLS) and KILLS[number] == name)
                for number, seen in enumerate(self.executed)
            ]
            table.add_row(Text(step_key(name)), *cells)
        return table

    def check(self) -> list[str]:
        """Return the broken promises, and print the verdict."""
        wrong = [
            f"{step_key(name)} was executed {self.total.get(name, 0)} times instead of {times}"
            for name, times in EXPECTED.items()
            if self.total.get(name, 0) != times
        ]
        if self.e_mails != 1:
            wrong.append(f"{self.e_mails} e-mails were sent instead of 1")
        self.say()
        for line in wrong:
            self.say(f"Not as promised: {line}.", "bold red")
        if not wrong:
            self.say(
                "As promised: nothing recorded was executed again, and one e-mail was sent.",
                "bold green",
            )
        return wrong


def _cell(times: int, *, killed: bool) -> Text:
    if killed:
        return Text(f"{times}, killed", style="red")
    if times == 0:
        return Text("-", style="dim")
    return Text(
        "1" if times == 1 else f"{times} attempts", style="green" if times == 1 else "yellow"
    )


def step_key(name: str) -> str:
    """Return the step key of a line in the agent's log."""
    step, _, turn = name.partition(" ")
    return f"turns[{turn}]/{step}" if turn else step
