"""The seams at which features meet the runtime. The runtime names no feature: it calls what is installed.

A feature is one `Feature`, declared by the package of its folder, which imports its chapters when they
are needed. The front installs all of them in one static tuple; tests of the core install none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast._engine.journal.entries import Draft, Entry
from holdfast._engine.journal.history import History
from holdfast._engine.journal.rows import Change, Lease, Message, RunRow, Write
from holdfast._engine.scripts.stops import Unwind

NOTHING: Mapping[Any, Any] = {}


class CommitListener:
    """The events of the runs of one engine, for one feature. A listener never fails a run."""

    def wrote(self, writes: Sequence[Write]) -> None:
        """These writes are committed, some of them a while ago; see `Engine.hear`."""

    def noticed(self, row: RunRow, entry: Entry) -> None:
        """The store has written an entry by itself when this process asked for the run."""

    def traced(self, flow: str) -> None:
        """An attempt had a span of a trace."""

    def left(self, run_no: int) -> None:
        """This process executes a run no longer."""

    def works_in(self, slots: Any) -> None:
        """A worker has these slots from now on, or none any more."""

    def beat(self) -> None:
        """A few seconds have passed."""

    def sample(self) -> None:
        """A worker begins a round: read what takes a query of the store, in a thread of its own."""

    def close(self) -> None:
        """The engine closes."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is a decision about a run: the run's owner writes its entry."""

    write: Callable[[Any, Lease, History, Message, int], Write | None]
    """(engine, lease, whole history, message, now) → the write that takes it in; None: too late."""
    stops: Callable[[Message], bool] = lambda _message: False
    """Whether it stops a run that was just claimed, before its journal is read."""
    at_end: bool = False
    """Whether it replaces the entry by which an execution gives the run back."""


class PeriodicJob:
    """A job that a worker does now and then for a feature, between taking runs."""

    def run(self) -> int | None:
        """Do what is due; return when to look again, by the store's clock, if that is known."""
        raise NotImplementedError


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that a feature adds to the runtime; each is optional."""

    name: str
    record_start: Callable[[Any, dict[str, Any]], None] | None = None
    """(engine, facts): add what is recorded when a run starts."""
    begin: Callable[[Any, bool], None] | None = None
    """(execution, whether the run is new): a claimed run is loaded, and its flow not yet called."""
    derive_changes: Callable[[Any, list[Draft]], list[Change]] | None = None
    """(execution, entries): what else the transaction of these entries changes."""
    unwind_for: Callable[[Any, BaseException], Unwind | None] | None = None
    """(execution, error): how the run stops that raised this error, if not by failing."""
    performers: Mapping[type, Callable[[Any, Any], Any]] = {}
    """The performers of requests of scripts, by the type of the request: (execution, request)."""
    messages: Mapping[str, Callable[[Any, Message], None]] = {}
    """The handlers of messages to runs at work here, by the kind of the message: (execution, message)."""
    decisions: Mapping[str, Decision] = {}
    """Messages that are decisions about a run, by their kind."""
    periodic: Callable[[Any, Callable[[], Mapping[str, Any]]], PeriodicJob] | None = None
    """(engine, flows): what a worker does now and then."""
    listener: Callable[[Any], CommitListener] | None = None
    """(engine): what counts the writes of an engine."""
    begin_survey: Callable[[Any], None] | None = None
    """(engine): a worker begins to look at all open runs, in a thread of its own."""
    report_findings: Callable[[Any, RunRow, Sequence[Any]], bool] | None = None
    """(engine, row, findings): report what was found in an open run; False: not all of it yet."""


class Installed:
    """The installed features, sorted by seam, so that one that is not used costs no call."""

    def __init__(self) -> None:
        self.install(())

    def install(self, features: Iterable[Feature]) -> None:
        """Make these the features of this process."""
        self.features = tuple(features)
        self.record_start = tuple(it.record_start for it in self.features if it.record_start)
        self.begin = tuple(it.begin for it in self.features if it.begin)
        self.derive_changes = tuple(it.derive_changes for it in self.features if it.derive_changes)
        self.unwind_for = tuple(it.unwind_for for it in self.features if it.unwind_for)
        self.periodic = tuple(it.periodic for it in self.features if it.periodic)
        self.listener = tuple(it.listener for it in self.features if it.listener)
        self.begin_survey = tuple(it.begin_survey for it in self.features if it.begin_survey)
        self.report_findings = tuple(
            it.report_findings for it in self.features if it.report_findings
        )
        self.performers = {kind: fn for it in self.features for kind, fn in it.performers.items()}
        self.messages = {kind: fn for it in self.features for kind, fn in it.messages.items()}
        self.decisions = {kind: way for it in self.features for kind, way in it.decisions.items()}


installed = Installed()
"""The features of this process."""
