"""Loops of turns: what is saved, what a resume sees of it, and which keys the steps get."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import aio, each, flow, gather, step, turns
from holdfast.errors import RunFailed, RunHeld, StepFailed, TurnLimitReached, UsageError
from tests.runtime.stops import Stop, interrupted, steps


@dataclasses.dataclass
class Chat:
    messages: list[str] = dataclasses.field(default_factory=list)


calls: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


@step
def pond(i: int) -> int:
    calls.append(i)
    return i


@step
async def apond(i: int) -> int:
    calls.append(i)
    await asyncio.sleep(0)
    return i


def test_each_turn_gets_a_decoded_copy(store):
    given: list[Chat] = []
    first = Chat(["task"])

    @flow
    def work() -> list[str]:
        for chat in turns(first, max_turns=10):
            if given:
                given[-1].messages.append("too late")  # An object of a turn that is over.
            given.append(chat)
            if len(chat.messages) == 4:
                return chat.messages
            chat.messages.append(f"{pond(len(chat.messages))}")
        raise AssertionError

    assert work.run("r") == ["task", "1", "2", "3"]
    assert len({id(chat) for chat in given}) == 4
    assert first == Chat(["task"])


def test_a_resume_starts_at_the_last_turn(store):
    stop = Stop()

    @flow
    def work() -> list[int]:
        for state in turns({"done": []}, max_turns=10):  # type: ignore[var-annotated]
            done = state["done"]
            if len(done) == 5:
                return done
            done.append(pond(len(done)))
            if len(done) == 4:
                stop.here()
        raise AssertionError

    interrupted(lambda: work.run("r"))
    assert work.run("r") == [0, 1, 2, 3, 4]
    assert calls == [0, 1, 2, 3, 4]
    assert list(steps(store, "r")) == [f"turns[{i}]/pond" for i in range(5)]
    assert store.verify() == []


def test_a_resume_reads_little_and_the_whole_still_verifies(sqlite):
    stop = Stop()

    @flow
    def work() -> int:
        pond(-1)
        for state in turns({"i": 0}, max_turns=200):
            if state["i"] == 100:
                stop.here()
            if state["i"] == 101:
                break
            state["i"] += 1 + 0 * pond(state["i"])
        return pond(-2)

    interrupted(lambda: work.run("r"))
    row = sqlite._backend.get("r")
    skipped = sum(high - low + 1 for low, high in msgspec.json.decode(row.skips))
    assert skipped > 150
    assert row.last_seq - skipped < 20
    assert work.run("r") == -2
    assert calls == [-1, *range(101), -2]
    assert sqlite.verify() == []
    assert len(sqlite.get("r").steps) == 103


def test_loop_state_replaces_the_state(store):
    stop = Stop()

    @flow
    def work() -> int:
        loop: Any = turns((0,), max_turns=10)
        for numbers in loop:
            if len(numbers) == 4:
                return sum(numbers)
            loop.state = (*numbers, pond(len(numbers)))
            if len(numbers) == 2:
                stop.here()
        raise AssertionError

    interrupted(lambda: work.run("r"))
    assert work.run("r") == 6
    assert calls == [1, 2, 3]


def test_a_state_that_was_rebound_is_noticed(holdfast_store):
    @flow
    def work() -> None:
        for chat in turns(Chat(), max_turns=10):
            found = pond(1)
            chat = Chat([f"{found}"])  # noqa: F841 - the mistake that is meant

    with pytest.raises(RunFailed, match="rebound"):
        work.run("r")


def test_a_turn_without_steps_may_leave_its_state(holdfast_store):
    @flow
    def work() -> int:
        count = 0
        for _ in turns({}, max_turns=5):
            count += 1
            if count == 5:
                return count
        raise AssertionError

    assert work.run("r") == 5


def test_the_limit(holdfast_store):
    @flow
    def work() -> str:
        try:
            for state in turns({"i": 0}, max_turns=3):
                state["i"] += 1 + 0 * pond(state["i"])
        except TurnLimitReached as limit:
            return f"{limit.loop} {limit.limit} {pond(9)}"
        return ""

    assert work.run("r") == "turns 3 9"
    assert calls == [0, 1, 2, 9]
    assert list(steps(holdfast_store, "r"))[-1] == "pond"


@pytest.mark.parametrize("limit", [0, -1, "3"])
def test_a_limit_that_is_none(holdfast_store, limit):
    @flow
    def work() -> None:
        turns({}, max_turns=limit)

    with pytest.raises(RunFailed, match="max_turns="):
        work.run("r")


def test_outside_a_flow_and_in_the_wrong_colour(holdfast_store):
    with pytest.raises(UsageError, match="inside a flow"):
        turns({})

    @flow
    async def wrong() -> None:
        turns({})

    @flow
    def wrong_too() -> None:
        aio.turns({})

    with pytest.raises(RunFailed, match="async for"):
        asyncio.run(wrong.run("a"))
    with pytest.raises(RunFailed, match="for … in turns"):
        wrong_too.run("b")


def test_one_loop_object_is_looped_over_once(holdfast_store):
    @flow
    def work() -> None:
        loop: Any = turns({}, max_turns=5)
        for _ in loop:
            break
        for _ in loop:
            break

    with pytest.raises(RunFailed, match="once"):
        work.run("r")


# -- keys --------------------------------------------------------------------------------------


def nested(i: int, stop: Stop | None = None) -> int:
    """Two turns outside, two inside each, and a step before, between and after."""
    pond(100)
    for outer in turns({"i": 0}, max_turns=5):
        if outer["i"] == 2:
            break
        pond(outer["i"])
        for inner in turns({"j": 0}, max_turns=5):
            if inner["j"] == 2:
                break
            pond(10 * outer["i"] + inner["j"])
            inner["j"] += 1
        pond(50)
        outer["i"] += 1
        if stop is not None and outer["i"] == 2:
            stop.here()
    return pond(200)


NESTED_KEYS = [
    "pond",
    "turns[0]/pond",
    "turns[0]/turns[0]/pond",
    "turns[0]/turns[1]/pond",
    "turns[0]/pond#2",
    "turns[1]/pond",
    "turns[1]/turns[0]/pond",
    "turns[1]/turns[1]/pond",
    "turns[1]/pond#2",
    "pond#2",
]


def test_nested_loops_and_the_scope_after_them(store):
    stop = Stop()

    @flow
    def work() -> int:
        return nested(0, stop)

    interrupted(lambda: work.run("r"))
    assert work.run("r") == 200
    assert list(steps(store, "r")) == NESTED_KEYS
    assert len(calls) == len(NESTED_KEYS)
    assert store.verify() == []


def test_two_loops_one_after_the_other(store):
    stop = Stop()

    @flow
    def work() -> int:
        for which in range(2):
            for state in turns({"i": 0}, max_turns=5):
                if state["i"] == 2:
                    break
                state["i"] += 1 + 0 * pond(10 * which + state["i"])
            pond(100 + which)
        stop.here()
        return pond(200)

    interrupted(lambda: work.run("r"))
    assert work.run("r") == 200
    assert calls == [0, 1, 100, 10, 11, 101, 200]
    assert list(steps(store, "r")) == [
        "turns[0]/pond",
        "turns[1]/pond",
        "pond",
        "turns#2[0]/pond",
        "turns#2[1]/pond",
        "pond#2",
        "pond#3",
    ]
    assert store.verify() == []


@pytest.mark.parametrize("way", ["break", "return", "raise", "limit", "held in a name"])
def test_after_a_loop_keys_are_in_the_outer_scope_again(holdfast_store, way):
    def looping() -> None:
        loop = turns({"i": 0}, max_turns=1)
        for state in loop:
            pond(1)
            state["i"] += 1
            if way == "break":
                break
            if way == "return":
                return
            if way == "raise":
                raise LookupError

    kept: list[Exception] = []

    @flow
    def work() -> None:
        if way == "held in a name":
            loop = turns({"i": 0}, max_turns=1)
            for _ in loop:
                pond(1)
                break
        else:
            try:
                looping()
            except (LookupError, TurnLimitReached) as error:
                kept.append(error)  # With its traceback, and all the frames in it.
        pond(2)

    work.run("r")
    assert list(steps(holdfast_store, "r")) == ["turns[0]/pond", "pond"]


@pytest.mark.xfail(reason="the scope ends when the iterator is dropped, not the loop", strict=True)
@pytest.mark.parametrize("way", ["iter", "generator"])
def test_an_iterator_that_is_kept_does_not_keep_the_scope(holdfast_store, way):
    def generated(loop: Any):
        yield from loop

    @flow
    def work() -> None:
        loop = turns({"i": 0}, max_turns=3)
        kept = iter(loop) if way == "iter" else generated(loop)
        for _ in kept:
            pond(1)
            break
        pond(2)

    work.run("r")
    assert list(steps(holdfast_store, "r")) == ["turns[0]/pond", "pond"]


def test_async_loops(store):
    stop = Stop()

    @flow
    async def work() -> int:
        await apond(100)
        loop = aio.turns({"i": 0}, max_turns=9)
        async for state in loop:
            if state["i"] == 3:
                break
            state["i"] += 1 + 0 * await apond(state["i"])
            if state["i"] == 2:
                stop.here()
        async for state in aio.turns({"i": 0}, max_turns=1):
            await apond(7)
            break
        return await apond(200)

    interrupted(lambda: asyncio.run(work.run("r")))
    assert asyncio.run(work.run("r")) == 200
    assert calls == [100, 0, 1, 2, 7, 200]
    assert list(steps(store, "r"))[-2:] == ["turns#2[0]/apond", "apond#2"]
    assert store.verify() == []


def test_leaving_by_an_exception_saves_nothing_and_replays_the_turn(store):
    down = [True]

    @step
    def fails(i: int) -> int:
        if down:
            raise ValueError
        return i

    @flow
    def work() -> int:
        for state in turns({"i": 0}, max_turns=9):
            if state["i"] == 3:
                return state["i"]
            pond(state["i"])
            if state["i"] == 1:
                fails(1)
            state["i"] += 1
        raise AssertionError

    with pytest.raises(RunFailed):
        work.run("r")
    down.clear()
    assert work.run("r") == 3
    assert calls == [0, 1, 2]
    assert store.verify() == []


# -- loops in branches -------------------------------------------------------------------------


def looping(name: int, stop: Stop | None = None) -> int:
    for state in turns({"i": 0}, max_turns=9):
        if state["i"] == 3:
            return name
        pond(10 * name + state["i"])
        state["i"] += 1
        if stop is not None and state["i"] == 2:
            stop.here()
    raise AssertionError


def test_loops_in_branches_of_gather_and_each(store):
    stop = Stop()

    @flow
    def work() -> list[int]:
        found = [*gather(lambda: looping(1, stop), lambda: looping(2)), *each(looping, [3, 4])]
        return [*found, pond(99)]

    interrupted(lambda: work.run("r"))
    assert work.run("r") == [1, 2, 3, 4, 99]
    assert sorted(calls) == sorted([*(10 * n + i for n in (1, 2, 3, 4) for i in range(3)), 99])
    assert "gather[0]/turns[2]/pond" in steps(store, "r")
    assert list(steps(store, "r"))[-1] == "pond"
    assert store.verify() == []


def test_async_loops_in_branches(store):
    stop = Stop()

    async def alooping(name: int) -> int:
        async for state in aio.turns({"i": 0}, max_turns=9):
            if state["i"] == 3:
                return name
            await apond(10 * name + state["i"])
            state["i"] += 1
        raise AssertionError

    @flow
    async def work() -> list[int]:
        found = list(await aio.gather(alooping(1), alooping(2)))
        stop.here()
        return [*found, *await aio.each(alooping, [3, 4])]

    interrupted(lambda: asyncio.run(work.run("r")))
    assert asyncio.run(work.run("r")) == [1, 2, 3, 4]
    assert sorted(calls) == sorted(10 * n + i for n in (1, 2, 3, 4) for i in range(3))
    assert store.verify() == []


def test_branches_in_a_loop(store):
    stop = Stop()

    @flow
    def work() -> int:
        for state in turns({"i": 0}, max_turns=9):
            if state["i"] == 3:
                return state["i"]
            each(pond, [10 * state["i"], 10 * state["i"] + 1])
            state["i"] += 1
            if state["i"] == 2:
                stop.here()
        raise AssertionError

    interrupted(lambda: work.run("r"))
    assert work.run("r") == 3
    assert sorted(calls) == [0, 1, 10, 11, 20, 21]
    assert store.verify() == []


def test_now_and_emit_in_a_loop_are_not_steps_of_the_outer_scope(store):
    seen: list[Any] = []
    stop = Stop()

    @flow
    def work() -> None:
        for state in turns({"i": 0}, max_turns=9):
            if state["i"] == 3:
                break
            seen.append((state["i"], str(holdfast.context.uuid4())))
            holdfast.emit(state["i"])
            pond(state["i"])
            if state["i"] == 2:
                stop.here()
            state["i"] += 1

    interrupted(lambda: work.run("r"))
    work.run("r")
    assert [i for i, _ in seen] == [0, 1, 2, 2]
    assert seen[2] == seen[3]
    assert [item.value for item in store.stream("r")] == [0, 1, 2]
    assert calls == [0, 1, 2]
    assert store.verify() == []


def test_a_failure_that_is_handled_in_a_turn_replays(store):
    stop = Stop()
    tries: list[int] = []

    @step
    def fails(i: int) -> int:
        tries.append(i)
        raise ValueError

    @flow
    def work() -> int:
        for state in turns({"i": 0, "failed": 0}, max_turns=9):
            if state["i"] == 3:
                return state["failed"]
            try:
                fails(state["i"])
            except StepFailed:
                state["failed"] += 1
            if state["i"] == 1:
                stop.here()
            state["i"] += 1
        raise AssertionError

    interrupted(lambda: work.run("r"))
    assert work.run("r") == 3
    assert tries == [0, 1, 2]


# -- which loop a snapshot belongs to --------------------------------------------------------------


class Moved:
    """A flow whose body is replaced after it was stopped, once."""

    def __init__(self, before: Any) -> None:
        self.body = before
        self.stop = Stop()

        @flow(name="moved loops")
        def moved() -> Any:
            return self.body(self.stop)

        self.flow = moved
        interrupted(lambda: moved.run("r"))

    def run(self, body: Any) -> Any:
        self.body = body
        return self.flow.run("r")


def counted(stop: Stop, first: str, name: str | None = None) -> list[str]:
    for seen in turns([first], max_turns=9, name=name):
        if len(seen) == 3:
            stop.here()
            return seen
        seen.append(f"{first}{pond(len(seen))}")
    raise AssertionError


def test_a_name_is_part_of_the_keys_inside(store):
    work = Moved(lambda stop: (counted(stop, "a", "chat"), counted(stop, "b", "chat")))
    assert work.run(work.body) == (["a", "a1", "a2"], ["b", "b1", "b2"])
    assert {"turns:chat[0]/pond", "turns:chat#2[1]/pond"} <= steps(store, "r").keys()
    assert calls == [1, 2, 1, 2]


def test_a_name_that_could_be_taken_for_a_path_is_refused(store):
    @flow
    def work() -> list[str]:
        return counted(Stop(), "a", "a/b")

    with pytest.raises(RunFailed, match="is not allowed in a name"):
        work.run("r")


def test_another_first_state_holds_the_run_and_is_accepted_for_a_loop_with_a_name(store):
    work = Moved(lambda stop: counted(stop, "a", "chat"))
    with pytest.raises(RunHeld, match="turns:chat with another first state"):
        work.run(lambda stop: counted(stop, "b", "chat"))
    store.resume("r", actor="ana", accept_change=True)
    assert work.run(lambda stop: counted(stop, "b", "chat")) == ["a", "a1", "a2"]
    assert calls == [1, 2]


def test_a_loop_without_a_name_is_accepted_with_another_first_state_if_its_body_is_the_same(store):
    work = Moved(lambda stop: counted(stop, "a"))
    with pytest.raises(RunHeld, match="with another first state"):
        work.run(lambda stop: counted(stop, "b"))
    store.resume("r", actor="ana", accept_change=True)
    assert work.run(lambda stop: counted(stop, "b")) == ["a", "a1", "a2"]


def another(stop: Stop) -> list[str]:
    for seen in turns(["a"], max_turns=9):
        calls.append("another")
        seen.append("another")
        if len(seen) == 4:
            stop.here()
            return seen
    raise AssertionError


def test_another_loop_is_not_accepted_by_anybody(store):
    work = Moved(lambda stop: counted(stop, "a"))
    with pytest.raises(RunHeld, match="another loop as turns"):
        work.run(another)
    store.resume("r", actor="ana", accept_change=True)
    with pytest.raises(RunHeld, match="holdfast fork r r-2 --before turns$"):
        work.run(another)
    assert calls == [1, 2]
    store.fork("r", "r-2", before="turns")
    assert work.flow.run("r-2") == ["a", "another", "another", "another"], "a loop of its own"
    calls.clear()
    assert work.run(lambda stop: counted(stop, "a")) == ["a", "a1", "a2"], "the old code put back"
    assert calls == []


async def counted_async(stop: Stop) -> list[str]:
    async for seen in aio.turns(["a"], max_turns=9):
        if len(seen) == 3:
            stop.here()
            return seen
        seen.append(f"a{await apond(len(seen))}")
    raise AssertionError


async def another_async(stop: Stop) -> list[str]:
    async for seen in aio.turns(["a"], max_turns=9):
        calls.append("another")
        seen.append("another")
        if len(seen) == 4:
            return seen
    raise AssertionError


def test_async_loops_are_told_apart_too_in_a_branch_as_well(store):
    body: list[Any] = [counted_async, counted_async]
    stop = Stop()

    @flow
    async def work() -> Any:
        return await aio.gather(body[0](stop)), await body[1](stop)

    for at, known in enumerate(("gather", "turns")):
        stop.passed = -at  # The first one is replayed, and passes there again.
        interrupted(lambda: asyncio.run(work.run("r")))
        body[at] = another_async
        with pytest.raises(RunHeld, match=f"another loop as {known}"):
            asyncio.run(work.run("r"))
        body[at] = counted_async
    assert asyncio.run(work.run("r")) == ((["a", "a1", "a2"],), ["a", "a1", "a2"])
    assert calls == [1, 2, 1, 2]


# -- loops that only their code tells apart --------------------------------------------------------


@step
def think(i: int) -> int:
    return i


@step
def charge(i: int) -> int:
    calls.append(f"charge {i}")
    return i


@step
def refund(i: int) -> int:
    calls.append(f"refund {i}")
    return i


class Program:
    """A flow as text. It is stopped between two turns: the snapshot is the last that is recorded."""

    def __init__(self) -> None:
        self.stop = Stop()

    def compiled(self, text: str, *, optimize: int = 0, columns: bool = True) -> Any:
        tree = ast.parse(text)
        if not columns:  # As PYTHONNODEBUGRANGES leaves it.
            for node in ast.walk(tree):
                if hasattr(node, "col_offset"):
                    vars(node).update(col_offset=-1, end_col_offset=-1)
        space: dict[str, Any] = {"turns": turns, "think": think, "charge": charge}
        space |= {"refund": refund, "between": self.between}
        exec(compile(tree, "program", "exec", optimize=optimize), space)  # noqa: S102
        return flow(name="program")(space["main"])

    def between(self, i: int) -> bool:
        if i == 2:
            self.stop.here()
        return i == 3

    def is_stopped(self, text: str, **how: Any) -> None:
        interrupted(lambda: self.compiled(text, **how).run("r"))
        assert len(calls) == 2
        calls.clear()


BODY = """
        if between(s["i"]): break
        think(s["i"]); ACT(s["i"]); s["i"] += 1
