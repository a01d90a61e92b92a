"""Streams of events: live at first, whole in the record, asked again when they were cut."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import holdfast
from holdfast import flow, step, testing
from holdfast.errors import RunFailed
from holdfast.integrations.http import AsyncDurableTransport, DurableTransport
from holdfast.testing import FakeModelServer, Say

TEXT = "one two three four"
HEADERS = {"authorization": "Bearer test"}
PATH = "/v1/chat/completions"
KEY = "http:POST 127.0.0.1.v1.chat.completions"


@pytest.fixture
def server() -> Iterator[FakeModelServer]:
    with FakeModelServer([Say(TEXT), Say("five six")]) as server:
        yield server


def asked(*said: str) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Count"}]
    for text in said:
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "More"}]
    options = {"include_usage": True}
    return {"model": "test", "messages": messages, "stream": True, "stream_options": options}


stumbles = [False]


@step(name="hs-stumble")
def stumble() -> None:
    if stumbles[0]:
        stumbles[0] = False
        raise RuntimeError("the process is in trouble")


def works(library: ModuleType, server: FakeModelServer) -> tuple[Any, Any]:
    """A flow of each colour that streams two answers."""

    @flow(name="hs-sync")
    def sync() -> list[bytes]:
        with library.Client(transport=DurableTransport(), base_url=server.url) as client:
            got: list[bytes] = []
            for body in (asked(), asked(TEXT)):
                with client.stream("POST", PATH, json=body, headers=HEADERS) as response:
                    got.append(b"".join(response.iter_bytes()))
                stumble()
            return got

    @flow(name="hs-async")
    async def awaited() -> list[bytes]:
        transport = AsyncDurableTransport()
        async with library.AsyncClient(transport=transport, base_url=server.url) as client:
            got: list[bytes] = []
            for body in (asked(), asked(TEXT)):
                async with client.stream("POST", PATH, json=body, headers=HEADERS) as response:
                    got.append(b"".join([it async for it in response.aiter_bytes()]))
                await stumble.aio()
            return got

    return sync.run, lambda run_id: asyncio.run(awaited.run(run_id))


@pytest.mark.parametrize("colour", [0, 1], ids=["sync", "async"])
def test_the_recorded_part_is_replayed_and_the_rest_is_asked(
    library: ModuleType, server: FakeModelServer, colour: int
) -> None:
    run = works(library, server)[colour]
    with testing.store() as store:
        stumbles[0] = True
        with pytest.raises(RunFailed):
            run("r")
        assert server.count == 1
        first, second = run("r")
        assert server.count == 2
        assert b"four" in first
        assert b"six" in second
        assert first.endswith(b"data: [DONE]\n\n")
        used = [it.body["usage"] for it in store.history("r") if "usage" in it.body]
        assert [it["model"] for it in used] == ["test", "test"]
        assert all(it["input_tokens"] > 0 and it["output_tokens"] > 0 for it in used)
        assert run("fresh") == [first, second]  # Byte for byte what the server sends.
        assert server.problems == []


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_tokens_are_seen_while_the_answer_is_on_its_way(library: ModuleType, colour: str) -> None:
    first_seen = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"data: one\n\n"
        assert first_seen.wait(20), "nobody saw the first piece before the second was made"
        yield b"data: two\n\n"

    class Live(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[name-defined]
        def __iter__(self) -> Iterator[bytes]:
            return pieces()

        async def __aiter__(self) -> Any:
            yield b"data: one\n\n"
            await asyncio.wait_for(asyncio.to_thread(first_seen.wait), 20)
            yield b"data: two\n\n"

    world = library.MockTransport(lambda _request: library.Response(200, stream=Live()))
    url = "https://model.test/v1"

    @flow(name="hs-live")
    def sync() -> list[str]:
        with (
            library.Client(transport=DurableTransport(world)) as client,
            client.stream("POST", url) as response,
        ):
            got = []
            for line in response.iter_lines():
                got.append(line)
                first_seen.set()
            return got

    @flow(name="hs-live-async")
    async def awaited() -> list[str]:
        async with (
            library.AsyncClient(transport=AsyncDurableTransport(world)) as client,
            client.stream("POST", url) as response,
        ):
            got = []
            async for line in response.aiter_lines():
                got.append(line)
                first_seen.set()
            return got

    with testing.store():
        got = sync.run("r") if colour == "sync" else asyncio.run(awaited.run("r"))
    assert [line for line in got if line] == ["data: one", "data: two"]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_stream_that_is_cut_is_asked_again(
    library: ModuleType, server: FakeModelServer, colour: str
) -> None:
    cuts: list[str] = []

    @flow(name="hs-cut")
    def sync() -> bytes:
        with library.Client(transport=DurableTransport(), base_url=server.url) as client:
            while True:
                try:
                    answer = client.post(PATH, json=asked(), headers=HEADERS).content
                except library.TransportError:
                    cuts.append("cut")
                    continue
                stumble()
                return answer

    @flow(name="hs-cut-async")
    async def awaited() -> bytes:
        transport = AsyncDurableTransport()
        async with library.AsyncClient(transport=transport, base_url=server.url) as client:
            while True:
                try:
                    answer = (await client.post(PATH, json=asked(), headers=HEADERS)).content
                except library.TransportError:
                    cuts.append("cut")
                    continue
                await stumble.aio()
                return answer

    run: Any = sync.run if colour == "sync" else lambda run_id: asyncio.run(awaited.run(run_id))
    server.cut_stream(2)
    with testing.store() as store:
        stumbles[0] = True
        with pytest.raises(RunFailed):
            run("r")
        assert server.count == 2
        assert run("r").endswith(b"data: [DONE]\n\n")
        assert server.count == 2
        assert cuts == ["cut"]
        assert [it.key for it in store.get("r").steps if it.name == "http"] == [KEY]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_who_stops_reading_at_the_last_event_has_it_recorded(
    library: ModuleType, server: FakeModelServer, colour: str
) -> None:
    @flow(name="hs-early")
    def sync() -> None:
        with (
            library.Client(transport=DurableTransport(), base_url=server.url) as client,
            client.stream("POST", PATH, json=asked(), headers=HEADERS) as response,
        ):
            next(response.iter_lines())

    @flow(name="hs-early-async")
    async def awaited() -> None:
        transport = AsyncDurableTransport()
        async with (
            library.AsyncClient(transport=transport, base_url=server.url) as client,
            client.stream("POST", PATH, json=asked(), headers=HEADERS) as response,
        ):
            await anext(response.aiter_lines())

    with testing.store() as store:
        _ = sync.run("r") if colour == "sync" else asyncio.run(awaited.run("r"))
        assert [(it.key, it.status) for it in store.get("r").steps] == [(KEY, "completed")]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_who_leaves_a_long_stream_leaves_no_record(library: ModuleType, colour: str) -> None:
    @flow(name="hs-leaves")
    def sync(url: str) -> None:
        with (
            library.Client(transport=DurableTransport(), base_url=url) as client,
            client.stream("POST", PATH, json=asked(), headers=HEADERS) as response,
        ):
            next(response.iter_lines())

    @flow(name="hs-leaves-async")
    async def awaited(url: str) -> None:
        transport = AsyncDurableTransport()
        async with (
            library.AsyncClient(transport=transport, base_url=url) as client,
            client.stream("POST", PATH, json=asked(), headers=HEADERS) as response,
        ):
            await anext(response.aiter_lines())

    with FakeModelServer([Say(TEXT * 20, pause=0.4)]) as slow, testing.store() as store:
        if colour == "sync":
            sync.run("r", slow.url)
        else:
            asyncio.run(awaited.run("r", slow.url))
        assert store.get("r").status == "completed"
        assert [it.status for it in store.get("r").steps] in ([], ["cancelled"])
        assert store.verify() == []


@pytest.mark.parametrize("requests", ["AAB", "ABA"])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_same_request_after_a_stream_that_was_left_is_a_call_of_its_own(
    library: ModuleType, colour: str, requests: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.integrations.http.transport.LINGER_S", 0.01)
    sent: list[str] = []
    left = threading.Event()

    class Long(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[name-defined]
        def __iter__(self) -> Iterator[bytes]:
            yield b"one"
            assert left.wait(20)
            yield b"two"

        async def __aiter__(self) -> Any:
            yield b"one"
            await asyncio.wait_for(asyncio.Event().wait(), 20)

    def answer(request: Any) -> Any:
        sent.append(request.content.decode())
        if sent[-1] == "A" and sent.count("A") % 2:  # Each first one of a life is left.
            return library.Response(200, stream=Long())
        return library.Response(200, content=f"whole {sent[-1]}".encode())

    world = library.MockTransport(answer)
    url = "https://model.test/v1"

    @flow(name="hs-left")
    def sync() -> list[str]:
        left.clear()
        with library.Client(transport=DurableTransport(world)) as client:
            with client.stream("POST", url, content=requests[0]) as response:
                next(response.iter_bytes())
            left.set()
            got = [client.post(url, content=it).text for it in requests[1:]]
        stumble()
        return got

    @flow(name="hs-left-async")
    async def awaited() -> list[str]:
        async with library.AsyncClient(transport=AsyncDurableTransport(world)) as client:
            async with client.stream("POST", url, content=requests[0]) as response:
                await anext(response.aiter_bytes())
            got = [(await client.post(url, content=it)).text for it in requests[1:]]
        await stumble.aio()
        return got

    run: Any = sync.run if colour == "sync" else lambda run_id: asyncio.run(awaited.run(run_id))
    with testing.store() as store:
        stumbles[0] = True
        with pytest.raises(RunFailed):
            run("r")
        assert sent == list(requests)
        assert run("r") == [f"whole {it}" for it in requests[1:]]
        # Only what was left is asked for again; the others are found where they were.
        assert sent == [*requests, "A"]
        told = {it.key.rpartition("v1")[2]: it.status for it in store.get("r").steps}
        assert (told.get("#2"), told.get("#3")) == ("completed", "completed")


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_error_that_is_left_unread_is_tried_again_in_the_same_step(
    library: ModuleType, colour: str
) -> None:
    answers = [503, 200]
    world = library.MockTransport(lambda _: library.Response(answers.pop(0), content=b"said"))
    url = "https://model.test/v1"

    @flow(name="hs-unread")
    def sync() -> str:
        with library.Client(transport=DurableTransport(world)) as client:
            client.send(client.build_request("POST", url), stream=True).close()
            return client.post(url).text

    @flow(name="hs-unread-async")
    async def awaited() -> str:
        async with library.AsyncClient(transport=AsyncDurableTransport(world)) as client:
            await (await client.send(client.build_request("POST", url), stream=True)).aclose()
            return (await client.post(url)).text

    with testing.store() as store:
        said = sync.run("r") if colour == "sync" else asyncio.run(awaited.run("r"))
        assert said == "said"
        assert [it.key for it in store.get("r").steps] == ["http:POST model.test.v1"]


def paused(library: ModuleType, goes_on: threading.Event) -> Any:
    """An inner transport whose answer stops after its first piece until it may go on."""

    class Slow(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[name-defined,misc]
        def __iter__(self) -> Iterator[bytes]:
            yield b"data: one\n\n"
            goes_on.wait()
            yield b"data: two\n\n"

        async def __aiter__(self) -> Any:
            yield b"data: one\n\n"
            await asyncio.to_thread(goes_on.wait)
            yield b"data: two\n\n"

    class Inner(library.BaseTransport, library.AsyncBaseTransport):  # type: ignore[name-defined,misc]
        def handle_request(self, request: Any) -> Any:
            headers = {"content-type": "text/event-stream"}
            return library.Response(200, headers=headers, stream=Slow(), request=request)

        async def handle_async_request(self, request: Any) -> Any:
            return self.handle_request(request)

    return Inner()


def being_read(response: Any) -> bool:
    """Whether somebody is inside the stream of an answer, waiting for its next piece."""
    stream = response.stream
    while hasattr(stream, "_stream"):
        stream = stream._stream
    return bool(getattr(stream._pieces, "gi_running", getattr(stream._pieces, "ag_running", False)))


def test_a_stream_is_closed_by_another_thread_than_its_reader(
    library: ModuleType, holdfast_store: Any
) -> None:
    goes_on, first, ended = threading.Event(), threading.Event(), []
    with library.Client(transport=DurableTransport(paused(library, goes_on))) as client:
        with holdfast.run("r"):
            response = client.send(client.build_request("GET", "http://x.test/"), stream=True)

            def read() -> None:
                try:
                    for _ in response.iter_bytes():
                        first.set()
                except library.ReadError as error:
                    ended.append(error)

            reader = threading.Thread(target=contextvars.copy_context().run, args=(read,))
            reader.start()
            assert first.wait(60)
            while not being_read(response):
                time.sleep(0.001)
            response.close()
            reader.join(60)
            goes_on.set()
    assert [type(error) for error in ended] == [library.ReadError]
    assert holdfast_store.get("r").status == "completed"


def test_a_stream_is_closed_by_another_task_than_its_reader(
    library: ModuleType, holdfast_store: Any
) -> None:
    async def read_and_close() -> None:
        goes_on, first = threading.Event(), asyncio.Event()
        sends = AsyncDurableTransport(paused(library, goes_on))
        async with library.AsyncClient(transport=sends) as client, holdfast.aio.run("r"):
            request = client.build_request("GET", "http://x.test/")
            response = await client.send(request, stream=True)

            async def read() -> None:
                async for _ in response.aiter_bytes():
                    first.set()

            reader = asyncio.create_task(read())
            await first.wait()
            while not being_read(response):
                await asyncio.sleep(0)
            await response.aclose()
            with pytest.raises(library.ReadError):
                await asyncio.wait_for(reader, 60)
            goes_on.set()

    asyncio.run(read_and_close())
    assert holdfast_store.get("r").status == "completed"
