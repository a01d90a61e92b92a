"""Answers that end with their connection: a cut is not taken for the end."""

from __future__ import annotations

import json
from collections.abc import Generator
from types import ModuleType
from typing import Any

import pytest

from holdfast import testing
from holdfast.errors import RunFailed, RunHeld
from holdfast.integrations.http.exchange import is_cut
from tests.integrations.http.lives import runner
from tests.integrations.http.wire import Wire, unframed, whole

EVENTS = "text/event-stream; charset=utf-8"


def stream(*events: dict[str, Any] | str, end: str = "\n") -> bytes:
    said = (it if isinstance(it, str) else json.dumps(it) for it in events)
    return "".join(f"data: {it}{end}{end}" for it in said).encode()


CHUNK = {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "response"}}]}
CHAT = stream(CHUNK, CHUNK, "[DONE]")
MESSAGE = stream({"type": "message_start"}, {"type": "ping"}, {"type": "message_stop"})
DELTA = {"type": "response.output_text.delta", "delta": "[DONE]"}
RESPONSE = stream({"type": "response.created"}, DELTA, {"type": "response.completed"}, end="\r\n")


def asks(url: str) -> Any:
    def script() -> Generator[Any, Any, Any]:
        response = yield {"method": "POST", "url": url}
        return response.text

    return script


@pytest.mark.parametrize(
    ("kind", "body", "part"),
    [
        ("application/json", b'{"a": [1, 2]}', b'{"a": [1, 2'),
        ("application/problem+json; charset=utf-8", b'"text"', b""),
        (EVENTS, b"data: 1\n\ndata: 2\n\n", b"data: 1\n\ndata: 2\n"),
        (EVENTS, CHAT, stream(CHUNK)),
        (EVENTS, MESSAGE, stream({"type": "message_start"}, {"type": "ping"})),
        (EVENTS, RESPONSE, stream({"type": "response.created"}, DELTA)),
    ],
)
def test_an_answer_that_was_cut_is_asked_for_again(
    library: ModuleType, colour: str, kind: str, body: bytes, part: bytes
) -> None:
    answers = [unframed(kind, part), unframed(kind, body)]
    with Wire(lambda _: answers.pop(0)) as wire, testing.store() as store:
        run = runner(library, colour, asks(wire.url))
        with pytest.raises(RunFailed, match="RemoteProtocolError: peer closed connection"):
            run("r")
        assert run("r") == body.decode()
        assert len(wire.got) == 2
        assert [it.key for it in store.get("r").steps if it.name == "http"] == [
            "http:POST 127.0.0.1"
        ]


@pytest.mark.parametrize("body", [CHAT, MESSAGE, RESPONSE], ids=["chat", "message", "response"])
def test_no_part_of_a_stream_is_taken_for_the_whole(body: bytes) -> None:
    assert not is_cut(EVENTS, body)
    wholes = [n for n in range(len(body)) if not is_cut(EVENTS, body[:n])]
    assert wholes == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"null"),
        ("application/json", b"\xef\xbb\xbf{}"),
        ("application/json; charset=latin-1", b'{"name": "M\xfcller", "x": NaN}'),
        ("application/x-ndjson", b'{"a": 1}\n{"b": '),
        ("text/plain", b"half a sent"),
        ("", b""),
        (EVENTS, b": nothing yet\r\n\r\n"),
        (EVENTS, b"data: 1\r\rdata: 2\r\r"),
        (EVENTS, stream(CHUNK, {"error": {"message": "overloaded"}})),
        (EVENTS, stream({"type": "message_start"}, {"type": "error", "error": {"type": "x"}})),
        (EVENTS, stream({"type": "response.created"}, {"type": "error", "message": "x"})),
        (EVENTS, stream({"type": "response.created"}, {"type": "response.incomplete"})),
        (EVENTS, stream({"type": "response.created"}, {"type": "response.failed"})),
    ],
)
def test_what_may_be_whole_is(kind: str, body: bytes) -> None:
    assert not is_cut(kind, body)


@pytest.mark.parametrize("framed", ["length", "chunks", "no body", "only asked for the head"])
def test_an_answer_that_says_where_it_ends_is_believed(library: ModuleType, framed: str) -> None:
    kind = "content-type: application/json"
    answers = {
        "length": whole("200 OK", b"{", kind),
        "chunks": f"HTTP/1.1 200 OK\r\n{kind}\r\n".encode()
        + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n\r\n",
        "no body": f"HTTP/1.1 204 No Content\r\n{kind}\r\n\r\n".encode(),
        "only asked for the head": unframed("application/json", b""),
    }

    def script() -> Generator[Any, Any, Any]:
        method = "HEAD" if framed.startswith("only") else "GET"
        response = yield {"method": method, "url": wire.url}
        return response.text

    with Wire(lambda _: answers[framed]) as wire, testing.store():
        said = runner(library, "sync", script)("r")
    assert said == ("{" if framed in ("length", "chunks") else "")


def test_an_effect_whose_answer_was_cut_is_in_doubt(library: ModuleType, colour: str) -> None:
    with Wire(lambda _: unframed("application/json", b"{")) as wire, testing.store():
        run = runner(library, colour, asks(wire.url), effects=lambda _: True)
        with pytest.raises(RunHeld):
            run("r")
