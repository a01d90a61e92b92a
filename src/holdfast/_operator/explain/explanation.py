"""The structure of an explanation, and the sentences that all explanations share."""

from __future__ import annotations

import re
import textwrap
from enum import StrEnum

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.history import History
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.journal.step_record import is_block
from holdfast._engine.text import ago, moment, visible
from holdfast._operator.explain import doubts
from holdfast._operator.read.step_views import counts_of, running_of
from holdfast._stores.contract import Store

WIDTH_CHARS = 79
ALL_IS_WELL = "Nothing needs to be done."
TO_SEE = "To see how far it is:"
NOTHING_TO_DO = f"{ALL_IS_WELL} {TO_SEE}"
_COMMAND = re.compile(r"holdfast(?: [a-z][a-z-]+){1,2}")
_NO_BREAK = "\u00a0"


class Wait(StrEnum):
    """What a run may wait for."""

    SLEEP = "sleep"
    RETRY = "retry"
    SIGNAL = "signal"
    ANSWER = "answer"
    APPROVAL = "approval"
    CHILD = "child"
    KEY = "key"
    QUEUE = "queue"
    """Its turn: no process has it."""
    DEADLINE = "deadline"
    """A time at which it is stopped, if it has not ended before."""


class Action(msgspec.Struct, frozen=True):
    """Something that can be done now; `command` can be pasted into a shell, or is empty."""

    meaning: str
    command: str = ""


class Explanation(msgspec.Struct):
    """The status of a run, what is known, what is not, and what can be done."""

    run_id: str
    flow: str
    status: str
    case: str
    known: list[str] = []
    unknown: list[str] = []
    actions: list[Action] = []
    warning: str | None = None
    """Said of the store as a whole, before everything else."""
    waits: list[Wait] = []
    """What it waits for, by kind."""

    def __str__(self) -> str:
        lines: list[str] = []
        if self.warning:
            lines += [*_wrapped(f"WARNING  {self.warning}", ""), ""]
        lines += _wrapped(visible(self.case), "")
        for title, facts in (("Known", self.known), ("Not known", self.unknown)):
            if facts:
                lines += ["", title]
                lines += [line for fact in facts for line in _wrapped(visible(fact), "  - ")]
        if self.actions:
            lines += ["", "What can be done now"]
            for action in self.actions:
                lines += _wrapped(visible(action.meaning), "  - ")
                # Never wrapped: it is to be pasted.
                lines += [f"      {visible(action.command)}"] if action.command else []
        return "\n".join(lines)


def _wrapped(text: str, mark: str) -> list[str]:
    later = " " * len(mark)
    text = _COMMAND.sub(lambda found: found[0].replace(" ", _NO_BREAK), text)
    rows = textwrap.wrap(
        text,
        WIDTH_CHARS,
        initial_indent=mark,
        subsequent_indent=later,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [row.replace(_NO_BREAK, " ") for row in rows] or [mark.rstrip()]


class Case:
    """All that an explanation is made from."""

    def __init__(self, store: Store, row: RunRow, past: History) -> None:
        self.store = store
        self.row = row
        self.past = past
        self.now_us = store.now_us()
        self.name = f"Run {row.run_id} of flow {row.flow}"
        self.is_block = is_block(past.started)
        """No worker takes it, and no command can name it: its script is run again."""
        self.said = Explanation(row.run_id, row.flow, str(row.status), "")

    def cmd(self, name: str, *more: str) -> str:
        return command(name, self.row.run_id, *more)

    def do(self, meaning: str, cmd: str = "") -> None:
        self.said.actions.append(Action(meaning, cmd))

    def waits_for(self, kind: Wait) -> None:
        if kind not in self.said.waits:
            self.said.waits.append(kind)

    def goes_on_when_run(
        self, meaning: str = "Run your program again", otherwise: str = ", or:"
    ) -> None:
        """Explain how the run is executed; a block has no flow that a command could name."""
        if self.is_block:
            self.do(f"{meaning}.")
        else:
            self.do(meaning + otherwise, run_command(self.row))

    def progress(self) -> None:
        """Add the progress, and that nothing recorded is executed again."""
        counts = counts_of(self.past)
        steps = "1 step has" if counts.done == 1 else f"{counts.done:,} steps have"
        if not counts.done:
            self.said.known.append("No step has a recorded outcome yet.")
        elif counts.left_behind:
            self.said.known.append(
                f"{steps} a recorded outcome; {counts.left_behind:,} of an earlier generation will be "
                "executed again."
            )
        else:
            self.said.known.append(f"{steps} a recorded outcome, and will not be executed again.")

    def since(self, at_us: int) -> str:
        return f"{ago(at_us, self.now_us)} ({moment(at_us)})"

    def where(self) -> None:
        """Report the current step."""
        step = self.row.current_step
        if step is not None:
            record = self.past.records.get(step)
            again = record is not None and record.attempts > 1
            tries = f", attempt {record.attempts}" if record is not None and again else ""
            self.said.known.append(f"The last step that wrote to its journal is {step}{tries}.")

    def at_work(self) -> None:
        """Report the steps at work, as far as the journal says."""
        running = running_of(self.past)
        for step in running:
            since = self.since(round(step.since.timestamp() * 1e6))
            tries = f", attempt {step.attempt}" if step.attempt > 1 else ""
            self.said.known.append(f"{step.key} is being executed{tries}, since {since}.")
        if not running:
            self.where()

    def open_effects(self, *, owner_died: bool = False) -> None:
        """Report the effects that a crash has left open, and what will be done about each."""
        for record in self.past.open_doubts():
            self.said.known += doubts.about_effect(
                self.store, self.row, record, self.now_us, owner_died=owner_died
            )
            self.said.unknown.append(
                f"Whether {record.key} happened. {doubts.what_will_be_done(record)}"
            )


def run_command(row: RunRow) -> str:
    """Return the command that executes a run, with the module left for the reader to fill in."""
    return command("run", f"MODULE:{row.flow}", row.run_id)
