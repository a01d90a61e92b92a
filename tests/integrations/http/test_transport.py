"""What is recorded of a request and its answer, what is not, and what a replay gives back."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import holdfast
from holdfast import flow, step, testing
from holdfast.errors import RunFailed, RunHeld, UsageError
from holdfast.integrations.http import AsyncDurableTransport, DurableTransport
from tests.integrations.http.wire import Wire, whole

URL = "https://user:pw@api.test/v1/things?api_key=hunter2&page=3#top"
KEY = "http:POST api.test.v1.things"


class World:
    """The other side: notes what it was asked, and answers what it is told to."""

    def __init__(self, library: ModuleType, *answers: Any) -> None:
        self.library = library
        self.answers = list(answers)
        self.requests: list[Any] = []

    def __call__(self, request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else (200, {}, b"well")
        if isinstance(answer, Exception):
            raise answer
        status, headers, body = answer
        return self.library.Response(status, headers=headers, content=body)

    def keys(self) -> list[str | None]:
        return [request.headers.get("idempotency-key") for request in self.requests]


Ask = Callable[..., Any]
Body = Callable[[Ask], list[Any]]


def durably(colour: str, world: World, tries: int = 1, **options: Any) -> tuple[Any, Any]:
    """A flow that posts as often as it is told, and how to run it."""
    inner = world.library.MockTransport(world)

    def seen(response: Any) -> list[Any]:
        return [response.status_code, sorted(response.headers.items()), response.content]

    async def post_async(number: int, content: bytes) -> list[Any]:
        transport = AsyncDurableTransport(inner, **options)
        async with world.library.AsyncClient(transport=transport) as client:
            got = [
                await client.request("POST", URL, content=content, headers=SECRETS)
                for _ in range(number)
            ]
            return [seen(it) for it in got]

    def post(number: int, content: bytes) -> list[Any]:
        with world.library.Client(transport=DurableTransport(inner, **options)) as client:
            got = [
                client.request("POST", URL, content=content, headers=SECRETS) for _ in range(number)
            ]
            return [seen(it) for it in got]

    if colour == "async":

        @flow(name="ht-async")
        async def work(content: bytes = b"body") -> list[Any]:
            answers = await post_async(tries, content)
            await stumble.aio()
            return answers

        return work, lambda run_id: asyncio.run(work.run(run_id))

    @flow(name="ht-sync")
    def work_sync(content: bytes = b"body") -> list[Any]:
        answers = post(tries, content)
        stumble()
        return answers

    return work_sync, work_sync.run


SECRETS = {"authorization": "Bearer hunter2", "x-api-key": "hunter2", "cookie": "s=hunter2"}
stumbles = [False]


@step(name="ht-stumble")
def stumble() -> None:
    if stumbles[0]:
        stumbles[0] = False
        raise RuntimeError("the process is in trouble")


def twice(run: Callable[[str], Any]) -> tuple[Any, Any]:
    """What a run gives that fails behind the requests, and what it gives when it is taken up."""
    stumbles[0] = True
    with pytest.raises(RunFailed):
        run("r")
    return run("r")


def keys(store: Any) -> list[str]:
    """The steps that are requests."""
    return [it.key for it in store.get("r").steps if it.name == "http"]


def everything(store: Any) -> str:
    return repr([(it.step, it.kind, it.body) for it in store.history("r")])


def test_an_answer_is_replayed_and_nothing_is_sent(library: ModuleType, colour: str) -> None:
    headers = {"content-type": "text/plain", "x-request-id": "q", "set-cookie": "s=hunter2"}
    world = World(library, (201, {**headers, "server": "x"}, b"caf\xc3\xa9"))
    _, run = durably(colour, world)
    with testing.store() as store:
        [[status, seen, body]] = twice(run)
        assert (status, body) == (201, b"caf\xc3\xa9")
        assert seen == [("content-type", "text/plain"), ("x-request-id", "q")]
        assert len(world.requests) == 1
        assert keys(store) == [KEY]
        assert "hunter2" not in everything(store)
        assert "https://api.test/v1/things?api_key=***&page=3" in everything(store)


def test_bytes_that_are_no_text_are_kept_as_they_are(library: ModuleType, colour: str) -> None:
    body = bytes(range(256))
    world = World(library, (200, {"content-type": "image/png"}, body))
    with testing.store():
        assert twice(durably(colour, world)[1])[0][2] == body


def test_a_packed_answer_is_unpacked_once(library: ModuleType, colour: str) -> None:
    packed = gzip.compress(b"a long text " * 100)
    world = World(library, (200, {"content-encoding": "gzip"}, packed))
    with testing.store():
        [[_, headers, body]] = twice(durably(colour, world)[1])
        assert body == b"a long text " * 100
        assert headers == []
        assert len(world.requests) == 1


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
def test_an_answer_that_asks_to_try_again_is_no_outcome(
    library: ModuleType, colour: str, status: int
) -> None:
    world = World(library, (status, {"retry-after": "7", "server": "x"}, b"later"))
    _, run = durably(colour, world, tries=2)
    with testing.store() as store:
        stumbles[0] = True
        with pytest.raises(RunFailed):
            run("r")
        # One step, with the answer that counts; what was tried before is told beside it.
        assert [(it.key, it.status) for it in store.get("r").steps] == [
            (KEY, "completed"),
            ("ht-stumble", "failed"),
        ]
        told = [it.kind for it in store.history("r") if it.step == KEY]
        assert told == ["step_cancelled", "step_started", "step_completed"]
        assert len(world.requests) == 2
        assert world.keys()[0] == world.keys()[1]
        assert store.verify() == []


def test_a_client_that_tries_again_gets_the_answer_at_once_on_replay(
    library: ModuleType, colour: str
) -> None:
    world = World(library, (500, {}, b"later"), library.ConnectError("cut"), (200, {}, b"well"))
    inner = world.library.MockTransport(world)
    tries: list[str] = []

    def said(response: Any) -> str | None:
        return response.text if response.status_code == 200 else None

    async def ask_async() -> str:
        async with library.AsyncClient(transport=AsyncDurableTransport(inner)) as client:
            while True:
                tries.append("try")
                try:
                    if text := said(await client.post(URL)):
                        return text
                except library.ConnectError:
                    tries.append("cut")

    def ask() -> str:
        with library.Client(transport=DurableTransport(inner)) as client:
            while True:
                tries.append("try")
                try:
                    if text := said(client.post(URL)):
                        return text
                except library.ConnectError:
                    tries.append("cut")

    if colour == "async":

        @flow(name="ht-again-async")
        async def work() -> str:
            text = await ask_async()
            await stumble.aio()
            return text

        run: Any = lambda run_id: asyncio.run(work.run(run_id))  # noqa: E731
    else:

        @flow(name="ht-again")
        def work_sync() -> str:
            text = ask()
            stumble()
            return text

        run = work_sync.run
    with testing.store() as store:
        assert twice(run) == "well"
        assert tries == ["try", "try", "cut", "try", "try"]
        assert len(world.requests) == 3
        assert len(set(world.keys())) == 1
        assert keys(store) == [KEY]


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_refusal_is_an_outcome(library: ModuleType, status: int) -> None:
    world = World(library, (status, {}, b"no"))
    with testing.store():
        assert twice(durably("sync", world)[1]) == [[status, [], b"no"]]
        assert len(world.requests) == 1


def test_the_key_of_the_caller_stays_and_that_of_an_sdk_does_not(library: ModuleType) -> None:
    world = World(library)

    @flow(name="ht-keys")
    def work() -> None:
        with library.Client(transport=DurableTransport(library.MockTransport(world))) as client:
            client.post(URL, headers={"Idempotency-Key": "mine"})
            client.post(URL, headers={"Idempotency-Key": "stainless-python-retry-1"})
            client.delete(URL)
            client.get(URL)

    with testing.store():
        work.run("r")
    mine, sdk, delete, get = world.keys()
    assert (mine, get) == ("mine", None)
    assert str(sdk).startswith("hf_")
    assert str(delete).startswith("hf_")
    assert delete != sdk


def test_outside_a_run_nothing_is_changed(
    library: ModuleType, colour: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    world = World(library, (500, {"x": "y", "set-cookie": "a=b"}, b"later"))
    inner = library.MockTransport(world)
    if colour == "sync":
        with library.Client(transport=DurableTransport(inner)) as client:
            response = client.post(URL, content=b"x")
    else:

        async def ask() -> Any:
            async with library.AsyncClient(transport=AsyncDurableTransport(inner)) as client:
                return await client.post(URL, content=b"x")

        response = asyncio.run(ask())
    assert response.status_code == 500
    assert response.headers["x"] == "y"
    assert response.cookies["a"] == "b"
    assert world.keys() == [None]
    assert os.listdir(tmp_path) == []


def test_inside_a_step_a_request_is_part_of_it(library: ModuleType) -> None:
    world = World(library)

    @step(name="ht-part")
    def part() -> str:
        with library.Client(transport=DurableTransport(library.MockTransport(world))) as client:
            return client.get(URL).text

    @flow(name="ht-whole")
    def whole() -> str:
        return part()

    with testing.store() as store:
        assert whole.run("r") == "well"
        assert [it.key for it in store.get("r").steps] == ["ht-part"]


def test_what_is_not_to_be_recorded_passes(library: ModuleType, colour: str) -> None:
    world = World(library)
    _, run = durably(colour, world, record=lambda request: request.method != "POST")
    with testing.store() as store:
        twice(run)
        assert keys(store) == []
        assert len(world.requests) == 2


def test_too_large_an_answer_is_refused(library: ModuleType, colour: str) -> None:
    world = World(library, (200, {}, b"x" * 101))
    _, run = durably(colour, world, max_bytes=100)
    with testing.store(), pytest.raises(RunFailed, match="more than 100 bytes"):
        run("r")


def test_lines_at_the_same_time_have_keys_of_their_own(library: ModuleType) -> None:
    world = World(library)
    key = lambda request: request.headers["x-line"]  # noqa: E731
    transport = AsyncDurableTransport(library.MockTransport(world), key=key)

    @flow(name="ht-lines")
    async def work(order: list[str]) -> list[int]:
        async with library.AsyncClient(transport=transport) as client:
            lines = list(reversed(order)) if world.requests else order
            asked = (client.post(URL, content=it, headers={"x-line": it}) for it in lines)
            got = [it.status_code for it in await asyncio.gather(*asked)]
        await stumble.aio()
        return got

    with testing.store() as store:
        assert twice(lambda run_id: asyncio.run(work.run(run_id, ["a", "b", "c"]))) == [200] * 3
        assert len(world.requests) == 3
        assert {it.key for it in store.get("r").steps} == {
            "http:a",
            "http:b",
            "http:c",
            "ht-stumble",
        }


def test_an_effect_without_an_answer_is_in_doubt(library: ModuleType, colour: str) -> None:
    world = World(library, library.ReadTimeout("no answer"))
    _, run = durably(colour, world, effects=lambda request: request.method == "POST")
    with testing.store() as store:
        with pytest.raises(RunHeld) as held:
            run("r")
        assert held.value.reason == "in_doubt"
        assert len(world.requests) == 1
        store.settle("r", KEY, holdfast.NOT_DONE, actor="ana")
        assert run("r") == [[200, [], b"well"]]
        assert len(world.requests) == 2


def test_an_effect_may_be_repeated_under_its_key(library: ModuleType, colour: str) -> None:
    world = World(library, library.ReadTimeout("no answer"), (500, {}, b""))
    _, run = durably(colour, world, effects=lambda _request: True, on_doubt="retry")
    with testing.store():
        assert run("r") == [[200, [], b"well"]]
    assert len(world.requests) == 3
    assert len(set(world.keys())) == 1


def test_who_asks_for_no_bytes_is_told(library: ModuleType) -> None:
    with pytest.raises(UsageError, match="max_bytes"):
        DurableTransport(library.MockTransport(World(library)), max_bytes=0)


def test_uploads_are_the_same_whatever_their_boundary(library: ModuleType) -> None:
    world = World(library)

    @flow(name="ht-upload")
    def work() -> int:
        with library.Client(transport=DurableTransport(library.MockTransport(world))) as client:
            got = client.post(URL, files={"file": ("a.txt", b"text")}).status_code
        stumble()
        return got

    with testing.store():
        assert twice(work.run) == 200
    assert len(world.requests) == 1


@pytest.mark.parametrize("opened", [True, False])
def test_the_wrong_transport_says_which_one_is_meant(library: ModuleType, opened: bool) -> None:
    async def asks() -> None:
        client = library.AsyncClient(transport=DurableTransport())
        if opened:
            await client.__aenter__()
        await client.get(URL)

    with pytest.raises(UsageError, match="for AsyncClient use AsyncDurableTransport"):
        asyncio.run(asks())
    client = library.Client(transport=AsyncDurableTransport())
    with pytest.raises(UsageError, match="for Client use DurableTransport"):
        if opened:
            client.__enter__()
        client.get(URL)
    client.close()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_one_transport_serves_clients_of_both_libraries(colour: str) -> None:
    httpx, httpx2 = (importlib.import_module(name) for name in ("httpx", "httpx2"))
    with Wire(lambda _: whole("200 OK", b"well")) as wire, testing.store():
        if colour == "sync":
            transport = DurableTransport()

            @flow(name="ht-both")
            def work() -> list[str]:
                clients = (library.Client(transport=transport) for library in (httpx, httpx2))
                got = [client.get(wire.url).text for client in clients]
                transport.close()
                return got

            assert work.run("r") == ["well", "well"]
        else:
            awaited = AsyncDurableTransport()

            @flow(name="ht-both-async")
            async def work_async() -> list[str]:
                clients = [it.AsyncClient(transport=awaited) for it in (httpx, httpx2)]
                got = [(await client.get(wire.url)).text for client in clients]
                await awaited.aclose()
                return got

            assert asyncio.run(work_async.run("r")) == ["well", "well"]
