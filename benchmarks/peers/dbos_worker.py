"""DBOS on SQLite and on PostgreSQL.

DBOS leaves a file in SQLite's rollback mode. It is put into WAL mode here
beforehand, which is faster and as durable, so that all subjects use the same;
`request.mode` "rollback" leaves it as it comes. `synchronous` is FULL by
SQLite's default, and that is asserted.

In W6 runs are put into a queue by a client of their own process, and taken from it by a
worker with everything as it comes; it asks the queue once per second.
"""

# DBOS is installed only in this worker's own environment.
# mypy: disable-error-code="import-not-found,untyped-decorator"
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions, SetWorkflowID

from benchmarks.worker import (
    Executions,
    Gate,
    Marks,
    Numbers,
    Stopwatch,
    Submissions,
    serve,
    work_until_killed,
)
from benchmarks.workloads import Message, Request, message, payload

if TYPE_CHECKING:
    from collections.abc import Callable

SYNCHRONOUS_FULL = 2
QUEUE = "benchmark"

marks = Marks()
log = Executions()


@DBOS.step()
def plain(number: int) -> dict[str, object]:
    return payload(number)


@DBOS.step()
async def awaited(number: int) -> dict[str, object]:
    return payload(number)


@DBOS.step()
def logged(number: int) -> dict[str, object]:
    log.executed(number)
    return payload(number)


@DBOS.step()
def answer(number: int, latest: Message) -> Message:  # noqa: ARG001 (it is passed to be recorded)
    return message(number)


@DBOS.step()
def think(messages: list[Message]) -> Message:
    return message(len(messages))


@DBOS.step()
def extend(messages: list[Message]) -> list[Message]:
    return [*messages, message(len(messages))]


@DBOS.workflow()
def plain_steps(steps: int) -> None:
    for number in range(steps):
        plain(number)


@DBOS.workflow()
async def awaited_steps(steps: int) -> None:
    for number in range(steps):
        await awaited(number)


@DBOS.workflow()
def logged_steps(steps: int) -> None:
    for number in range(steps):
        logged(number)


@DBOS.workflow()
def new_message_passed(steps: int) -> None:
    latest = message(0)
    for number in range(1, steps + 1):
        latest = answer(number, latest)
        marks.mark()


@DBOS.workflow()
def whole_conversation_passed(steps: int) -> None:
    """DBOS does not record the inputs of steps, so this costs it nothing."""
    messages = [message(0)]
    for _ in range(steps):
        messages.append(think(messages))
        marks.mark()


@DBOS.workflow()
def conversation_in_state(steps: int) -> None:
    """The state of a loop is durable only as the result of a step."""
    messages = [message(0)]
    for _ in range(steps):
        messages = extend(messages)
        marks.mark()


@DBOS.workflow()
def first_step(number: int) -> None:
    logged(number)


def database(request: Request) -> str:
    if request.url:
        return request.url
    path = Path(request.directory).absolute() / "dbos.db"
    connection = sqlite3.connect(path)
    if request.mode != "rollback":
        connection.execute("PRAGMA journal_mode = WAL")
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    connection.close()
    assert synchronous == SYNCHRONOUS_FULL, synchronous
    return f"sqlite:///{path}"


def launch(request: Request) -> None:
    config: DBOSConfig = {
        "name": "benchmark",
        "system_database_url": database(request),
        "application_version": "1",
        "executor_id": f"local-{os.getpid()}" if request.phase == "work" else "local",
        "log_level": "ERROR",
        "enable_otlp": False,
    }
    DBOS(config=config)
    DBOS.launch()
    if request.task == "w6":
        DBOS.register_queue(QUEUE)


def one_run(request: Request) -> Numbers:
    launch(request)
    plain_steps(request.warm_up)
    watch = Stopwatch()
    plain_steps(request.steps)
    return watch.numbers(request.steps)


def many_runs_async(request: Request) -> Numbers:
    async def at_once(runs: int, steps: int) -> None:
        handles = [await DBOS.start_workflow_async(awaited_steps, steps) for _ in range(runs)]
        await asyncio.gather(*(handle.get_result() for handle in handles))

    async def measured() -> Numbers:
        await at_once(1, request.warm_up)
        watch = Stopwatch()
        await at_once(request.runs, request.steps)
        return watch.numbers(request.runs * request.steps)

    launch(request)
    return asyncio.run(measured())


def many_runs_in_threads(request: Request) -> Numbers:
    def at_once(runs: int, steps: int) -> None:
        handles = [DBOS.start_workflow(plain_steps, steps) for _ in range(runs)]
        for handle in handles:
            handle.get_result()

    launch(request)
    at_once(1, request.warm_up)
    watch = Stopwatch()
    at_once(request.runs, request.steps)
    return watch.numbers(request.runs * request.steps)


def conversation(request: Request, workflow: Callable[[int], Any]) -> Numbers:
    launch(request)
    if request.phase == "empty":
        return {}
    if request.warm_up:
        workflow(request.warm_up)
    marks.clear()
    workflow(request.steps)
    return marks.numbers(request.window)


def killed(request: Request) -> Numbers:
    """`launch` takes up the pending workflow by itself."""
    log.open(request)
    launch(request)
    if request.phase == "resume":
        DBOS.retrieve_workflow("measured").get_result()
    else:
        with SetWorkflowID("measured"):
            logged_steps(request.steps)
    return {}


def work(request: Request) -> Numbers:
    log.open(request)
    launch(request)
    Gate(Path(request.directory)).pass_through()
    work_until_killed()
    return {}


def client(request: Request) -> DBOSClient:
    return DBOSClient(system_database_url=database(request))


def submitted_one_by_one(request: Request) -> Numbers:
    if request.phase == "work":
        return work(request)
    submissions = Submissions(request)
    queued: EnqueueOptions = {"workflow_name": "first_step", "queue_name": QUEUE}
    sender = client(request)
    for number in submissions:
        sender.enqueue(queued, number)
    return submissions.numbers()


def perform(task: Callable[[Request], Numbers]) -> Callable[[Request], Numbers]:
    def performed(request: Request) -> Numbers:
        try:
            return task(request)
        finally:
            DBOS.destroy()

    return performed


if __name__ == "__main__":
    tasks: dict[str, Callable[[Request], Numbers]] = {
        "w1/steps": one_run,
        "w2/async": many_runs_async,
        "w2/threads": many_runs_in_threads,
        "w3/new": lambda request: conversation(request, new_message_passed),
        "w3/whole": lambda request: conversation(request, whole_conversation_passed),
        "w3/state": lambda request: conversation(request, conversation_in_state),
        "w4": killed,
        "w6": submitted_one_by_one,
    }
    serve({name: perform(task) for name, task in tasks.items()})
