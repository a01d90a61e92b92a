"""What a checkpoint costs, in calls of the serializer and in rows that are read: counted, not timed."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.integrations.langgraph import HoldfastSaver, blobs
from holdfast.integrations.langgraph.blobs import GROUP, Packer, Seen, Unpacker
from tests.integrations.langgraph.saving import config, put, sqlite_saver, values

LONG = "long enough for a row of its own. " * 12


class CountedSerializer(JsonPlusSerializer):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        self.calls["dumps"] += 1
        return super().dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        self.calls["loads"] += 1
        return super().loads_typed(data)


class CountedMemory:
    """Counts how many rows are read."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def items(self, *given: Any, **named: Any) -> Any:
        found = self._memory.items(*given, **named)
        self.read += len(found)
        return found

    def item(self, key: str) -> Any:
        self.read += 1
        return self._memory.item(key)


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[HoldfastSaver]:
    with sqlite_saver(tmp_path) as it:
        it.serde = CountedSerializer()
        yield it


def watched(saver: HoldfastSaver) -> CountedMemory:
    memory = CountedMemory(saver._shelf.memory)
    saver._shelf.memory = memory  # type: ignore[assignment]
    return memory


@pytest.mark.parametrize(
    "value",
    [
        [{"id": number, "tags": ["a", "b"]} for number in range(3000)],
        [f"doc-{number}" for number in range(3000)],
        [[float(it) for it in range(8)] for _ in range(3000)],
        {f"key-{number}": {"n": [number]} for number in range(3000)},
        [None if number % 2 else {"n": number} for number in range(GROUP + 1)],
    ],
    ids=["dictionaries", "texts", "vectors", "a dictionary", "one more than a group"],
)
def test_many_small_things_take_a_call_for_each_group(saver: HoldfastSaver, value: Any) -> None:
    serde: Any = saver.serde
    groups = -(-len(value) // GROUP)
    at = put(saver, {"docs": value, "n": 0})
    put(saver, {"docs": value, "n": 1}, at)
    assert serde.calls["dumps"] == 2 * (groups + 1)
    assert values(saver) == {"docs": value, "n": 1}
    assert list(values(saver)["docs"]) == list(value)
    assert serde.calls["loads"] == 2 * (groups + 1)


def test_a_list_that_grows_shares_its_groups(saver: HoldfastSaver) -> None:
    items = [f"{number} {LONG}" for number in range(4 * GROUP)]
    at = put(saver, {"items": items})
    memory = saver._shelf.memory
    before = {row.key: row.version for row in memory.items("e/")}
    put(saver, {"items": [*items, "one more"]}, at)
    after = {row.key: row.version for row in memory.items("e/")}
    assert {key: after[key] for key in before} == before
    assert values(saver)["items"] == [*items, "one more"]


def test_messages_of_a_long_list_are_serialized_once(
    saver: HoldfastSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "SEEN", 40)
    serde: Any = saver.serde
    messages = [HumanMessage(f"{n} {LONG}", id=str(uuid.uuid4())) for n in range(100)]
    at = put(saver, {"messages": messages})
    first = serde.calls["dumps"]
    messages = [*messages, HumanMessage(f"last {LONG}", id="last")]
    put(saver, {"messages": messages}, at)
    assert serde.calls["dumps"] == first + 1
    assert values(saver)["messages"] == messages


def test_messages_among_many_others_are_still_shared() -> None:
    seen, serde = Seen(), JsonPlusSerializer()
    value = [*range(-GROUP, 0), HumanMessage(LONG, id="m")]
    value[0] = "a text in front"
    packer = Packer(serde, seen)
    node = packer.pack(value)
    assert len(packer.needed()) == 1
    assert Unpacker(serde, packer.element).unpack(node) == value


def test_what_was_written_here_is_not_read_again(saver: HoldfastSaver) -> None:
    at = None
    messages = [HumanMessage(f"{n} {LONG}", id=str(n)) for n in range(200)]
    for number in range(60):
        at = put(saver, {"messages": messages[: 140 + number]}, at)
    memory = watched(saver)
    assert values(saver)["messages"] == messages[:199]
    assert memory.read == 1
    assert values(saver, at)["messages"] == messages[:199]
    assert memory.read == 2


def test_a_list_reads_what_it_yields(saver: HoldfastSaver) -> None:
    at = None
    for number in range(200):
        at = put(saver, {"n": number}, at)
    memory = watched(saver)
    (found,) = saver.list(config(), limit=1)
    assert found.checkpoint["channel_values"] == {"n": 199}
    assert memory.read <= 51
    before = found.config
    (found,) = saver.list(config(), before=before, limit=1)
    assert found.checkpoint["channel_values"] == {"n": 198}
    assert memory.read <= 102
