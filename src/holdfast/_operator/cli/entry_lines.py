"""Format journal entries: one line each for people, one JSON object each for programs."""

from __future__ import annotations

import datetime as dt
from typing import Any, cast

from rich.console import Console
from rich.text import Text

from holdfast._engine.journal.drift_record import changes_of
from holdfast._engine.journal.entries import Kind
from holdfast._engine.text import brief_json, clipped, visible
from holdfast._operator.cli.session import print_line
from holdfast._operator.cli.tables import STYLES
from holdfast._operator.read.entry_views import EntryView

NARROW = 100
"""On a terminal narrower than this, the columns that are often empty get less room."""


def entry_data(entry: EntryView) -> dict[str, Any]:
    """Return an entry as JSON data."""
    return {
        "seq": entry.seq,
        "kind": entry.kind,
        "step": entry.step,
        "attempt": entry.attempt,
        "at": entry.at,
        "body": entry.body,
    }


class Days:
    """Prints the date before the first line of each day: lines have only the time."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._day: dt.date | None = None

    def at(self, at: dt.datetime) -> None:
        """Print the date, unless the line before was of the same day."""
        day = at.astimezone(dt.UTC).date()
        if day != self._day:
            print_line(self._out, Text(f"      {day:%Y-%m-%d} (UTC)", "dim"))
            self._day = day


def print_entry(out: Console, entry: EntryView) -> None:
    """Print an entry as one line."""
    line = Text()
    line.append(f"{entry.seq:>4}  {entry.at:%H:%M:%S}.{entry.at.microsecond // 1000:03}  ", "dim")
    line.append(f"{entry.kind:<17} ", STYLES.get(entry.kind.partition("_")[2], ""))
    step_chars = 16 if out.is_terminal and out.width < NARROW else 20
    line.append(f"{visible(entry.step or ''):<{step_chars}}  ")
    line.append(summary_of(entry), "dim")
    print_line(out, line)


def summary_of(entry: EntryView) -> str:
    """Summarize an entry in a few words."""
    body = entry.body
    if entry.kind == Kind.QUESTION_ASKED and body.get("text"):
        return clipped(visible(str(body["text"])), 90)
    if entry.kind == Kind.VALUE_EMITTED and body.get("begins"):
        return f"begins its output: {brief_json(body.get('value'), 70)}"
    if entry.kind == Kind.FINDING_NOTED:
        told = f"{body.get('finding')} since {body.get('since')}: {body.get('text')}"
        return clipped(visible(told), 120)
    told = _in_words(entry)
    if told:
        return visible(told) + _by_whom(body, "")
    for field in ("error", "result", "value", "args", "input", "detail", "superseded"):
        if body.get(field) not in (None, [], {}):
            return _value_text(body[field]) + _by_whom(body, field)
    facts = {
        name: body[name]
        for name in ("from", "before", "why", "outcome", "actor", "owner", "turn")
        if name in body
    }
    return visible(", ".join(f"{name}={value}" for name, value in facts.items()))


def _in_words(entry: EntryView) -> str:
    """Return the text of an entry that is printed in full: why a run was held or released, which
    drift was found, and why a message was discarded."""
    body = entry.body
    if entry.kind in (Kind.RUN_HELD, Kind.RUN_RELEASED) and body.get("detail"):
        why = str(body.get("reason") or body.get("why"))
        code = str(body.get("code", "")) if entry.kind == Kind.RUN_RELEASED else ""
        version = f", version {code.rpartition('/')[0]}" if code else ""
        return f"{why}{version}: {body['detail']}"
    if entry.kind == Kind.DRIFT_FOUND:
        changes = changes_of(body)
        return "; ".join(
            f"{it} ({it.did.replace('_', ' ')})" if it.did else str(it) for it in changes
        )
    return str(body.get("why", "")) if entry.kind == Kind.MESSAGE_DISCARDED else ""


def _by_whom(body: dict[str, Any], field: str) -> str:
    """Return who answered, sent, settled or approved it; the text of a rejection names its actor
    itself."""
    approved: dict[str, Any] = body.get("approved") or {}
    if approved.get("actor"):
        return f", approved by {clipped(visible(str(approved['actor'])))}"
    if not body.get("actor") or (field == "error" and "refused" in body):
        return ""
    return f", by {clipped(visible(str(body['actor'])))}"


def _value_text(value: Any) -> str:
    if isinstance(value, dict):
        error = cast("dict[str, Any]", value)
        if error.keys() >= {"type", "message"}:
            return clipped(visible(f"{error['type']}: {error['message']}"), 90)
    return brief_json(value, 90)
