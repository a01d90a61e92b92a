"""Absurd, which is PostgreSQL only.

A run of it is a task that a worker claims; a step is `ctx.step`. The schema is the one that its
own `absurdctl` carries. W2 in threads is eight workers with a connection each, because the
threads of one of its workers share a connection; W2 async is one worker, as it comes.

A worker of it cannot tell that another was killed: it waits for the claim to run out. W4 makes
that one second instead of two minutes, and the wait counts.
"""

# Absurd is installed only in this worker's own environment.
# mypy: disable-error-code="import-not-found,untyped-decorator"
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
from absurd_sdk import Absurd, AsyncAbsurd

from benchmarks.worker import (
    Executions,
    Gate,
    Marks,
    Numbers,
    Stopwatch,
    Submissions,
    serve,
)
from benchmarks.workloads import Message, Request, message, payload

QUEUE = "benchmark"
WORKERS = 8
CLAIM_TIMEOUT_S = 1

marks = Marks()
log = Executions()


def plain_steps(params: Any, ctx: Any) -> None:
    for number in range(params["steps"]):
        ctx.step("plain", lambda number=number: payload(number))


async def awaited_steps(params: Any, ctx: Any) -> None:
    for number in range(params["steps"]):

        async def plain(number: int = number) -> dict[str, object]:
            return payload(number)

        await ctx.step("plain", plain)


def logged_steps(params: Any, ctx: Any) -> None:
    for number in range(params["steps"]):
        logged(number, ctx)


def first_step(params: Any, ctx: Any) -> None:
    logged(params["number"], ctx)


def logged(number: int, ctx: Any) -> None:
    def body() -> dict[str, object]:
        log.executed(number)
        return payload(number)

    ctx.step("logged", body)


def new_message_passed(params: Any, ctx: Any) -> None:
    for number in range(1, params["steps"] + 1):
        ctx.step("answer", lambda number=number: message(number))
        marks.mark()


def conversation_in_state(params: Any, ctx: Any) -> None:
    """The state of a loop is durable only as the result of a step."""
    messages: list[Message] = [message(0)]
    for _ in range(params["steps"]):
        messages = ctx.step("extend", lambda: [*messages, message(len(messages))])  # noqa: B023
        marks.mark()


TASKS = (
    plain_steps,
    logged_steps,
    first_step,
    new_message_passed,
    conversation_in_state,
)


def set_up(request: Request) -> None:
    """The schema, if it is not there yet, and the queue."""
    with psycopg.connect(request.url, autocommit=True) as connection:
        found = connection.execute("SELECT to_regnamespace('absurd') IS NOT NULL").fetchone()
        if found == (True,):
            return
        from absurdctl import BUNDLED_SCHEMA_SQL

        connection.execute(BUNDLED_SCHEMA_SQL)
    client(request).create_queue(QUEUE)


def client(request: Request) -> Absurd:
    app = Absurd(request.url, queue_name=QUEUE)
    for task in TASKS:
        app.register_task(task.__name__)(task)
    return app


def one_run(request: Request) -> Numbers:
    set_up(request)
    app = client(request)
    app.spawn("plain_steps", {"steps": request.warm_up})
    app.work_batch()
    app.spawn("plain_steps", {"steps": request.steps})
    watch = Stopwatch()
    app.work_batch()
    return watch.numbers(request.steps)


def many_runs_in_threads(request: Request) -> Numbers:
    set_up(request)
    apps = [client(request) for _ in range(WORKERS)]
    for app in apps:
        app.spawn("plain_steps", {"steps": request.warm_up})
        app.work_batch()

    def work(app: Absurd) -> None:
        while tasks := app.claim_tasks(batch_size=1):
            for task in tasks:
                app._execute_task(task, 120)

    watch = Stopwatch()
    for _ in range(request.runs):
        apps[0].spawn("plain_steps", {"steps": request.steps})
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        list(pool.map(work, apps))
    return watch.numbers(request.runs * request.steps)


def many_runs_async(request: Request) -> Numbers:
    async def measured() -> Numbers:
        app = AsyncAbsurd(request.url, queue_name=QUEUE)
        app.register_task("awaited_steps")(awaited_steps)
        await app.spawn("awaited_steps", {"steps": request.warm_up})
        await app.work_batch()
        watch = Stopwatch()
        for _ in range(request.runs):
            await app.spawn("awaited_steps", {"steps": request.steps})
        tasks = await app.claim_tasks(batch_size=request.runs)
        await asyncio.gather(*(app._execute_task(task, 120) for task in tasks))
        return watch.numbers(request.runs * request.steps)

    set_up(request)
    return asyncio.run(measured())


def conversation(request: Request, task: str) -> Numbers:
    set_up(request)
    if request.phase == "empty":
        return {}
    app = client(request)
    if request.warm_up:
        app.spawn(task, {"steps": request.warm_up})
        app.work_batch()
    marks.clear()
    app.spawn(task, {"steps": request.steps})
    app.work_batch()
    return marks.numbers(request.window)


def killed(request: Request) -> Numbers:
    log.open(request)
    set_up(request)
    app = client(request)
    if request.phase != "resume":
        app.spawn("logged_steps", {"steps": request.steps})
    while not (tasks := app.claim_tasks(claim_timeout=CLAIM_TIMEOUT_S)):
        time.sleep(0.01)
    for task in tasks:
        app._execute_task(task, CLAIM_TIMEOUT_S)
    return {}


def work(request: Request) -> Numbers:
    """Its worker with everything as it comes, but for eight runs at a time."""
    log.open(request)
    set_up(request)
    app = client(request)
    Gate(Path(request.directory)).pass_through()
    app.start_worker(concurrency=WORKERS)
    return {}


def submitted_one_by_one(request: Request) -> Numbers:
    if request.phase == "work":
        return work(request)
    submissions = Submissions(request)
    app = client(request)
    for number in submissions:
        app.spawn("first_step", {"number": number})
    return submissions.numbers()


if __name__ == "__main__":
    serve(
        {
            "w1/steps": one_run,
            "w2/threads": many_runs_in_threads,
            "w2/async": many_runs_async,
            "w3/new": lambda request: conversation(request, "new_message_passed"),
            "w3/state": lambda request: conversation(request, "conversation_in_state"),
            "w4": killed,
            "w6": submitted_one_by_one,
        }
    )
