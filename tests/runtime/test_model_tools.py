"""Tools of a model: what the provider is told, what the model is told, and what is recorded."""

from __future__ import annotations

import asyncio
import inspect
import threading
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pytest

import holdfast
from holdfast import effect, flow, resource, step
from holdfast.errors import RunFailed, RunHeld, UsageError
from holdfast.integrations.tools import ToolCall, Tools, tool


@dataclass
class Address:
    street: str
    number: int


class Item(msgspec.Struct):
    name: str
    many: int = 1


def make_client() -> object:
    return object()


@tool
def ship(
    order: str,
    to: Address,
    items: list[Item],
    speed: Literal["slow", "fast"] = "slow",
    note: str | None = None,
) -> dict[str, Any]:
    """Send an order.

    It goes out today.

    Args:
        order: The number of the order,
            as the customer knows it.
        speed (str): How fast.

    Returns:
        What was sent.
    """
    return {"order": order, "street": to.street, "items": [it.name for it in items], "note": note}


WANTED = {
    "order": "7",
    "to": {"street": "Elm", "number": 3},
    "items": [{"name": "lamp"}],
}


def chat(*calls: tuple[str, str, Any]) -> dict[str, Any]:
    def written(arguments: Any) -> str:
        return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()

    return {
        "role": "assistant",
        "tool_calls": [
            {"id": call_id, "function": {"name": name, "arguments": written(arguments)}}
            for call_id, name, arguments in calls
        ],
    }


def test_what_the_provider_is_told() -> None:
    told = ship.openai["function"]
    assert told["name"] == "ship"
    assert told["description"] == "Send an order.\n\nIt goes out today."
    schema = told["parameters"]
    assert schema["required"] == ["order", "to", "items"]
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {"order", "to", "items", "speed", "note"}
    about = schema["properties"]["order"]["description"]
    assert about == "The number of the order, as the customer knows it."
    assert schema["properties"]["speed"] == {
        "enum": ["fast", "slow"],
        "description": "How fast.",
        "default": "slow",
    }
    assert schema["properties"]["to"] == {"$ref": "#/$defs/Address"}
    assert schema["$defs"]["Address"]["required"] == ["street", "number"]


@tool(unrecorded=("session",))
def lookup(order: str, client: Any = resource(make_client), session: Any = None) -> str:
    del client, session
    return order


def test_what_the_program_gives_is_not_told() -> None:
    assert set(lookup.openai["function"]["parameters"]["properties"]) == {"order"}


def test_each_protocol_has_its_own_shape() -> None:
    schema = ship.openai["function"]["parameters"]
    assert ship.responses["parameters"] == schema
    assert ship.responses["type"] == "function"
    assert ship.anthropic["input_schema"] == schema
    box = Tools([ship])
    assert (box.openai, box.responses) == ([ship.openai], [ship.responses])
    assert box.anthropic == [ship.anthropic]
    with pytest.raises(UsageError, match="openai-chat, openai-responses, anthropic"):
        ship.schema("soap")  # type: ignore[arg-type]


def test_it_is_still_the_function() -> None:
    assert list(inspect.signature(ship).parameters)[:2] == ["order", "to"]
    assert ship("7", Address("Elm", 3), [])["street"] == "Elm"
    assert ship.__doc__ is not None


