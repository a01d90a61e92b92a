"""Conversations that a crash has cut anywhere: after `repair` every provider would take them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import holdfast
from holdfast import Done, flow
from holdfast.errors import RunHeld, UsageError
from holdfast.integrations.tools import ToolResult, Tools, tool
from holdfast.integrations.transcripts import OUTCOME_UNKNOWN, repair, results_of
from holdfast.testing.models.chat import Chat
from holdfast.testing.models.conversation import ModelTurn
from holdfast.testing.models.messages import Messages
from holdfast.testing.models.responses import Responses
from holdfast.types import Failed

# A turn: how many calls the model makes, which of them have results (some twice), what the user says.
turn = st.tuples(
    st.integers(0, 3), st.lists(st.integers(0, 5), max_size=6), st.booleans(), st.booleans()
)
conversations = st.lists(turn, min_size=1, max_size=6)


def chat(turns: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number, (calls, results, says, _) in enumerate(turns):
        called = [
            {"id": f"c{number}_{n}", "type": "function", "function": {"name": "f", "arguments": ""}}
            for n in range(calls)
        ]
        messages.append({"role": "assistant", "content": "x", "tool_calls": called or None})
        for n in results:
            messages.append(
                {"role": "tool", "tool_call_id": f"c{number}_{n}", "content": f"real {number}_{n}"}
            )
        if says:
            messages.append({"role": "user", "content": "and?"})
    return messages


def responses(turns: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number, (calls, results, says, reasons) in enumerate(turns):
        if reasons:
            items.append({"type": "reasoning", "id": f"r{number}", "summary": []})
        for n in range(calls):
            call_id = f"c{number}_{n}"
            items.append(
                {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}
            )
        for n in results:
            output = f"real {number}_{n}"
            items.append(
                {"type": "function_call_output", "call_id": f"c{number}_{n}", "output": output}
            )
        if says:
            items.append({"role": "user", "content": "and?"})
    return items


def blocks(turns: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number, (calls, results, says, late) in enumerate(turns):
        uses = [
            {"type": "tool_use", "id": f"c{number}_{n}", "name": "f", "input": {}}
            for n in range(calls)
        ]
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "x"}, *uses]})
        found = [
            {
                "type": "tool_result",
                "tool_use_id": f"c{number}_{n}",
                "content": f"real {number}_{n}",
            }
            for n in results
        ]
        said = [{"type": "text", "text": "and?"}] if says else []
        content = [*said, *found] if late else [*found, *said]
        if content:
            messages.append({"role": "user", "content": content})
        elif says:
            messages.append({"role": "user", "content": "and?"})
    return messages


FORMS: dict[str, Any] = {
    "openai-chat": (chat, Chat(), lambda it: {"model": "m", "messages": it}),
    "openai-responses": (responses, Responses(), lambda it: {"model": "m", "input": it}),
    "anthropic": (blocks, Messages(), lambda it: {"model": "m", "max_tokens": 9, "messages": it}),
}


def results_in(protocol: str, messages: list[dict[str, Any]]) -> dict[str, str]:
    """Call id -> what the model is told; a second result is an error."""
    found: dict[str, str] = {}
    for message in messages:
        if protocol == "openai-chat":
            pairs = [(message.get("tool_call_id"), message.get("content"))]
        elif protocol == "openai-responses":
            pairs = [(message.get("call_id"), message.get("output"))]
        else:
            content = message["content"] if isinstance(message["content"], list) else []
            pairs = [(block.get("tool_use_id"), block.get("content")) for block in content]
        for call_id, text in pairs:
            if call_id is not None and text is not None:
                assert call_id not in found
                found[call_id] = text
    return found


@pytest.mark.parametrize("protocol", list(FORMS))
@settings(max_examples=300, deadline=None)
@given(turns=conversations, cut=st.integers(1, 40), recorded=st.sets(st.integers(0, 2)))
def test_every_cut_conversation_is_valid_afterwards(
    protocol: Any, turns: Any, cut: int, recorded: set[int]
) -> None:
    write, reader, body = FORMS[protocol]
    messages = write(turns)[:cut]
    before = copy.deepcopy(messages)
    known = {f"c{t}_{n}": ToolResult(f"c{t}_{n}", "kept") for t in range(6) for n in recorded}
    mended = repair(messages, protocol=protocol, results=known)
    assert messages == before  # What is given is left alone.
    read: list[ModelTurn] = reader.read(body(mended), [])  # Refuses what a provider would refuse.
    there = results_in(protocol, mended)
    calls = [call for turn in read for call in turn.calls]
    assert set(there) == set(calls)
    real = _first_results(protocol, messages)
    for call_id, text in there.items():
        n = int(call_id.partition("_")[2])
        expected = real.get(call_id) or ("kept" if n in recorded else None)
        assert text == expected if expected else text.startswith(OUTCOME_UNKNOWN)
    assert repair(mended, protocol=protocol) == mended


def _first_results(protocol: str, messages: list[dict[str, Any]]) -> dict[str, str]:
    """Every result in the conversation says which call it is of."""
    numbers = {"openai-chat": "tool_call_id", "openai-responses": "call_id"}
    found: dict[str, str] = {}
    for message in messages:
        if protocol == "anthropic":
            content = message["content"] if isinstance(message["content"], list) else []
            ids = [block.get("tool_use_id") for block in content]
        else:
            name = numbers[protocol]
            is_result = message.get("role") == "tool" or "output" in message
            ids = [message.get(name) if is_result else None]
        for call_id in ids:
            if call_id:
                found[call_id] = f"real {call_id[1:]}"
    return found


# A turn of a whole conversation: ids of its calls (used again, too), the order of their results, what
# the model says before a call and behind them, and what the user says.
whole_turn = st.tuples(
    st.lists(st.sampled_from(["a", "b", "a#2", "call_0"]), max_size=4),
    st.randoms(use_true_random=False),
    st.sampled_from(["", "thinks", "speaks"]),
    st.sampled_from(["", "before", "behind"]),
)
whole = st.lists(whole_turn, min_size=1, max_size=6)


def whole_chat(turns: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for number, (ids, order, says, user) in enumerate(turns):
        called = [
            {"id": it, "type": "function", "function": {"name": "f", "arguments": ""}} for it in ids
        ]
        messages.append({"role": "assistant", "content": says, "tool_calls": called or None})
        results = [{"role": "tool", "tool_call_id": it, "content": f"{it} {number}"} for it in ids]
        messages += order.sample(results, len(results))
        if user:
            messages.append({"role": "user", "content": "and?"})
    return messages


def whole_responses(turns: Any) -> list[dict[str, Any]]:
    """Calls one after the other are turns of their own: nobody says anything in between."""
    items: list[dict[str, Any]] = []
    for number, (ids, order, says, user) in enumerate(turns):
        for it in ids:
            if says == "thinks":
                items.append({"type": "reasoning", "id": f"r{number}", "summary": []})
            items.append({"type": "function_call", "call_id": it, "name": "f", "arguments": "{}"})
        if says == "speaks":
            items.append({"type": "message", "role": "assistant", "content": "hm"})
        said = [{"role": "user", "content": "and?"}] if user else []
        results = [
            {"type": "function_call_output", "call_id": it, "output": f"{it} {number}"}
            for it in ids
        ]
        results = order.sample(results, len(results))
        items += [*said, *results] if user == "before" else [*results, *said]
    return items


def whole_blocks(turns: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for number, (ids, order, says, user) in enumerate(turns):
        uses = [{"type": "tool_use", "id": it, "name": "f", "input": {}} for it in ids]
        text = [{"type": "text", "text": says}] if says else []
        messages.append({"role": "assistant", "content": [*text, *uses]})
        results = [
            {"type": "tool_result", "tool_use_id": it, "content": f"{it} {number}"} for it in ids
        ]
        said = [{"type": "text", "text": "and?"}] if user == "before" else []
        if results or said:
            content = [*order.sample(results, len(results)), *said]
            messages.append({"role": "user", "content": content})
        if user == "behind":
            messages.append({"role": "user", "content": "and?"})
    return messages


WHOLE: dict[str, Any] = {
    "openai-chat": whole_chat,
    "openai-responses": whole_responses,
    "anthropic": whole_blocks,
}


@pytest.mark.parametrize("protocol", list(WHOLE))
@settings(max_examples=300, deadline=None)
@given(turns=whole)
def test_a_valid_conversation_stays_as_it_is(protocol: Any, turns: Any) -> None:
    messages = WHOLE[protocol](turns)
    known: dict[str, ToolResult | str] = {
        "a": "other",
        "a#2": ToolResult("a", "other"),
        "call_0": "other",
    }
    assert repair(messages, protocol=protocol, results=known) == messages


@pytest.mark.parametrize("protocol", list(WHOLE))
@settings(max_examples=500, deadline=None)
@given(turns=whole, chance=st.randoms(use_true_random=False))
def test_what_was_repaired_stays_as_it_is(protocol: Any, turns: Any, chance: Any) -> None:
    messages = WHOLE[protocol](turns)
    lost = [it for it in messages if chance.random() < 0.7]
    moved = chance.sample(lost, len(lost)) if chance.random() < 0.5 else lost
    repeated = [again for it in moved for again in [it] * chance.choice([1, 1, 2])]
    known: dict[str, ToolResult | str]
    known = {"a": "known", "a#2": ToolResult("a", "known, too"), "b#3": "third"}
    mended = repair(repeated, protocol=protocol, results=known)
    assert repair(mended, protocol=protocol, results=known) == mended
    assert repair(mended, protocol=protocol) == mended


def item(kind: str, call_id: str) -> dict[str, Any]:
    if kind == "call":
        return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}
    return {"type": "function_call_output", "call_id": call_id, "output": kind}


def test_calls_one_after_the_other_stay_so_and_only_what_is_missing_is_put_in() -> None:
    first = [item("call", "c"), item("1", "c"), item("call", "c"), item("2", "c")]
    last = [item("call", "c"), item("call", "d"), item("4", "d")]
    said = {"role": "user", "content": "and?"}
    mended = repair([*first, *last, said], protocol="openai-responses", results={"c#3": "3"})
    assert mended == [*first, *last, item("3", "c"), said]


def test_a_result_behind_the_models_next_words_is_put_where_it_belongs() -> None:
    calls = [item("call", "c"), item("call", "d"), item("1", "c"), item("call", "e")]
    mended = repair([*calls, item("2", "d"), item("3", "e")], protocol="openai-responses")
    assert mended == [*calls[:3], item("2", "d"), calls[3], item("3", "e")]


def test_ids_that_a_provider_uses_again_are_told_apart() -> None:
    def turn(result: str | None) -> list[dict[str, Any]]:
        call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        answer = {"role": "tool", "tool_call_id": "call_1", "content": result}
        return [{"role": "assistant", "tool_calls": [call]}, *([answer] if result else [])]

    mended = repair([*turn("first"), *turn(None), *turn("third")], protocol="openai-chat")
    texts = [message["content"] for message in mended if message["role"] == "tool"]
    assert texts[0] == "first"
    assert texts[1].startswith(OUTCOME_UNKNOWN)
    assert texts[2] == "third"


def test_a_custom_tool_call_is_answered_in_its_own_kind() -> None:
    call = {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}
    answer = repair([call], protocol="openai-responses")[1]
    assert (answer["type"], answer["call_id"]) == ("custom_tool_call_output", "c")


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(UsageError, match="openai-chat"):
        repair([], protocol="smtp")  # type: ignore[arg-type]


@tool
def look(order: str) -> dict[str, str]:
    return {"order": order}


@tool
def fails(order: str) -> str:
    raise KeyError(order)


@tool(effect=True)
def ts_pay(order: str) -> str:
    raise ConnectionError("the line broke")


CALLS = {
    "tool_calls": [
        {"id": "call/1", "function": {"name": "look", "arguments": '{"order": "7"}'}},
        {"id": "call_2", "function": {"name": "fails", "arguments": '{"order": "7"}'}},
        {"id": "call_3", "function": {"name": "ts_pay", "arguments": '{"order": "7"}'}},
    ]
}


@flow(name="ts-held")
def held() -> Any:
    return Tools([look, fails, ts_pay]).answer_chat(CALLS)


def test_what_the_journal_of_a_held_run_knows() -> None:
    with holdfast.open("memory:") as store:
        with pytest.raises(RunHeld):
            held.run("r-1")
        known = results_of(store, "r-1")
        assert known["call/1"].content == '{"order":"7"}'
        assert known["call_2"] == ToolResult("call_2", "KeyError: '7'", is_error=True)
        assert known["call_3"].content.startswith(OUTCOME_UNKNOWN)
        assert "ts_pay" in known["call_3"].content

        key = next(step.key for step in store.get("r-1").steps if step.name == "ts_pay")
        store.settle("r-1", key, Done("paid"), actor="ana")
        assert results_of(store, "r-1")["call_3"] == ToolResult("call_3", "paid")


def test_an_effect_that_a_person_gave_up() -> None:
    with holdfast.open("memory:") as store:
        with pytest.raises(RunHeld):
            held.run("r-2")
        key = next(step.key for step in store.get("r-2").steps if step.name == "ts_pay")
        store.settle("r-2", key, Failed("nobody knows"), actor="ana")
        assert "nobody knows" in results_of(store, "r-2")["call_3"].content


PAID: list[int] = []


@tool(effect=True)
def ts_give(amount: int) -> str:
    if amount < 0:
        raise ConnectionError("the line broke")
    PAID.append(amount)
    return f"gave {amount}"


def asks(*amounts: int) -> dict[str, Any]:
    """A reply of a provider that counts its calls anew in each."""
    return {
        "role": "assistant",
        "tool_calls": [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": "ts_give", "arguments": f'{{"amount": {amount}}}'},
            }
            for number, amount in enumerate(amounts)
        ],
    }


TURNS = [asks(1, 2), asks(3), asks(4, 5), asks(6), asks(-1)]


@flow(name="ts-gives")
def gives() -> None:
    tools = Tools([ts_give])
    for turn in TURNS:
        tools.answer_chat(turn)


def test_ids_used_again_get_the_results_of_their_own_turns() -> None:
    with holdfast.open("memory:") as store:
        with pytest.raises(RunHeld):
            gives.run("r-3")
        known = results_of(store, "r-3")
    assert list(known) == [
        *("call_0", "call_1", "call_0#2", "call_0#3", "call_1#2", "call_0#4", "call_0#5")
    ]
    mended = repair([*TURNS, asks(7)], protocol="openai-chat", results=known)
    told = [line["content"] for line in mended if line["role"] == "tool"]
    assert told[:6] == [f"gave {amount}" for amount in (1, 2, 3, 4, 5, 6)]
    assert "ts_give was begun" in told[6]
    assert told[7].startswith(OUTCOME_UNKNOWN)
    assert "ts_give was begun" not in told[7]
    blocks = [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": it["id"]} for it in turn["tool_calls"]],
        }
        for turn in TURNS
    ]
    answers = repair(blocks, protocol="anthropic", results=known)[1::2]
    assert [it["content"] for each in answers for it in each["content"]] == told[:7]


def test_an_id_that_looks_like_a_second_call_gets_no_result_of_another() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": ""}}
    line = {"role": "assistant", "tool_calls": [call | {"id": "a#2"}]}
    results = {"a": ToolResult("a", "one"), "a#2": ToolResult("a", "two")}
    mended = repair([line], protocol="openai-chat", results=results)
    assert mended[1]["content"].startswith(OUTCOME_UNKNOWN)


def test_requests_of_the_http_transport_are_no_tool_calls() -> None:
    @flow
    def asks_a_model() -> None:
        def send(method: str, url: str, digest: str) -> str:
            return f"hello {method} {url} {digest}"

        for key in ("POST api.test.v1.chat", "a-line-of-its-own"):
            with holdfast.adapters.step_key(key):
                holdfast.adapters.as_step(send, name="http")("POST", "u", "d")
                holdfast.adapters.as_effect(send, name="http")("POST", "u", "d")
        with holdfast.adapters.step_key("call_1"):
            holdfast.adapters.as_step(lambda url: f"found {url}", name="http")("u")

    with holdfast.open("memory:") as store:
        asks_a_model.run("r-4")
        assert results_of(store, "r-4") == {"call_1": ToolResult("call_1", "found u")}
