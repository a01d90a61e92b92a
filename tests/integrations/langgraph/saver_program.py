"""A graph on a saver, without any Holdfast run, that dies where KILL says: `before put:3`, `after
writes:2`. It is started again until it ends, and goes on each time where the thread stands.

Nodes write down that they ran; what a node wrote is written down when the saver has it.
"""

from __future__ import annotations

import operator
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from holdfast.integrations.langgraph import HoldfastSaver
from tests.integrations.langgraph.saving import config

where, _, number = os.environ.get("KILL", "").partition(":")
left = [int(number or 0)]
counting = threading.Lock()
log = Path(os.environ["LOG"])


def note(line: str) -> None:
    with log.open("a") as file:
        file.write(f"{line}\n")


def count(what: str) -> None:
    with counting:
        if what == where:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Saver(HoldfastSaver):
    def put(self, *args: Any, **kwargs: Any) -> Any:
        count("before put")
        done = super().put(*args, **kwargs)
        count("after put")
        return done

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        count("before writes")
        super().put_writes(config, writes, task_id, task_path)
        note(f"saved {task_path.rpartition(', ')[2]} {task_id}")
        count("after writes")


class State(TypedDict):
    done: Annotated[list[str], operator.add]


def node(name: str) -> Any:
    def work(state: State) -> dict[str, list[str]]:
        note(f"ran {name}")
        return {"done": [f"{name} after {len(state['done'])}: {'x' * 500}"]}

    return work


def graph(saver: HoldfastSaver) -> Any:
    builder: Any = StateGraph(State)
    for name in ("plan", "left", "right", "join", "end"):
        builder.add_node(name, node(name))
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "left")
    builder.add_edge("plan", "right")
    builder.add_edge(["left", "right"], "join")
    builder.add_edge("join", "end")
    builder.add_edge("end", END)
    return builder.compile(checkpointer=saver)


if __name__ == "__main__":
    with Saver(sys.argv[1]) as saver:
        made = graph(saver)
        begun = saver.get_tuple(config()) is not None
        state = made.invoke(None if begun else {"done": []}, config(), durability="sync")
        print("RESULT", [it.split(":")[0] for it in state["done"]])