def test_outside_a_run_the_calls_are_made_and_nothing_is_opened(
    tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    [answer] = Tools([ship]).answer_chat(chat(("c1", "ship", WANTED)))
    assert answer["content"] == '{"items":["lamp"],"note":null,"order":"7","street":"Elm"}'
    assert list(tmp_path.iterdir()) == []


BAD = {
    "not json": '{"order": ',
    "not an object": "[1]",
    "missing": {"order": "7"},
    "unknown": {**WANTED, "priority": 1},
    "wrong type": {**WANTED, "order": 7},
    "wrong inside": {**WANTED, "to": {"street": "Elm", "number": "three"}},
    "not a choice": {**WANTED, "speed": "warp"},
}


@flow(name="mt-ship_all")
def ship_all(messages: list[dict[str, Any]]) -> list[Any]:
    return [Tools([ship]).answer_chat(message) for message in messages]


def test_arguments_that_do_not_fit_are_told_to_the_model_alike_live_and_replayed() -> None:
    asked = [chat((f"c_{n}", "ship", given)) for n, given in enumerate(BAD.values())]
    outside = [Tools([ship]).answer_chat(message) for message in asked]
    with holdfast.open("memory:") as store:
        live = ship_all.run("r", asked)
        assert ship_all.run("r", asked) == live == outside
        texts = [answer[0]["content"] for answer in live]
        assert all(text.startswith("BadArguments: ") for text in texts)
        assert "order" in texts[4]
        assert "$.to.number" in texts[5]
        steps = {it.key: it.status for it in store.get("r").steps}
        assert steps == {f"ship:c_{n}": "failed" for n in range(len(BAD))}


@tool
def fails(why: str) -> str:
    raise KeyError(why)


@tool
def plain(x: int) -> int:
    return x + 1


@tool
async def awaited(x: int) -> int:
    await asyncio.sleep(0)
    return x + 1


@step
def a_step(x: int) -> int:
    return x * 2


@effect(on_doubt="fail")
def an_effect(x: int) -> int:
    if x < 0:
        raise ConnectionError("cut")
    return x * 3


REPLY = chat(
    ("c1", "fails", {"why": "no"}),
    ("c2", "plain", {"x": 1}),
    ("c3", "a_step", {"x": 1}),
    ("c4", "an_effect", {"x": 1}),
    ("c5", "an_effect", {"x": -1}),
    ("c6", "teleport", {"x": 1}),
)
EXPECTED = [
    "KeyError: 'no'",
    "2",
    "2",
    "3",
    "ConnectionError: cut (its outcome is unknown)",
    "BadArguments: there is no tool 'teleport'; there are: fails, plain, a_step, an_effect",
]
KEYS = {
    *("fails:c1", "plain:c2", "a_step:c3", "an_effect:c4", "an_effect:c5"),
    "unknown_tool:c6",
}


@flow(name="mt-blocking")
def blocking() -> list[dict[str, Any]]:
    return Tools([fails, plain, a_step, an_effect]).answer_chat(REPLY)


@flow(name="mt-awaiting")
async def awaiting() -> list[dict[str, Any]]:
    return await Tools([fails, plain, a_step, an_effect]).aio.answer_chat(REPLY)


@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_each_call_is_recorded_by_its_id_and_answered_in_order(colour: str) -> None:
    with holdfast.open("memory:") as store:
        if colour == "blocking":
            answers = blocking.run("r")
        else:
            answers = asyncio.run(awaiting.run("r"))
        assert [answer["content"] for answer in answers] == EXPECTED
        assert [answer["tool_call_id"] for answer in answers] == [f"c{n}" for n in range(1, 7)]
        assert {it.key.rpartition("/")[2] for it in store.get("r").steps} == KEYS


def test_results_in_the_shapes_of_the_other_protocols() -> None:
    box = Tools([fails, plain])
    response = {
        "output": [
            {"type": "reasoning"},
            {"type": "function_call", "call_id": "c1", "name": "plain", "arguments": '{"x": 1}'},
        ]
    }
    assert box.answer_responses(response) == [
        {"type": "function_call_output", "call_id": "c1", "output": "2"}
    ]
    message = {
        "content": [
            {"type": "text", "text": "let me see"},
            {"type": "tool_use", "id": "c1", "name": "plain", "input": {"x": 1}},
            {"type": "tool_use", "id": "c2", "name": "fails", "input": {"why": "no"}},
        ]
    }
    assert box.answer_messages(message) == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "2"},
            {
                "type": "tool_result",
                "tool_use_id": "c2",
                "content": "KeyError: 'no'",
                "is_error": True,
            },
        ],
    }
    assert asyncio.run(box.aio.answer_responses(response))[0]["output"] == "2"
    assert asyncio.run(Tools([awaited]).aio.run([ToolCall("c", "awaited", "{}")]))[0].is_error


together = threading.Barrier(2)


@tool
def meets(other: str) -> str:
    together.wait(timeout=20)
    return other


def test_calls_of_one_reply_are_made_at_the_same_time() -> None:
    calls = [ToolCall("a", "meets", {"other": "b"}), ToolCall("b", "meets", {"other": "a"})]
    assert [it.content for it in Tools([meets]).run(calls)] == ["b", "a"]


@tool(effect=True)
def mt_pay(amount: int) -> str:
    raise ConnectionError("the line broke")


@flow(name="mt-pays")
def pays() -> Any:
    return Tools([mt_pay, plain]).answer_chat(
        chat(("c1", "plain", {"x": 1}), ("c2", "mt_pay", {"amount": 3}))
    )


