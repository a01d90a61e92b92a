"""How checkpoints are kept: values once per thread, few bytes, nothing lost, nothing pickled."""

import asyncio
import operator
import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

import holdfast
from holdfast.integrations.langgraph import HoldfastSaver
from tests.integrations.langgraph.saving import (
    config,
    id_of,
    journals,
    put,
    rows,
    sqlite_saver,
    values,
    write,
)

LONG = "a rather long text that is worth a row of its own, said again and again; " * 8


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[HoldfastSaver]:
    with sqlite_saver(tmp_path) as it:
        yield it


# -- 500 turns ---------------------------------------------------------------------------------

WORDS = (Path(__file__).parents[3] / "ARCHITECTURE.md").read_text().split()


class Talk(TypedDict):
    messages: Annotated[list[Any], add_messages]
    turn: int


class Conversation:
    """An agent's loop of two nodes, each of which says about 1 KB."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._chance = random.Random(7)
        self.said_bytes = 0

    def _said(self, message: Any) -> dict[str, Any]:
        self.said_bytes += len(message.model_dump_json())
        return {"messages": [message]}

    def _text(self) -> str:
        return " ".join(self._chance.choices(WORDS, k=160))

    def think(self, state: Talk) -> dict[str, Any]:
        return self._said(AIMessage(self._text())) | {"turn": state["turn"] + 1}

    def act(self, state: Talk) -> dict[str, Any]:
        return self._said(ToolMessage(self._text(), tool_call_id=f"call_{state['turn']}"))

    def graph(self, saver: HoldfastSaver) -> Any:
        builder: Any = StateGraph(Talk)
        builder.add_node("think", self.think)
        builder.add_node("act", self.act)
        builder.add_edge(START, "think")
        builder.add_conditional_edges(
            "think", lambda it: "act" if it["turn"] < self._turns else END
        )
        builder.add_edge("act", "think")
        return builder.compile(checkpointer=saver)


def spoken(folder: Path, turns: int) -> tuple[int, int, int]:
    """Return the bytes of the file, those of the messages, and how many messages came back."""
    folder.mkdir()
    with sqlite_saver(folder):
        pass
    empty = _bytes(folder)
    talk = Conversation(turns)
    with sqlite_saver(folder) as saver:
        first = {"messages": [HumanMessage("Go on, please.")], "turn": 0}
        graph = talk.graph(saver)
        graph.invoke(first, config() | {"recursion_limit": 5000}, durability="sync")
    with sqlite_saver(folder) as saver:
        messages = talk.graph(saver).get_state(config()).values["messages"]
    return _bytes(folder) - empty, talk.said_bytes, len(messages)


def _bytes(folder: Path) -> int:
    """What is in the file; how much of its log is left there is a matter of chance."""
    with sqlite3.connect(folder / "runs.db") as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    return int(pages * size)


@pytest.mark.timeout(600)
def test_500_turns_take_less_than_twice_their_messages(tmp_path):
    half, _, _ = spoken(tmp_path / "half", 250)
    whole, said, messages = spoken(tmp_path / "whole", 500)
    assert messages == 1000
    assert whole <= 2 * said, whole / said
    assert whole - half <= 1.5 * half, (half, whole)


# -- once per thread ---------------------------------------------------------------------------


def test_a_message_is_one_row_with_or_without_its_id(saver):
    at = put(saver, {})
    message = AIMessage(LONG)
    write(saver, at, [message])
    at = put(saver, {"messages": [message.model_copy(update={"id": "m-1"})]}, at)
    put(saver, {"messages": [message.model_copy(update={"id": "m-1"})], "more": 1}, at)
    assert len(rows(saver, "e")) == 1
    (found,) = values(saver)["messages"]
    assert (type(found), found.content, found.id) == (AIMessage, LONG, "m-1")
    before = saver.get_tuple(at)
    (bare,) = [*saver.list(config())][2].pending_writes[0][2]
    assert (before.checkpoint["channel_values"]["messages"][0].id, bare.id) == ("m-1", None)


def test_a_state_that_is_sent_shares_its_messages(saver):
    messages = [AIMessage(f"{number} {LONG}", id=str(number)) for number in range(5)]
    at = put(saver, {"messages": messages})
    send = Send("tools", {"call": {"id": "c"}, "state": {"messages": messages, "n": 1}})
    write(saver, at, send, channel="__pregel_tasks")
    assert len(rows(saver, "e")) == 5
    ((_task, _channel, found),) = saver.get_tuple(at).pending_writes
    assert found == send


def test_namespaces_of_a_thread_share_values_and_threads_do_not(saver):
    put(saver, {"text": LONG})
    put(saver, {"text": LONG}, config(ns="child:1"))
    assert len(rows(saver, "e")) == 1
    put(saver, {"text": LONG}, config("other"))
    assert len(rows(saver, "e")) == 2


def test_a_message_that_was_changed_in_its_place_is_stored_as_it_is_now(saver):
    message = AIMessage(LONG, id="m", additional_kwargs={"seen": []})
    at = put(saver, {"messages": [message]})
    message.additional_kwargs["seen"].append("ana")
    at = put(saver, {"messages": [message]}, at)
    message.content = f"{LONG} and more"
    put(saver, {"messages": [message]}, at)
    found = [it.checkpoint["channel_values"]["messages"][0] for it in saver.list(config())]
    assert [it.additional_kwargs["seen"] for it in found] == [["ana"], ["ana"], []]
    assert [it.content for it in found] == [f"{LONG} and more", LONG, LONG]


def test_what_was_read_can_be_changed_without_harm(saver):
    put(saver, {"plan": {"steps": ["a"]}}, metadata={"tags": ["x"]})
    found = saver.get_tuple(config())
    found.checkpoint["channel_values"]["plan"]["steps"].append("b")
    found.metadata["tags"].append("y")
    again = saver.get_tuple(config())
    assert again.checkpoint["channel_values"] == {"plan": {"steps": ["a"]}}
    assert again.metadata["tags"] == ["x"]


# -- each checkpoint by itself -----------------------------------------------------------------


def test_every_checkpoint_of_a_long_thread_says_what_it_said(saver):
    said: dict[str, Any] = {}
    at, items, chance = None, [], random.Random(3)
    for number in range(200):
        what = chance.randrange(6)
        if what == 0 and items:
            items = items[: chance.randrange(len(items))]
        else:
            items = [*items, f"{number} {LONG}" if what == 1 else {"n": number, "true": [True, 1]}]
        given = {"items": items, "number": number} | ({"odd": [1, 2.0]} if number % 2 else {})
        at = put(saver, given, at, metadata={"step": number, "even": number % 2 == 0})
        said[id_of(at)] = given
    found = {id_of(it.config): it for it in saver.list(config())}
    assert {name: it.checkpoint["channel_values"] for name, it in found.items()} == said
    assert list(found) == list(reversed(said))
    assert all(type(it.metadata["even"]) is bool for it in found.values())
    for name in list(said)[::17]:
        assert values(saver, config(at=name)) == said[name]


def test_a_checkpoint_that_is_written_again_leaves_its_children_as_they_were(saver):
    first = put(saver, {"text": LONG, "n": 1})
    child = put(saver, {"text": LONG, "n": 2}, first)
    grandchild = put(saver, {"text": LONG, "n": 3}, child)
    put(saver, {"other": "text"}, name=id_of(first))
    assert values(saver, first) == {"other": "text"}
    assert values(saver, child) == {"text": LONG, "n": 2}
    assert values(saver, grandchild) == {"text": LONG, "n": 3}


def test_what_is_left_after_a_removal_can_be_read(saver):
    at, all_ids = None, []
    for number in range(30):
        run = {"run_id": f"run-{number % 3}"}
        at = put(saver, {"items": [f"{it} {LONG}" for it in range(number)]}, at, metadata=run)
        write(saver, at, f"{number} {LONG}")
        all_ids.append(id_of(at))
    saver.delete_for_runs(["run-1", "run-0"])
    left = list(saver.list(config()))
    assert [id_of(it.config) for it in left] == list(reversed(all_ids[2::3]))
    assert [len(it.checkpoint["channel_values"]["items"]) for it in left] == list(range(29, 0, -3))
    assert len(left[0].pending_writes) == 1
    saver.prune(["t"])
    assert len(rows(saver, "c")) == 1
    assert len(rows(saver, "e")) == 30  # 29 items, and what was written after them.
    saver.delete_thread("t")
    assert rows(saver) == []
    assert saver.store.verify() == []


def test_ids_that_are_no_uuids_stand_in_their_own_order(saver):
    for name in ("b", "a", "c", "ä", "c" * 300):
        put(saver, {"name": name}, name=name)
    newest = put(saver, {"name": "uuid"}, name="0" * 8 + "-0000-0000-0000-" + "0" * 12)
    found = [id_of(it.config) for it in saver.list(config())]
    assert found == ["ä", "c" * 300, "c", "b", "a", id_of(newest)]
    assert values(saver) == {"name": "ä"}
    assert values(saver, config(at="a")) == {"name": "a"}


@pytest.mark.parametrize("thread", ["", "x" * 5000, "a/b.c\0\n", "../..", "☃️", "c/"])
def test_odd_thread_ids_are_only_names(saver, thread):
    put(saver, {"mine": False}, config("other"))
    put(saver, {"mine": True}, config(thread))
    put(saver, {"mine": True}, config(thread, ns="child:☃️|x"))
    assert values(saver, config(thread)) == {"mine": True}
    assert len(list(saver.list({"configurable": {"thread_id": thread}}))) == 2
    saver.delete_thread(thread)
    assert values(saver, config(thread)) is None
    assert values(saver, config("other")) == {"mine": False}


def test_large_values_are_kept_in_parts(saver):
    data = random.Random(1).randbytes(3_000_000)
    at = put(saver, {"data": data})
    write(saver, at, {"more": [data[:2_000_000].hex()]})
    assert len(rows(saver, "p")) > 4
    found = saver.get_tuple(config())
    assert found.checkpoint["channel_values"] == {"data": data}
    assert found.pending_writes[0][2] == {"more": [data[:2_000_000].hex()]}
    saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    assert values(saver, config("copy")) == {"data": data}
    saver.delete_thread("copy")
    assert rows(saver) == []


# -- what is refused, and what stays outside ---------------------------------------------------


def test_nothing_is_pickled(saver, tmp_path):
    with pytest.raises(holdfast.errors.UsageError, match="pickle_fallback"):
        HoldfastSaver("memory:", serde=JsonPlusSerializer(pickle_fallback=True))
    saver.serde = JsonPlusSerializer(pickle_fallback=True)  # As who gets round the door.
    with pytest.raises(holdfast.errors.UsageError, match="neither stored nor loaded"):
        put(saver, {"lock": threading.Lock})
    assert rows(saver) == []


class Reversing:
    """A cipher for tests: no two of its texts are alike."""

    def __init__(self) -> None:
        self._count = 0

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        self._count += 1
        return "reversed", self._count.to_bytes(4, "big") + plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "reversed"
        return ciphertext[4:][::-1]


def test_encrypted_values_are_not_seen_in_the_file(tmp_path):
    url, serde = f"sqlite:///{tmp_path}/runs.db", EncryptedSerializer(Reversing())
    with HoldfastSaver(url, serde=serde) as saver:
        at = put(saver, {"messages": [HumanMessage("canary-1", id="canary-2")], "s": "canary-3"})
        write(saver, at, {"deep": ["canary-4" * 60]})
        found = saver.get_tuple(config())
    assert found.checkpoint["channel_values"]["messages"][0].content == "canary-1"
    assert found.pending_writes[0][2] == {"deep": ["canary-4" * 60]}
    with HoldfastSaver(url) as saver:
        memory = saver.store.memory("langgraph", recorded=False)
        everything = repr([_opened(entry.value) for entry in memory.items()])
    assert "canary" not in everything


def _opened(value: Any) -> Any:
    from holdfast.integrations.langgraph import compression

    if isinstance(value, bytes):
        return compression.row_value(value)
    if isinstance(value, list) and isinstance(value[-1], bytes) and len(value[-1]) != value[1]:
        return compression.unsqueezed(value[-1], value[1])
    return value


def test_a_run_says_nothing_of_checkpoints_in_its_journal(tmp_path):
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db", default=False) as store:
        saver = HoldfastSaver(store)
        kinds = []
        for run_id, turns in (("without", 0), ("with", 3)):

            @holdfast.flow(name=run_id)
            def talk(turns: int) -> int:
                graph = Conversation(turns).graph(saver)
                if turns:
                    graph.invoke({"messages": [], "turn": 0}, config(), durability="sync")
                return turns

            before = journals(store)
            talk.with_options(store=store).run(run_id, turns)
            kinds.append(journals(store)[len(before) :])
        assert kinds[0] == kinds[1][: len(kinds[0])] == kinds[1]
        assert len(values(saver)["messages"]) == 5
        saver.close()  # It was opened elsewhere, and stays open.
        assert store.verify() == []


def test_a_graph_can_be_awaited(tmp_path):
    with sqlite_saver(tmp_path) as saver:
        graph = Conversation(3).graph(saver)

        async def main() -> Any:
            await graph.ainvoke({"messages": [], "turn": 0}, config())
            states = [it async for it in graph.aget_state_history(config())]
            assert graph.get_state(config()) == states[0]  # Blocking, on the loop.
            return states

        states = asyncio.run(main())
        assert len(states[0].values["messages"]) == 5
        assert len(states) == 7


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


def test_a_thread_that_another_saver_began_goes_on_here(saver):
    builder: Any = StateGraph(Log)
    builder.add_node("a", lambda _state: {"log": ["a"]})
    builder.add_edge(START, "a")
    theirs = InMemorySaver()
    builder.compile(checkpointer=theirs).invoke({"log": ["in"]}, config(), durability="sync")
    for it in reversed(list(theirs.list(config()))):
        parent = it.parent_config or config()
        saver.put(parent, it.checkpoint, it.metadata, it.checkpoint["channel_versions"])
    graph = builder.compile(checkpointer=saver)
    for _ in range(2):
        graph.invoke({"log": ["more"]}, config(), durability="sync")
    assert values(saver)["log"] == ["in", "a", "more", "a", "more", "a"]


def test_versions_of_a_form_that_nobody_knows_are_refused(saver):
    assert saver.get_next_version(None, None) == 1
    assert saver.get_next_version(7, None) == 8
    assert saver.get_next_version("00000009.5", None) > f"{9:032}.9"
    with pytest.raises(holdfast.errors.UsageError, match="'v-1'.*different form"):
        saver.get_next_version("v-1", None)
