"""`crash_matrix`: kill and resume a flow at every boundary, and check that it is still right.

    def test_refund_survives_any_crash():
        report = testing.crash_matrix(refund, "order-42", setup=bank.clear, check=check)

    def check(result, point):
        assert len(bank.charges) <= 1

A boundary is a write to the store. The process dies before the store has it, and in a second run
after. An effect is therefore found without a trace, with an intent and nothing done, done and
unrecorded, and recorded. Each time a new process resumes the run, and these must hold:

* it completes with the result of the undisturbed run;
* no step with a recorded outcome is executed again;
* no effect is called without a durable intent, under two keys, or more often than its policy allows;
* what is held was declared so (`on_doubt="hold"`): `settle=` decides it, else that run ends there.

It finds local variables that a loop of turns loses, flows that are not repeatable (held as
diverged), and results that depend on how often a step was called.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Literal

from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.scripts.doubt_policies import Done, Failed, NotDone
from holdfast._engine.values import codec
from holdfast._stores.contract import Store as Kept
from holdfast.errors import (
    AnswerConflict,
    HoldfastError,
    RunEnded,
    RunHeld,
    RunNotFound,
    UsageError,
)
from holdfast.testing.clock import FakeClock
from holdfast.testing.crash_report import Boundary, CrashReport, Point
from holdfast.testing.internals import Store, TemporaryFolder, open_store, open_temporary
from holdfast.testing.killed_processes import (
    AnyFlow,
    End,
    Executed,
    Ledger,
    Work,
    live,
    live_and_be_killed,
    process,
)
from holdfast.testing.store_proxy import When

Settle = Callable[[RunHeld], Done[Any] | NotDone | Failed]
Check = Callable[[Any, Point], object]
Kill = Literal["simulated", "process"]
RESUMES_MAX = 20
"""A run that needs more processes than this makes no progress."""


def crash_matrix(
    flow: AnyFlow,
    /,
    *args: Any,
    check: Check | None = None,
    setup: Callable[[], object] | None = None,
    settle: Settle | None = None,
    answers: People | None = None,
    url: str | None = None,
    run_id: str = "crash-matrix",
    kill: Kill = "simulated",
    crashes: int = 1,
    max_points: int = 200,
    same_result: bool = True,
    **kwargs: Any,
) -> CrashReport:
    """Kill and resume a flow at every boundary; raises AssertionError where a promise is broken.

    `setup` is called before each run, to clear your fakes; `check(result, point)` after each.
    `answers(question)` answers the flow's questions; for an approval it returns whether to approve.
    `url="sqlite:"` keeps runs on disk instead of in memory. `kill="process"` forks and sends a real
    SIGKILL (in-memory fakes do not see the killed process's work). `crashes=2` kills the resumed
    run again, at each of its boundaries. `same_result=False` is for flows whose result is new each
    time (`uuid4`, `now`).
    """
    if kill not in ("simulated", "process") or crashes not in (1, 2):
        raise UsageError('crash_matrix: kill is "simulated" or "process", crashes is 1 or 2')
    work = Work(flow, run_id, args, kwargs)
    matrix = _Matrix(work, kill, url, setup or (lambda: None), settle, answers, check, same_result)
    report = matrix.undisturbed()
    numbers = _spread(report.writes, max_points)
    report.left_out = report.writes - len(numbers)
    for number in numbers:
        for when in _SIDES:
            matrix.kill_at(number, when, report, crashes)
    return report


_SIDES: tuple[When, ...] = ("before", "after")


def _spread(writes: int, limit: int) -> list[int]:
    """Return the numbers of the writes to kill at: all of them, or evenly chosen ones."""
    if writes <= limit:
        return list(range(1, writes + 1))
    return sorted({1 + round(i * (writes - 1) / max(1, limit - 1)) for i in range(limit)})


class _Place:
    """The store of one killed run, and how a process opens it."""

    def __init__(self, temporary: TemporaryFolder | None, folder: str, clock: FakeClock) -> None:
        self._temporary = temporary
        self._url = f"sqlite:///{Path(folder).resolve()}/store.db"
        self._clock = clock

    def open(self) -> Kept:
        if self._temporary is not None:
            return open_temporary(self._temporary, clock=self._clock)
        return open_store(self._url, clock=self._clock)


class _Matrix:
    """One flow, one way to die."""

    def __init__(
        self,
        work: Work,
        kill: Kill,
        url: str | None,
        setup: Callable[[], object],
        settle: Settle | None,
        answers: People | None,
        check: Check | None,
        same_result: bool,
    ) -> None:
        self._work = work
        self._kill: Kill = kill
        self._url = "memory:" if url is None else url
        self._setup = setup
        self._settle = settle
        self._people = answers
        self._check = check
        self._same_result = same_result
        if self._url not in ("memory:", "sqlite:"):
            raise UsageError(
                'crash_matrix(url=…): "memory:" or "sqlite:", a new store for each run'
            )

    # -- the runs ------------------------------------------------------------------------------

    def undisturbed(self) -> CrashReport:
        """Run it once without a kill: the reference for all others."""
        with self._place() as (place, clock, _):
            ledger = Ledger(self._work.run_id)
            self._setup()
            with answering(place.open, clock, self._work.run_id, self._people):
                end = live(self._work, place.open(), clock, ledger)
            if end.error is not None:
                raise AssertionError(
                    f"{self._work.flow.name} does not complete undisturbed: {end.error}"
                ) from end.error
            journal = _journal(place, self._work.run_id)
            _complain(wrong_calls(ledger, {}, journal) + unrecorded(ledger, journal), "nowhere")
            return CrashReport(
                self._work.flow.name,
                self._work.run_id,
                self._kill,
                end.writes,
                ledger.counts(),
                end.value,
            )

    def kill_at(self, number: int, when: When, report: CrashReport, crashes: int) -> None:
        """Kill at one boundary; with two crashes, also at each boundary of the resume."""
        self._one(report, (number, when), None)
        if crashes == 1:
            return
        for side in _SIDES:
            again = 1
            while self._one(report, (number, when), (again, side)):
                again += 1

    def _one(
        self, report: CrashReport, first: tuple[int, When], second: tuple[int, When] | None
    ) -> bool:
        """Kill once or twice, resume, check. Returns whether every kill was reached."""
        with self._place() as (place, clock, folder):
            ledger = Ledger(self._work.run_id)
            self._setup()
            kills: list[Boundary] = []
            for at in (first, second):
                if at is None:
                    continue
                known = _known(place, self._work.run_id)
                end = self._die(place, clock, ledger, folder, at)
                if end.died_in is None:
                    return False
                kills.append(Boundary(at[0], at[1], end.died_in))
                _complain(_acknowledged(end, self._kill), _place_of(kills))
                _complain(repeated(ledger, known), _place_of(kills))
            point = Point(kills)
            try:
                self._resume(place, clock, ledger, point, report)
                self._look(place, ledger, point, report)
                if self._check is not None:
                    self._check(point.result, point)
            except AssertionError as error:
                error.add_note(f"crash matrix of {report.flow}, killed {_place_of(kills)}")
                raise
            report.points.append(point)
            return True

    def _die(
        self,
        place: _Place,
        clock: FakeClock,
        ledger: Ledger,
        folder: str,
        at: tuple[int, When],
    ) -> End:
        somebody = answering(place.open, clock, self._work.run_id, self._people)
        if self._kill == "simulated":
            with somebody:
                return live(self._work, place.open(), clock, ledger, *at)
        path = f"{folder}/ledger"
        return live_and_be_killed(self._work, place.open, clock, ledger, path, *at, somebody)

    def _resume(
        self,
        place: _Place,
        clock: FakeClock,
        ledger: Ledger,
        point: Point,
        report: CrashReport,
    ) -> None:
        """Resume the run, settling doubts, until it ends."""
        for _ in range(RESUMES_MAX):
            known = _known(place, self._work.run_id)
            with answering(place.open, clock, self._work.run_id, self._people):
                end = live(self._work, place.open(), clock, ledger)
            _complain(repeated(ledger, known), _place_of(point.kills))
            held = end.held
            if held is None:
                return self._ended(end, place, point, report)
            if held.reason != "in_doubt":
                raise AssertionError(_stopped(point, held)) from held
            point.held.append(held.step)
            if self._settle is None:
                return None
            decision = self._settle(held)
            point.settled[held.step] = _word(decision)
            with process(place.open(), clock) as store:
                store.settle(self._work.run_id, held.step, decision, actor="crash_matrix")
        raise AssertionError(
            f"killed {_place_of(point.kills)}: still held after {RESUMES_MAX} lives"
        )

    def _ended(self, end: End, place: _Place, point: Point, report: CrashReport) -> None:
        point.given_up = given_up(_journal(place, self._work.run_id))
        if end.error is not None:
            if point.given_up:
                return
            raise AssertionError(
                f"killed {_place_of(point.kills)}: it completes undisturbed, but now it stops: "
                f"{end.error}"
            ) from end.error
        point.completed = True
        point.result = end.value
        decided = point.given_up or point.settled
        if self._same_result and not decided and not codec.same(end.value, report.result):
            raise AssertionError(
                f"killed {_place_of(point.kills)}: the result is {end.value!r}, undisturbed it is "
                f"{report.result!r}. Locals do not survive turns, and flow code runs again: keep "
                "what counts in steps or in the state of the loop."
            )

    def _look(self, place: _Place, ledger: Ledger, point: Point, report: CrashReport) -> None:
        point.executed = ledger.counts()
        journal = _journal(place, self._work.run_id)
        wrong = wrong_calls(ledger, report.undisturbed, journal, len(point.kills))
        if point.completed:
            wrong += unrecorded(ledger, journal)
        _complain(wrong, _place_of(point.kills))

    @contextlib.contextmanager
    def _place(self) -> Generator[tuple[_Place, FakeClock, str], None, None]:
        clock = FakeClock(auto=True)
        with contextlib.ExitStack() as stack:
            temporary = None
            if self._url == "memory:":
                temporary = TemporaryFolder()
                temporary.hold()  # Between the processes, which come and go.
                stack.callback(temporary.release)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-crash-"))
            yield _Place(temporary, folder, clock), clock, folder


# -- what must hold ----------------------------------------------------------------------------


def _known(place: _Place, run_id: str) -> set[tuple[int, str]]:
    """Return the steps that have an outcome now: no process may execute them again."""
    history = History.fold(run_id, _journal(place, run_id))
    return {
        (history.generation, record.key)
        for record in history.records.values()
        if record.has_outcome
    }


def _journal(place: _Place, run_id: str) -> list[Entry]:
    kept = place.open()
    try:
        row = kept.get(run_id)
        return [] if row is None else kept.load(row)
    finally:
        kept.close()


def _acknowledged(end: End, kill: Kill) -> list[str]:
    """A dead process cannot report that a run has completed."""
    if kill == "process" or end.error is not None:
        return []
    return ["run() returned a result although its last write was never acknowledged"]


def _complain(wrong: list[str], where: str) -> None:
    if wrong:
        raise AssertionError(f"killed {where}: " + "; ".join(dict.fromkeys(wrong)))


def _place_of(kills: list[Boundary]) -> str:
    return ", then ".join(map(str, kills))


def _stopped(point: Point, held: RunHeld) -> str:
    text = f"killed {_place_of(point.kills)}: the run is held ({held.reason}): {held.detail}"
    if held.reason == "diverged":
        text += (
            f" Step: {held.step}. The flow took another way than before: put randomness, time and "
            "everything from outside into steps, or use holdfast.context.now, rng and uuid4."
        )
    return text


def _word(decision: Done[Any] | NotDone | Failed) -> str:
    if isinstance(decision, Done):
        return "done"
    return "failed" if isinstance(decision, Failed) else "not done"


# -- people who answer -------------------------------------------------------------------------


People = Callable[[Any], Any]
"""Receives a question as `store.questions()` returns it, and returns the answer; for an approval,
whether to approve."""

ACTOR = "crash_matrix"
LOOK_S = 0.02


@contextlib.contextmanager
def answering(
    reopen: Callable[[], Kept], clock: FakeClock, run_id: str, people: People | None
) -> Generator[None, None, None]:
    """Answer the questions of a run while something else executes it."""
    if people is None:
        yield
        return
    over = threading.Event()

    def answer_all() -> None:
        with process(reopen(), clock) as store, contextlib.suppress(HoldfastError):
            while not over.is_set():
                _look(store, run_id, people)
                store._backend.wait_for_change(LOOK_S)  # pyright: ignore[reportPrivateUsage]

    thread = threading.Thread(target=answer_all, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _look(store: Store, run_id: str, people: People) -> None:
    """Answer only once the whole run waits: otherwise timing would decide whether it writes that it
    waits, and a later boundary would have another number."""
    row = store._backend.get(run_id)  # pyright: ignore[reportPrivateUsage]
    if row is None or row.status is not Status.WAITING:
        return
    with contextlib.suppress(AnswerConflict, RunEnded, RunNotFound):
        for question in store.questions(run_id=run_id):
            value = people(question)
            if question.kind != "approval":
                store.answer(run_id, question.name, value, actor=ACTOR)
            elif value:
                store.approve(run_id, question.name, digest=question.digest, actor=ACTOR)
            else:
                store.reject(run_id, question.name, actor=ACTOR)


# -- the promises ------------------------------------------------------------------------------


_OUTCOMES = frozenset(
    {Kind.STEP_COMPLETED, Kind.STEP_FAILED, Kind.STEP_SETTLED, Kind.SKIPPED_DUPLICATE}
)


def repeated(ledger: Ledger, known: set[tuple[int, str]]) -> list[str]:
    """Return the steps that were executed again in this life, though their outcome was known."""
    return [
        f"{call.step} was executed again, although its outcome was recorded"
        for call in ledger.bodies(ledger.life)
        if (call.generation, call.step) in known
    ]


def wrong_calls(
    ledger: Ledger, undisturbed: dict[str, int], journal: list[Entry], deaths: int = 0
) -> list[str]:
    """Describe what happened outside against the promises."""
    groups: dict[tuple[int, str], list[Executed]] = {}
    for call in ledger.bodies():
        groups.setdefault((call.generation, call.step), []).append(call)
    wrong: list[str] = []
    for (_, step), calls in groups.items():
        if not all(call.intended for call in calls):
            wrong.append(f"{step} was called before its intent was recorded")
        keys = {call.key for call in calls}
        if calls[0].effect and len(keys) > 1:
            wrong.append(f"{step} showed {len(keys)} different keys: {', '.join(sorted(keys))}")
        allowed = undisturbed.get(step, len(calls)) + _more(calls[0], journal, deaths)
        if len(calls) > allowed:
            policy = f' (on_doubt="{calls[0].policy}")' if calls[0].effect else ""
            wrong.append(
                f"{step}{policy} was executed {len(calls)}×; at most {allowed}× is promised"
            )
    return wrong


def unrecorded(ledger: Ledger, journal: list[Entry]) -> list[str]:
    """In a completed run, every executed step has an outcome."""
    recorded = {entry.step for entry in journal if entry.kind in _OUTCOMES}
    return [
        f"{step} was executed, and its outcome is not recorded"
        for step in ledger.counts()
        if step not in recorded
    ]


def _more(call: Executed, journal: list[Entry], deaths: int) -> int:
    """Return how much more often than undisturbed a body may be called after this many crashes."""
    if not call.effect or call.policy in ("retry", "transaction"):
        return deaths
    return sum(
        1
        for entry in journal
        if entry.step == call.step
        and entry.kind is Kind.STEP_SETTLED
        and b'"outcome":"not_done"' in entry.body
    )


def given_up(journal: list[Entry]) -> list[str]:
    """Return the effects that were given up with an unknown outcome."""
    return [
        str(entry.step)
        for entry in journal
        if entry.kind is Kind.STEP_FAILED and b'"unknown":true' in entry.body
    ]
