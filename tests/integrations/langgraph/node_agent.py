"""Graphs whose nodes do things outside, without an agent: what they record is known by their task.

GRAPH picks one, DIE says where the process is killed: before a node, or in it after its effect.
"""

from __future__ import annotations

import operator
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

import holdfast
from holdfast.integrations.langgraph import HoldfastSaver, durable_graph


class State(TypedDict):
    done: Annotated[list[str], operator.add]


def die(where: str) -> None:
    if os.environ.get("DIE") == where:
        os.kill(os.getpid(), signal.SIGKILL)


@holdfast.effect(on_doubt="hold")
def charge(amount: str) -> str:
    with Path("world.txt").open("a") as world:
        world.write(f"{amount}\n")
    return amount


def paid(visit: int, *, key: str | None = None) -> State:
    die(f"before {visit}")
    if key is None:
        done = charge("50 EUR")
    else:
        with holdfast.adapters.step_key(key):
            done = charge("50 EUR")
    die(f"after {visit}")
    return {"done": [done]}


def cycle() -> Any:
    """One node, visited three times, with a key of its own."""
    builder = StateGraph(State)
    builder.add_node("pay", lambda state: paid(len(state["done"]) + 1, key="charge"))
    builder.add_edge(START, "pay")
    builder.add_conditional_edges("pay", lambda state: "pay" if len(state["done"]) < 3 else END)
    return builder


def row() -> Any:
    """Three nodes one after another that do the same, without keys."""
    builder = StateGraph(State)
    for visit, (before, name) in enumerate([(START, "a"), ("a", "b"), ("b", "c")], 1):
        builder.add_node(name, lambda _state, visit=visit: paid(visit))
        builder.add_edge(before, name)
    builder.add_edge("c", END)
    return builder


def inner() -> Any:
    """A graph with a node that pays, as the node of a graph that visits it three times."""
    within = StateGraph(State)
    within.add_node("pay", lambda state: paid(len(state["done"]) + 1))
    within.add_edge(START, "pay")
    within.add_edge("pay", END)
    compiled = within.compile()
    builder = StateGraph(State)
    builder.add_node("shop", lambda state: {"done": compiled.invoke(state)["done"][-1:]})
    builder.add_edge(START, "shop")
    builder.add_conditional_edges("shop", lambda state: "shop" if len(state["done"]) < 3 else END)
    return builder


GRAPHS = {"cycle": cycle, "row": row, "inner": inner}

if __name__ == "__main__":
    with holdfast.open("sqlite:///runs.db") as store:
        graph = GRAPHS[sys.argv[1]]().compile()
        shop = durable_graph("shop", graph, saver=HoldfastSaver(store))
        assert shop.run("r", {"done": []}) == {"done": ["50 EUR"] * 3}
        print(*sorted(step.key for step in store.get("r").steps if step.name == "charge"))
