"""Flows that the tests at a real terminal execute in processes of their own."""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast import Retry, ask, effect, flow, gather, step, turns

FOLDER = Path(os.environ["HOLDFAST_TEST_FOLDER"])


def wait_for(name: str) -> None:
    while not (FOLDER / name).exists():
        time.sleep(0.01)


@step(name="tt.think", retry=Retry(attempts=3, initial_wait_s=0.01))
def think(turn: int) -> str:
    if turn == 1 and not (FOLDER / "thought").exists():
        (FOLDER / "thought").touch()
        raise TimeoutError("the model did not answer")
    return f"thought {turn}"


@step(name="tt.search")
def search(topic: str) -> list[str]:
    wait_for("go")
    return [topic]


@effect(name="tt.publish", on_doubt="retry")
def publish(text: str) -> str:
    if not (FOLDER / "died").exists():
        (FOLDER / "died").touch()
        os.kill(os.getpid(), 9)
    return "published"


@effect(name="tt.charge")
def charge(amount: int) -> str:
    raise TimeoutError("the bank did not answer")


@flow(name="tt.research")
def research(topic: str) -> str:
    for state in turns({"turn": 0}):
        think(state["turn"])
        gather(lambda: search("a"), lambda: search("b"))
        state["turn"] += 1
        if state["turn"] == 3:
            break
    return publish(topic)


@flow(name="tt.pay")
def pay(amount: int) -> str:
    return charge(amount)


@flow(name="tt.asks")
def asks() -> str:
    return ask("Ship it?", name="ship", type=str)
