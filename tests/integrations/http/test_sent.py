"""The request of the user stays as it was: what is sent beyond it is in a copy."""

from __future__ import annotations

from collections.abc import Generator
from types import ModuleType
from typing import Any

import pytest

import holdfast
from holdfast import testing
from holdfast.errors import RunFailed, RunHeld
from holdfast.integrations.http.sent import copied
from tests.integrations.http.lives import runner, stumbles
from tests.integrations.http.wire import Got, Wire, whole

CHALLENGE = 'www-authenticate: Digest realm="x", nonce="n", qop="auth", algorithm=MD5'


def keys(wire: Wire) -> list[str | None]:
    return [it.headers.get("idempotency-key") for it in wire.got]


@pytest.mark.parametrize("how", ["redirect", "challenge"])
def test_the_second_leg_has_a_key_of_its_own_and_keeps_it(
    library: ModuleType, colour: str, how: str
) -> None:
    lost = [True]

    def answer(got: Got) -> bytes:
        if "/old" in got.line:
            return whole("307 Elsewhere", b"", "location: /new")
        if how == "challenge" and "authorization" not in got.headers:
            return whole("401 Who", b"", CHALLENGE)
        if lost[0]:
            lost[0] = False
            return b""
        return whole("200 OK", b"paid")

    with Wire(answer) as wire, testing.store() as store:

        def script() -> Generator[Any, Any, Any]:
            path = "/old" if how == "redirect" else "/new"
            response = yield {"method": "POST", "url": wire.url + path, "json": {"amount": 5}}
            return response.text

        client: dict[str, Any] = {"follow_redirects": True}
        if how == "challenge":
            client["auth"] = library.DigestAuth("ana", "hunter2")
        run = runner(library, colour, script, client=client, effects=lambda _: True)
        with pytest.raises(RunHeld):
            run("r")
        step = "http:POST 127.0.0.1.new" + ("#2" if how == "challenge" else "")
        store.settle("r", step, holdfast.NOT_DONE, actor="ana")
        assert run("r") == "paid"
        first, second, again = keys(wire)
        assert str(first).startswith("hf_")
        assert first != second
        assert second == again
        assert [it.body for it in wire.got] == [wire.got[0].body] * 3


def test_one_request_sent_twice_is_two_effects(library: ModuleType, colour: str) -> None:
    with Wire(lambda _: whole("200 OK")) as wire, testing.store():
        seen: list[Any] = []

        def script() -> Generator[Any, Any, Any]:
            headers = {"x-mine": "1"}
            request = library.Request("POST", wire.url, json={"amount": 5}, headers=headers)
            before = [*request.headers.raw]
            yield request
            response = yield request
            seen.append((before == request.headers.raw, response.request is request))

        runner(library, colour, script, effects=lambda _: True)("r")
        first, second = keys(wire)
        assert first != second
        assert str(second).startswith("hf_")
        assert seen == [(True, True)]
        assert [it.headers["x-mine"] for it in wire.got] == ["1", "1"]


def test_a_body_in_pieces_is_sent_whole(library: ModuleType, colour: str) -> None:
    with Wire(lambda _: whole("200 OK")) as wire, testing.store():

        def script() -> Generator[Any, Any, Any]:
            yield {"method": "PUT", "url": wire.url, "files": {"f": ("a.txt", b"text")}}

        run = runner(library, colour, script)
        stumbles[0] = True
        with pytest.raises(RunFailed):
            run("r")
        run("r")
        assert len(wire.got) == 1
        assert wire.got[0].headers["content-type"].startswith("multipart/form-data; boundary=")
        assert b"text" in wire.got[0].body
        assert str(keys(wire)[0]).startswith("hf_")


def test_a_copy_has_everything(library: ModuleType) -> None:
    def pieces() -> Generator[bytes]:
        yield b"a"
        yield b"b"

    extensions = {"timeout": {"read": 3.0}, "mine": object()}
    request = library.Request("POST", "https://a.test", content=pieces(), extensions=extensions)
    request.read()
    copy = copied(request)
    assert copy is not request
    assert (copy.method, copy.url, copy.content) == ("POST", request.url, b"ab")
    assert copy.headers.raw == request.headers.raw
    assert copy.extensions == extensions
    copy.headers["x"] = "y"
    copy.extensions["x"] = "y"
    assert "x" not in request.headers
    assert "x" not in request.extensions
    bare = library.Request("POST", "https://a.test", stream=library.ByteStream(b"z"))
    assert copied(bare).headers.raw == bare.headers.raw == []
