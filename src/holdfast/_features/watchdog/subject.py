"""The subject of the watchdog's checks: one run, seen from outside. Pure.

A run that a person has taken up again counts from there: what was seen and let go on is no finding a
second time, until it has come as far once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import CLAIMABLE, FINAL
from holdfast._engine.journal.rows import Account, RunRow
from holdfast._engine.values.moments import at
from holdfast._features.watchdog.model import Finding, Found, Limits, Severity, limits_in


class Deed(msgspec.Struct, frozen=True):
    """An effect that another run of the flow completed, without a business key."""

    run_id: str
    step: str
    args_digest: bytes
    at_us: int


class Subject(msgspec.Struct):
    """All that the checks are made on."""

    row: RunRow
    entries: Sequence[Entry]
    history: History
    now_us: int
    at_work: bool = False
    """Whether a process that may be alive has it."""
    left_us: int = 0
    """The last pulse of an owner that is dead or late; 0 if it is not known."""
    served: bool = True
    """Whether a live worker would take it when its turn comes."""
    durations_us: Mapping[str, Sequence[int]] = {}
    """How long steps took in other runs of the flow, by name."""
    deeds: Sequence[Deed] = ()
    """Effects of other runs of the flow."""
    account: Account | None = None

    @property
    def limits(self) -> Limits:
        return limits_in(self.history.started)

    @property
    def since_seq(self) -> int:
        """The entry with which a person last took the run up again."""
        resumed = (it.seq for it in self.entries if it.kind is Kind.RUN_RESUMED)
        return max(resumed, default=0)

    def finding(
        self,
        kind: Found,
        severity: Severity,
        mark: str,
        text: str,
        *,
        since_us: int,
        steps: Sequence[str] = (),
        entries: Sequence[int] = (),
        actions: Sequence[str] = (),
    ) -> Finding:
        """Return a finding of this run; `mark` tells it from others of its kind."""
        return Finding(
            self.row.run_id,
            self.row.flow,
            kind,
            severity,
            f"{kind}:{mark}",
            at(since_us),
            tuple(steps),
            tuple(entries),
            text,
            tuple(actions),
        )

    def cmd(self, name: str, *more: str) -> str:
        return command(name, self.row.run_id, *more)

    def stops(self) -> list[str]:
        """Return the commands that stop it, as far as it can be stopped."""
        if self.row.status in CLAIMABLE:
            return [self.cmd("pause"), self.cmd("cancel")]
        return [] if self.row.status in FINAL else [self.cmd("cancel")]
