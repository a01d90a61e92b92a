"""Calls with keys of their own: from tasks and threads of a framework, in any order."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast import aio, ask, effect, flow, step, testing
from holdfast.adapters import as_effect, as_step, step_key
from holdfast.errors import RunFailed, RunHeld, UsageError
from tests.runtime.stops import Stop, interrupted

called: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_called() -> None:
    called.clear()


@step(name="kd-look")
def look(what: str) -> str:
    called.append(what)
    return what.upper()


@step(name="kd-alook")
async def alook(what: str) -> str:
    called.append(what)
    await asyncio.sleep(0)
    return what.upper()


@effect(name="kd-pay", on_doubt="retry")
def pay(amount: int) -> str:
    called.append(amount)
    return holdfast.idempotency_key()


def in_threads(calls: dict[str, Any]) -> list[Any]:
    """Call each under its key, in threads that carry the context, as frameworks do."""

    def under(key: str, call: Any) -> Any:
        with step_key(key):
            return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [
            pool.submit(contextvars.copy_context().run, under, key, call)
            for key, call in calls.items()
        ]
        return [future.result() for future in futures]


@flow(name="kd-sync")
def in_sync(order: list[str], fails: bool) -> list[Any]:
    result = in_threads({key: lambda key=key: look(key) for key in order})
    if fails:
        raise RuntimeError("the process is in trouble")
    return result


def test_threads_of_a_framework_are_recorded_under_their_keys() -> None:
    with testing.store() as store:
        assert in_sync.run("r", ["a", "b", "c"], False) == ["A", "B", "C"]
        assert {it.key for it in store.get("r").steps} == {"kd-look:a", "kd-look:b", "kd-look:c"}


@flow(name="kd-order")
def any_order(first: bool) -> list[Any]:
    order = ["a", "b"] if called == [] else ["b", "a"]
    result = in_threads({key: lambda key=key: look(key) for key in order})
    with step_key("end"):
        pay(1)
    return sorted(result)


def test_another_order_on_replay_is_the_same_run() -> None:
    report = testing.crash_matrix(any_order, True)
    assert report.undisturbed == {"kd-look:a": 1, "kd-look:b": 1, "kd-pay:end": 1}


@flow(name="kd-async")
async def in_async() -> list[Any]:
    async def tool(key: str) -> str:
        with step_key(key):
            return await alook(key)

    def blocking(amount: int) -> str:
        with step_key(f"t{amount}"):
            return pay(amount)

    one, other, *keys = await asyncio.gather(
        *(tool(key) for key in "ab"),
        *(asyncio.to_thread(blocking, amount) for amount in (1, 2)),
    )
    assert len(set(keys)) == 2
    return [one, other, len(keys)]


def test_tasks_and_threads_of_an_async_flow() -> None:
    with testing.store() as store:
        assert asyncio.run(in_async.run("r")) == ["A", "B", 2]
        assert {it.key for it in store.get("r").steps} == {
            *("kd-alook:a", "kd-alook:b", "kd-pay:t1", "kd-pay:t2")
        }
    testing.crash_matrix(in_async)


@flow(name="kd-loop")
def loop_in_sync() -> str:
    async def agent() -> str:
        with step_key("x"):
            return await alook("x")

    return asyncio.run(agent())


def test_an_event_loop_inside_a_sync_flow() -> None:
    with testing.store():
        assert loop_in_sync.run("r") == "X"
        assert loop_in_sync.run("r") == "X"
    assert called == ["x"]


def test_the_same_key_again_is_the_next_occurrence() -> None:
    @flow(name="kd-twice")
    def twice() -> list[str]:
        with step_key("a"):
            return [look("x"), look("y")]

    with testing.store() as store:
        assert twice.run("r") == ["X", "Y"]
        assert [it.key for it in store.get("r").steps] == ["kd-look:a", "kd-look:a#2"]


def test_other_arguments_under_a_key_are_another_way() -> None:
    words = iter(["x", "y"])

    @flow(name="kd-changed")
    def changed() -> str:
        with step_key("a"):
            said = look(next(words))
        with step_key("b"):
            pay(7)
        if not called or len(called) == 2:
            raise KeyboardInterrupt
        return said

    with testing.store():
        with pytest.raises(KeyboardInterrupt):
            changed.run("r")
        with pytest.raises(RunHeld, match="diverged"):
            changed.run("r")


def until_asked(store: Any) -> None:
    """The line that started the tool is at work, so the run itself does not count as waiting."""
    end = time.monotonic() + 20
    while not store.questions(run_id="r"):
        assert time.monotonic() < end
        store._backend.wait_for_change(0.05)


def test_a_question_in_a_thread() -> None:
    @flow(name="kd-asks")
    def asks() -> list[Any]:
        return in_threads({"call_1": lambda: ask("How many?", name="many", type=int)})

    with testing.store() as store:
        handle = asks.start("r")
        until_asked(store)
        store.answer("r", "many", 3, actor="ana")
        assert handle.result(timeout=20) == [3]


def test_an_awaited_question_in_a_task() -> None:
    @flow(name="kd-aasks")
    async def asks() -> int:
        async def tool() -> int:
            with step_key("call_1"):
                return await aio.ask("How many?", name="many", type=int)

        return await asyncio.create_task(tool())

    with testing.store() as store:
        handle = asks.start("r")
        until_asked(store)
        store.answer("r", "many", 3, actor="ana")
        assert handle.result(timeout=20) == 3


def test_without_a_key_the_colour_is_that_of_the_flow() -> None:
    @flow(name="kd-colour")
    async def wrong() -> None:
        await asyncio.to_thread(look, "x")

    with testing.store(), pytest.raises(RunFailed, match="is a sync step") as failed:
        asyncio.run(wrong.run("r"))
    assert "as a tool, give the agent Holdfast's adapter (docs/integrations)" in str(failed.value)


@pytest.mark.parametrize("key", ["", 7])
def test_a_key_is_a_text(key: Any) -> None:
    with pytest.raises(UsageError, match="step_key="), step_key(key):
        pass


def test_functions_recorded_under_any_name() -> None:
    sent: list[str] = []

    @flow(name="kd-recorded")
    def tools() -> list[Any]:
        one = as_step(lambda text: text + "!", name="search")
        other = as_step(lambda text: text + "?", name="search")
        send = as_effect(sent.append, name="send", on_doubt="fail")
        with step_key("call_1"):
            send("mail")
        return [one("a"), other.with_options(step_key="k")("b")]

    with testing.store() as store:
        assert tools.run("r") == ["a!", "b?"]
        assert tools.run("r") == ["a!", "b?"]
        assert [it.key for it in store.get("r").steps] == ["send:call_1", "search", "search:k"]
    assert sent == ["mail"]


def test_recorded_has_the_options_of_its_kind() -> None:
    with pytest.raises(UsageError, match="@effect"):
        as_step(print, name="p", on_doubt="hold")
    with pytest.raises(UsageError, match="no option"):
        as_step(print, name="p", colour="red")
    with pytest.raises(UsageError, match="is not allowed in a name"):
        as_step(print, name="a/b")


def test_many_threads_take_keys_of_one_name() -> None:
    together = threading.Barrier(8)

    @flow(name="kd-many")
    def many() -> int:
        def one(_: int) -> str:
            together.wait()
            with step_key("k"):
                return look("x")

        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(contextvars.copy_context().run, one, it) for it in range(8)]
            return len([job.result() for job in jobs])

    with testing.store() as store:
        assert many.run("r") == 8
        assert len({it.key for it in store.get("r").steps}) == 8


def test_a_memory_that_is_not_recorded() -> None:
    @flow(name="kd-memory")
    def remembers() -> int:
        with holdfast.open("memory:", default=False) as own:
            notes = own.memory("notes", recorded=False)
            notes.update({"a": 1, "b": 2})
            notes.update({"c": 3}, delete=["a"])
            assert [it.key for it in notes.items()] == ["b", "c"]
        plain = store.memory("notes", recorded=False)
        plain.set("k", plain.get("k", 0) + 1)
        return int(plain.get("k"))

    with testing.store() as store:
        assert remembers.run("r") == 1
        assert store.memory("notes").get("k") == 1
        assert store.get("r").steps == []


def test_an_update_is_for_outside_runs() -> None:
    @flow(name="kd-update")
    def updates() -> None:
        holdfast.memory("notes").update({"a": 1})

    with testing.store() as store:
        with pytest.raises(RunFailed, match="update is for outside runs"):
            updates.run("r")
        asyncio.run(_updated())
        assert store.memory("notes").get("b") == 2


async def _updated() -> None:
    await aio.memory("notes").update({"a": 1, "b": 2}, delete=["c"])


class CutShort(GeneratorExit):
    """As when the consumer of a stream goes away."""


@step(name="kd-shaky")
def shaky(what: str) -> str:
    called.append(what)
    if called.count(what) == 1:
        raise CutShort
    return what.upper()


@step(name="kd-ashaky")
async def ashaky(what: str) -> str:
    return shaky.fn(what)


@flow(name="kd-cut")
def cut() -> list[str]:
    def insist(what: str) -> str:
        try:
            return under_key(what)
        except CutShort:
            return under_key(what)

    def under_key(what: str) -> str:
        with step_key("k"):
            return shaky(what)

    return [insist("a"), insist("b"), look("end")]


def test_a_call_that_was_cut_short_and_is_made_again_is_the_same_call() -> None:
    with testing.store() as store:
        assert cut.run("r") == ["A", "B", "END"]
        steps = [(it.key, it.status) for it in store.get("r").steps]
        assert steps == [(it, "completed") for it in ("kd-shaky:k", "kd-shaky:k#2", "kd-look")]
        assert store.verify() == []


def test_a_replay_needs_no_try_that_came_to_nothing() -> None:
    report = testing.crash_matrix(cut)
    assert report.result == ["A", "B", "END"]


@pytest.mark.parametrize("first", ["a", "b"])
def test_each_call_that_was_cut_short_gets_its_own_key_back(first: str) -> None:
    @flow(name=f"kd-cut-both-{first}")
    async def both() -> None:
        for what in ("a", "b", first, "ab".replace(first, ""), "c"):
            with step_key("k"), contextlib.suppress(CutShort):
                await ashaky(what)

    with testing.store() as store:
        asyncio.run(both.run("r"))
        done = {
            it.step: it.body["result"]
            for it in store.history("r")
            if it.step and "result" in it.body
        }
        assert done == {"kd-ashaky:k": "A", "kd-ashaky:k#2": "B"}
        assert [it.status for it in store.get("r").steps] == ["completed", "completed", "cancelled"]


def test_a_long_key_is_cut_and_told_from_others() -> None:
    @flow(name="kd-long")
    def long() -> list[str]:
        found = []
        for end in "ab":
            with step_key("x" * 1000 + end):
                found.append(look(end))
        return found

    with testing.store() as store:
        assert long.run("r") == ["A", "B"]
        keys = [it.key for it in store.get("r").steps]
        assert len(set(keys)) == 2
        assert all(len(key) < 250 and "#" not in key for key in keys)
    testing.crash_matrix(long)


def stopped_once(run_id: str, asks: dict[str, str], stop: Stop) -> Any:
    """Return a flow that looks up something under a key of its own, and is stopped once behind it."""

    @flow(name="kd-changing")
    def changing() -> tuple[str, str]:
        with step_key("k"):
            found = look(asks["what"])
        stop.here()
        with step_key("next"):
            return found, look("next")

    return lambda: changing.run(run_id)


def test_an_accepted_change_of_arguments_is_accepted_under_a_key_too() -> None:
    with testing.store() as store:
        asks = {"what": "old"}
        run = stopped_once("r", asks, Stop())
        interrupted(run)
        asks["what"] = "new"
        with pytest.raises(RunHeld, match="diverged"):
            run()
        store.resume("r", accept_change=True, actor="kim")
        # As with a call that has a place: the record is matched by key, and its outcome is used.
        assert run() == ("OLD", "NEXT")
        assert called == ["old", "next"]
        assert store.verify() == []


def test_what_is_recorded_under_a_key_behind_an_accepted_change_binds_again() -> None:
    with testing.store() as store:
        asks = {"what": "old", "more": "one"}
        stops = [Stop(), Stop()]

        @flow(name="kd-later")
        def later() -> str:
            with step_key("k"):
                look(asks["what"])
            stops[0].here()
            with step_key("more"):
                found = look(asks["more"])
            stops[1].here()
            return found

        interrupted(lambda: later.run("r"))
        asks["what"] = "new"
        with pytest.raises(RunHeld):
            later.run("r")
        store.resume("r", accept_change=True, actor="kim")
        interrupted(lambda: later.run("r"))
        asks["more"] = "two"
        with pytest.raises(RunHeld, match="kd-look:more"):
            later.run("r")
        asks["more"] = "one"
        assert later.run("r") == "ONE"
        assert called == ["old", "one"]


def test_a_step_that_never_had_an_outcome_may_be_called_with_other_arguments() -> None:
    with testing.store() as store:
        ports = {"now": "wrong"}
        stop, again = Stop(), Stop()

        @step(name="kd-reach")
        def reach(port: str) -> str:
            called.append(port)
            stop.here()
            return port

        @flow(name="kd-reaching")
        def reaching() -> str:
            with step_key("k"):
                found = reach(ports["now"])
            again.here()
            return found

        interrupted(lambda: reaching.run("r"))
        assert store.get("r").steps[0].status == "cancelled"
        ports["now"] = "right"
        interrupted(lambda: reaching.run("r"))
        # Now there is an outcome, of the arguments that it was got with.
        assert reaching.run("r") == "right"
        assert called == ["wrong", "right"]
        assert store.verify() == []


def test_an_outcome_binds_to_the_arguments_that_it_was_got_with() -> None:
    with testing.store():
        ports = {"now": "wrong"}
        stop, again = Stop(), Stop()

        @step(name="kd-reach-2")
        def reach(port: str) -> str:
            stop.here()
            return port

        @flow(name="kd-reaching-2")
        def reaching() -> str:
            found = reach.with_options(step_key="k")(ports["now"])
            again.here()
            return found

        interrupted(lambda: reaching.run("r"))
        ports["now"] = "right"
        interrupted(lambda: reaching.run("r"))
        ports["now"] = "wrong"
        with pytest.raises(RunHeld, match="diverged"):
            reaching.run("r")


def test_an_effect_that_was_begun_binds_to_its_arguments() -> None:
    with testing.store():
        amounts = {"now": 1}
        stop = Stop()

        @effect(name="kd-pays", on_doubt="retry")
        def pays(amount: int) -> int:
            called.append(amount)
            stop.here()
            return amount

        @flow(name="kd-paying")
        def paying() -> int:
            return pays.with_options(step_key="k")(amounts["now"])

        interrupted(lambda: paying.run("r"))
        amounts["now"] = 2
        with pytest.raises(RunHeld, match="diverged"):
            paying.run("r")
        assert called == [1]
