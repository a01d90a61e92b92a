"""A class that changed between two lives of a run is not damage: held with both shapes, and a way on."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pydantic
import pytest

import holdfast
from holdfast import flow, memory, step, turns, wait_for_signal
from holdfast._engine.values.class_registry import KNOWN
from holdfast.errors import ClassChanged, RunHeld
from tests.runtime.stops import Stop, interrupted, kinds


@dataclasses.dataclass
class Before:
    item: str
    cents: int = 5


@dataclasses.dataclass
class After:
    item: str
    euros: float


def named(cls: Any) -> Any:
    """Give a class the name that all of them have, as if one had been edited."""
    cls.__module__, cls.__qualname__ = __name__, "Priced"
    return cls


def put(cls: Any, upgrade: Any = None) -> None:
    """Deploy code that has this class."""
    holdfast.versioning.register_type(named(cls), upgrade=upgrade)


def in_euros(fields: dict[str, Any]) -> After:
    return After(fields["item"], fields["cents"] / 100)


@pytest.fixture(autouse=True)
def _first() -> Iterator[None]:
    put(Before)
    yield
    for cls in (Before, After):
        KNOWN._upgrades.pop(cls, None)


@step
def make() -> Any:
    return Before("tea", 250)


def result(stop: Stop) -> Any:
    made = make()
    stop.here()
    return made


def signal(stop: Stop) -> Any:
    got = wait_for_signal("price")
    stop.here()
    return got


def remembered(stop: Stop) -> Any:
    got = memory("prices").get("tea")
    stop.here()
    return got


def inside(stop: Stop) -> Any:
    made = [{"deep": make()}]
    stop.here()
    return made[0]["deep"]


def untaken(stop: Stop) -> Any:
    stop.here()
    return wait_for_signal("price")


PLACES: dict[str, Callable[[Stop], Any]] = {
    "result": result,
    "signal": signal,
    "signal that nobody took": untaken,
    "memory": remembered,
    "inside": inside,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_value_that_todays_class_cannot_take_holds_the_run(store, place):
    stop = Stop()

    @flow(name="changed classes")
    def agent() -> Any:
        return PLACES[place](stop)

    store.memory("prices").set("tea", Before("tea", 250))
    handle = agent.submit("r")
    store.signal("r", "price", Before("tea", 250))
    interrupted(lambda: agent.run("r"))
    put(After)
    with pytest.raises(RunHeld) as held:
        agent.run("r")
    assert held.value.reason == "diverged"
    assert "stored with item, cents; today it has item, euros" in held.value.detail
    assert "register_type(Priced, upgrade=…)" in held.value.actions[1]
    assert store.verify() == []
    assert "register an upgrade" in str(store.explain("r"))
    put(After, upgrade=in_euros)
    assert agent.run("r") == After("tea", 2.5)
    assert handle.result() == After("tea", 2.5)


def test_a_changed_loop_state(store):
    @step
    def look() -> int:
        return 1

    stop = Stop()

    @flow(name="changed loop state")
    def agent(first: Any) -> Any:
        for priced in turns(first):
            if priced.item == "tea!":
                stop.here()
                return priced
            look()
            priced.item += "!"
        return None

    interrupted(lambda: agent.run("r", Before("tea", 250)))
    put(After)
    with pytest.raises(RunHeld, match="at the input"):
        agent.run("r", After("tea", 2.5))
    put(After, upgrade=in_euros)
    assert agent.run("r", After("tea", 2.5)) == After("tea!", 2.5)
    assert "state_saved" in kinds(store, "r")


def test_a_worker_holds_it_and_takes_it_up_after_the_upgrade(store):
    """Nobody needs to say so: the class is not what it was when the same flow could not read it."""
    stop = Stop()

    @flow(name="changed classes in a worker")
    def agent(first: Any) -> Any:
        made = make()
        stop.here()
        return [first, made]

    interrupted(lambda: agent.run("r", Before("tea", 1)))
    put(After)
    with store.worker(flows=[agent]):
        store.wait_until("r", status="held")
    view = store.get("r")
    assert (view.status, view.held_reason) == ("held", "diverged")
    before = kinds(store, "r")
    store.recover()
    assert kinds(store, "r") == before, "the same flow with the same class does not try again"
    put(After, upgrade=in_euros)
    with store.worker(flows=[agent]):
        ended = store.wait_until("r", status="completed")
    assert ended.result() == [After("tea", 0.01), After("tea", 2.5)]


def test_a_completed_run_says_what_changed_and_stays_completed(store):
    @flow(name="changed result")
    def agent() -> Any:
        return Before("tea", 250)

    agent.run("r")
    put(After)
    for ask in (lambda: agent.run("r"), agent.submit("r").result):
        with pytest.raises(ClassChanged, match=r"run 'r': a stored Priced") as told:
            ask()
        assert (told.value.stored, told.value.today) == (("item", "cents"), ("item", "euros"))
    assert store.get("r").status == "completed"
    assert store.get("r").result == {"Priced": {"item": "tea", "cents": 250}}
    put(After, upgrade=in_euros)
    assert agent.run("r") == After("tea", 2.5)


def test_arguments_of_a_changed_class_are_compared_as_they_are_today(store):
    @step(name="changed argument")
    def price(of: Any) -> str:
        return of.item

    stop = Stop()

    @flow(name="changed arguments")
    def agent() -> str:
        sold = price(make())
        stop.here()
        return sold

    interrupted(agent_run := lambda: agent.run("r"))
    put(After, upgrade=in_euros)
    assert agent_run() == "tea"
    assert kinds(store, "r").count("step_completed") == 2


class Struct(msgspec.Struct):
    item: str
    euros: float


class Model(pydantic.BaseModel):
    item: str
    euros: float


class OldStruct(msgspec.Struct):
    item: str
    cents: int = 5


class OldModel(pydantic.BaseModel):
    item: str
    cents: int = 5


class OldEnum(enum.Enum):
    CHEAP = 1
    DEAR = 2


class Enum(enum.Enum):
    LOW = 1
    HIGH = 2


KINDS = {
    "dataclass": (Before("tea", 250), After, in_euros, After("tea", 2.5)),
    "struct": (OldStruct("tea", 250), Struct, lambda f: Struct(f["item"], 2.5), Struct("tea", 2.5)),
    "model": (
        OldModel(item="tea", cents=250),
        Model,
        lambda f: {"item": f["item"], "euros": f["cents"] / 100},
        Model(item="tea", euros=2.5),
    ),
    "struct to model": (
        OldStruct("tea", 250),
        Model,
        lambda f: Model(item=f["item"], euros=2.5),
        Model(item="tea", euros=2.5),
    ),
    "enum": (OldEnum.DEAR, Enum, lambda f: {"DEAR": Enum.HIGH}[f["name"]], Enum.HIGH),
    "enum by name": (OldEnum.DEAR, Enum, lambda f: {"name": "HIGH"}, Enum.HIGH),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_class(holdfast_store, kind):
    before, cls, upgrade, after = KINDS[kind]
    put(type(before))
    stop = Stop()

    @step(name="make it")
    def make_it() -> Any:
        return before

    @flow(name="every kind")
    def agent() -> Any:
        made = make_it()
        stop.here()
        return made

    interrupted(lambda: agent.run("r"))
    put(cls)
    with pytest.raises(RunHeld, match="does not fit today's class"):
        agent.run("r")
    put(cls, upgrade=upgrade)
    assert agent.run("r") == after
    KNOWN._upgrades.pop(cls)


@dataclasses.dataclass
class Counted:
    amount: int


@dataclasses.dataclass
class Spelled:
    amount: str


def test_the_type_of_a_field_is_not_compared(holdfast_store):
    """As the docs say: annotations of dataclasses are not enforced, when written or when read."""
    put(Counted)

    @flow(name="other type")
    def agent() -> Any:
        return Counted(1)

    agent.run("r")
    put(Spelled)
    assert agent.run("r") == Spelled(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_an_upgrade_that_fails_is_told(holdfast_store):
    @flow(name="failed upgrade")
    def agent() -> Any:
        return Before("tea")

    agent.run("r")
    put(After, upgrade=lambda fields: fields["price"])
    with pytest.raises(ClassChanged, match="its upgrade failed: KeyError: 'price'"):
        agent.run("r")
