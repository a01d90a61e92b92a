"""A process that executes a run, sends its traces, and is killed in the middle if it is told to.

    python killed.py URL RUN_ID FOLDER sync|async

In FOLDER, the file `kill` says: die inside the effect, after everything so far was sent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from opentelemetry import trace

import holdfast
from holdfast import Done, Retry, aio, effect, flow, gather, step
from holdfast.observers import opentelemetry

CANARY = "canary-7f3a91"
FOLDER = Path(sys.argv[3])


def tried(name: str) -> int:
    with (FOLDER / name).open("a") as file:
        file.write("x")
    return (FOLDER / name).stat().st_size


@step(name="otk-search", retry=Retry(attempts=3, initial_wait_s=0.001))
def search(topic: str) -> str:
    with trace.get_tracer("a library").start_as_current_span("POST /search"):
        holdfast.context.record_usage(
            model="model-9", input_tokens=11, output_tokens=5, cost_usd=0.25
        )
    if tried("search") == 1:
        raise OSError(f"{CANARY} is busy")
    return f"{topic} {CANARY}"


@step(name="otk-think", retry=Retry(attempts=3, initial_wait_s=0.001))
async def think(topic: str) -> str:
    with trace.get_tracer("a library").start_as_current_span("POST /search"):
        holdfast.context.record_usage(
            model="model-9", input_tokens=11, output_tokens=5, cost_usd=0.25
        )
        await asyncio.sleep(0)
    if tried("search") == 1:
        raise OSError(f"{CANARY} is busy")
    return f"{topic} {CANARY}"


@step(name="otk-part")
def part(number: int) -> int:
    tried("part")
    return number


def _publish(text: str) -> str:
    if (FOLDER / "kill").exists():
        (FOLDER / "kill").unlink()
        trace.get_tracer_provider().force_flush()  # type: ignore[attr-defined]
        os.kill(os.getpid(), signal.SIGKILL)
    tried("published")
    return f"published {text}"


@effect(name="otk-publish", key="page:{text}")
def publish(text: str) -> str:
    return _publish(text)


@publish.on_doubt
def find(text: str) -> Done:
    tried("found")
    return Done(f"found {text}")


@step(name="otk-last")
def last(text: str) -> str:
    return text.upper()


@flow(name="otk-report")
def report(topic: str) -> str:
    notes = search(topic)
    gather(lambda: part(1), lambda: part(2), lambda: part(3))
    holdfast.sleep(0.001)
    return last(publish(notes))


@flow(name="otk-agent")
async def agent(topic: str) -> str:
    notes = await think(topic)
    await aio.gather(part.aio(1), part.aio(2), part.aio(3))
    await aio.sleep(0.001)
    return await last.aio(await publish.aio(notes))


def main(url: str, run_id: str, colour: str) -> None:
    end = opentelemetry.observe_from_environment()
    topic = f"topic {CANARY}"
    with holdfast.open(url) as store:
        with trace.get_tracer("the caller").start_as_current_span("handle request"):
            if colour == "async":
                found = asyncio.run(agent.run(run_id, topic))
            else:
                found = report.run(run_id, topic)
        assert CANARY in found.lower()
        assert store.get(run_id).status == "completed"
    end()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[4])