def test_an_effect_in_doubt_stops_the_run_and_is_no_result() -> None:
    with holdfast.open("memory:") as store:
        with pytest.raises(RunHeld, match="in_doubt"):
            pays.run("r")
        assert store.get("r").status == "held"


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="outside a run"):
        Tools([mt_pay]).run([ToolCall("c", "mt_pay", {"amount": 1})])
    with pytest.raises(UsageError, match="tools.aio"):
        Tools([awaited]).run([ToolCall("c", "awaited", {"x": 1})])
    with pytest.raises(UsageError, match="two tools have one name"):
        Tools([plain, plain])
    with pytest.raises(UsageError, match="give it its options there"):
        tool(on_doubt="fail")(an_effect)
    with pytest.raises(UsageError, match="by name"):

        @tool
        def stars(*args: int) -> None: ...

    with pytest.raises(UsageError, match="cannot give"):

        @tool
        def odd(thing: threading.Lock) -> None: ...

    with pytest.raises(UsageError, match="changes the world"):
        _ = plain.on_doubt
    with pytest.raises(UsageError, match="letters, digits"):
        tool(name="bad name")(make_client)


@pytest.mark.parametrize("call_id", ["", None])
def test_calls_without_an_id_are_known_by_their_place(call_id: Any) -> None:
    made: list[str] = []

    @tool(name="notes")
    def notes(text: str) -> str:
        made.append(text)
        return f"noted {text}"

    box = Tools([notes])

    def turn(*texts: str) -> list[str]:
        calls = [ToolCall(call_id, "notes", {"text": text}) for text in texts]
        assert [it.id for it in box.run(calls)] == [call_id] * len(texts)
        return [it.content for it in box.run(calls)]

    assert turn("out") == ["noted out"]

    @flow(name="mt-no-ids")
    def agent() -> list[str]:
        said = turn("a", "b") + turn("c")
        breaks()
        return said

    broken = [True]

    @step(name="mt-breaks")
    def breaks() -> None:
        if broken.pop():
            broken.append(False)
            raise RuntimeError("trouble")

    with holdfast.open("memory:") as store:
        with pytest.raises(RunFailed):
            agent.run("r")
        before = list(made)
        assert agent.run("r") == ["noted a", "noted b", "noted c"]
        assert made == before
        keys = {it.key for it in store.get("r").steps if it.name == "notes"}
        assert {"gather[0]/notes:call_1", "gather[1]/notes:call_2", "notes:call_1"} <= keys


HALF = "half \ud800"


@pytest.mark.parametrize("arguments", [HALF, {"text": HALF}, {HALF: [HALF]}])
@pytest.mark.parametrize("name", ["echoes", "nothing"])
def test_halves_of_characters_are_told_to_the_model(name: str, arguments: Any) -> None:
    @tool
    def echoes(text: str) -> str:
        return text

    @flow(name="mt-halves")
    def agent() -> bool:
        [result] = Tools([echoes]).run([ToolCall("call_a", name, arguments)])
        return result.is_error and result.content.startswith("BadArguments: ")

    with holdfast.open("memory:"):
        assert agent.run("r")


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(levels):
        inner = {"a": inner}
    return {"doc": inner}


ODD: dict[str, Any] = {
    "fits": nested(50),
    "deep": nested(90),
    "deeper": nested(300),
    "deepest": nested(900),
    "huge": {"doc": {"n": 10**400, "m": [2**70]}},
    "text": '{"doc": ' + '{"a": ' * 90 + "1" + "}" * 91,
    "huge text": '{"doc": {"n": 1' + "0" * 400 + "}}",
}


@pytest.mark.parametrize("name", ["saves", "nothing"])
@pytest.mark.parametrize("odd", list(ODD))
def test_arguments_that_cannot_be_kept_are_told_to_the_model(name: str, odd: str) -> None:
    @tool
    def saves(doc: dict[str, Any]) -> str:
        return "saved"

    @flow(name="mt-odd")
    def agent() -> str:
        [result] = Tools([saves]).run([ToolCall("call_a", name, ODD[odd])])
        return result.content

    with holdfast.open("memory:"):
        said = agent.run("r")
        assert said == agent.run("r")
    if odd == "fits" and name == "saves":
        assert said == "saved"
    elif "deep" in odd or odd == "text" or name == "nothing":
        assert said.startswith("BadArguments: ")
