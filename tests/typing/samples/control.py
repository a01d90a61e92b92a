"""Cancel, pause, deadlines and children, as a user types them."""

from typing import Literal, assert_type

from holdfast.types import Handle, Store
from holdfast import aio, each, flow, step
from holdfast.errors import ChildFailed


@step
def look_up(topic: str) -> str:
    return topic


@flow(timeout="2h")
def research(topic: str) -> list[str]:
    return [look_up(topic)]


@flow
async def aresearch(topic: str) -> int:
    await aio.sleep(1)
    return len(topic)


@flow
def report(topics: list[str]) -> str:
    assert_type(research(topics[0]), list[str])
    assert_type(each(research, topics, max_concurrency=2), list[list[str]])
    handle = research.start("later", topics[0])
    assert_type(handle.result(), list[str])
    research(7)  # error
    try:
        return str(aresearch.start("other", topics[0]).result())
    except ChildFailed as failed:
        return f"{failed.run_id} {failed.status} {failed.type_name} {failed.message}"


@flow
async def areport(topics: list[str]) -> int:
    assert_type(await research.aio(topics[0]), list[str])
    assert_type(await aresearch(topics[0]), int)
    handle = await aresearch.aio.start("later", topics[0])
    assert_type(handle, Handle[int])
    return await handle.aio.result()


def act(store: Store, handle: Handle[str]) -> None:
    stopped = store.cancel("r", actor="ana", reason="enough", wait_s=5)
    assert_type(stopped.outcome, Literal["cancelled", "paused", "finished", "pending"])
    assert_type(stopped.children, tuple[str, ...])
    assert_type(handle.cancel(actor="ana").status, str)
    assert_type(store.pause("r").detail, str)
    page = store.runs(parent="r", limit=20)
    assert_type(page.next, str | None)
    assert_type(page[0].run_id, str)
    print([run.run_id for run in page], len(page), store.get("r").children)
    print(store.runs(tags={"team": "a"}, limit=20, after=page.next))
    assert_type(store.wait("r", until="waiting", timeout="1m").status, str)
    store.wait("r", until=lambda run: run.waiting_for is not None)
    store.wait("r", until=["held", "failed"])
    store.wait("r", until=3)  # error
    store.wait("r", until=lambda run: run.nothing)  # error
    store.runs(after=page)  # error
    store.runs(tags=("team", "a"))  # error
    store.cancel("r", wait="5")  # error


async def act_async(handle: Handle[str]) -> None:
    assert_type((await handle.aio.cancel(actor="ana")).status, str)


async def wait_async(store: Store) -> None:
    assert_type((await store.aio.wait("r", until="held")).held_reason, str | None)
    async with Store.default().worker(flows=[areport]):
        await Store.default().aio.wait("r")
