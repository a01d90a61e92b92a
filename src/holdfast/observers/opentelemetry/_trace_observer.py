"""Runs as traces. Events, and the spans that they make:

    taken          execution                 open while this process executes the run
    attempt_started  step (the first time), attempt: current while user code runs
    attempt_ended  attempt ends
    written        step ends with its outcome; a wait that ended; the run, when it ended
    left           execution ends, with what is open in it

The process that takes over a run reports the execution of the process that died: ids are derived, so
that span gets the id that its steps name already.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from opentelemetry import context as contexts, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, Status, StatusCode, TracerProvider

from holdfast.observers import (
    InterruptedStep,
    ObservedAttempt,
    ObservedEntry,
    ObservedRun,
    Observer,
    PriorExecution,
)
from holdfast.observers.opentelemetry import _span_attributes as saying
from holdfast.observers.opentelemetry._spans import Spans, link

ENDED = frozenset({"completed", "failed", "cancelled", "rolled_back"})
LIVES_KEPT = 1000
_Key = tuple[str, str, str]


class Step:
    """A step that executes in this process."""

    __slots__ = ("calls", "doubt", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.doubt = False
        self.calls: dict[tuple[object, ...], int] = {}
        """How often user code was called for the same attempt."""


class Execution:
    """A run in this process, from claim to release."""

    def __init__(self, run: ObservedRun, root: Context, span: Span) -> None:
        self.run = run
        self.root = root
        self.span = span
        self.inside = trace.set_span_in_context(span, Context())
        self.steps: dict[str, Step] = {}
        self.looks: dict[tuple[object, ...], int] = {}
        """How often the same dependency was read."""
        self.waits: dict[str, tuple[ObservedEntry, bool]] = {}
        """Waits by step key: the entry that began it, and whether that was in this execution."""


class Tracing(Observer):
    """Makes spans of the events that it receives."""

    def __init__(self, provider: TracerProvider | None, *, messages: bool = False) -> None:
        self._spans = Spans(provider)
        self._messages = messages
        self._lock = threading.Lock()
        self._executions: dict[tuple[_Key, int], Execution] = {}
        self._lives: OrderedDict[_Key, tuple[int, int]] = OrderedDict()
        """Ended runs that were executed here: the entry that resumed them."""

    # -- executions ----------------------------------------------------------------------------

    def run_claimed(self, run: ObservedRun, *, resumed: bool) -> None:
        """Begin an execution; report the previous one if its process cannot."""
        past = run.past or PriorExecution()
        self._remember(run, past)
        it = self._begin(run, past, resumed=resumed)
        if past.died and past.epoch is not None:
            self._died(it, past, past.epoch)

    def _begin(self, run: ObservedRun, past: PriorExecution, *, resumed: bool) -> Execution:
        about = saying.run(run)
        root = self._spans.root(run, self._root(run), f"run {run.flow}", about)
        span = self._spans.start(
            run,
            ("execution", run.epoch),
            "execution",
            root,
            {**about, **saying.claim(run, resumed=resumed)},
            links=self._links(run, past, root),
        )
        it = Execution(run, root, span)
        it.waits = {entry.step or "": (entry, False) for entry in past.waits}
        with self._lock:
            self._executions[_key(run), run.epoch] = it
        return it

    def _links(self, run: ObservedRun, past: PriorExecution, root: Context) -> list[Link]:
        flags = trace.get_current_span(root).get_span_context().trace_flags
        links: list[Link] = []
        if past.epoch is not None:
            links.append(link(run, ("execution", past.epoch), "previous_execution", flags))
        caller = trace.get_current_span().get_span_context()
        if run.parent is not None:
            links.append(link(run, ("run", 0), "parent", flags, run.parent))
        elif caller.is_valid:
            links.append(Link(caller, {"holdfast.link": "caller"}))
        return links

    def _died(self, now: Execution, past: PriorExecution, epoch: int) -> None:
        """Report an execution whose process died, as far as the journal knows."""
        run = now.run
        about = {**saying.run(run), "holdfast.epoch": epoch, "holdfast.status": "died"}
        span = self._spans.start(
            run, ("execution", epoch), "execution", now.root, about, start_us=past.began_us
        )
        inside = trace.set_span_in_context(span, Context())
        for cut in past.cut:
            self._cut(run, cut, epoch, inside, past.ended_us)
        span.set_status(Status(StatusCode.ERROR, "its process died"))
        span.end(past.ended_us * 1000)

    def _cut(
        self, run: ObservedRun, cut: InterruptedStep, epoch: int, inside: Context, end_us: int
    ) -> None:
        of = (epoch, cut.generation, cut.key)
        about = saying.cut(run, cut)
        step = self._spans.start(
            run, ("step", *of), f"step {cut.name}", inside, about, start_us=cut.first_us
        )
        end_us = max(end_us, cut.started_us)
        ended = Status(StatusCode.ERROR, "its process died")
        if cut.running:
            attempt = self._spans.start(
                run,
                ("attempt", *of, "body", cut.attempt, 1),
                f"attempt {cut.attempt}",
                trace.set_span_in_context(step, Context()),
                {**about, "holdfast.attempt": cut.attempt},
                start_us=cut.started_us,
            )
            attempt.set_status(ended)
            attempt.end(end_us * 1000)
        step.set_status(ended)
        step.end(end_us * 1000)

    def run_released(self, run: ObservedRun, status: str) -> None:
        """End an execution and its open spans."""
        with self._lock:
            it = self._executions.pop((_key(run), run.epoch), None)
        if it is None:
            return
        for step in it.steps.values():
            saying.unfinished(step.span, in_doubt=step.doubt)
            step.span.end()
        if status in ENDED:
            for entry, here in it.waits.values():
                self._wait(it, entry, here, "unfinished", None)
        it.span.set_attribute("holdfast.status", status)
        it.span.end()

    def close(self) -> None:
        """End open spans: no more events come."""
        with self._lock:
            left, self._executions = list(self._executions.values()), {}
        for it in left:
            for step in it.steps.values():
                step.span.end()
            it.span.end()

    # -- steps and attempts --------------------------------------------------------------------

    def attempt_started(self, attempt: ObservedAttempt) -> tuple[Span, Any, int]:
        """Begin an attempt, and make it current here."""
        run = attempt.run
        it = self._executions.get((_key(run), run.epoch))
        if it is None:  # This began to observe after the run was claimed.
            it = self._begin(run, PriorExecution(), resumed=run.epoch > 1)
        parent, calls = it.inside, it.looks
        if attempt.what != "look":
            step = self._step(it, attempt)
            parent, calls = trace.set_span_in_context(step.span, Context()), step.calls
        of = ("attempt", run.epoch, run.generation, attempt.key, attempt.what, attempt.number)
        span = self._spans.start(
            run,
            (*of, self._count(calls, of)),
            saying.name_of_attempt(attempt),
            parent,
            saying.attempt(attempt),
        )
        attempt.traced = span.is_recording()
        token = contexts.attach(trace.set_span_in_context(span))
        return span, token, threading.get_ident()

    def attempt_ended(self, attempt: ObservedAttempt, begun: tuple[Span, Any, int]) -> None:
        """End it, with its usage and its error. In the thread of an abandoned attempt its span
        stays current: that thread's later work belongs to nothing else."""
        span, token, thread = begun
        if thread == threading.get_ident():
            contexts.detach(token)
        saying.used(span, attempt)
        saying.raised(span, attempt, messages=self._messages)
        span.end()

    def _step(self, it: Execution, attempt: ObservedAttempt) -> Step:
        with self._lock:
            found = it.steps.get(attempt.key)
            if found is None:
                of = ("step", it.run.epoch, attempt.run.generation, attempt.key)
                span = self._spans.start(
                    it.run, of, f"step {attempt.name}", it.inside, saying.step(attempt)
                )
                found = it.steps[attempt.key] = Step(span)
            return found

    def _count(self, calls: dict[tuple[object, ...], int], of: tuple[object, ...]) -> int:
        with self._lock:
            calls[of] = calls.get(of, 0) + 1
            return calls[of]

    # -- entries -------------------------------------------------------------------------------

    def entries_committed(self, run: ObservedRun, entries: Sequence[ObservedEntry]) -> None:
        """End the spans of everything that these entries end."""
        it = self._executions.get((_key(run), run.epoch))
        for entry in entries:
            if it is not None:
                self._inside(it, run, entry)
            if entry.kind in saying.RUN_ENDS:
                self._run_ended(run, entry)

    def _inside(self, it: Execution, run: ObservedRun, entry: ObservedEntry) -> None:
        key, kind = entry.step or "", entry.kind
        if kind in saying.WAIT_BEGINS:
            if not (kind == "question_asked" and key in it.waits):  # It is asked once more.
                it.waits[key] = (entry, True)
        elif key in it.waits and kind in saying.WAIT_ENDS:
            begun, here = it.waits.pop(key)
            self._wait(it, begun, here, saying.WAIT_ENDS[kind], entry)
        if kind in saying.STEP_KINDS:
            self._step_entry(it, run, entry)
        elif kind == "run_held":
            saying.held(it.span, entry)

    def _step_entry(self, it: Execution, run: ObservedRun, entry: ObservedEntry) -> None:
        """An entry of a step: an event of its span, or its end."""
        key = entry.step or ""
        facts = entry.facts()
        with self._lock:
            step = it.steps.get(key)
            if step is None:
                start_us = entry.started_us or entry.at_us
                of = ("step", run.epoch, run.generation, key)
                about = saying.step_of_entry(run, entry)
                span = self._spans.start(
                    run, of, f"step {entry.name}", it.inside, about, start_us=start_us
                )
                step = it.steps[key] = Step(span)
            outcome = saying.outcome(entry.kind, facts)
            if outcome is not None:
                del it.steps[key]
        step.doubt = entry.kind == "step_in_doubt"
        saying.describe_entry(step.span, entry, facts, outcome, messages=self._messages)
        if outcome is not None:
            step.span.end()

    def _wait(
        self,
        it: Execution,
        begun: ObservedEntry,
        here: bool,
        how: str,
        ended: ObservedEntry | None,
    ) -> None:
        """Report a wait, when it is over. One that began in an earlier execution stands beside
        them, below the run."""
        run = it.run
        name, about, child = saying.wait(run, begun, how)
        flags = it.span.get_span_context().trace_flags
        links = [link(run, ("run", 0), "child", flags, child)] if child else []
        span = self._spans.start(
            run,
            ("wait", begun.step, begun.at_us),
            name,
            it.inside if here else it.root,
            about,
            links=links,
            start_us=begun.at_us,
        )
        span.end(None if ended is None else ended.at_us * 1000)

    # -- the run -------------------------------------------------------------------------------

    def _run_ended(self, run: ObservedRun, entry: ObservedEntry) -> None:
        life = self._lives.get(_key(run), (0, 0))
        parent = run.parent
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        span = self._spans.start(
            run,
            self._root(run),
            f"run {run.flow}",
            Context(),
            saying.run(run),
            links=[link(run, ("run", 0), "parent", flags, parent)] if parent else [],
            start_us=life[1] or run.created_us,
        )
        saying.run_ended(span, entry, messages=self._messages)
        span.end(entry.at_us * 1000)

    def _root(self, run: ObservedRun) -> tuple[object, ...]:
        """Return what the root span stands for. A run that ended and was taken up again has one for
        each time, so that none is reported twice."""
        found = self._lives.get(_key(run))
        if found is not None:
            return ("run", found[0])
        # Of another process, or long ago: it may have ended before in an earlier generation.
        return ("run", 0 if run.generation == 1 else f"generation {run.generation}")

    def _remember(self, run: ObservedRun, past: PriorExecution) -> None:
        with self._lock:
            self._lives[_key(run)] = (past.reborn_seq, past.reborn_us)
            self._lives.move_to_end(_key(run))
            while len(self._lives) > LIVES_KEPT:
                self._lives.popitem(last=False)


def _key(run: ObservedRun) -> _Key:
    return run.store_id, run.namespace, run.run_id
