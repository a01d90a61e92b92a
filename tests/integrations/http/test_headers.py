"""Headers that lead a client on: it sees them as they came, and a replay goes the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from holdfast import flow, step, testing
from holdfast.errors import RunFailed
from holdfast.integrations.http import AsyncDurableTransport, DurableTransport

BASE = "https://user:pw@files.test"
SIGNED = "/file?X-Amz-Signature=hunter2&name=a%20b&flag"
BROKEN = "http:" + "/" * 2 + "[::"
CHALLENGE = 'Digest realm="x", nonce="n", qop="auth", algorithm=MD5'


stumbles = [False]


@step(name="hh-stumble")
def stumble() -> None:
    if stumbles[0]:
        stumbles[0] = False
        raise RuntimeError("the process is in trouble")


Answer = Callable[[Any], tuple[int, dict[Any, Any], bytes]]


class Lives:
    """A flow that gets one address, fails behind it, and is taken up: what each life has seen."""

    def __init__(self, library: ModuleType, colour: str, answer: Answer, **options: Any) -> None:
        self.sent: list[str] = []
        self.seen: list[tuple[int, bytes, str]] = []

        def world(request: Any) -> Any:
            self.sent.append(str(request.url))
            status, headers, body = answer(request)
            return library.Response(status, headers=headers, content=body)

        inner = library.MockTransport(world)

        def note(response: Any, header: str) -> None:
            self.seen.append(
                (response.status_code, response.content, response.headers.get(header, ""))
            )

        @flow(name="hh-sync")
        def sync(path: str, header: str) -> None:
            with library.Client(transport=DurableTransport(inner)) as client:
                note(client.get(BASE + path, **options), header)
            stumble()

        @flow(name="hh-async")
        async def awaited(path: str, header: str) -> None:
            async with library.AsyncClient(transport=AsyncDurableTransport(inner)) as client:
                note(await client.get(BASE + path, **options), header)
            await stumble.aio()

        self._run: Any = sync.run
        if colour == "async":
            self._run = lambda *given: asyncio.run(awaited.run(*given))

    def live(self, path: str, header: str = "x") -> str:
        """Live it through twice; returns all that the journal says."""
        with testing.store() as store:
            stumbles[0] = True
            with pytest.raises(RunFailed):
                self._run("r", path, header)
            self._run("r", path, header)
            return repr([(it.step, it.body) for it in store.history("r")])


def test_a_redirect_to_a_signed_address_is_followed_live_and_on_replay(
    library: ModuleType, colour: str
) -> None:
    def answer(request: Any) -> tuple[int, dict[str, str], bytes]:
        if request.url.path == "/redirect":
            return 302, {"location": SIGNED}, b""
        return (200, {}, b"the file") if str(request.url).endswith(SIGNED) else (403, {}, b"")

    lives = Lives(library, colour, answer, follow_redirects=True)
    journal = lives.live("/redirect")
    assert lives.seen == [(200, b"the file", "")] * 2
    assert len(lives.sent) == 2
    assert "hunter2" not in journal
    assert "/file?X-Amz-Signature=***&name=a%20b&flag" in journal


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("location", SIGNED, "/file?X-Amz-Signature=***&name=a%20b&flag"),
        ("location", f"{BROKEN}?token=hunter2", BROKEN),
        (
            "link",
            "<https://a.test/b?token=hunter2&p=2>; rel=next",
            "<https://a.test/b?token=***&p=2>; rel=next",
        ),
        (
            "link",
            "</c?p=2>, <https://u:hunter2@a.test/?p=3>; rel=x",
            "</c?p=2>, <https://a.test/?p=3>; rel=x",
        ),
        (
            "link",
            "https://a.test/b?token=hunter2; rel=next",
            "https://a.test/b?token=***; rel=next",
        ),
    ],
)
def test_addresses_in_headers_are_masked_in_the_record(
    library: ModuleType, colour: str, name: str, value: str, shown: str
) -> None:
    lives = Lives(library, colour, lambda _request: (201, {name: value}, b"made"))
    journal = lives.live("/thing", name)
    assert lives.seen == [(201, b"made", value), (201, b"made", shown)]
    assert len(lives.sent) == 1
    assert "hunter2" not in journal


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_header_may_have_any_letters(library: ModuleType, colour: str, encoding: str) -> None:
    named = 'attachment; filename="Müller.pdf"'
    headers = {b"content-disposition": named.encode(encoding)}
    lives = Lives(library, colour, lambda _request: (200, headers, b"a file"))
    lives.live("/file", "content-disposition")
    assert lives.seen == [(200, b"a file", named)] * 2


def test_a_challenge_is_answered_live_and_on_replay(library: ModuleType, colour: str) -> None:
    def answer(request: Any) -> tuple[int, dict[str, str], bytes]:
        if "authorization" in request.headers:
            return 200, {}, b"in"
        return 401, {"www-authenticate": CHALLENGE}, b"who?"

    lives = Lives(library, colour, answer, auth=library.DigestAuth("ana", "hunter2"))
    journal = lives.live("/digest")
    assert lives.seen == [(200, b"in", "")] * 2
    assert len(lives.sent) == 2
    assert "hunter2" not in journal


@pytest.mark.parametrize("tokens", [10**30, 2**63 - 1])
def test_tokens_that_nobody_can_count_do_not_spoil_the_answer(
    library: ModuleType, colour: str, tokens: int
) -> None:
    body = b'{"model":"m","usage":{"prompt_tokens":%d,"completion_tokens":1}}' % tokens
    lives = Lives(library, colour, lambda _: (200, {"content-type": "application/json"}, body))
    lives.live("/model")
    assert lives.seen == [(200, body, "")] * 2
    assert len(lives.sent) == 1
