"""Holdfast on SQLite and on PostgreSQL, as a user would write it."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from benchmarks.worker import (
    Executions,
    Gate,
    Marks,
    Numbers,
    Stopwatch,
    Submissions,
    rate,
    serve,
    work_until_killed,
)
from benchmarks.workloads import Message, Request, message, payload
from holdfast import effect, flow, step, turns

if TYPE_CHECKING:
    from collections.abc import Callable

marks = Marks()
log = Executions()


# W1: one run.


@step
def plain(number: int) -> dict[str, object]:
    return payload(number)


@effect
def outside(number: int) -> dict[str, object]:
    return payload(number)


@step(commit="grouped")
def grouped(number: int) -> dict[str, object]:
    return payload(number)


@flow
def plain_steps(steps: int) -> None:
    for number in range(steps):
        plain(number)


@flow
def effects(steps: int) -> None:
    for number in range(steps):
        outside(number)


@flow
def grouped_steps(steps: int) -> None:
    for number in range(steps):
        grouped(number)


# W2: many runs.


@step
async def awaited(number: int) -> dict[str, object]:
    return payload(number)


@flow
async def awaited_steps(steps: int) -> None:
    for number in range(steps):
        await awaited(number)


async def at_once(prefix: str, runs: int, steps: int) -> None:
    await asyncio.gather(*(awaited_steps.run(f"{prefix}-{run}", steps) for run in range(runs)))


def in_threads(prefix: str, runs: int, steps: int) -> None:
    with ThreadPoolExecutor(max_workers=runs) as pool:
        started = [pool.submit(plain_steps.run, f"{prefix}-{run}", steps) for run in range(runs)]
        for future in started:
            future.result()


# W3: a conversation that grows.


@step
def answer(number: int, latest: Message) -> Message:  # noqa: ARG001 (it is passed to be recorded)
    return message(number)


@step
def think(messages: list[Message]) -> Message:
    return message(len(messages))


@dataclass
class Chat:
    messages: list[Message] = field(default_factory=list)


@flow
def new_message_passed(steps: int) -> None:
    latest = message(0)
    for number in range(1, steps + 1):
        latest = answer(number, latest)
        marks.mark()


@flow
def whole_conversation_passed(steps: int) -> None:
    messages = [message(0)]
    for _ in range(steps):
        messages.append(think(messages))
        marks.mark()


@flow
def conversation_in_state(steps: int) -> None:
    for chat in turns(Chat([message(0)]), max_turns=steps + 1):
        marks.mark()
        if len(chat.messages) > steps:
            return
        chat.messages.append(think(chat.messages))


# W4: killed and resumed.


@step
def logged(number: int) -> dict[str, object]:
    log.executed(number)
    return payload(number)


@flow
def logged_steps(steps: int) -> None:
    for number in range(steps):
        logged(number)


# W6 and W7: submitted in one process, executed in others.


@flow
def first_step(number: int) -> None:
    logged(number)


@step
def pausing(number: int, pause_s: float) -> dict[str, object]:
    log.executed(number)
    if pause_s:
        time.sleep(pause_s)
    return payload(number)


@flow
def pausing_steps(steps: int, pause_s: float) -> None:
    for number in range(steps):
        pausing(number, pause_s)


@step
async def pausing_awaited(number: int, pause_s: float) -> dict[str, object]:
    log.executed(number)
    if pause_s:
        await asyncio.sleep(pause_s)
    return payload(number)


@flow
async def pausing_steps_awaited(steps: int, pause_s: float) -> None:
    for number in range(steps):
        await pausing_awaited(number, pause_s)


# What the parent asks for.


def open_store(request: Request) -> holdfast.types.Store:
    if request.url:
        return holdfast.open(request.url)
    path = (Path(request.directory) / "holdfast.db").absolute()
    return holdfast.open(f"sqlite:///{path}")


def one_run(request: Request, run: Callable[[str, int], object]) -> Numbers:
    with open_store(request):
        run("warm-up", request.warm_up)
        watch = Stopwatch()
        run("measured", request.steps)
        return watch.numbers(request.steps)


def many_runs_async(request: Request) -> Numbers:
    async def measured() -> Numbers:
        await at_once("warm-up", 1, request.warm_up)
        watch = Stopwatch()
        await at_once("measured", request.runs, request.steps)
        return watch.numbers(request.runs * request.steps)

    with open_store(request):
        return asyncio.run(measured())


def many_runs_in_threads(request: Request) -> Numbers:
    with open_store(request):
        in_threads("warm-up", 1, request.warm_up)
        watch = Stopwatch()
        in_threads("measured", request.runs, request.steps)
        return watch.numbers(request.runs * request.steps)


def conversation(request: Request, run: Callable[[str, int], object]) -> Numbers:
    with open_store(request):
        if request.phase == "empty":
            return {}
        if request.warm_up:
            run("warm-up", request.warm_up)
        marks.clear()
        run("measured", request.steps)
        return marks.numbers(request.window)


def killed(request: Request) -> Numbers:
    log.open(request)
    with open_store(request):
        logged_steps.run("measured", request.steps)
    return {}


def work(request: Request) -> Numbers:
    """A worker as it comes, in a process of its own, until that is killed."""
    log.open(request)
    with open_store(request) as store:
        Gate(Path(request.directory)).pass_through()
        with store.worker():
            work_until_killed()
    return {}


def submitted_one_by_one(request: Request) -> Numbers:
    if request.phase == "work":
        return work(request)
    submissions = Submissions(request)
    with open_store(request):
        for number in submissions:
            first_step.submit(f"run-{number}", number)
    return submissions.numbers()


def submitted_together(request: Request) -> Numbers:
    if request.phase == "work":
        return work(request)
    with open_store(request):
        began_s = time.perf_counter()
        for number in range(request.runs):
            pausing_steps.submit(f"run-{number}", request.steps, request.pause_s)
        return rate(request.runs, began_s)


if __name__ == "__main__":
    serve(
        {
            "w1/steps": lambda request: one_run(request, plain_steps.run),
            "w1/effects": lambda request: one_run(request, effects.run),
            "w1/grouped": lambda request: one_run(request, grouped_steps.run),
            "w2/async": many_runs_async,
            "w2/threads": many_runs_in_threads,
            "w3/new": lambda request: conversation(request, new_message_passed.run),
            "w3/whole": lambda request: conversation(request, whole_conversation_passed.run),
            "w3/state": lambda request: conversation(request, conversation_in_state.run),
            "w4": killed,
            "w6": submitted_one_by_one,
            "w7": submitted_together,
        }
    )
