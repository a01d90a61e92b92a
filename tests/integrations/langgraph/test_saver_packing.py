"""Values as nodes: the packer names what stands apart, that is what the nodes need, and a value of any
size comes back as it was."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send

from holdfast.errors import UsageError
from holdfast.integrations.langgraph.blobs import Packer, Seen, Unpacker, refs

LONG = "a rather long text that is worth a row of its own, said again and again; " * 8


def packed(seen: Seen, *values: Any) -> frozenset[str]:
    """Pack values; returns what is needed, told by the packer, and found in the nodes."""
    packer = Packer(JsonPlusSerializer(), seen)
    nodes = [packer.pack(value) for value in values]
    assert packer.needed() == {ref for node in nodes for ref in refs(node)}
    return packer.needed()


MESSAGES: dict[str, Callable[[str], AnyMessage]] = {
    "human": lambda text: HumanMessage(text, id=str(uuid.uuid4())),
    "system": lambda text: SystemMessage(text, id=str(uuid.uuid4())),
    "ai": lambda text: AIMessage(text, id=f"lc_run--{uuid.uuid4()}-0"),
    "tool": lambda text: ToolMessage(text, tool_call_id="call_a", id=str(uuid.uuid4())),
    "without an id": HumanMessage,
}


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_of_any_length_comes_back_with_its_id(kind: str) -> None:
    seen, serde = Seen(), JsonPlusSerializer()
    messages = [MESSAGES[kind]("x" * length) for length in range(300)]
    for value in (messages, {"deep": messages}, *messages[::20]):
        for _ in range(2):  # The second time, the messages are known.
            packer = Packer(serde, seen)
            node = packer.pack(value)
            assert Unpacker(serde, packer.element).unpack(node) == value


def test_a_message_that_changes_while_it_is_stored_is_refused() -> None:
    seen, message = Seen(), AIMessage(LONG, id="m-1")
    packed(seen, [message])
    packer = Packer(JsonPlusSerializer(), seen)
    packer.pack([message])
    message.content = "something else"
    (ref,) = packer.needed()
    with pytest.raises(UsageError, match="changed while its checkpoint was stored"):
        packer.element(ref)


def test_what_stands_apart_is_what_the_nodes_need() -> None:
    seen = Seen()
    messages = [AIMessage(f"{number} {LONG}", id=f"m-{number}") for number in range(3)]
    first = packed(seen, [*messages, AIMessage("short", id="m-9"), AIMessage(LONG)], LONG, 7)
    assert len(first) == 5
    again = packed(seen, messages, {"deep": [messages[0], LONG]}, Send("node", messages), [])
    assert len(again) == 4
    assert len(again & first) == 4


def test_a_message_that_was_changed_in_its_place_is_another_one() -> None:
    seen = Seen()
    message = AIMessage(LONG, id="m-1")
    before = packed(seen, [message])
    message.content = f"{LONG} And so on."
    assert not packed(seen, [message]) & before
