"""The scripted model server: every protocol over real HTTP, what it refuses, and faults on request."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter

import httpx
import pytest

from holdfast import testing
from holdfast.errors import UsageError
from holdfast.testing import CallTools, FakeModelServer, Say
from holdfast.testing.models.script import script_from_json

OPENAI = {"authorization": "Bearer key"}
ANTHROPIC = {"x-api-key": "key", "anthropic-version": "2023-06-01"}
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
PROTOCOLS = list(PATHS)
CALLS = (("lookup", {"order": "42"}, "call_a"), ("refund", {"amount": 30}, "call_b"))
SCRIPT = [CallTools(*CALLS, say="Let me look."), Say("Refunded thirty now.")]
# Many servers, one client: making one takes longer than a request.
CLIENT = httpx.Client(timeout=30, verify=False, limits=httpx.Limits(max_keepalive_connections=0))
HELLO = {"role": "user", "content": "Refund order 42"}


@pytest.fixture
def server():
    with FakeModelServer(SCRIPT) as server:
        yield server


def ask(server, protocol, conversation=(HELLO,), *, headers=None, **more):
    """One request; the conversation is a list of messages or items."""
    given = "input" if protocol == "responses" else "messages"
    body = {"model": "test-model", given: list(conversation), **more}
    if protocol == "messages":
        body.setdefault("max_tokens", 100)
    if headers is None:
        headers = ANTHROPIC if protocol == "messages" else OPENAI
    return CLIENT.post(server.url + PATHS[protocol], headers=headers, json=body)


def chat_call(*ids):
    calls = [
        {"id": i, "type": "function", "function": {"name": "t", "arguments": "{}"}} for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chat_result(call_id):
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


def message_call(*ids):
    uses = [{"type": "tool_use", "id": i, "name": "t", "input": {}} for i in ids]
    return {"role": "assistant", "content": uses}


def message_results(*ids):
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": i, "content": "ok"} for i in ids],
    }


def item_call(call_id):
    return {"type": "function_call", "call_id": call_id, "name": "t", "arguments": "{}"}


def item_result(call_id):
    return {"type": "function_call_output", "call_id": call_id, "output": "ok"}


def answered(protocol, first):
    """The conversation after the first answer, with a result for each call."""
    if protocol == "chat":
        message = first["choices"][0]["message"]
        return [HELLO, message, *(chat_result(call["id"]) for call in message["tool_calls"])]
    if protocol == "messages":
        reply = {"role": "assistant", "content": first["content"]}
        return [HELLO, reply, message_results("call_a", "call_b")]
    return [HELLO, *first["output"], item_result("call_a"), item_result("call_b")]


def text_and_calls(protocol, answer):
    """What the model said, and its calls as (name, arguments, id)."""
    if protocol == "chat":
        message = answer["choices"][0]["message"]
        calls = message.get("tool_calls", [])
        return message["content"], [
            (call["function"]["name"], json.loads(call["function"]["arguments"]), call["id"])
            for call in calls
        ]
    if protocol == "messages":
        blocks = answer["content"]
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        uses = [block for block in blocks if block["type"] == "tool_use"]
        return text, [(use["name"], use["input"], use["id"]) for use in uses]
    parts = [part for item in answer["output"] for part in item.get("content", [])]
    called = [item for item in answer["output"] if item["type"] == "function_call"]
    return "".join(part["text"] for part in parts), [
        (item["name"], json.loads(item["arguments"]), item["call_id"]) for item in called
    ]


def events(text):
    """The events of a stream: (name, data)."""
    found = []
    for block in text.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        data = fields["data"]
        found.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return found


def test_it_is_exported_where_users_look_for_it():
    assert testing.FakeModelServer is FakeModelServer
    assert {"FakeModelServer", "Say", "CallTools"} <= set(testing.__all__)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_conversation_decides_which_turn_answers(server, protocol):
    first = ask(server, protocol).json()
    assert text_and_calls(protocol, first) == ("Let me look.", list(CALLS))
    second = ask(server, protocol, answered(protocol, first))
    assert second.status_code == 200, second.text
    assert text_and_calls(protocol, second.json()) == ("Refunded thirty now.", [])
    again = ask(server, protocol).json()
    assert again == first
    assert [request.turn for request in server.requests] == [0, 1, 0]
    assert server.problems == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_equal_requests_get_equal_bytes(server, protocol):
    for stream in (False, True):
        one, two = (ask(server, protocol, stream=stream) for _ in range(2))
        assert (one.content, one.headers) == (two.content, two.headers)
        assert not {"date", "server"} & set(one.headers)
    other = ask(server, protocol, [{"role": "user", "content": "Another order"}]).json()
    assert other["id"] != ask(server, protocol).json()["id"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_asked_is_noted(server, protocol):
    ask(server, protocol, stream=True)
    (request,) = server.requests
    assert (request.protocol, request.path, request.turn) == (protocol, PATHS[protocol], 0)
    assert request.stream is True
    assert request.body["model"] == "test-model"
    assert request.headers["content-type"] == "application/json"
    assert request.at > 0
    assert server.count == 1
    assert server.counts == Counter({protocol: 1})


def test_what_two_requests_have_in_common_is_kept_once(server):
    first = ask(server, "messages").json()
    ask(server, "messages", answered("messages", first))
    one, two = (request.body["messages"] for request in server.requests)
    assert one[0] is two[0]
    assert two == answered("messages", first)


def test_every_answer_has_a_usage_in_the_shape_of_its_provider(server):
    chat = ask(server, "chat").json()["usage"]
    assert chat["total_tokens"] == chat["prompt_tokens"] + chat["completion_tokens"] > 2
    for protocol in ("responses", "messages"):
        usage = ask(server, protocol).json()["usage"]
        assert usage["input_tokens"] > 1
        assert usage["output_tokens"] > 1


def test_a_call_without_an_id_gets_one_of_its_place():
    with FakeModelServer([CallTools(("a", {}), ("b", {}))]) as server:
        _, calls = text_and_calls("chat", ask(server, "chat").json())
    assert calls == [("a", {}, "call_0_0"), ("b", {}, "call_0_1")]


def test_a_turn_may_be_a_function_of_the_request():
    def by_model(request):
        return Say(f"I am {request.body['model']} in turn {request.turn}")

    with FakeModelServer([by_model]) as server:
        answer = ask(server, "messages", model="small").json()
    assert text_and_calls("messages", answer)[0] == "I am small in turn 0"


def test_a_function_that_raises_is_a_problem_of_the_test():
    def broken(request):
        raise ZeroDivisionError

    with FakeModelServer([broken]) as server:
        assert ask(server, "chat").status_code == 500
        assert "turn 0 of the script raised ZeroDivisionError" in server.problems[0]


CUT = {
    "chat": lambda answer: answer["choices"][0]["finish_reason"] == "length",
    "responses": lambda answer: answer["incomplete_details"] == {"reason": "max_output_tokens"},
    "messages": lambda answer: answer["stop_reason"] == "max_tokens",
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_may_be_cut_at_its_limit(protocol):
    with FakeModelServer([Say("Refunded thir", end="incomplete")]) as server:
        answer = ask(server, protocol).json()
    assert text_and_calls(protocol, answer)[0] == "Refunded thir"
    assert CUT[protocol](answer)


@pytest.mark.parametrize("end", ["incomplete", "failed"])
def test_responses_end_their_stream_as_they_ended(end):
    with FakeModelServer([Say("Refunded thir", end=end)]) as server:
        last = events(ask(server, "responses", stream=True).text)[-1]
        assert last[0] == f"response.{end}"
        assert last[1]["response"] == ask(server, "responses").json()
        assert last[1]["response"]["status"] == end
        assert bool(last[1]["response"]["error"]) == (end == "failed")


@pytest.mark.parametrize("protocol", ["chat", "messages"])
def test_an_answer_that_failed_is_one_of_responses_only(protocol):
    with FakeModelServer([Say("Refunded thir", end="failed")]) as server:
        assert ask(server, protocol).status_code == 500
        assert "fail_next" in server.problems[0]


# --- streams --------------------------------------------------------------------------------------


def test_chat_streams_chunks(server):
    streamed = ask(server, "chat", stream=True)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    chunks = [data for _, data in events(streamed.text)]
    assert chunks.pop() == "[DONE]"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    texts = [delta["content"] for delta in deltas if delta.get("content")]
    assert texts == ["Let ", "me ", "look."]
    pieces = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert [piece["id"] for piece in pieces if "id" in piece] == ["call_a", "call_b"]
    for index, (_, arguments, _) in enumerate(CALLS):
        written = [piece["function"]["arguments"] for piece in pieces if piece["index"] == index]
        assert len([piece for piece in written if piece]) >= 2
        assert json.loads("".join(written)) == arguments
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert all("usage" not in chunk for chunk in chunks)
    assert chunks[0]["id"] == ask(server, "chat").json()["id"]


def test_chat_streams_the_usage_if_asked(server):
    streamed = ask(server, "chat", stream=True, stream_options={"include_usage": True})
    chunks = [data for _, data in events(streamed.text)][:-1]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == ask(server, "chat").json()["usage"]


def test_responses_stream_events(server):
    streamed = events(ask(server, "responses", stream=True).text)
    names, data = [name for name, _ in streamed], [data for _, data in streamed]
    assert names == [one["type"] for one in data]
    assert [one["sequence_number"] for one in data] == list(range(len(data)))
    assert (names[0], names[-1]) == ("response.created", "response.completed")
    assert data[-1]["response"] == ask(server, "responses").json()
    texts = [one["delta"] for one in data if one["type"] == "response.output_text.delta"]
    assert texts == ["Let ", "me ", "look."]
    for index, (_, arguments, _) in enumerate(CALLS, 1):
        kind = "response.function_call_arguments.delta"
        pieces = [o["delta"] for o in data if o["type"] == kind and o["output_index"] == index]
        assert len(pieces) >= 2
        assert json.loads("".join(pieces)) == arguments
    for part in ("output_item.added", "output_item.done"):
        assert names.count(f"response.{part}") == 3
    assert names.count("response.content_part.added") == 1
    assert names.count("response.function_call_arguments.done") == 2


def test_messages_stream_events(server):
    streamed = events(ask(server, "messages", stream=True).text)
    names, data = [name for name, _ in streamed], [data for _, data in streamed]
    assert names == [one["type"] for one in data]
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    whole = ask(server, "messages").json()
    assert data[0]["message"]["id"] == whole["id"]
    assert data[-2]["delta"]["stop_reason"] == whole["stop_reason"] == "tool_use"
    assert data[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    deltas = [one for one in data if one["type"] == "content_block_delta"]
    assert [d["delta"]["text"] for d in deltas if d["index"] == 0] == ["Let ", "me ", "look."]
    for index, (_, arguments, _) in enumerate(CALLS, 1):
        pieces = [d["delta"]["partial_json"] for d in deltas if d["index"] == index]
        assert len([piece for piece in pieces if piece]) >= 2
        assert json.loads("".join(pieces)) == arguments


def test_a_single_word_comes_in_two_pieces():
    with FakeModelServer([Say("Refunded.")]) as server:
        streamed = events(ask(server, "messages", stream=True).text)
    pieces = [data["delta"]["text"] for name, data in streamed if name == "content_block_delta"]
    assert len(pieces) == 2
    assert "".join(pieces) == "Refunded."


# --- conversations that the server keeps ------------------------------------------------------------


def test_a_response_goes_on_from_another(server):
    first = ask(server, "responses").json()
    results = [item_result("call_a"), item_result("call_b")]
    second = ask(server, "responses", results, previous_response_id=first["id"])
    assert text_and_calls("responses", second.json())[0] == "Refunded thirty now."
    assert server.problems == []
    short = ask(server, "responses", results[:1], previous_response_id=first["id"])
    assert "call_b" in short.json()["error"]["message"]
    lost = ask(server, "responses", results, previous_response_id="resp_unknown")
    assert lost.json()["error"]["code"] == "previous_response_not_found"
    unkept = ask(server, "responses", [{"role": "user", "content": "Forget it"}], store=False)
    after = ask(server, "responses", results, previous_response_id=unkept.json()["id"])
    assert after.status_code == 400


def test_a_thread_goes_on_from_its_last_message(server):
    first = ask(server, "messages", thread={"type": "create"}).json()
    going_on = {"type": "continue", "previous_message_id": first["id"]}
    results = [message_results("call_a", "call_b")]
    second = ask(server, "messages", results, thread=going_on)
    assert text_and_calls("messages", second.json())[0] == "Refunded thirty now."
    again = ask(server, "messages", results, thread=going_on)
    assert again.content == second.content
    assert server.problems == []
    assert ask(server, "messages", results, thread=going_on, tools=[]).status_code == 400
    nothing = ask(server, "messages", [HELLO], thread=going_on)
    assert "call_a, call_b" in nothing.json()["error"]["message"]


def test_a_thread_that_is_not_known_is_refused_so_that_the_sdk_mends_it(server):
    unkept = ask(server, "messages").json()["id"]
    for unknown in ("msg_unknown", unkept):
        going_on = {"type": "continue", "previous_message_id": unknown}
        lost = ask(server, "messages", [message_results("call_a")], thread=going_on)
        assert lost.json()["error"]["details"] == {"error_code": "thread_not_found"}


def test_a_thread_can_be_continued_once_only_on_request():
    results = [message_results("call_a", "call_b")]
    with FakeModelServer(SCRIPT, continue_once=True) as server:
        first = ask(server, "messages", thread={"type": "create"}).json()
        going_on = {"type": "continue", "previous_message_id": first["id"]}
        assert ask(server, "messages", results, thread=going_on).status_code == 200
        again = ask(server, "messages", results, thread=going_on)
        assert again.json()["error"]["details"] == {"error_code": "thread_already_continued"}


def test_items_of_one_answer_are_one_turn_in_any_order():
    """Some clients send each call with its result behind it."""
    with FakeModelServer([*SCRIPT, Say("Third.")]) as server:
        said, one, two = ask(server, "responses").json()["output"]
        mixed = [HELLO, said, one, item_result("call_a"), two, item_result("call_b")]
        answer = ask(server, "responses", mixed)
        assert text_and_calls("responses", answer.json())[0] == "Refunded thirty now."
        # Two answers that follow each other directly are two turns.
        third = ask(server, "responses", [*mixed, *answer.json()["output"]])
        assert text_and_calls("responses", third.json())[0] == "Third."
        unmarked = ask(
            server,
            "responses",
            [HELLO, item_call("x"), item_call("y"), item_result("y"), item_result("x")],
        )
        assert text_and_calls("responses", unmarked.json())[0] == "Refunded thirty now."
        assert server.problems == []


# --- what providers refuse ------------------------------------------------------------------------

INVALID = {
    "chat": {
        "no result": [HELLO, chat_call("a", "b"), chat_result("a")],
        "no result before the next message": [HELLO, chat_call("a"), HELLO, chat_result("a")],
        "two results": [HELLO, chat_call("a"), chat_result("a"), chat_result("a")],
        "no call": [HELLO, chat_result("a")],
        "another call": [HELLO, chat_call("a"), chat_result("a"), chat_result("b")],
        "a result later": [HELLO, chat_call("a"), chat_result("a"), HELLO, chat_result("a")],
        "no messages": [],
        "no shape": ["hello"],
    },
    "responses": {
        "no result": [HELLO, item_call("a"), item_call("b"), item_result("a")],
        "no result before the next turn": [
            HELLO,
            item_call("a"),
            HELLO,
            {"role": "assistant", "content": "So?"},
            item_result("a"),
        ],
        "two results": [HELLO, item_call("a"), item_result("a"), item_result("a")],
        "no call": [HELLO, item_result("a")],
        "two calls": [HELLO, item_call("a"), item_call("a"), item_result("a")],
        "a reference": [HELLO, {"type": "item_reference", "id": "fc_1"}],
        "no input": [],
    },
    "messages": {
        "no result": [HELLO, message_call("a", "b"), message_results("a")],
        "no message": [HELLO, message_call("a")],
        "a message between": [HELLO, message_call("a"), HELLO, message_results("a")],
        "two results": [HELLO, message_call("a"), message_results("a", "a")],
        "no call": [message_results("a")],
        "another call": [HELLO, message_call("a"), message_results("a", "b")],
        "the same id again": [
            HELLO,
            message_call("a"),
            message_results("a"),
            message_call("a"),
            message_results("a"),
        ],
        "text before a result": [
            HELLO,
            message_call("a"),
            {
                "role": "user",
                "content": [{"type": "text", "text": "so"}, *message_results("a")["content"]],
            },
        ],
        "no messages": [],
    },
}


@pytest.mark.parametrize(
    ("protocol", "what"), [(protocol, what) for protocol in INVALID for what in INVALID[protocol]]
)
def test_an_invalid_conversation_is_refused(protocol, what):
    with FakeModelServer([Say("never")] * 5) as server:
        refused = ask(server, protocol, INVALID[protocol][what])
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert server.problems == [f"request 1 ({protocol}): {error['message']}"]
        assert server.requests[0].turn == -1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_request_without_a_key_is_refused(server, protocol):
    refused = ask(server, protocol, headers={"x-nothing": "x"})
    assert refused.status_code == 401
    error = refused.json()["error"]
    if protocol == "messages":
        assert refused.json()["type"] == "error"
        assert error["type"] == "authentication_error"
    else:
        assert error["code"] == "invalid_api_key"
    assert len(server.problems) == 1


def test_messages_need_a_version_and_a_limit(server):
    assert "version" in ask(server, "messages", headers={"x-api-key": "k"}).text
    assert "max_tokens" in ask(server, "messages", max_tokens=None).text
    assert len(server.problems) == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_said_beyond_the_script(protocol):
    with FakeModelServer([Say("One.")]) as server:
        conversation = [HELLO, {"role": "assistant", "content": "One."}, HELLO]
        refused = ask(server, protocol, conversation)
        assert refused.status_code == 400
        assert "the script has 1 turns" in refused.json()["error"]["message"]
        assert len(server.problems) == 1


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff"])
def test_what_is_no_json_object_is_refused(server, raw):
    url = server.url + PATHS["chat"]
    refused = CLIENT.post(url, headers=OPENAI, content=raw)
    assert refused.status_code == 400
    assert server.count == 1
    assert len(server.problems) == 1


def test_a_body_may_come_in_chunks(server):
    body = json.dumps({"model": "m", "messages": [HELLO]}).encode()
    parts = iter([body[:9], body[9:]])
    sent = CLIENT.post(server.url + PATHS["chat"], headers=OPENAI, content=parts)
    assert sent.json()["object"] == "chat.completion"


def test_an_unknown_address_is_none(server):
    for headers, kind in ((OPENAI, "invalid_request_error"), (ANTHROPIC, "not_found_error")):
        missing = CLIENT.post(f"{server.url}/v1/embeddings", headers=headers, json={})
        assert missing.status_code == 404
        assert missing.json()["error"]["type"] == kind
    assert server.count == 0
    assert server.problems == ["there is no POST /v1/embeddings"] * 2


def test_models_are_listed(server):
    url = f"{server.url}/v1/models"
    assert CLIENT.get(url, headers=OPENAI).json()["data"][0]["object"] == "model"
    assert CLIENT.get(url, headers=ANTHROPIC).json()["data"][0]["type"] == "model"
    assert server.problems == []
    assert CLIENT.get(url).status_code == 401


# --- faults ---------------------------------------------------------------------------------------


def test_the_next_requests_fail(server):
    server.fail_next(status=529, times=2, retry_after=0.5)
    kinds = []
    for protocol in ("messages", "chat", "messages"):
        reply = ask(server, protocol)
        kinds.append((reply.status_code, reply.headers.get("retry-after")))
        if protocol == "messages" and reply.status_code != 200:
            assert reply.json()["error"]["type"] == "overloaded_error"
    assert kinds == [(529, "0.5"), (529, "0.5"), (200, None)]
    assert server.count == 3
    assert server.problems == []


@pytest.mark.parametrize(("status", "kind"), [(429, "rate_limit_error"), (500, "api_error")])
def test_a_failure_has_the_shape_of_the_provider(server, status, kind):
    server.fail_next(status)
    failed = ask(server, "messages")
    assert (failed.status_code, failed.json()["error"]["type"]) == (status, kind)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("after", [0, 3])
def test_a_stream_is_cut(server, protocol, after):
    whole = ask(server, protocol, stream=True).text
    server.cut_stream(after_events=after)
    got = ""
    with (
        pytest.raises(httpx.RemoteProtocolError),
        CLIENT.stream(
            "POST",
            server.url + PATHS[protocol],
            headers=OPENAI | ANTHROPIC,
            json=server.requests[0].body,
        ) as cut,
    ):
        for piece in cut.iter_text():
            got += piece
    assert whole.startswith(got)
    assert len(events(got)) == after
    assert ask(server, protocol, stream=True).text == whole


def test_held_requests_are_counted_and_wait(server):
    server.hold()
    replies = []
    asking = threading.Thread(target=lambda: replies.append(ask(server, "chat")))
    asking.start()
    server.until(1)
    assert server.count == 1
    assert replies == []
    server.let_go()
    asking.join(30)
    assert [reply.status_code for reply in replies] == [200]


def test_closing_hangs_up_on_those_who_wait():
    errors = []

    def waiting(server):
        try:
            ask(server, "chat")
        except httpx.TransportError as error:
            errors.append(error)

    with FakeModelServer(SCRIPT) as server:
        server.hold()
        asking = threading.Thread(target=waiting, args=(server,))
        asking.start()
        server.until(1)
    asking.join(30)
    assert len(errors) == 1


def test_a_client_that_goes_away_disturbs_nobody(capfd):
    body = json.dumps({"model": "m", "messages": [HELLO], "stream": True}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n"
    with FakeModelServer(SCRIPT) as server:
        server.hold()
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        with socket.create_connection(address) as gone:
            gone.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            server.until(1)
            # Closed without a farewell, as by a kernel whose process was killed.
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.let_go()
        assert ask(server, "chat").status_code == 200
    assert capfd.readouterr().err == ""


CUT_BODIES = {
    "length": "Content-Length: 900\r\n\r\n{",
    "chunk": "Transfer-Encoding: chunked\r\n\r\nff\r\n{",
    "chunk without its end": "Transfer-Encoding: chunked\r\n\r\n2\r\n{}",
    "size of a chunk": "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n1",
    "no last chunk": "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
}


@pytest.mark.parametrize("cut", CUT_BODIES.values(), ids=CUT_BODIES)
def test_a_request_whose_client_died_while_it_sent_is_none(server, capfd, cut):
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    with socket.create_connection(address) as gone:
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n"
        gone.sendall((head + cut).encode())
    server.until_disconnected()
    assert (server.count, server.problems) == (0, [])
    assert ask(server, "chat").status_code == 200
    assert capfd.readouterr().err == ""


def test_what_a_client_sent_before_it_died_is_counted(server):
    body = json.dumps({"model": "m", "messages": [HELLO]}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n"
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    for number in range(1, 21):
        with socket.create_connection(address) as gone:
            gone.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        server.until_disconnected()
        assert server.count == number


def test_pauses_stand_before_each_event(monkeypatch):
    waits = []
    wait = threading.Event.wait

    def noting(event, timeout=None):
        waits.append(timeout)
        return wait(event, timeout)

    with FakeModelServer([Say("one two", pause=0.0123)]) as server:
        monkeypatch.setattr(threading.Event, "wait", noting)
        ask(server, "chat", stream=True)
    assert waits.count(0.0123) == 5


def test_a_connection_serves_many_requests(server):
    with httpx.Client(base_url=server.url, headers=OPENAI) as client:
        body = {"model": "m", "input": "hello"}
        ports = set()
        for stream in (False, True, False):
            reply = client.post("/v1/responses", json={**body, "stream": stream})
            ports.add(reply.extensions["network_stream"].get_extra_info("client_addr"))
    assert len(ports) == 1


def test_waiting_in_vain_says_what_is_the_case(server):
    with pytest.raises(TimeoutError, match=r"0 requests were received in 0.01 s, not 1"):
        server.until(1, timeout_s=0.01)


def test_it_listens_only_while_it_is_open():
    server = FakeModelServer(SCRIPT)
    with pytest.raises(UsageError, match="not running"):
        _ = server.url
    with server:
        url = server.url
        assert url.startswith("http://127.0.0.1:")
    with pytest.raises(httpx.ConnectError):
        CLIENT.get(url)


# --- as a process of its own ----------------------------------------------------------------------


def test_a_script_is_read_from_json():
    text = json.dumps(
        [
            {"call": [["lookup", {"order": "42"}, "call_a"], ["stock", {}]], "say": "Well."},
            {"say": "Slowly.", "pause": 0.5},
            "Done.",
        ]
    )
    assert script_from_json(text) == [
        CallTools(("lookup", {"order": "42"}, "call_a"), ("stock", {}), say="Well."),
        Say("Slowly.", pause=0.5),
        Say("Done."),
    ]


@pytest.mark.parametrize(
    "text", ["{", "{}", "[1]", '[{"say": 1}]', '[{"call": []}]', '[{"call": ["x"]}]', '[{"x": 1}]']
)
def test_a_script_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="script"):
        script_from_json(text)


def test_call_tools_needs_a_call():
    with pytest.raises(UsageError, match="needs a call"):
        CallTools()


def test_it_runs_as_a_process_of_its_own(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"call": [["lookup", {}, "call_a"]]}, "Done."]))
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast.testing.models", str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("2 turns at http://127.0.0.1:")
            url = line.split()[-1]
            asked = {"model": "m", "input": "hello"}
            answer = CLIENT.post(f"{url}/v1/responses", headers=OPENAI, json=asked).json()
            assert answer["output"][0]["name"] == "lookup"
            assert process.stdout.readline() == "1 responses turn 0\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.read() == "1 requests, 0 problems\n"
            assert process.wait(30) == 0
        finally:
            process.kill()
