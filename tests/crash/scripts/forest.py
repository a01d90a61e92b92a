"""Random flows, killed at random: `python forest.py SEED PROGRAMS sync|async`.

A program is a tree of steps, effects, grouped steps, loops, branches and recorded values. It runs
in a child that was forked before any store was open, and dies by SIGKILL at the k-th thing it does;
then the next child takes it up, with another k, until one comes through.

Each execution has a note of its own, which the step returns. What the run returns in the end must be,
for each place in the tree, the note of the last execution there: nothing was executed after it was
recorded, and no result was given to another step.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import uuid
from dataclasses import dataclass, field
from typing import Any

import holdfast
from holdfast import Retry, aio, each, effect, flow, gather, step, turns
from holdfast.context import uuid4
from tests.crash import probe
from tests.crash.harness import assert_sound

Nodes = list[list[Any]]
AGAIN = Retry(attempts=1000, initial_wait_s=0.0)
DEPTH = 3
KILLS_AT_MOST = 12

events_left = -1
"""How many more events this process lives; negative: for ever."""


def event() -> None:
    global events_left
    events_left -= 1
    if events_left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def body(run: str, label: str) -> str:
    note = uuid.uuid4().hex
    event()
    probe.executed(label, run=run, note=note)
    event()
    return note


@step
def plain(run: str, label: str) -> str:
    return body(run, label)


@step(commit="grouped")
def grouped(run: str, label: str) -> str:
    return body(run, label)


@effect(on_doubt="retry", retry=AGAIN)
def outside(run: str, label: str) -> str:
    return body(run, label)


@step
async def plain_async(run: str, label: str) -> str:
    await asyncio.sleep(0)
    return body(run, label)


@step(commit="grouped")
async def grouped_async(run: str, label: str) -> str:
    return body(run, label)


@effect(on_doubt="retry", retry=AGAIN)
async def outside_async(run: str, label: str) -> str:
    note = body(run, label)
    await asyncio.sleep(0)
    return note


STEPS = {"plain": plain, "grouped": grouped, "outside": outside}
ASYNC_STEPS = {"plain": plain_async, "grouped": grouped_async, "outside": outside_async}


@dataclass
class Seen:
    notes: dict[str, str] = field(default_factory=dict)
    turn: int = 0


# --- the sync interpreter ---------------------------------------------------------------------


def perform(run: str, nodes: Nodes, path: str) -> dict[str, str]:
    notes: dict[str, str] = {}
    for kind, number, *rest in nodes:
        here = f"{path}/{number}"
        event()
        if kind in STEPS:
            notes[here] = STEPS[kind](run, here)
        elif kind == "value":
            uuid4()
        elif kind == "turns":
            notes |= loop(run, here, *rest)
        elif kind == "gather":
            branches = [branch(run, inner, f"{here}[{i}]") for i, inner in enumerate(rest[0])]
            for result in gather(*branches):
                notes |= result
        else:
            count, inner = rest
            items = each(
                lambda i: perform(run, inner, f"{here}[{i}]"), range(count), max_concurrency=2
            )
            for result in items:
                notes |= result
    return notes


def branch(run: str, nodes: Nodes, path: str) -> Any:
    return lambda: perform(run, nodes, path)


def loop(run: str, here: str, count: int, inner: Nodes, leaves: bool) -> dict[str, str]:
    for seen in turns(Seen(), max_turns=count + 1):
        if seen.turn == count:
            return seen.notes
        seen.notes |= perform(run, inner, f"{here}[{seen.turn}]")
        seen.turn += 1
        if leaves and seen.turn == count:
            return seen.notes
    raise AssertionError


@flow
def program(run: str, nodes: Nodes) -> dict[str, str]:
    return perform(run, nodes, "")


# --- the async interpreter --------------------------------------------------------------------


async def perform_async(run: str, nodes: Nodes, path: str) -> dict[str, str]:
    notes: dict[str, str] = {}
    for kind, number, *rest in nodes:
        here = f"{path}/{number}"
        event()
        if kind in ASYNC_STEPS:
            notes[here] = await ASYNC_STEPS[kind](run, here)
        elif kind == "value":
            uuid4()
        elif kind == "turns":
            notes |= await loop_async(run, here, *rest)
        elif kind == "gather":
            inner = [perform_async(run, n, f"{here}[{i}]") for i, n in enumerate(rest[0])]
            for result in await aio.gather(*inner):
                notes |= result
        else:
            count, nodes_of_item = rest
            work = item(run, nodes_of_item, here)
            for result in await aio.each(work, range(count), max_concurrency=2):
                notes |= result
    return notes


def item(run: str, nodes: Nodes, here: str) -> Any:
    async def work(i: int) -> dict[str, str]:
        return await perform_async(run, nodes, f"{here}[{i}]")

    return work


async def loop_async(run: str, here: str, count: int, inner: Nodes, leaves: bool) -> dict[str, str]:
    async for seen in aio.turns(Seen(), max_turns=count + 1):
        if seen.turn == count:
            return seen.notes
        seen.notes |= await perform_async(run, inner, f"{here}[{seen.turn}]")
        seen.turn += 1
        if leaves and seen.turn == count:
            return seen.notes
    raise AssertionError


@flow
async def program_async(run: str, nodes: Nodes) -> dict[str, str]:
    return await perform_async(run, nodes, "")


# --- making programs, and killing them --------------------------------------------------------


def made(rng: random.Random, depth: int) -> Nodes:
    leaves = ["plain", "plain", "outside", "grouped", "value"]
    inner = ["turns", "turns", "gather", "each"] if depth else []
    nodes: Nodes = []
    for number in range(rng.randint(1, 4)):
        kind = rng.choice(leaves + inner)
        if kind == "turns":
            # Inside a turn something must be recorded and change the state.
            rest = [rng.randint(1, 3), [["plain", 99], *made(rng, depth - 1)], rng.random() < 0.3]
        elif kind == "gather":
            rest = [[made(rng, depth - 1) for _ in range(rng.randint(1, 3))]]
        elif kind == "each":
            rest = [rng.randint(0, 3), made(rng, depth - 1)]
        else:
            rest = []
        nodes.append([kind, number, *rest])
    return nodes


def in_child(run: str, nodes: Nodes, events: int, *, awaits: bool) -> int:
    """Fork, run it in the child until it dies or comes through, and return the child's status."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    global events_left
    events_left = events
    code = 1
    try:
        with probe.open_store() as store:
            try:
                notes = go(run, nodes, awaits=awaits)
            except holdfast.errors.RunHeld as held:
                if held.reason != "quarantined":
                    raise
                store.resume(run, actor="forest")
                notes = go(run, nodes, awaits=awaits)
            check(run, notes)
            assert_sound(store, run)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
        print(json.dumps(nodes), file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def go(run: str, nodes: Nodes, *, awaits: bool) -> dict[str, str]:
    if awaits:
        return asyncio.run(program_async.run(run, run, nodes))
    return program.run(run, run, nodes)


def check(run: str, notes: dict[str, str]) -> None:
    last: dict[str, str] = {}
    with open(os.environ["CRASH_LEDGER"], "a+") as ledger:
        ledger.seek(0)
        for line in ledger:
            of_run, label, _pid, _at, note = json.loads(line)
            if of_run == run:
                last[label] = note
    assert notes == last, {k: (notes.get(k), last.get(k)) for k in {*notes, *last}}


def main() -> dict[str, int]:
    seed, programs, colour = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    rng = random.Random(seed)
    kills = 0
    for number in range(programs):
        run, nodes = f"p{number}", made(rng, DEPTH)
        for attempt in range(KILLS_AT_MOST + 1):
            events = rng.randint(1, 25) if attempt < KILLS_AT_MOST else -1
            code = in_child(run, nodes, events, awaits=colour == "async")
            if code == 0:
                break
            assert code == -signal.SIGKILL, f"seed {seed}, program {number}: exit code {code}"
            kills += 1
    return {"programs": programs, "kills": kills}


if __name__ == "__main__":
    probe.say(result=main())