"""
CHARGES, REFUNDS = (BODY.replace("ACT", act) for act in ("charge", "refund"))
IN_CLASSES = f"""
class One:
    def work(self):
      for s in turns({{"i": 0}}): {CHARGES}
class Other:
    def work(self):
      for s in turns({{"i": 0}}): {REFUNDS}
def main():
    first, second = ORDER
    first.work(); second.work()
"""
IN_FUNCTIONS = f"""
def collect():
    for s in turns({{"i": 0}}): {CHARGES}
def give():
    for s in turns({{"i": 0}}): {REFUNDS}
def main():
    for phase in ORDER: phase()
"""


def by(head: str, made: str, before: str = "pass") -> tuple[str, str]:
    """Return the program with two loops over what is made so, and the one with them exchanged."""
    one, other = (
        f"{head}\ndef main():\n    {before}\n"
        f"    for s in {made}: {first}\n    for s in {made}: {second}\n"
        for first, second in ((CHARGES, REFUNDS), (REFUNDS, CHARGES))
    )
    return one, other


def ordered(text: str, one: str, other: str) -> tuple[str, str]:
    return text.replace("ORDER", f"({one}, {other})"), text.replace("ORDER", f"({other}, {one})")


GENERATED = "def every(s):\n    yield from turns(s)"
EXCHANGED = {
    "helper": by("def every(s): return turns(s)", 'every({"i": 0})'),
    "generator": by(GENERATED, 'every({"i": 0})'),
    "loop in a generator": by(
        GENERATED.replace("yield from", "for s in") + ": yield s", 'every({"i": 0})'
    ),
    "local alias": by("", 'every({"i": 0})', "from holdfast import turns as every"),
    "enumerated": tuple(
        text.replace("for s in every", "for _, s in every")
        for text in by("def every(s): return enumerate(turns(s))", 'every({"i": 0})')
    ),
    "functions": ordered(IN_FUNCTIONS, "collect", "give"),
    "classes": ordered(IN_CLASSES, "One()", "Other()"),
}


@pytest.mark.parametrize("way", EXCHANGED)
def test_loops_that_were_exchanged_hold_the_run_however_they_are_made(store, way):
    program = Program()
    before, after = EXCHANGED[way]
    program.is_stopped(before)
    with pytest.raises(RunHeld, match="another loop as turns"):
        program.compiled(after).run("r")
    assert calls == []
    program.compiled(before).run("r")
    assert calls == ["charge 2", "refund 0", "refund 1", "refund 2"]


def test_another_function_given_to_a_branch_holds_the_run(holdfast_store):
    program = Program()
    text = IN_FUNCTIONS.replace(
        "for phase in ORDER: phase()", "from holdfast import gather; gather(WHICH)"
    )
    program.is_stopped(text.replace("WHICH", "collect"))
    with pytest.raises(RunHeld, match=r"another loop as gather\[0\]/turns"):
        program.compiled(text.replace("WHICH", "give")).run("r")
    assert calls == []


MADE_FIRST = f"""
def main():
    first, second = turns({{"i": 0}}), turns({{"i": 0}})
    for s in FIRST: {CHARGES}
    for s in SECOND: {REFUNDS}
