"""Report a run's progress from its journal: one line per entry, as it becomes durable."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from holdfast._engine.decisions.resume import facts_of
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.text import clipped, length, visible
from holdfast._operator.cli.session import print_line
from holdfast._stores.contract import Store

NAME_CHARS = 28
_MARKS = {
    "done": ("✓", "+", "green"),
    "work": ("…", ".", "dim"),
    "again": ("↻", "~", "yellow"),
    "failed": ("✗", "x", "red"),
    "doubt": ("?", "?", "yellow"),
    "kept": ("=", "=", "cyan"),
    "died": ("✗", "x", "bold red"),
}
"""The mark of a line: in UTF-8, in other encodings, and its colour."""


class Lines:
    """Prints lines with a mark at their start."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self._plain = not (out.encoding or "").lower().startswith("utf")

    def line(self, mark: str, name: str, told: str = "") -> None:
        """Print one fact."""
        fancy, plain, style = _MARKS[mark]
        text = Text("  ")
        text.append(plain if self._plain else fancy, style=style)
        text.append(f" {visible(name):<{NAME_CHARS}} " if told else f" {visible(name)}")
        text.append(visible(told), style="dim" if mark in ("done", "work") else style)
        print_line(self.out, text)


class Follower:
    """Follows the journal of one run."""

    def __init__(self, store: Store, run_id: str, lines: Lines) -> None:
        self.store = store
        self.run_id = run_id
        self.lines = lines
        self.seen = 0
        self.heading = ""
        """Printed before the first line."""

    def catch_up(self) -> int:
        """Skip the recorded entries; return how many steps have an outcome."""
        row = self.store.get(self.run_id)
        if row is None:
            return 0
        self.seen = row.last_seq
        return row.steps

    def follow(self) -> int:
        """Print the new entries; return their number."""
        row = self.store.get(self.run_id)
        if row is None or row.last_seq <= self.seen:
            return 0
        skips = [(1, self.seen)] if self.seen else []
        entries = self.store.load(row, skips)
        if self.heading:
            self.lines.out.print(Text(visible(self.heading)), soft_wrap=True)
            self.heading = ""
        for entry in entries:
            self.tell(entry)
        new, self.seen = row.last_seq - self.seen, row.last_seq
        return new

    def tell(self, entry: Entry) -> None:
        """Print a line for an entry, if its kind is shown."""
        told = _TOLD.get(entry.kind)
        if told is None or entry.step is None:
            return
        mark, line = told(entry, facts_of(entry))
        self.lines.line(mark, entry.step, line)


def _started(entry: Entry, facts: dict[str, Any]) -> tuple[str, str]:
    what = "effect" if facts.get("effect") else "step"
    tries = f", attempt {entry.attempt}" if entry.attempt > 1 else ""
    return "work", f"{what} at work{tries}"


def _completed(entry: Entry, facts: dict[str, Any]) -> tuple[str, str]:
    took = "" if entry.started_us is None else length((entry.at_us - entry.started_us) / 1e6)
    if "degraded" in facts:
        return "again", f"degraded: {_error(facts['degraded'])}"
    tries = f"attempt {entry.attempt}" if entry.attempt > 1 else ""
    return "done", ", ".join(part for part in (took, tries) if part)


def _failed(entry: Entry, facts: dict[str, Any]) -> tuple[str, str]:
    if facts["final"]:
        return "failed", f"gave up after attempt {entry.attempt}: {_error(facts['error'])}"
    pause_s = max(0, facts.get("retry_at_us", entry.at_us) - entry.at_us) / 1e6
    return "again", f"attempt {entry.attempt}, again in {length(pause_s)}: {_error(facts['error'])}"


def _in_doubt(entry: Entry, facts: dict[str, Any]) -> tuple[str, str]:  # noqa: ARG001
    return "doubt", f"in doubt: {_DOUBTS.get(facts['why'], facts['why'])}"


def _settled(entry: Entry, facts: dict[str, Any]) -> tuple[str, str]:  # noqa: ARG001
    by = facts.get("actor") or "its on_doubt function"
    return "done", f"settled as {str(facts['outcome']).replace('_', ' ')} by {by}"


def _skipped(entry: Entry, facts: dict[str, Any]) -> tuple[str, str]:  # noqa: ARG001
    return "kept", f"done before, by run {facts['other_run']}"


def _error(told: dict[str, Any]) -> str:
    return clipped(f"{told['type']}: {told['message']}", 160)


_DOUBTS = {
    "process_died": "its process died in the middle",
    "error": "it raised an error in the middle",
    "timeout": "it ran out of time",
    "value_lost": "it happened, but its result is lost",
    "interrupted": "it was interrupted",
    "data_loss": "the store lost records",
    "repeated": "it may repeat another",
}
"""Shorter texts than in an explanation, because they must fit on a line."""
_TOLD = {
    Kind.STEP_STARTED: _started,
    Kind.STEP_COMPLETED: _completed,
    Kind.STEP_FAILED: _failed,
    Kind.STEP_IN_DOUBT: _in_doubt,
    Kind.STEP_SETTLED: _settled,
    Kind.SKIPPED_DUPLICATE: _skipped,
}
