"""Values as nodes: the packer names what stands apart, and that is what the nodes need."""

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send

from holdfast.integrations.langgraph.blobs import Packer, Seen, refs

LONG = "a rather long text that is worth a row of its own, said again and again; " * 8


def packed(seen: Seen, *values: Any) -> frozenset[str]:
    """Pack values; returns what is needed, told by the packer, and found in the nodes."""
    packer = Packer(JsonPlusSerializer(), seen)
    nodes = [packer.pack(value) for value in values]
    assert packer.needed() == {ref for node in nodes for ref in refs(node)}
    return packer.needed()


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
