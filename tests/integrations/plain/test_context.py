"""What tools change in a context: found, kept as data, done again on another object of its kind."""

import collections
import copy
import datetime as dt
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import holdfast
from holdfast.errors import UsageError
from holdfast.integrations._run_context import Watched


@dataclass
class Address:
    city: str = "Rome"


@dataclass
class Ctx:
    customer: str | None = None
    count: float = 0
    items: list[Any] = field(default_factory=list)
    also: Any = None
    facts: dict[Any, Any] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)
    last: collections.deque[int] = field(default_factory=collections.deque)
    address: Address = field(default_factory=Address)
    when: dt.datetime | None = None
    client: Any = field(default_factory=threading.Lock)
    pair: tuple[Any, ...] = field(default_factory=lambda: ([], 1))


class Plain:
    def __init__(self) -> None:
        self.customer: str | None = None
        self._pool = [1]


@pytest.fixture
def store() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:") as opened:
        yield opened


def changed(context: Any, tool: Callable[[Any], Any]) -> Any:
    """The record of a call of a tool."""
    watched = Watched("tool", context)
    watched.begin()
    tool(context)
    return watched.recorded("said")


def done_again(context: Any, recorded: Any) -> Any:
    assert Watched("tool", context).replayed(recorded) == "said"
    return context


def share(ctx: Ctx) -> None:
    ctx.also = ctx.items


def part(ctx: Ctx) -> None:
    ctx.also = list(ctx.items)


def nest(ctx: Ctx) -> None:
    ctx.facts["address"] = {"city": "Paris", "seen": [1, (2, 3)]}


TOOLS: dict[str, Callable[[Ctx], Any]] = {
    "a field": lambda ctx: setattr(ctx, "customer", "ana"),
    "an equal value of another type": lambda ctx: setattr(ctx, "count", 0.0),
    "minus zero": lambda ctx: setattr(ctx, "count", -0.0),
    "a moment": lambda ctx: setattr(ctx, "when", dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    "a list that grows": lambda ctx: ctx.items.append({"a": 1}),
    "an item of a list": lambda ctx: ctx.items.__setitem__(0, 5),
    "an object in a list": lambda ctx: setattr(ctx.items[1], "city", "Oslo"),
    "a shared list": lambda ctx: ctx.also.append(4) if ctx.also is not None else None,
    "a list that becomes shared": share,
    "a list that is no longer shared": part,
    "a key": lambda ctx: ctx.facts.update(b=2),
    "a key that goes": lambda ctx: ctx.facts.pop("a"),
    "nested data": nest,
    "a set": lambda ctx: ctx.tags.add("new"),
    "a deque": lambda ctx: ctx.last.append(1),
    "an object inside": lambda ctx: setattr(ctx.address, "city", "Paris"),
    "a list in a tuple": lambda ctx: ctx.pair[0].append(1),
    "a field that goes": lambda ctx: delattr(ctx, "customer"),
}


def exact(ctx: Ctx) -> str:
    """The fields with their exact types; two equal sets may iterate in different orders."""
    return repr({**vars(ctx), "tags": sorted(ctx.tags)})


def made(*, shared: bool) -> Ctx:
    ctx = Ctx(items=[1, Address()], facts={"a": 1}, tags={"old"})
    ctx.also = ctx.items if shared else None
    return ctx


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", TOOLS)
def test_what_a_tool_changed_is_done_again(name: str, shared: bool) -> None:
    live, replayed = made(shared=shared), made(shared=shared)
    held, client = replayed.items, replayed.client
    recorded = changed(live, TOOLS[name])
    done_again(replayed, copy.deepcopy(recorded))
    live.client = replayed.client
    assert exact(live) == exact(replayed)
    assert type(replayed.tags) is set
    assert (live.also is live.items) == (replayed.also is replayed.items)
    assert replayed.items is held
    assert replayed.client is client


def test_what_changed_nothing_is_recorded_as_before() -> None:
    for context in (made(shared=True), {"a": [1]}, None, "text", Plain(), threading.Lock()):
        assert changed(context, lambda _: None) == "said"


def test_a_context_may_be_a_dictionary_or_a_plain_object() -> None:
    recorded = changed({"lock": threading.Lock(), "n": 1}, lambda ctx: ctx.update(n=2, m=[1]))
    again = done_again({"lock": None, "n": 1}, copy.deepcopy(recorded))
    assert again == {"lock": None, "n": 2, "m": [1]}

    def tool(ctx: Plain) -> None:
        ctx.customer = "ana"
        ctx._pool.append(2)  # Its own business, as that of a client.

    replayed = done_again(Plain(), changed(Plain(), tool))
    assert (replayed.customer, replayed._pool) == ("ana", [1])


def test_calls_side_by_side_are_done_again_in_the_order_of_their_ends() -> None:
    live, replayed = Ctx(), Ctx()
    first, second = Watched("first", live), Watched("second", live)
    first.begin()
    second.begin()
    live.count = 1
    of_second = second.recorded("said")
    live.count = 2
    of_first = first.recorded("said")
    done_again(replayed, of_first)
    done_again(replayed, of_second)
    assert replayed.count == live.count == 2


def test_what_cannot_be_kept_names_the_tool_and_the_field(store: holdfast.types.Store) -> None:
    ctx = Ctx()
    watched = Watched("connect", ctx)

    def connect() -> Any:
        watched.begin()
        ctx.facts["client"] = threading.Lock()
        return watched.recorded("connected")

    with (
        holdfast.run("r-1", store=store),
        pytest.raises(UsageError, match=r"the tool connect changed facts\['client'\]"),
        watched.refusals(),
    ):
        holdfast.adapters.as_step(connect, name="connect")()