"""


def test_a_loop_takes_its_place_when_it_begins_not_when_its_object_is_made(holdfast_store):
    program = Program()
    program.is_stopped(MADE_FIRST.replace("FIRST", "first").replace("SECOND", "second"))
    program.compiled(MADE_FIRST.replace("FIRST", "second").replace("SECOND", "first")).run("r")
    assert calls == ["charge 2", "refund 0", "refund 1", "refund 2"]


WITH_ASSERTS = f"""
def work(kind):
    for s in turns({{"i": 0}}):
        assert len(s) == 1 and isinstance(s["i"], int), (
            f"{{s}} in the first loop"
        ){CHARGES}
    for s in turns({{"i": 0}}):
        assert s["i"] < 9, "in the second loop"{REFUNDS}
def main():
    return [work("a"), work("b")]
"""
STARTED = [{}, {"optimize": 1}, {"columns": False}, {"optimize": 1, "columns": False}]


@pytest.mark.parametrize("first", STARTED, ids=str)
@pytest.mark.parametrize("then", STARTED, ids=str)
def test_how_python_was_started_makes_no_other_loop(holdfast_store, first, then):
    program = Program()
    program.is_stopped(WITH_ASSERTS, **first)
    program.compiled(WITH_ASSERTS, **then).run("r")
    rest = [f"{act} {i}" for act in ("charge", "refund") for i in range(3)]
    assert calls == rest[2:] + rest


@pytest.mark.parametrize("first", STARTED, ids=str)
@pytest.mark.parametrize("then", STARTED, ids=str)
def test_how_python_was_started_hides_no_other_loop(holdfast_store, first, then):
    program = Program()
    program.is_stopped(WITH_ASSERTS, **first)
    with pytest.raises(RunHeld, match="another loop as turns"):
        program.compiled(
            WITH_ASSERTS.replace('work("a"), work("b")', 'work("b"), work("a")'), **then
        ).run("r")
    assert calls == []


WRAPPED = f"""
def main():
    for o in turns({{"i": 0}}):
        if between(o["i"]): break
        for s in turns({{"i": 0}}): {CHARGES.replace("        ", "            ")}
        o["i"] += 1
"""


def test_a_loop_put_round_another_or_taken_away_is_another_loop(holdfast_store):
    program = Program()
    inner = by("", 'turns({"i": 0})')[0].partition(REFUNDS)[0].rpartition("for s")[0]
    program.is_stopped(inner)
    with pytest.raises(RunHeld, match="another loop as turns"):
        program.compiled(WRAPPED).run("r")
    assert calls == []


def test_a_loop_may_be_edited_with_the_loops_in_it(holdfast_store):
    program = Program()
    text = """
def main():
    for s in turns({"i": 0}):
        if between(s["i"]): break
        for n in range(1): charge(s["i"] + n)
        s["i"] += 1
"""
    program.is_stopped(text)
    program.compiled(text.replace("charge(", "think(n); charge(")).run("r")
    assert calls == ["charge 2"]
