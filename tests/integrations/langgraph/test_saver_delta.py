"""Histories of delta channels: what was written on the way, and the value that it starts from."""

import asyncio
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from holdfast.integrations.langgraph import HoldfastSaver
from tests.integrations.langgraph.saving import config, id_of, put, sqlite_saver, write


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[HoldfastSaver]:
    with sqlite_saver(tmp_path) as it:
        yield it


def history(saver: HoldfastSaver, at: Any, *channels: str) -> Any:
    blocking = saver.get_delta_channel_history(config=at, channels=channels)
    awaited = asyncio.run(saver.aget_delta_channel_history(config=at, channels=channels))
    assert awaited == blocking
    return blocking


def written(found: Any, channel: str = "ch") -> list[Any]:
    return [value for _task, _channel, value in found[channel]["writes"]]


def test_writes_of_all_ancestors_come_oldest_first(saver):
    at = put(saver, {})
    for value in ("a", "b", "c"):
        write(saver, at, value)
        at = put(saver, {}, at)
    found = history(saver, at, "ch")
    assert written(found) == ["a", "b", "c"]
    assert "seed" not in found["ch"]


def test_what_is_written_after_the_checkpoint_itself_is_left_out(saver):
    first = put(saver, {})
    write(saver, first, "a")
    at = put(saver, {}, first)
    write(saver, at, "pending")
    assert written(history(saver, at, "ch")) == ["a"]


def test_the_nearest_stored_value_is_the_seed_and_ends_the_walk(saver):
    oldest = put(saver, {})
    write(saver, oldest, "older than the seed")
    seeded = put(saver, {"ch": ["seed"]}, oldest)
    write(saver, seeded, "a")
    middle = put(saver, {}, seeded)
    write(saver, middle, "b")
    found = history(saver, put(saver, {}, middle), "ch")
    assert found["ch"]["seed"] == ["seed"]
    assert written(found) == ["a", "b"]


def test_a_value_of_the_checkpoint_itself_is_no_seed(saver):
    first = put(saver, {})
    write(saver, first, "a")
    found = history(saver, put(saver, {"ch": ["here"]}, first), "ch")
    assert found == {"ch": {"writes": found["ch"]["writes"]}}
    assert written(found) == ["a"]


def test_each_channel_has_its_own_walk(saver):
    at = put(saver, {"one": 1})
    write(saver, at, "x", channel="one")
    write(saver, at, "y", channel="two")
    at = put(saver, {"two": 2}, at)
    write(saver, at, "z", channel="two")
    write(saver, at, "w", channel="one")
    found = history(saver, put(saver, {}, at), "one", "two", "none")
    assert (found["one"]["seed"], written(found, "one")) == (1, ["x", "w"])
    assert (found["two"]["seed"], written(found, "two")) == (2, ["z"])
    assert found["none"] == {"writes": []}


def test_writes_of_one_checkpoint_are_in_the_order_of_their_tasks(saver):
    at = put(saver, {})
    write(saver, at, "late 1", "late 2", path="~__pregel_pull, b")
    write(saver, at, "early", path="~__pregel_pull, a")
    write(saver, at, "input")
    found = history(saver, put(saver, {}, at), "ch")
    assert written(found) == ["input", "early", "late 1", "late 2"]


def test_only_the_way_to_the_checkpoint_counts(saver):
    root = put(saver, {})
    write(saver, root, "shared")
    left, right = put(saver, {}, root), put(saver, {}, root)
    write(saver, left, "left")
    write(saver, right, "right")
    assert written(history(saver, put(saver, {}, left), "ch")) == ["shared", "left"]


def test_without_an_id_the_newest_is_meant(saver):
    at = put(saver, {})
    write(saver, at, "a")
    put(saver, {}, at)
    assert written(history(saver, config(), "ch")) == ["a"]


def test_nothing_is_asked_or_there(saver):
    put(saver, {})
    assert history(saver, config()) == {}
    assert history(saver, config("other"), "ch") == {"ch": {"writes": []}}


def test_a_long_way_is_walked_and_pruning_keeps_it(saver):
    at = put(saver, {"ch": ["seed"]})
    for number in range(120):
        write(saver, at, number)
        counters = {"counters_since_delta_snapshot": {"ch": (number + 1, number + 1)}}
        at = put(saver, {}, at, metadata=counters)
    before = history(saver, at, "ch")
    assert written(before) == list(range(120))
    saver.prune(["t"])
    assert history(saver, at, "ch") == before
    assert len(list(saver.list(config()))) == 121


def test_pruning_keeps_only_what_the_delta_needs(saver):
    old = put(saver, {"ch": ["old seed"]})
    write(saver, old, "gone")
    seeded = put(saver, {"ch": ["seed"]}, old)
    write(saver, seeded, "a")
    counters = {"counters_since_delta_snapshot": {"ch": (1, 1)}}
    at = put(saver, {}, seeded, metadata=counters)
    saver.prune(["t"])
    assert [id_of(it.config) for it in saver.list(config())] == [id_of(at), id_of(seeded)]
    assert history(saver, at, "ch")["ch"]["seed"] == ["seed"]


def delta_channels() -> list[Any]:
    """LangGraph's delta channels, where the installed version has them."""
    try:
        return [importlib.import_module("langgraph.channels.delta").DeltaChannel]
    except ImportError:
        return []


def check_a_graph(saver: HoldfastSaver, channel: Any) -> None:
    def add(state: list[str], new: list[list[str]]) -> list[str]:
        return [*state, *(it for part in new for it in part)]

    class State(TypedDict):
        log: Annotated[list[str], channel(add, snapshot_frequency=5)]

    def step(state: State) -> dict[str, list[str]]:
        return {"log": [f"{len(state['log'])} {'x' * 300}"]}

    builder: Any = StateGraph(State)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", lambda it: END if len(it["log"]) % 7 == 0 else "step")
    graph = builder.compile(checkpointer=saver)
    for turn in range(1, 4):
        state = graph.invoke({"log": []}, config(), durability="sync")
        assert [int(it.split()[0]) for it in state["log"]] == list(range(7 * turn))
    saver.prune(["t"])
    assert graph.get_state(config()).values == state


CHANNELS = delta_channels()
if CHANNELS:

    def test_a_graph_with_a_delta_channel_goes_on(saver):
        check_a_graph(saver, CHANNELS[0])
