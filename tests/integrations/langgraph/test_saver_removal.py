"""Removals beside a thread that goes on: whatever another process writes between any two accesses of
a removal, and wherever a removal is killed, every checkpoint that is left can be read."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from langgraph.graph import END, START, StateGraph

import holdfast
from holdfast.integrations.langgraph import HoldfastSaver, keys, shelf
from tests.integrations.langgraph.saving import (
    config,
    id_of,
    put,
    rows,
    sqlite_saver,
    values,
    write,
)

LONG = "long enough for a row of its own. " * 12
BEFORE = 5

REMOVALS: dict[str, Callable[[HoldfastSaver], None]] = {
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["run-1"]),
    "prune": lambda saver: saver.prune(["t"]),
    "prune, delete": lambda saver: saver.prune(["t"], strategy="delete"),
    "put over": lambda saver: saver_put_over(saver),
}


def saver_put_over(saver: HoldfastSaver) -> None:
    *_, oldest = saver.list(config())
    put(saver, {"messages": [said("instead")]}, name=id_of(oldest.config))


def said(text: str) -> HumanMessage:
    return HumanMessage(f"{text} {LONG}", id=text)


class Watched:
    """A memory that does something before its n-th access."""

    def __init__(self, memory: Any, at: int, act: Callable[[], None]) -> None:
        self._memory, self._at, self._act = memory, at, act
        self.accesses = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._memory, name)

        def access(*given: Any, **named: Any) -> Any:
            self.accesses += 1
            if self.accesses == self._at:
                self._act()
            return real(*given, **named)

        return access


class Other:
    """The process that goes on with the thread meanwhile."""

    def __init__(self, saver: HoldfastSaver) -> None:
        self._saver = saver
        self._messages = [said(f"m{number}") for number in range(BEFORE)]
        self.at: Any = None
        # Left out of the state since, and said again later: its row is needed no more, and then is.
        self._put([said("next")], "run-1")
        for number in range(BEFORE):
            self._put(self._messages[: number + 1], "run-1")

    def _put(self, messages: list[Any], run: str) -> None:
        self.at = put(self._saver, {"messages": messages}, self.at, metadata={"run_id": run})
        write(self._saver, self.at, f"written after {len(messages)} {LONG}")

    def go_on(self) -> None:
        for text in ("next", "last"):
            self._messages = [*self._messages, said(text)]
            self._put(self._messages, "run-2")


def interleaved(
    store: holdfast.types.Store, removal: Callable[[HoldfastSaver], None], at: int
) -> tuple[bool, HoldfastSaver]:
    """Go on with the thread before the n-th access of a removal. False if it had fewer."""
    other, remover = Other(HoldfastSaver(store)), HoldfastSaver(store)
    watched = Watched(remover._shelf.memory, at, other.go_on)
    remover._shelf.memory = watched  # type: ignore[assignment]
    removal(remover)
    fresh = HoldfastSaver(store)
    if watched.accesses < at:
        return False, fresh
    found = fresh.get_tuple(other.at)
    assert found is not None or removal in WHOLE
    if found is not None:
        assert [it.id for it in found.checkpoint["channel_values"]["messages"]][-1] == "last"
        assert len(found.checkpoint["channel_values"]["messages"]) == BEFORE + 2
        assert len(found.pending_writes or []) == 1
    return True, fresh


WHOLE = (REMOVALS["delete_thread"], REMOVALS["prune, delete"])


@pytest.mark.parametrize("name", REMOVALS)
def test_a_thread_goes_on_at_each_access_of_a_removal(name: str) -> None:
    at, more = 0, True
    while more:
        at += 1
        with holdfast.open("memory:", default=False) as store:
            more, fresh = interleaved(store, REMOVALS[name], at)
            for it in fresh.list(config()):
                assert len(it.pending_writes or []) == 1
            put(fresh, {"messages": [said("root")]})
            assert len(values(fresh)["messages"]) == 1
            fresh.delete_thread("t")
            assert rows(fresh) == []
            assert store.verify() == []
    assert at > 6


class Killed(BaseException):
    pass


@pytest.mark.parametrize("name", REMOVALS)
def test_a_removal_is_killed_at_each_access(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "PATIENCE_S", 0.0)  # Nobody waits for the dead.

    def die() -> None:
        raise Killed

    at, more = 0, True
    while more:
        at += 1
        with holdfast.open("memory:", default=False) as store:
            other, remover = Other(HoldfastSaver(store)), HoldfastSaver(store)
            watched = Watched(remover._shelf.memory, at, die)
            remover._shelf.memory = watched  # type: ignore[assignment]
            held = remover._shelf.rewriting
            remover._shelf.rewriting = lambda thread: left_behind(held(thread))  # type: ignore[method-assign]
            try:
                REMOVALS[name](remover)
                more = False
            except Killed:
                pass
            fresh = HoldfastSaver(store)
            assert all(it.checkpoint["channel_values"] for it in fresh.list(config()))
            other.go_on()
            assert len(values(fresh)["messages"]) == BEFORE + 2
            REMOVALS[name](fresh)
            assert all(it.checkpoint["channel_values"] for it in fresh.list(config()))
            fresh.delete_thread("t")
            assert rows(fresh) == []
    assert at > 6


class left_behind:  # noqa: N801
    """Holds a thread, and does not let it go, as who is killed."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def __enter__(self) -> Any:
        return self._held.__enter__()

    def __exit__(self, *error: object) -> None:
        if not isinstance(error[1], Killed):
            self._held.__exit__(*error)


