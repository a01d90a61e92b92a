"""What nodes record is known by their task: a graph that goes on from a checkpoint finds it again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

import holdfast
from holdfast import testing
from holdfast.errors import RunFailed
from holdfast.integrations.langgraph import HoldfastSaver, durable_graph

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0
KEYS = {
    "cycle": "charge:pay-1.charge charge:pay-2.charge charge:pay-3.charge",
    "row": "charge:a-1 charge:b-2 charge:c-3",
}


def life(graph: str, folder: Path, die: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.integrations.langgraph.node_agent", graph],
        cwd=folder,
        env={**os.environ, "DIE": die, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("graph", "die"),
    [
        ("cycle", "before 2"),
        ("cycle", "after 3"),
        ("row", "before 2"),
        ("inner", "after 3"),
    ],
)
def test_killed_at_a_visit(graph: str, die: str, tmp_path: Path) -> None:
    killed = life(graph, tmp_path, die)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ended = life(graph, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "world.txt").read_text() == "50 EUR\n" * 3
    if graph in KEYS:
        assert ended.stdout.split() == KEYS[graph].split()
    else:
        assert len(set(ended.stdout.split())) == 3
        assert "#" not in ended.stdout


class State(TypedDict, total=False):
    said: list[Any]


def graph_of(*nodes: Any) -> Any:
    builder = StateGraph(State)
    names = [START, *(node.__name__ for node in nodes), END]
    for node in nodes:
        builder.add_node(node.__name__, node)
    for before, after in zip(names, names[1:], strict=False):
        builder.add_edge(before, after)
    return builder.compile()


def test_values_and_waits_in_nodes_are_found_again() -> None:
    """The second node fails once; the first is not called again, the second sees what it saw."""
    seen: list[Any] = []

    def first(state: State) -> State:
        holdfast.sleep(0)
        return {"said": [str(holdfast.context.uuid4())]}

    def second(state: State) -> State:
        holdfast.sleep(0)
        seen.append(
            (str(holdfast.context.uuid4()), holdfast.context.now(), holdfast.context.rng().random())
        )
        if len(seen) == 1:
            raise ConnectionError("no line")
        return {"said": [*state["said"], seen[-1][0]]}

    with testing.store() as store:
        support = durable_graph("nd-values", graph_of(first, second), saver=HoldfastSaver(store))
        with pytest.raises(RunFailed, match="no line"):
            support.run("t-1", {"said": []})
        said = support.run("t-1", {"said": []})["said"]
        assert seen[0] == seen[1]
        assert said[1] == seen[0][0] != said[0]


def test_what_has_only_a_place_is_refused_in_nodes() -> None:
    def node(state: State) -> State:
        return {"said": holdfast.each(str, [1, 2])}

    with testing.store() as store:
        support = durable_graph("nd-place", graph_of(node), saver=HoldfastSaver(store))
        with pytest.raises(RunFailed, match="known by its place in the flow"):
            support.run("t-1", {"said": []})
