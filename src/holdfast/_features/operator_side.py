"""The seams at which features meet the operator side, and the explanation that they add to.

A feature is one `OperatorSide`, made in its `operator.py` and listed in
`_operator/read/feature_sides.py`. Reports on runs, causes of held runs and metrics call what is listed
there.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.journal.step_record import is_block
from holdfast._engine.text import ago, moment, visible
from holdfast._stores.contract import Store

WIDTH_CHARS = 79
ALL_IS_WELL = "Nothing needs to be done."
TO_SEE = "To see how far it is:"
NOTHING_TO_DO = f"{ALL_IS_WELL} {TO_SEE}"
_COMMAND = re.compile(r"holdfast(?: [a-z][a-z-]+){1,2}")
_NO_BREAK = "\u00a0"


Journal = tuple[list[Entry], History]
"""The entries of a run, and its history, as `lineage.read` returns them."""


class Wait(StrEnum):
    """The things that a run may wait for."""

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
    """The things that it waits for, by kind."""

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
    """A run to explain, and the explanation as far as it is written."""

    def __init__(
        self, store: Store, row: RunRow, journal: Journal, findings: Sequence[Any] | None = None
    ) -> None:
        self.store = store
        self.row = row
        self.journal = journal
        self.past = journal[1]
        self.findings = findings
        """The findings in the run, if its checks were made before."""
        self.now_us = store.now_us()
        self.name = f"Run {row.run_id} of flow {row.flow}"
        self.is_block = is_block(self.past.started)
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

    def since(self, at_us: int) -> str:
        return f"{ago(at_us, self.now_us)} ({moment(at_us)})"


def run_command(row: RunRow) -> str:
    """Return the command that executes a run, with the module left for the reader to fill in."""
    return command("run", f"MODULE:{row.flow}", row.run_id)


class Gauge(msgspec.Struct, frozen=True):
    """A metric of a store, as it is now: samples with their labels."""

    name: str
    text: str
    samples: Sequence[tuple[dict[str, str], float]]


class Reading(msgspec.Struct):
    """Metrics that are read together, and whether they are complete."""

    gauges: list[Gauge]
    complete: bool = True


def single(name: str, text: str, value: float) -> Gauge:
    """Return a metric that has one sample."""
    return Gauge(name, text, [({}, value)])


class HeldRun(Protocol):
    """A held run, as its row and its journal say."""

    row: RunRow
    facts: dict[str, Any]
    """The entry that held it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holds:
    """The explanation of runs that a feature holds for one reason."""

    explain: Callable[[Case], None]
    """Explain one of them; its progress is explained before."""
    shared: Callable[[Store, RunRow], tuple[str, Any] | None]
    """(store, row): the cause that a run shares with others, by its name; None: it has its own."""
    cause: Callable[[Store, Any, Sequence[HeldRun]], tuple[str, list[Action]]]
    """(store, shared cause, runs that it holds): the cause in words, and what frees all of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OperatorSide:
    """The parts that a feature adds to the operator side; each is optional."""

    name: str
    explain: Callable[[Case], None] | None = None
    """The section of a run's explanation."""
    warn: Callable[[Case], None] | None = None
    """Warnings about a run whose explanation is otherwise complete."""
    statuses: Mapping[Status, Callable[[Case], None]] = dataclasses.field(
        default_factory=dict[Status, Callable[[Case], None]]
    )
    """The explanations of runs in a status that only this feature brings about."""
    holds: Mapping[HeldReason, Holds] = dataclasses.field(default_factory=dict[HeldReason, Holds])
    """The explanations of the runs that the feature holds, by their reason."""
    figures: Mapping[str, Callable[[Store], Reading]] = dataclasses.field(
        default_factory=dict[str, Callable[[Store], Reading]]
    )
    """The metrics of a store, by the names that `holdfast_incomplete` has for them."""
