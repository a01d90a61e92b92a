"""A block as a run: a script that exists already, and is run again."""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Done, aio, each, effect, step, turns
from holdfast.errors import HoldfastError, RunBusy, RunConflict, RunHeld, StepFailed, UsageError
from tests.runtime.stops import kinds, steps

calls: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


@step
def put(x: Any) -> Any:
    calls.append(x)
    return x


@step
async def aput(x: Any) -> Any:
    calls.append(x)
    return x


def test_the_body_executes_and_its_steps_replay(store):
    def look_up() -> int:
        calls.append("two")
        return 2

    for _ in range(3):
        with holdfast.run("b"):
            found = [put(1), holdfast.run_step("two", look_up), holdfast.context.now()]
        assert found[:2] == [1, 2]
    assert calls == [1, "two"]
    assert store.get("b").status == "completed"
    assert store.verify() == []


def test_an_async_block(store):
    async def main() -> list[Any]:
        async with aio.run("b"):
            return [await aput(1), await put.aio(2), await aio.run_step("three", lambda: 3)]

    assert asyncio.run(main()) == asyncio.run(main()) == [1, 2, 3]
    assert calls == [1, 2]
    assert store.get("b").status == "completed"


def test_it_raises_what_its_body_raised_and_goes_on_later(store):
    for number in range(2):
        try:
            with holdfast.run("b"):
                put(1)
                if number == 0:
                    raise LookupError("of the script")
                put(2)
        except LookupError:
            assert store.get("b").status == "failed"
    assert calls == [1, 2]
    assert store.get("b").status == "completed"
    assert store.get("b").generation == 2


def test_an_async_block_that_failed_goes_on_later(store):
    async def main(*, fails: bool) -> None:
        async with aio.run("b"):
            await aput(1)
            if fails:
                raise LookupError
            await aput(2)

    with pytest.raises(LookupError):
        asyncio.run(main(fails=True))
    asyncio.run(main(fails=False))
    assert calls == [1, 2]


def test_an_interrupted_block_is_given_back(store):
    with pytest.raises(KeyboardInterrupt), holdfast.run("b"):
        put(1)
        raise KeyboardInterrupt
    assert store.get("b").status == "queued"
    with holdfast.run("b"):
        put(1)
    assert calls == [1]


def test_a_step_that_gave_up_is_tried_anew(store):
    down = [True]

    def fails() -> int:
        calls.append("try")
        if down:
            raise ValueError
        return 1

    with pytest.raises(StepFailed), holdfast.run("b"):
        holdfast.run_step("fails", fails)
    down.clear()
    with holdfast.run("b"):
        assert holdfast.run_step("fails", fails) == 1
    assert calls == ["try", "try"]


def test_a_doubt_holds_a_block(store):
    @effect
    def charge() -> str:
        raise ConnectionError

    for _ in range(2):
        with pytest.raises(RunHeld, match="in_doubt"), holdfast.run("b"):
            charge()
    store.settle("b", charge.name, Done("ch-1"), actor="kim")
    with holdfast.run("b"):
        assert charge() == "ch-1"


def test_loops_and_branches_in_a_block(store):
    for _ in range(2):
        with holdfast.run("b"):
            for state in turns({"i": 0}, max_turns=5):
                if state["i"] == 2:
                    break
                state["i"] += 1 + 0 * put(state["i"])
            assert each(put, [10, 11]) == [10, 11]
    assert sorted(calls) == [0, 1, 10, 11]
    assert "turns[0]/put" in steps(store, "b")


def test_blocks_do_not_nest_and_are_entered_once(holdfast_store):
    with holdfast.run("outer"):
        with pytest.raises(UsageError, match="nest"), holdfast.run("inner"):
            pass
    block = holdfast.run("again")
    with block:
        pass
    with pytest.raises(UsageError, match="once"), block:
        pass


def test_the_wrong_colour(holdfast_store):
    async def main() -> None:
        with holdfast.run("b"):
            pass

    with pytest.raises(UsageError, match=r"aio\.run"):
        asyncio.run(main())


def test_the_other_wrong_colours(holdfast_store):
    async def main() -> None:
        async with holdfast.run("b"):  # type: ignore[attr-defined]
            pass

    with pytest.raises(UsageError, match=r"write `async with holdfast\.aio\.run"):
        asyncio.run(main())
    with pytest.raises(UsageError, match=r"in sync code `with holdfast\.run"):
        with aio.run("b"):  # type: ignore[attr-defined]
            pass
    assert holdfast_store.runs() == []


@effect(name="block-charge")
def cut_off() -> None:
    raise ConnectionError


@effect(name="block-acharge")
async def acut_off() -> None:
    raise ConnectionError


def blocking() -> None:
    with holdfast.run("b"):
        cut_off()


def awaited() -> None:
    async def main() -> None:
        async with aio.run("b"):
            await acut_off()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("work", "line"), [(blocking, "    cut_off()"), (awaited, "    await acut_off()")]
)
def test_a_held_block_shows_its_own_line_and_says_once_what_to_do(
    holdfast_store, work: Callable[[], None], line: str
):
    with pytest.raises(RunHeld) as held:
        work()
    told = "".join(traceback.format_exception(held.value))
    assert told.count("is held (in_doubt)") == 1
    assert "Unwind" not in told
    assert "During handling" not in told
    assert line in told.splitlines()


def test_names_and_tags(holdfast_store):
    with holdfast.run("b", name="import", tags={"day": "monday"}):
        assert holdfast.context.current_run().flow == "import"  # type: ignore[union-attr]
    assert holdfast_store.get("b").tags == {"day": "monday"}
    with pytest.raises(RunConflict), holdfast.run("b", name="export"):
        pass


def test_a_block_is_not_executed_by_recovery(holdfast_store):
    with pytest.raises(KeyboardInterrupt), holdfast.run("b"):
        raise KeyboardInterrupt
    assert holdfast_store.recover() == []


@pytest.mark.parametrize("change", ["more", "other"])
def test_a_completed_block_whose_script_changed_raises_an_error_of_ours(holdfast_store, change):
    with holdfast.run("b"):
        put(1)
    with pytest.raises(HoldfastError), holdfast.run("b"):
        put(1 if change == "more" else 2)
        put(3)
    assert kinds(holdfast_store, "b")[-1] == "run_completed"


def test_a_completed_block_executes_nothing_that_has_no_outcome(store):
    """A call that was begun, cut short, and caught: it has a record, and nothing to replay."""
    done: list[str] = []

    @step(name="block test cut short")
    def cut_short() -> None:
        done.append("begun")
        raise KeyboardInterrupt

    def script() -> None:
        with holdfast.run("b"), contextlib.suppress(KeyboardInterrupt):
            cut_short()

    script()
    assert done == ["begun"]
    assert store.get("b").status == "completed"
    for _ in range(2):
        with pytest.raises(UsageError, match="has completed without an outcome of block test cut"):
            script()
    assert done == ["begun"]
    assert store.get("b").status == "completed"


def test_a_block_that_is_cancelled_while_it_is_entered_gives_the_run_back(
    holdfast_store, monkeypatch
):
    real = holdfast_store._backend.get

    def slow(run_id: str) -> Any:
        time.sleep(0.1)
        return real(run_id)

    async def enter() -> None:
        async with aio.run("b"):
            pass

    async def main() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(holdfast_store._backend, "get", slow)
            task = asyncio.ensure_future(enter())
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.2)
        await enter()

    try:
        asyncio.run(main())
    except RunBusy as busy:
        raise AssertionError from busy
