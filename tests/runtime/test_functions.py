"""Steps as objects: names, methods, resources, where they may be called, and how they look."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import importlib
import inspect
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Done, aio, effect, flow, resource, step, testing
from holdfast.errors import RunFailed, StepFailed, UsageError
from tests.runtime.stops import Stop, interrupted, steps

# -- names -------------------------------------------------------------------------------------


def test_a_name_is_the_qualified_name_without_the_module():
    @step
    def local() -> None: ...

    @flow
    def around() -> None: ...

    where = "test_a_name_is_the_qualified_name_without_the_module"
    assert local.name == f"{where}.local"
    assert around.name == f"{where}.around"
    assert Shop.buy.name == "Shop.buy"
    assert step(name="fixed")(lambda: None).name == "fixed"


def test_two_functions_of_one_name_are_refused():
    @step(name="taken")
    def one() -> None: ...

    with pytest.raises(UsageError, match="two different functions"):

        @step(name="taken")
        def other() -> None: ...

    @flow(name="taken")  # Flows and steps have names of their own.
    def third() -> None: ...

    assert third.name == one.name == "taken"


def test_the_same_function_again_replaces(tmp_path: Path, monkeypatch, holdfast_store):
    source = "from holdfast import flow, step\n@step\ndef s() -> int: return {0}\n"
    source += "@flow\ndef f() -> int: return s()\n"
    module = tmp_path / "reloaded_module.py"
    module.write_text(source.format(1))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    import reloaded_module  # type: ignore[import-not-found]

    assert reloaded_module.f.run("r-1") == 1
    module.write_text(source.format(22))
    importlib.reload(reloaded_module)
    assert reloaded_module.f.run("r-2") == 22


@pytest.mark.parametrize("name", ["", " x", "a/b", "a#2", "a[0]", "a:b", "x" * 201, "a\nb"])
def test_a_name_that_would_be_read_as_a_path_is_refused(name):
    with pytest.raises(UsageError):
        step(name=name)(lambda: None)


def test_an_alias_keeps_runs_of_a_renamed_flow(holdfast_store):
    stop = Stop()

    @step
    def one() -> int:
        return 1

    def body() -> int:
        found = one()
        stop.here()
        return found

    old = flow(name="old_name")(body)
    interrupted(lambda: old.run("r"))
    new = flow(name="new_name", aliases=("old_name",))(body)
    assert new.run("r") == 1
    assert holdfast_store.get("r").flow == "old_name"


def test_an_alias_is_found_by_recover(holdfast_store):
    def body() -> int:
        return 4

    flow(name="before_the_move")(body).submit("r")
    flow(name="after_the_move", aliases=("before_the_move",))(body)
    assert holdfast_store.recover() == ["r"]
    assert holdfast_store.get("r").result == 4


def test_an_alias_that_is_the_name_of_another_flow_is_refused():
    @flow(name="somebody_else")
    def one() -> None: ...

    with pytest.raises(UsageError):

        @flow(name="newcomer", aliases=("somebody_else",))
        def other() -> None: ...


# -- what can be a step ------------------------------------------------------------------------


def generates():
    yield 1


async def generates_too():
    yield 1


@pytest.mark.parametrize("decorator", [step, effect, flow])
@pytest.mark.parametrize("fn", [generates, generates_too])
def test_generator_functions_are_refused(decorator, fn):
    with pytest.raises(UsageError, match="generator function"):
        decorator(fn)


@pytest.mark.parametrize("fn", [Path, 3, step(name="inner_one")(lambda: None)])
def test_what_is_no_function_is_refused(fn):
    with pytest.raises(UsageError):
        step(fn)


class Answers:
    def __call__(self, x: int) -> int:
        return x


@pytest.mark.parametrize("fn", [functools.partial(int, base=2), Answers()])
def test_a_callable_without_a_name_gets_one_or_is_refused(fn):
    with pytest.raises(UsageError):
        step(fn)


def test_call_takes_anything_that_can_be_called(holdfast_store):
    class Client:
        def ask(self, text: str) -> str:
            return text.upper()

    @flow
    def work() -> list[Any]:
        return [
            holdfast.run_step("lambda", lambda x: x + 1, 1),
            holdfast.run_step("bound", Client().ask, "hello"),
            holdfast.run_step("built in", sum, [1, 2]),
            holdfast.run_step("partial", functools.partial(int, base=2), "101"),
            holdfast.run_step("object", Answers(), 9),
        ]

    assert work.run("r") == [2, "HELLO", 3, 5, 9]
    assert list(steps(holdfast_store, "r")) == ["lambda", "bound", "built in", "partial", "object"]


def test_call_outside_a_run_is_the_function(holdfast_store):
    assert holdfast.run_step("plain", lambda x: x, 3) == 3
    assert asyncio.run(aio.run_step("plain", lambda x: x, 3)) == 3


def test_aio_call_takes_both_colours(holdfast_store):
    async def awaited(x: int) -> int:
        await asyncio.sleep(0)
        return x

    @flow
    async def work() -> list[Any]:
        return [
            await aio.run_step("a", awaited, 1),
            await aio.run_step("b", lambda: threading.get_ident()),
        ]

    first, thread = asyncio.run(work.run("r"))
    assert first == 1
    assert thread != threading.get_ident()


def test_call_in_the_wrong_colour_names_the_right_one(holdfast_store):
    async def awaited() -> int:
        return 1

    @flow
    def work() -> None:
        holdfast.run_step("x", awaited)  # type: ignore[unused-coroutine]

    with pytest.raises(RunFailed, match=r"aio\.run_step"):
        work.run("r")


# -- methods -----------------------------------------------------------------------------------


class Shop:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.client = object()  # Cannot be stored, and need not be.

    @step
    def buy(self, item: str) -> str:
        return f"{self.prefix} {item}"

    @step
    async def fetch(self, item: str) -> str:
        return f"{self.prefix} {item}"

    @classmethod
    @step
    def named(cls, item: str) -> str:
        return f"{cls.__name__} {item}"

    @staticmethod
    @step
    def plain(item: str) -> str:
        return item

    @effect
    def pay(self, order: str) -> str:
        raise ConnectionError

    @pay.on_doubt
    def find(self, order: str):
        return Done(f"{self.prefix} {order}")

    @step(fallback=lambda self, item: f"{self.prefix} no {item}")
    def missing(self, item: str) -> str:
        raise LookupError


def test_methods_are_steps_and_self_is_not_recorded(store):
    @flow
    def work() -> list[str]:
        shop = Shop("a")
        return [
            shop.buy("tea"),
            Shop.named("tea"),  # type: ignore[call-arg, arg-type]
            shop.named("tea"),
            shop.plain("x"),  # type: ignore[call-arg]
            Shop.plain("y"),
        ]

    assert work.run("r") == ["a tea", "Shop tea", "Shop tea", "x", "y"]
    started = [e for e in store.history("r") if e.kind == "step_started"]
    assert [e.step for e in started] == [
        "Shop.buy",
        "Shop.named",
        "Shop.named#2",
        "Shop.plain",
        "Shop.plain#2",
    ]
    assert started[0].body["args"] == {"item": "tea"}


def test_async_methods(holdfast_store):
    @flow
    async def work() -> list[str]:
        shop = Shop("a")
        return [await shop.fetch("tea"), await shop.buy.aio("milk")]

    assert asyncio.run(work.run("r")) == ["a tea", "a milk"]


def test_another_self_replays_the_same_record(holdfast_store):
    stop = Stop()
    lives = iter("ab")

    @flow
    def work() -> str:
        found = Shop(next(lives)).buy("tea")
        stop.here()
        return found

    interrupted(lambda: work.run("r"))
    assert work.run("r") == "a tea"


def test_on_doubt_of_a_method_gets_self(holdfast_store):
    @flow
    def work() -> str:
        return Shop("a").pay("42")

    assert work.run("r") == "a 42"


def test_a_fallback_of_a_method_gets_self(holdfast_store):
    @flow
    def work() -> str:
        return Shop("a").missing("tea")

    assert work.run("r") == "a no tea"


def test_a_method_called_through_its_class(holdfast_store):
    @flow
    def work() -> str:
        return Shop.buy(Shop("a"), "tea")

    assert work.run("r") == "a tea"


class Agent:
    @flow
    def answer(self, question: str) -> str:
        return question


def test_a_method_can_be_a_flow(holdfast_store):
    assert Agent().answer.run("r", "why") == "why"


# -- resources and what is not recorded --------------------------------------------------------

built: list[str] = []


def make_client() -> str:
    built.append("client")
    return "real"


def test_a_resource_is_built_once_per_store_and_never_recorded(store):
    built.clear()
    other = object()

    @step
    def ask(text: str, client: Any = resource(make_client)) -> str:
        return f"{client if isinstance(client, str) else 'other'} {text}"

    @flow
    def work(x: int, client: Any = resource(make_client)) -> list[str]:
        return [ask("a"), ask("b"), ask("c", client=other), client]

    assert work.run("r", 1) == ["real a", "real b", "other c", "real"]
    assert built == ["client"]
    assert all("client" not in e.body.get("args", {}) for e in store.history("r"))
    with testing.override(make_client, "fake"):
        assert work.run("r-2", 1)[0] == "fake a"
    assert built == ["client"]


def test_outside_a_run_a_resource_is_filled_too(holdfast_store):
    @step
    def ask(text: str, client: str = resource(make_client)) -> str:
        return f"{client} {text}"

    assert ask("x") == "real x"


async def make_async_client() -> str:
    await asyncio.sleep(0)
    return "async"


def test_an_async_factory_is_awaited_once(holdfast_store):
    @step
    async def ask(x: int, client: Any = resource(make_async_client)) -> str:
        return f"{client} {x}"

    @flow
    async def work() -> list[str]:
        return [await ask(1), await ask(2)]

    assert asyncio.run(work.run("r")) == ["async 1", "async 2"]


def test_unrecorded_parameters_are_handed_through(holdfast_store):
    stop = Stop()
    sessions: list[object] = []

    @step(unrecorded=("session",))
    def ask(text: str, session: object) -> str:
        sessions.append(session)
        return text

    @flow
    def work() -> str:
        found = ask("x", object())
        stop.here()
        return found

    interrupted(lambda: work.run("r"))
    assert work.run("r") == "x"  # Another object, and no divergence.
    assert len(sessions) == 1
    started = next(e for e in holdfast_store.history("r") if e.kind == "step_started")
    assert started.body["args"] == {"text": "x"}


def test_an_unrecorded_parameter_must_be_there():
    with pytest.raises(UsageError, match="no such parameter"):
        step(unrecorded=("sesion",))(lambda session: None)


# -- where calls count -------------------------------------------------------------------------


def test_outside_a_run(holdfast_store):
    @step
    def one() -> int:
        return 1

    @effect
    def two() -> int:
        return 2

    assert one() == 1
    with pytest.raises(UsageError, match=r"\.fn"):
        two()
    assert two.fn() == 2


def test_a_step_inside_a_step_is_part_of_it(holdfast_store):
    @step
    def inner(x: int) -> int:
        return x

    @step
    def outer() -> int:
        return inner(1) + inner(2)

    @flow
    def work() -> int:
        return outer()

    assert work.run("r") == 3
    assert list(steps(holdfast_store, "r")) == [outer.name]


@pytest.mark.parametrize("what", ["effect", "flow", "turns", "gather", "now", "block"])
def test_what_belongs_into_a_flow_is_refused_inside_a_step(holdfast_store, what):
    @effect
    def charge() -> None: ...

    @flow
    def other() -> None: ...

    @step
    def outer() -> None:
        if what == "effect":
            charge()
        elif what == "flow":
            other.run("inner")
        elif what == "turns":
            holdfast.turns([])
        elif what == "gather":
            holdfast.gather(lambda: 1)
        elif what == "now":
            holdfast.context.now()
        else:
            with holdfast.run("inner"):
                pass

    @flow
    def work() -> str:
        try:
            outer()
        except StepFailed as failed:
            return failed.type_name
        return ""

    assert work.run("r") == "UsageError"
    assert [run.run_id for run in holdfast_store.runs()] == ["r"]


@pytest.mark.parametrize(
    "call",
    [
        holdfast.idempotency_key,
        holdfast.context.load_progress,
        holdfast.context.record_usage,
    ],
)
def test_what_belongs_into_a_step_is_refused_in_a_flow(holdfast_store, call):
    @flow
    def work() -> None:
        call()

    with pytest.raises(RunFailed, match="inside a step"):
        work.run("r")
    with pytest.raises(UsageError):
        call()


def test_the_wrong_colour_names_the_right_one(holdfast_store):
    @step
    def sync() -> None: ...

    @step
    async def awaited() -> None: ...

    @flow
    async def async_flow() -> None:
        sync()

    @flow
    def sync_flow() -> None:
        awaited()  # type: ignore[unused-coroutine]

    with pytest.raises(RunFailed, match=r"\.aio\("):
        asyncio.run(async_flow.run("a"))
    with pytest.raises(RunFailed, match="async step"):
        sync_flow.run("b")

    async def main() -> None:
        sync_flow.run("c")

    with pytest.raises(UsageError, match="event loop"):
        asyncio.run(main())


def test_a_flow_called_like_a_function_says_what_to_write(holdfast_store):
    @flow
    def inner() -> None: ...

    @flow
    def outer() -> None:
        inner.run("another")

    with pytest.raises(UsageError, match=r"\.run\('my-run-id'"):
        inner()
    with pytest.raises(RunFailed, match="a child has an id of its own"):
        outer.run("r")


def test_wrong_arguments_are_a_type_error_as_in_a_call(holdfast_store):
    @step
    def one(x: int) -> int:
        return x

    @flow
    def work() -> str:
        try:
            one(1, 2)  # type: ignore[call-arg]
        except TypeError:
            return "type error"
        return ""

    assert work.run("r") == "type error"


# -- a key of its own --------------------------------------------------------------------------


def test_a_step_key_makes_a_call_independent_of_its_place(store):
    stop = Stop()
    calls: list[int] = []

    @step
    def tool(x: int) -> int:
        calls.append(x)
        return x

    @flow
    def work() -> list[int]:
        order = [1, 2] if stop.passed == 0 else [2, 1]
        found = [tool.with_options(step_key=f"call-{x}")(x) for x in order]
        stop.here()
        return found

    interrupted(lambda: work.run("r"))
    assert work.run("r") == [2, 1]
    assert calls == [1, 2]


def test_a_step_key_from_threads_and_its_occurrences(store):
    stop = Stop()
    calls: list[int] = []

    @step
    def tool(x: int) -> int:
        calls.append(x)
        return x

    def in_thread(x: int) -> None:
        tool.with_options(step_key=f"call/{x}")(x)
        tool.with_options(step_key=f"call/{x}")(x)

    @flow
    def work() -> None:
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(in_thread, x))
            for x in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stop.here()

    interrupted(lambda: work.run("r"))
    work.run("r")
    assert sorted(calls) == sorted([0, 1, 2, 3] * 2)
    wanted = {f"{tool.name}:call%2F{x}{n}" for x in range(4) for n in ("", "#2")}
    assert set(steps(store, "r")) == wanted


def test_a_step_key_from_tasks(holdfast_store):
    stop = Stop()
    calls: list[int] = []

    @step
    async def tool(x: int) -> int:
        calls.append(x)
        await asyncio.sleep(0)
        return x

    async def use_tool(x: int) -> int:
        return await tool.with_options(step_key=f"call-{x}")(x)

    @flow
    async def work() -> list[int]:
        found = await asyncio.gather(*(asyncio.create_task(use_tool(x)) for x in range(3)))
        stop.here()
        return list(found)

    interrupted(lambda: asyncio.run(work.run("r")))
    assert asyncio.run(work.run("r")) == [0, 1, 2]
    assert calls == [0, 1, 2]


def test_a_call_from_an_unknown_thread_is_refused(holdfast_store):
    seen: list[str] = []

    @step
    def tool(x: int) -> int:
        return x

    def in_thread() -> None:
        try:
            tool(1)
        except UsageError as error:
            seen.append(str(error))

    @flow
    def work() -> None:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(in_thread,))
        thread.start()
        thread.join()

    work.run("r")
    assert "step_key=" in seen[0]


@pytest.mark.parametrize("key", ["", 3])
def test_a_step_key_that_cannot_be_one(key):
    with pytest.raises(UsageError):
        step(name="keyed")(lambda: None).with_options(step_key=key)


# -- how it looks from outside -----------------------------------------------------------------


def test_it_passes_for_a_function():
    @step
    def sync(x: int, y: str = "z") -> float:
        """What it does."""
        return 1.0

    @step
    async def awaited(x: int) -> None: ...

    @effect
    async def changes(x: int) -> None: ...

    assert not inspect.iscoroutinefunction(sync)
    assert inspect.iscoroutinefunction(awaited)
    assert inspect.iscoroutinefunction(changes)
    assert str(inspect.signature(sync)) == "(x: 'int', y: 'str' = 'z') -> 'float'"
    assert (vars(sync)["__name__"], sync.__doc__) == ("sync", "What it does.")
    assert inspect.get_annotations(sync, eval_str=True)["y"] is str
    assert "sync" in repr(sync)


def test_a_bound_method_has_the_signature_without_self():
    shop = Shop("a")
    assert inspect.iscoroutinefunction(shop.fetch)
    assert list(inspect.signature(shop.fetch.fn).parameters) == ["item"]


def test_the_signature_of_a_bound_step_has_no_self():
    assert list(inspect.signature(Shop("a").buy).parameters) == ["item"]


def test_schema_generators_work_on_it(holdfast_store):
    import pydantic

    @step
    def ask(text: str, count: int = 1) -> str:
        return text * count

    fields: dict[str, Any] = {
        name: (found.annotation, ... if found.default is found.empty else found.default)
        for name, found in inspect.signature(ask, eval_str=True).parameters.items()
    }
    schema = pydantic.create_model("Ask", **fields).model_json_schema()
    assert schema["required"] == ["text"]
    assert pydantic.validate_call(ask.fn)("a", count="2") == "aa"  # type: ignore[arg-type]