class Counting(TypedDict):
    n: int
    log: Annotated[list[str], operator.add]


def counting(saver: HoldfastSaver, until: int, probe: Callable[[int], None]) -> Any:
    def count(state: Counting) -> dict[str, Any]:
        probe(state["n"])
        return {"n": state["n"] + 1, "log": [f"{state['n']} {LONG}"]}

    builder: Any = StateGraph(Counting)
    builder.add_node("count", count)
    builder.add_edge(START, "count")
    builder.add_conditional_edges("count", lambda it: "count" if it["n"] < until else END)
    return builder.compile(checkpointer=saver)


def test_a_thread_is_deleted_again_and_again_while_its_graph_runs(tmp_path: Path) -> None:
    with sqlite_saver(tmp_path) as running, sqlite_saver(tmp_path) as deleting:
        ended, deleted = threading.Event(), threading.Semaphore(0)

        def delete() -> None:
            while not ended.is_set():
                deleting.delete_thread("t")
                deleted.release()

        other = threading.Thread(target=delete)
        other.start()
        try:
            # Every tenth node waits until the thread was deleted once more.
            graph = counting(
                running, 60, lambda n: None if n % 10 else deleted.acquire(timeout=60) or None
            )
            graph.invoke(
                {"n": 0, "log": []}, config() | {"recursion_limit": 100}, durability="sync"
            )
        finally:
            ended.set()
            other.join()
        left = list(deleting.list(config()))
        assert all(len(it.checkpoint["channel_values"].get("log", [])) <= 60 for it in left)
        deleting.delete_thread("t")
        assert rows(deleting) == []
        assert deleting.store.verify() == []


def test_a_removal_whose_holder_is_taken_for_dead_begins_again() -> None:
    with holdfast.open("memory:", default=False) as store:
        Other(HoldfastSaver(store))
        remover, thief = HoldfastSaver(store), HoldfastSaver(store)
        stolen: list[str] = []

        def steal() -> None:
            memory, key = thief._shelf.memory, keys.rewriting("t")
            entry = memory.item(key)
            assert entry is not None
            assert memory.set(key, "thief", if_version=entry.version)
            assert memory.delete(key)
            stolen.append("once")

        remover._shelf.memory = Watched(remover._shelf.memory, 6, steal)  # type: ignore[assignment]
        remover.prune(["t"])
        assert stolen == ["once"]
        assert len(rows(thief, "c")) == 1
        assert rows(thief, "r") == []


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[HoldfastSaver]:
    with sqlite_saver(tmp_path) as it:
        yield it


def test_a_thread_that_cannot_be_read_can_be_deleted(saver: HoldfastSaver) -> None:
    at = put(saver, {"text": LONG})
    put(saver, {"text": LONG, "n": 1}, at)
    write(saver, at, LONG)
    saver._shelf.memory.delete(keys.Place("t", "").checkpoint(id_of(at)))
    with pytest.raises(holdfast.errors.Corrupt):
        values(HoldfastSaver(saver.store))
    saver.delete_thread("t")
    assert rows(saver) == []


def test_parents_in_a_circle_end_every_walk(saver: HoldfastSaver) -> None:
    first = put(saver, {"n": 1})
    second = put(saver, {"n": 2}, first)
    put(saver, {"n": 3}, second, name=id_of(first))
    put(saver, {"n": 4}, second, name=id_of(second))
    history = saver.get_delta_channel_history(config=second, channels=["gone"])
    assert history == {"gone": {"writes": []}}
    saver.prune(["t"])
    assert values(saver) == {"n": 4}


def test_a_run_id_may_be_a_uuid(saver: HoldfastSaver) -> None:
    import uuid

    run = uuid.uuid4()
    put(saver, {"n": 1}, metadata={"run_id": run})
    (found,) = saver.list(config(), filter={"run_id": str(run)})
    assert found.metadata["run_id"] == str(run)
    saver.delete_for_runs([str(run)])
    assert list(saver.list(config())) == []


@pytest.mark.parametrize(
    "odd", ["broken \ud83d emoji", 2**64, -(2**63) - 1, ["\udc00", {"n": 2**99}]]
)
def test_metadata_of_clients_come_back_exactly(saver: HoldfastSaver, odd: Any) -> None:
    put(saver, {"n": 1}, metadata={"odd": odd})
    (found,) = saver.list(config(), filter={"odd": odd})
    assert found.metadata["odd"] == odd
