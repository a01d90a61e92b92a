"""`holdfast.open` and `Store`: the object through which runs are seen and acted on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from holdfast._api.handle import (
    POLL_S,
    SETTLED,
    Bell,
    Emitted,
    Handle,
    stream,
)
from holdfast._api.store_actions import Acting, refuse_in_a_loop
from holdfast._engine.journal.lifecycle import FINAL, Status
from holdfast._engine.values.durations import Duration, is_seconds, micros, seconds
from holdfast._engine.values.redactor import Redact
from holdfast._features.alerts import runtime as alerting
from holdfast._features.memory.runtime import Memory
from holdfast._features.watchdog.model import Watchdog, checked_watch
from holdfast._runtime import engine as engines
from holdfast._runtime.engine import Engine
from holdfast._runtime.worker.recovery_pass import recover, take_up
from holdfast._stores import contract
from holdfast._stores.lookups import existing_row
from holdfast.errors import RunEnded, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast._features.drift.comparison import ResumePreview
    from holdfast._features.operator_side import Explanation
    from holdfast._features.schedules.operator import ScheduleView
    from holdfast._features.watchdog.model import Finding
    from holdfast._operator.act.run_files import Imported, Written
    from holdfast._operator.read.entry_views import EntryView
    from holdfast._operator.read.question_views import QuestionView
    from holdfast._operator.read.queue_views import QueueView, WorkerView
    from holdfast._operator.read.run_views import Page, RunSummary, RunView
    from holdfast._operator.read.trends import Trends
    from holdfast._runtime.worker.worker import Worker

    # Named, because inside `Store` the word `list` is one of its operations.
    Summaries = Page[RunSummary]
    Entries = list[EntryView]
    Findings = list[contract.Damage]
    FoundThings = list[Finding]
    RunIds = list[str]
    QueueViews = list[QueueView]
    QuestionViews = Page[QuestionView]
    WorkerViews = list[WorkerView]
    ScheduleViews = list[ScheduleView]
    Until = str | Sequence[str] | Callable[[RunView], object]
    Condition = Callable[[RunView], object] | frozenset[Status]

SETTLED_STATUSES = tuple(sorted(status.value for status in SETTLED))


class Store(Acting):
    """An opened store. A context manager; `close()` releases everything."""

    def __init__(self, backend: contract.Store, engine: Engine) -> None:
        super().__init__(backend)
        self._engine = engine

    def __repr__(self) -> str:
        return f"<store {self._backend.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where it is kept."""
        return self._backend.url

    def close(self) -> None:
        """Release everything; safe to call twice."""
        alerting.close(self._engine)
        self._engine.close()

    @classmethod
    def default(cls) -> Self:
        """Return the store that `flow.run` uses: the one that was opened last, else HOLDFAST_URL or
        `holdfast.db` in the current folder, which is opened now."""
        engine = engines.default_engine()
        return cls(engine.backend, engine)

    @property
    def aio(self) -> AwaitedStore:
        """The operations that wait, for callers in an event loop."""
        return AwaitedStore(self)

    # -- looking -------------------------------------------------------------------------------

    def get(self, run_id: str) -> RunView:
        """Return all about one run; raises RunNotFound."""
        from holdfast._operator.read import run_views

        return run_views.view(self._backend, run_id)

    def runs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        flow: str | None = None,
        tags: Mapping[str, str] | None = None,
        older_than: Duration | None = None,
        queue: str | None = None,
        held_reason: str | None = None,
        version: str | None = None,
        parent: str | None = None,
        finding: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Summaries:
        """Return a page of runs, newest first, that have all of these `tags`. `held_reason` is that of held ones, such as
        "quarantined"; `parent` is the run whose children are meant; `finding` is what the watchdog
        finds in them now, such as "stuck".

        A page is a list of at most `limit` runs. Its `next` is None if it is the last one; else
        give it as `after=`, with the same filters, for the page that follows.
        """
        from holdfast._operator.read import run_views

        first, others = _tags(tags)
        before_us = None
        if older_than is not None:
            before_us = self._backend.now_us() - micros(older_than, "runs(older_than=…)")
        query = contract.Query(
            status=_statuses(status),
            flow=flow,
            tag=first,
            updated_before_us=before_us,
            queue=queue,
            held_reason=held_reason,
            parent=parent,
            limit=run_views.checked_limit("runs", limit),
            before_run_no=run_views.run_cursor(after),
        )
        return run_views.summaries(self._backend, query, version, finding, others)

    def history(self, run_id: str) -> Entries:
        """Return all entries of a run's journal, in order."""
        from holdfast._operator.read import run_views

        return run_views.history(self._backend, run_id)

    def explain(self, run_id: str) -> Explanation:
        """Explain a run's state: what is known, what is not, and the safe next actions."""
        from holdfast._operator.explain import status_report

        return status_report.explain(self._backend, run_id)

    def findings(self, run_id: str | None = None) -> FoundThings:
        """Return all that the watchdog finds in the open and failed runs now; of one run, also what
        was noted before and is over."""
        from holdfast._features.watchdog import store as watchdog

        if run_id is None:
            return [*watchdog.of_store(self._backend)]
        return watchdog.of_run(self._backend, existing_row(self._backend, run_id))

    def preview_resume(self, run_id: str) -> ResumePreview:
        """Preview a resume without making it: how long the run stood still,
        what has changed, what is executed again, what is in doubt. What it watches is looked at if
        its flow is known in this process."""
        from holdfast._features.drift import runtime as looking
        from holdfast._operator.read import resume_preview

        row = existing_row(self._backend, run_id)
        past = resume_preview.replayed_history(self._backend, row)
        now, changed, looked_at = looking.looked(self._engine, row, past)
        return resume_preview.preview_resume(self._backend, row, past, now, changed, looked_at)

    def questions(
        self,
        *,
        to: str | None = None,
        run_id: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> QuestionViews:
        """Return a page of the questions that nobody has answered yet, oldest first, of the oldest
        10,000. If its `next` is not None, more follow: give it as `after=`."""
        from holdfast._operator.read import question_views
        from holdfast._operator.read.run_views import checked_limit

        size = checked_limit("questions", limit)
        return question_views.questions(
            self._backend, to=to, run_id=run_id, limit=size, after=after
        )

    def queues(self) -> QueueViews:
        """Return all queues, by name: what waits, what is at work, limits, saturation."""
        from holdfast._operator.read import queue_views

        return queue_views.queues(self._backend)

    def schedules(self) -> ScheduleViews:
        """Return all schedules, by name: when they are due next, what became of the last run."""
        from holdfast._features.schedules import operator as schedule_admin

        return schedule_admin.schedules(self._backend)

    def workers(self) -> WorkerViews:
        """Return all workers that are alive, of all processes."""
        from holdfast._operator.read import queue_views

        return queue_views.workers(self._backend)

    def wait(
        self,
        run_id: str,
        *,
        until: Until = SETTLED_STATUSES,
        timeout: Duration | None = None,
    ) -> RunView:
        """Wait until a run has come to something, and return it as it is then.

        `until` is a status or several, or a function that is called with the run (as `store.get`
        returns it) whenever the store has changed. Without it: until the run goes no further by
        itself (completed, failed, cancelled, rolled_back or held). Raises TimeoutError when
        `timeout` is over, and RunEnded if the run has ended otherwise and cannot come to it.
        """
        awaited = _awaited(until)
        refuse_in_a_loop("wait", run_id, "await store.aio.wait(…)")
        left_s = _patience(run_id, timeout)
        while True:
            run, status = _look(self, run_id, awaited)
            if run is not None:
                return run
            self._backend.wait_for_change(left_s(status))

    def handle(self, run_id: str) -> Handle[Any]:
        """Return a handle to a run."""
        existing_row(self._backend, run_id)
        return Handle(self._engine, run_id)

    def stream(self, run_id: str, *, after: int = 0) -> Iterator[Emitted]:
        """Yield what a run emits behind entry number `after`, until it goes no further."""
        return stream(self._engine, run_id, after)

    def worker(
        self,
        *,
        flows: Iterable[Any] | None = None,
        queues: Iterable[str] | None = None,
        concurrency: int = 50,
        drain_s: float = 20.0,
        name: str | None = None,
    ) -> Worker:
        """Return a worker: `async with store.worker(flows=[…]):` in a web app's lifespan, or `with`.

        It takes runs that are due, of these flows (all that are known, if none are given) and
        these queues (all), and executes up to `concurrency` at one time. At its end it waits up to
        `drain_s` seconds for what is at work, then gives the rest back to other workers.
        """
        from holdfast._runtime.worker.worker import Worker

        return Worker(
            self._engine,
            flows=flows,
            queues=queues,
            concurrency=concurrency,
            drain_s=drain_s,
            name=name,
        )

    def recover(self, *, limit: int = 1000) -> RunIds:
        """One pass of what a worker does: take up every stranded run whose flow is known here.

        Returns the ids of the runs that were executed, whatever came out.
        """
        return recover(self._engine, limit)

    def run_watchdog(self, run_id: str | None = None) -> FoundThings:
        """Look for findings once, as a worker does about once a minute, and do what `watchdog=` of
        their flows says; returns those that something was done about now."""
        from holdfast._features.watchdog import watchdog_loop
        from holdfast._runtime import registry

        return watchdog_loop.run_once(self._engine, registry.flows, run_id)

    def verify(self, run_ids: Iterable[str] | None = None) -> Findings:
        """Check everything that is stored; an empty list means that all is well. An id that no run
        has is RunNotFound."""
        from holdfast._operator.read.run_views import verified

        return verified(self._backend, run_ids)

    def backup(self, path: str) -> None:
        """Write a consistent copy to a new file."""
        self._backend.backup(path)

    def memory(self, name: str, *, recorded: bool = True) -> Memory:
        """Return a memory of this store; `holdfast.memory` is one of the default store, or of the
        run that asks. With `recorded=False` a run, too, reads and writes it at once, and its journal
        says nothing of it: for what has a history of its own."""
        return Memory(name, self._engine, recorded=recorded)

    def trends(self, *, since: Duration = "24h", flow: str | None = None) -> Trends:
        """Return latency, cost, errors, trace coverage and saturation since so long ago, of all
        processes that executed runs. They write what they did about once a minute."""
        from holdfast._operator.read import trends

        return trends.trends(self._backend, since=since, flow=flow)

    def export_run(self, run_id: str, path: str | Path) -> Written:
        """Write a run to a new file, with its chain and the runs that belong to it."""
        from holdfast._operator.act import run_files

        return run_files.export(self._backend, run_id, path)

    def import_run(self, path: str | Path) -> Imported:
        """Read a run that was exported into this store; raises Corrupt if the file was changed."""
        from holdfast._operator.act import run_files

        return run_files.import_runs(self._backend, path)

    def _redactor(self) -> Redact | None:
        return self._engine.redact

    def _takes_up(self, run_id: str) -> bool:
        return bool(take_up(self._engine, run_id))


class AwaitedStore:
    """`store.aio`: what waits, for callers in an event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def wait(
        self,
        run_id: str,
        *,
        until: Until = SETTLED_STATUSES,
        timeout: Duration | None = None,  # noqa: ASYNC109 - as its twin
    ) -> RunView:
        """Await until a run has come to something, and return it as it is then."""
        import asyncio

        engine = self._store._engine  # pyright: ignore[reportPrivateUsage]
        awaited, left_s = _awaited(until), _patience(run_id, timeout)
        loop = asyncio.get_running_loop()
        with Bell(engine) as bell:
            while True:
                look = loop.run_in_executor(engine.threads(), _look, self._store, run_id, awaited)
                run, status = await look
                if run is not None:
                    return run
                await bell.rings(left_s(status))


def _awaited(until: Until) -> Condition:
    """Return what is waited for: a function of the run, or statuses."""
    if callable(until):
        return until
    if not until or not isinstance(until, str | Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"wait(until={until!r:.80}): a status, several, or a function of the run")
    return frozenset(_statuses(until) or ())


def _look(store: Store, run_id: str, awaited: Condition) -> tuple[RunView | None, str]:
    """Return a run once it is as awaited, and its status; raise if it never will be. For a status its
    row is enough: the view of a long run takes time."""
    run: RunView | None
    if callable(awaited):
        run = store.get(run_id)
        status, reached = run.status, bool(awaited(run))
    else:
        status = existing_row(store._backend, run_id).status.value  # pyright: ignore[reportPrivateUsage]
        run = store.get(run_id) if status in awaited else None
        reached = run is not None and run.status in awaited
    if reached:
        return run, status
    if status in FINAL:
        why = "it will not come to what store.wait(…, until=…) waits for"
        raise RunEnded(run_id, status, "store.wait", why)
    return None, status


def _patience(run_id: str, timeout: Duration | None) -> Callable[[str], float]:
    """Return what says for how long to wait before the next look; it raises when time is over."""
    timeout_s = None if timeout is None else seconds(timeout, "wait(timeout=…)")
    deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def left_s(status: str) -> float:
        left = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
        if left <= 0:
            raise TimeoutError(f"run {run_id!r} is still {status} after {timeout_s:g} s")
        return left

    return left_s


def open(
    url: str | None = None,
    *,
    namespace: str = "default",
    default: bool = True,
    lease_s: float = 30.0,
    redact: Redact | None = None,
    watchdog: Watchdog | None = None,
) -> Store:
    """Open a store, and make it the one that runs of this process use.

    URLs: `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://user@host/database`,
    `memory:`. Without one it is HOLDFAST_URL, or `holdfast.db` in the current folder; a process that
    opens nothing uses that by itself.

    `watchdog=Watchdog(…)` is what the watchdog does about runs of flows that declare none.
    `redact(path, value)` is called with every part of what runs write (arguments, results, errors,
    state, progress, what is emitted), and returns what is stored in its place.
    """
    from holdfast._stores.locate import open_store

    checked_watch("open", watchdog)
    if url is not None and not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(
            f"open({url!r}): the store is a string such as 'sqlite:///runs.db', "
            "'postgresql://user@host/database' or 'memory:'"
        )
    if not isinstance(namespace, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"open(namespace={namespace!r}): namespace is a string")
    if not is_seconds(lease_s) or lease_s == 0:
        raise UsageError(f"open(lease_s={lease_s!r}): lease_s is seconds above 0")
    address = engines.url_at_hand() if url is None else url
    backend = open_store(address, namespace=namespace, lease_s=lease_s)
    engine = Engine(backend)
    engine.address = address
    engine.own_redact = redact
    engine.options["watchdog"] = watchdog
    if default:
        try:
            engines.set_default(engine)
        except UsageError:
            engine.close()
            raise
    return Store(backend, engine)


def _statuses(status: str | Sequence[str] | None) -> Sequence[Status] | None:
    if status is None:
        return None
    try:
        return [Status(name) for name in ([status] if isinstance(status, str) else status)]
    except (ValueError, TypeError):
        known = ", ".join(member.value for member in Status)
        raise UsageError(f"status={status!r}: one of {known}") from None


def _tags(tags: object) -> tuple[tuple[str, str] | None, dict[str, str]]:
    """Return the tag that the store looks for, and those that are looked for among what it finds."""
    if tags is None:
        return None, {}
    given: dict[Any, Any] = dict(tags) if isinstance(tags, Mapping) else {None: None}  # pyright: ignore[reportUnknownArgumentType]
    if not all(isinstance(it, str) for pair in given.items() for it in pair):
        raise UsageError(
            f'runs(tags={tags!r:.80}): names and values, such as {{"customer": "acme"}}'
        )
    pairs = list(given.items())
    return (pairs[0] if pairs else None), dict(pairs[1:])
