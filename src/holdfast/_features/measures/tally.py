"""The tally of a process: what it has committed, counted by minute and flow. Pure.

Counted is what entries say, at the moment when they are committed, and nothing else: a replay writes
no entry, so it is not counted, and what was lost with a process was not done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast._engine.journal.entries import Draft, Entry, Kind
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._engine.values.money import nanos
from holdfast._features.measures.model import MINUTE_US, minute_of, note

ENDS = {
    Kind.RUN_COMPLETED: "completed",
    Kind.RUN_FAILED: "failed",
    Kind.RUN_CANCELLED: "cancelled",
    Kind.RUN_ROLLED_BACK: "rolled_back",
}
"""Entries that end a run, with the status that they leave."""
OUTCOMES = frozenset({Kind.STEP_COMPLETED, Kind.STEP_FAILED, Kind.STEP_IN_DOUBT})
"""Entries that may end an attempt."""
UNCALLED = frozenset({"data_loss", "key_expired", "repeated"})
"""Why an effect is in doubt that was not called just now."""
_STARTED, _COMPLETED = Kind.STEP_STARTED, Kind.STEP_COMPLETED


class _Facts(msgspec.Struct):
    """The counted facts of an outcome."""

    why: str = ""
    unknown: bool = False
    usage: dict[str, Any] | None = None


_facts = msgspec.json.Decoder(_Facts)
_NO_FACTS = _Facts()


class Tally:
    """Counts what is written, minute by minute."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str], Counts] = {}
        self._begun_us: dict[int, dict[tuple[str, int], int]] = {}
        """When attempts began whose start was written before their end, by run, step and number."""
        self._last: tuple[int, str, Counts] = (-MINUTE_US, "", Counts())
        """Where was counted last: the next time, it is mostly there again."""
        self._floor_us = 0
        """Minutes before this are written already: late counts go here."""

    def wrote(self, row: RunRow, drafts: Sequence[Draft | Entry]) -> None:
        """Count entries that were committed; the row is the run's, as it is now."""
        for draft in drafts:
            kind = draft.kind
            if kind is _COMPLETED or kind in OUTCOMES:
                self._outcome(row, draft)
            elif kind is _STARTED:
                begun = self._begun_us.setdefault(row.run_no, {})
                begun[str(draft.step), draft.attempt] = draft.at_us
            elif kind is Kind.RUN_HELD:
                self.at(draft.at_us, row.flow).held += 1
            elif kind in ENDS:
                self._end(row, draft)

    def _end(self, row: RunRow, draft: Draft | Entry) -> None:
        counts, status = self.at(draft.at_us, row.flow), ENDS[draft.kind]
        counts.ended[status] = counts.ended.get(status, 0) + 1
        if status == "completed":
            note(counts.run_us, draft.at_us - row.created_us)

    def _outcome(self, row: RunRow, draft: Draft | Entry) -> None:
        counts = self.at(draft.at_us, row.flow)
        began_us = draft.started_us
        if began_us is None:
            begun = self._begun_us.get(row.run_no)
            at = (str(draft.step), draft.attempt)
            began_us = None if begun is None else begun.pop(at, None)
        if draft.kind is not _COMPLETED:
            facts = _facts.decode(draft.body)
            if facts.unknown or facts.why in UNCALLED:
                return  # It says how a doubt ended, which was counted, or that nothing was called.
            counts.errors += 1
            counts.doubts += draft.kind is Kind.STEP_IN_DOUBT
        else:
            facts = _facts.decode(draft.body) if b'"usage":' in draft.body else _NO_FACTS
            counts.steps += 1
        if facts.usage is not None:
            _use(counts, facts.usage)
        counts.attempts += 1
        counts.retries += draft.attempt > 1
        if began_us is not None:
            note(counts.attempt_us, draft.at_us - began_us)

    def at(self, at_us: int, flow: str) -> Counts:
        """Return the counts of a flow (or of the process: "") at a moment."""
        minute_us, of_flow, counts = self._last
        if of_flow == flow and minute_us <= at_us < minute_us + MINUTE_US:
            return counts
        minute_us = max(minute_of(at_us), self._floor_us)
        counts = self._counts.setdefault((minute_us, flow), Counts())
        self._last = (minute_us, flow, counts)
        return counts

    def left(self, run_no: int) -> None:
        """Forget what was begun in a run: it is executed here no longer."""
        self._begun_us.pop(run_no, None)

    def take(self, before_us: int, process: str) -> list[Measure]:
        """Return the measures of all minutes before this one, and forget them."""
        self._floor_us = max(self._floor_us, before_us)
        self._last = (-MINUTE_US, "", Counts())
        ended = sorted(place for place in self._counts if place[0] < before_us)
        return [Measure(at, process, flow, self._counts.pop((at, flow))) for at, flow in ended]

    def peek(self, process: str) -> list[Measure]:
        """Return the measures of the minutes that are not over; they go on being counted."""
        return [Measure(at, process, flow, it) for (at, flow), it in sorted(self._counts.items())]


def _use(counts: Counts, used: dict[str, Any]) -> None:
    counts.cost_nanos += nanos(used.get("cost", 0), "record_usage(cost_usd=…)")
    counts.tokens += int(used.get("input_tokens", 0)) + int(used.get("output_tokens", 0))
