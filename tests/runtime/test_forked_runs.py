"""A new run from any step of an old one: what came before is borrowed, and nothing is copied."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from typing import Any

import pytest

import holdfast
from holdfast import aio, effect, flow, gather, idempotency_key, step, testing, turns
from holdfast._stores.contract import WholeRun
from holdfast.errors import (
    ConfirmationRequired,
    RunConflict,
    RunFailed,
    RunNotFound,
    StepFailed,
    UsageError,
)

STEPS = 20
MESSAGE_CHARS = 900

calls: Counter[str] = Counter()
keys: list[str] = []
broken: set[str] = set()


@pytest.fixture(autouse=True)
def _anew() -> None:
    for kept in (calls, keys, broken):
        kept.clear()


@step(name="forked.note")
def note(number: int, topic: str) -> str:
    calls[f"note {number}"] += 1
    return f"{topic} {number} " + "." * MESSAGE_CHARS


@effect(name="forked.pay")
def pay(amount: int) -> str:
    calls["pay"] += 1
    keys.append(idempotency_key())
    return f"paid {amount} as {len(keys)}"


@effect(name="forked.send", key="mail:{number}")
def send(number: int) -> str:
    calls["send"] += 1
    return f"sent {number}"


@step(name="forked.shaky")
def shaky(value: str) -> str:
    calls["shaky"] += 1
    if "shaky" in broken:
        raise ConnectionError("down")
    return f"{value} delivered"


@flow(name="forked.twenty")
def twenty(topic: str) -> list[str]:
    return [note(number, topic) for number in range(STEPS)]


@flow(name="forked.order")
def order(amount: int) -> str:
    first = note(0, "order")[:7]
    receipt = pay(amount)
    return f"{first}: {receipt}, {send(amount)}, {shaky('it')}"


@dataclasses.dataclass
class Talk:
    messages: list[dict[str, str]]


@step(name="forked.think")
def think(messages: list[dict[str, str]]) -> str:
    calls[f"think {len(messages)}"] += 1
    return f"thought {len(messages)} " + "m" * MESSAGE_CHARS


@flow(name="forked.agent")
def agent(task: str, long: int) -> str:
    for talk in turns(Talk([{"user": task}])):
        talk.messages.append({"agent": think(talk.messages)})
        if len(talk.messages) > long:
            return talk.messages[-1]["agent"][:12]
    raise AssertionError


def key_of(number: int) -> str:
    return "forked.note" if number == 0 else f"forked.note#{number + 1}"


def whole_of(store: holdfast.types.Store, run_id: str) -> WholeRun:
    row = store._backend.get(run_id)
    assert row is not None
    return store._backend.whole(row)


def own_bytes(store: holdfast.types.Store, run_id: str) -> int:
    """Return how much is stored for a run itself: its entries and chunks."""
    whole = whole_of(store, run_id)
    return sum(len(e.body) for e in whole.entries) + sum(map(len, whole.chunks.values()))


# -- what is executed, and what is stored ----------------------------------------------------------


def test_at_each_step_of_twenty(store: testing.PrivateStore) -> None:
    told = twenty.run("r", "a topic")
    whole = own_bytes(store, "r")
    for number in range(STEPS):
        calls.clear()
        made = store.fork("r", f"from-{number}", before=key_of(number))
        assert made.borrowed == number
        assert twenty.run(f"from-{number}", "a topic") == told
        assert calls == {f"note {n}": 1 for n in range(number, STEPS)}
        new = own_bytes(store, f"from-{number}")
        results = whole * (STEPS - number) / STEPS
        assert new < results + len(told) * 64 + 2_000, "only the new part is stored"
    assert store.verify() == []
    assert own_bytes(store, "r") == whole


@pytest.mark.parametrize("turn", [0, 1, 17, 38, 39])
def test_at_turns_of_a_growing_conversation(store: testing.PrivateStore, turn: int) -> None:
    told = agent.run("r", "refunds", 40)
    calls.clear()
    store.fork("r", "f", before=f"turns[{turn}]/forked.think")
    assert agent.run("f", "refunds", 40) == told
    assert calls == {f"think {n}": 1 for n in range(turn + 1, 41)}
    here, there = (whole_of(store, run_id).chunks for run_id in ("f", "r"))
    lent = [f"thought {n} ".encode() for n in range(1, turn + 1)]
    assert all(any(text in body for body in there.values()) for text in lent)
    assert not any(text in body for text in lent for body in here.values()), "no message twice"
    assert own_bytes(store, "f") < own_bytes(store, "r") * (41 - turn) / 40 + 3_000
    assert store.verify() == []


def test_a_fork_reads_only_what_it_needs(sqlite: testing.PrivateStore) -> None:
    agent.run("r", "long", 200)
    sqlite.fork("r", "f", before="turns[190]/forked.think")
    loaded = sqlite._backend.load
    ranges: list[int] = []

    def counting(row: Any, skips: Any = ()) -> Any:
        entries = loaded(row, skips)
        ranges.append(len(entries))
        return entries

    sqlite._backend.load = counting  # type: ignore[method-assign]
    agent.run("f", "long", 200)
    assert ranges
    assert max(ranges) < 50, "the turns that a snapshot stands for are not read"


def test_before_a_turn_and_before_a_loop(store: testing.PrivateStore) -> None:
    agent.run("r", "x", 10)
    calls.clear()
    made = store.fork("r", "turn", before="turns[7]")
    assert (made.before, made.states) == ("turns[7]/forked.think", ("turns[7]",))
    assert "the state of turns[7] came along" in str(store.explain("turn")).replace("\n    ", " ")
    agent.run("turn", "x", 10)
    assert calls == {f"think {n}": 1 for n in range(8, 11)}
    calls.clear()
    store.fork("r", "loop", before="turns")
    agent.run("loop", "x", 10)
    assert len(calls) == 10


def test_forks_of_forks(store: testing.PrivateStore) -> None:
    told = agent.run("r", "x", 30)
    for number, turn in enumerate((12, 15, 15, 20, 29)):
        calls.clear()
        origin = "r" if number == 0 else f"f{number - 1}"
        store.fork(origin, f"f{number}", before=f"turns[{turn}]/forked.think")
        assert agent.run(f"f{number}", "x", 30) == told
        first = min(int(key.split()[1]) for key in calls)
        assert (first, len(calls)) == (turn + 1, 30 - turn)
    assert store.verify() == []
    with pytest.raises(UsageError, match="was forked from run 'f3'; what stands earlier is there"):
        store.fork("f4", "too-early", before="turns[3]/forked.think")


def test_forks_of_forks_keep_what_was_given(store: testing.PrivateStore) -> None:
    twenty.run("r", "t")
    store.fork("r", "a", before=key_of(9), results={key_of(2): "two", key_of(12): "twelve"})
    calls.clear()
    assert twenty.run("a", "t")[2] == "two"
    assert "note 12" not in calls
    store.fork("a", "late", before=key_of(15), results={key_of(3): "three"})
    told = twenty.run("late", "t")
    assert (told[2], told[3], told[12]) == ("two", "three", "twelve")
    store.fork("late", "early", before=key_of(3))
    told = twenty.run("early", "t")
    assert told[2] == "two"
    assert told[3].startswith("t 3")
    assert told[12].startswith("t 12"), "what was given behind the cut is left behind with it"
    assert store.verify() == []


# -- any status -----------------------------------------------------------------------------------


def test_of_a_failed_run(store: testing.PrivateStore) -> None:
    broken.add("shaky")
    with pytest.raises(RunFailed):
        order.run("r", 5)
    broken.clear()
    made = store.fork("r", "f", before="forked.shaky")
    assert made.repeats == ()
    assert order.run("f", 5) == "order 0: paid 5 as 1, sent 5, it delivered"
    assert calls == {"note 0": 1, "pay": 1, "send": 1, "shaky": 2}
    assert store.get("r").status == "failed"


def test_of_a_run_that_is_at_work(store: testing.PrivateStore) -> None:
    @step(name="forked.forks_itself")
    def forks_itself() -> str:
        if not calls["itself"]:
            calls["itself"] += 1
            store.fork("r", "f", before="forked.note#2")
        return "done"

    @flow(name="forked.at_work")
    def at_work() -> list[str]:
        return [note(1, "w")[:3], note(2, "w")[:3], forks_itself()]

    assert at_work.run("r") == ["w 1", "w 2", "done"]
    assert at_work.run("f") == ["w 1", "w 2", "done"]
    assert calls == {"note 1": 1, "note 2": 2, "itself": 1}


def test_a_borrowed_failure_can_be_tried_again(store: testing.PrivateStore) -> None:
    @flow(name="forked.caught")
    def caught(strict: bool) -> str:
        note(0, "c")
        try:
            return shaky("x")
        except StepFailed:
            if strict:
                raise
        return note(1, "c")[:3]

    broken.add("shaky")
    assert caught.run("r", False) == "c 1"
    store.fork("r", "f", before="forked.note#2", input={"strict": True})
    with pytest.raises(RunFailed):
        caught.run("f", True)
    broken.clear()
    assert caught.run("f", True) == "x delivered"
    assert calls["shaky"] == 2
    assert calls["note 0"] == 1


# -- effects --------------------------------------------------------------------------------------


def test_effects_that_would_be_repeated_are_listed_and_confirmed(
    store: testing.PrivateStore,
) -> None:
    order.run("r", 7)
    with pytest.raises(ConfirmationRequired, match="confirm=True") as caught:
        store.fork("r", "f", before="forked.note")
    assert caught.value.effects == ("forked.pay (happened)",)
    assert any("--confirm" in way for way in caught.value.ways)
    preview = store.preview_fork("r", before="forked.note")
    assert [(it.step, it.what) for it in preview.effects] == [("forked.pay", "happened")]
    assert (preview.origin, preview.before) == ("r", "forked.note")
    given = store.preview_fork("r", before="forked.note", results={"forked.pay": "paid"})
    assert given.effects == ()
    with pytest.raises(RunNotFound):
        store.get("f")
    made = store.fork("r", "f", before="forked.note", confirm=True)
    assert made.repeats == ("forked.pay",)
    assert order.run("f", 7) == "order 0: paid 7 as 2, sent 7, it delivered"
    assert len(set(keys)) == 2, "a fork shows keys of its own"
    assert calls["send"] == 1, "a business key is kept"
    assert any(e.kind == "skipped_duplicate" for e in store.history("f"))
    with pytest.raises(ConfirmationRequired):
        store.fork("f", "g", before="forked.note")


def test_a_fork_that_has_not_begun_tells_what_it_will_repeat(store: testing.PrivateStore) -> None:
    order.run("r", 7)
    store.fork("r", "f", before="forked.pay", confirm=True)
    with pytest.raises(ConfirmationRequired, match="forked.pay .happened in run r."):
        store.fork("f", "g", before="forked.note")


def test_effects_of_turns_that_are_over_are_not_repeated(store: testing.PrivateStore) -> None:
    @flow(name="forked.tools")
    def tools() -> int:
        for paid in turns([0]):
            paid.append(len(pay(len(paid))))
            if len(paid) > 6:
                return len(paid)
        raise AssertionError

    tools.run("r")
    with pytest.raises(ConfirmationRequired) as caught:
        store.fork("r", "f", before="turns[4]")
    assert caught.value.effects == tuple(f"turns[{n}]/forked.pay (happened)" for n in (4, 5))
    store.fork("r", "f", before="turns[4]", confirm=True)
    assert tools.run("f") == 7
    assert calls["pay"] == 6 + 2
    with pytest.raises(UsageError, match="or give state="):
        store.fork("r", "g", before="turns[5]", results={"turns[1]/forked.pay": "x"})


def test_a_result_that_is_given_is_no_repetition(store: testing.PrivateStore) -> None:
    order.run("r", 7)
    made = store.fork("r", "f", before="forked.pay", results={"forked.pay": "paid by hand"})
    assert made.repeats == ()
    assert made.differences == ("result of forked.pay",)
    assert order.run("f", 7) == "order 0: paid by hand, sent 7, it delivered"
    assert calls["pay"] == 1


# -- what is given otherwise ----------------------------------------------------------------------


def test_another_input_is_no_divergence_and_is_told(store: testing.PrivateStore) -> None:
    twenty.run("r", "old")
    made = store.fork("r", "f", before=key_of(18), input={"topic": "new"}, actor="ann")
    assert made.differences == ("input topic",)
    with pytest.raises(RunConflict):
        twenty.run("f", "old")
    told = twenty.run("f", "new")
    assert [text[:5] for text in told[16:]] == ["old 1", "old 1", "new 1", "new 1"]
    forked = store.history("f")[1]
    assert forked.kind == "run_forked"
    assert (forked.body["from"], forked.body["actor"]) == ("r", "ann")
    assert forked.body["differences"] == ["input topic"]
    assert store.history("f")[-1].body["other_arguments"] == sorted(map(key_of, range(18)))


def test_another_state(store: testing.PrivateStore) -> None:
    agent.run("r", "x", 12)
    calls.clear()
    state = Talk([{"user": "other"}] * 9)
    store.fork("r", "f", before="turns[4]/forked.think", state=state)
    assert agent.run("f", "x", 12) == "thought 12 m"
    assert sorted(calls) == sorted(f"think {n}" for n in range(9, 13))
    store.fork("f", "g", before="turns[4]")
    calls.clear()
    agent.run("g", "x", 12)
    assert sorted(calls) == sorted(f"think {n}" for n in range(9, 13))
    with pytest.raises(UsageError, match="of type Talk, not list"):
        store.fork("r", "wrong", before="turns[4]", state=[])
    with pytest.raises(UsageError, match="no loop"):
        store.fork("r", "wrong", before="turns", state=state)


def test_flows_that_leave_out_what_they_borrowed_end(store: testing.PrivateStore) -> None:
    @flow(name="forked.leaves_out")
    def leaves_out(pays: bool) -> str:
        if pays:
            pay(1)
        return note(0, "l")[:3]

    leaves_out.run("r", True)
    store.fork("r", "f", before="forked.note", input={"pays": False})
    assert leaves_out.run("f", False) == "l 0"
    assert store.history("f")[-1].body["unconsumed"] == ["forked.pay"]


def test_a_result_in_a_turn_that_is_over_is_refused(store: testing.PrivateStore) -> None:
    agent.run("r", "x", 8)
    with pytest.raises(UsageError, match="is in the state of its loop: fork before"):
        store.fork("r", "f", before="turns[5]", results={"turns[2]/forked.think": "something else"})


def test_a_fork_that_leaves_the_old_way_is_not_replaying(store: testing.PrivateStore) -> None:
    seen: list[bool] = []

    @flow(name="forked.turns_off")
    def turns_off(far: bool) -> str:
        seen.append(holdfast.context.is_replaying())
        if far:
            note(0, "far")
            note(1, "far")
        other = note(2, "near" if far else "off")
        seen.append(holdfast.context.is_replaying())
        return other[:3]

    turns_off.run("r", True)
    store.fork("r", "f", before="forked.note#3", input={"far": False})
    seen.clear()
    turns_off.run("f", False)
    assert seen == [True, True], "it got what the first call had given"
    store.fork("r", "g", before="forked.note#2", results={"forked.note#3": "given"})
    seen.clear()
    assert turns_off.run("g", True) == "giv"
    assert seen == [True, False]


# -- what was waited for ---------------------------------------------------------------------------


def test_waits_and_children_that_are_over_come_along(store: testing.PrivateStore) -> None:
    @flow(name="forked.child")
    def child(number: int) -> int:
        calls["child"] += 1
        return number * 2

    @flow(name="forked.waiter")
    def waiter() -> list[Any]:
        moment = holdfast.context.now()
        holdfast.sleep(0.01)
        word = holdfast.wait_for_signal("word", type=str)
        doubled = child(4)
        return [moment, word, doubled, note(0, "after")[:7]]

    handle = waiter.start("r")
    store.signal("r", "word", "yes")
    told = handle.result(timeout=30)
    assert told[1:] == ["yes", 8, "after 0"]
    store.fork("r", "f", before="forked.note")
    assert waiter.run("f") == told
    assert calls == {"child": 1, "note 0": 2}
    with pytest.raises(ConfirmationRequired, match="a child run"):
        store.fork("r", "g", before="forked.child")


def test_an_approval_is_asked_for_anew(store: testing.PrivateStore) -> None:
    @effect(name="forked.approved", needs_approval=True)
    def approved(amount: int) -> str:
        calls["approved"] += 1
        return f"spent {amount}"

    @flow(name="forked.spender")
    def spender() -> str:
        return approved(3) + note(0, " and")[:4]

    handle = spender.start("r")
    store.wait_until("r", waiting=True)
    store.approve("r", "forked.approved", actor="ann")
    assert handle.result(timeout=30) == "spent 3 and"
    store.fork("r", "f", before="forked.approved", confirm=True)
    handle = spender.start("f")
    store.wait_until("f", waiting=True)
    assert calls["approved"] == 1, "one approval, one execution"
    store.approve("f", "forked.approved", actor="ann")
    assert handle.result(timeout=30) == "spent 3 and"
    store.fork("r", "g", before="forked.approved", results={"forked.approved": "by hand"})
    assert spender.run("g") == "by hand and"
    assert calls["approved"] == 2


# -- blocks and plans ------------------------------------------------------------------------------


def test_of_a_block_and_of_a_plan(store: testing.PrivateStore) -> None:
    def block(run_id: str) -> list[str]:
        with holdfast.run(run_id):
            return [note(number, "b")[:3] for number in range(3)]

    told = block("r")
    store.fork("r", "f", before="forked.note#3")
    assert block("f") == told
    assert calls == {"note 0": 1, "note 1": 1, "note 2": 2}

    def forked_load(state: dict[str, Any]) -> dict[str, Any]:
        calls["load"] += 1
        return {**state, "loaded": True}

    def forked_tell(state: dict[str, Any]) -> dict[str, Any]:
        calls["tell"] += 1
        return {**state, "told": state["loaded"]}

    both = holdfast.plan("forked.plan", [forked_load, forked_tell])
    last = both.run("p", {"n": 1})
    [_, second] = [one.key for one in store.get("p").steps]
    store.fork("p", "q", before=second)
    assert both.run("q", {"n": 1}) == last
    assert (calls["load"], calls["tell"]) == (1, 2)


# -- branches, async ------------------------------------------------------------------------------


def test_branches_keep_what_was_done(store: testing.PrivateStore) -> None:
    @flow(name="forked.branches")
    def branches() -> tuple[str, str]:
        left, right = gather(lambda: note(1, "left") + note(2, "left"), lambda: note(3, "right"))
        return left[:6], note(4, right[:7])[:7]

    told = branches.run("r")
    calls.clear()
    store.fork("r", "late", before="forked.note")
    assert branches.run("late") == told
    assert calls == {"note 4": 1}
    store.fork("r", "early", before="gather")
    assert branches.run("early") == told
    assert calls == {"note 1": 1, "note 2": 1, "note 3": 1, "note 4": 2}


def test_in_async_flows(store: testing.PrivateStore) -> None:
    @step(name="forked.awaited")
    async def awaited(number: int) -> int:
        calls[f"awaited {number}"] += 1
        return number

    @flow(name="forked.async")
    async def adds(n: int) -> int:
        total = 0
        async for count in aio.turns([0]):
            one, two = await asyncio.gather(awaited(count[0]), awaited(10 + count[0]))
            total = count[0] = count[0] + one + two - 9
            if total > n:
                return total
        raise AssertionError

    told = asyncio.run(adds.run("r", 20))
    store.fork("r", "f", before="turns[1]")
    before = Counter(calls)
    assert asyncio.run(adds.run("f", 20)) == told
    assert calls["awaited 0"] == before["awaited 0"] == 1
    assert sum(calls.values()) == 2 * sum(before.values()) - 2


# -- ids ------------------------------------------------------------------------------------------


def test_the_same_fork_again_is_that_fork(store: testing.PrivateStore) -> None:
    twenty.run("r", "t")
    assert store.fork("r", "f", before=key_of(5)).created
    assert not store.fork("r", "f", before=key_of(5)).created
    with pytest.raises(RunConflict, match="another step"):
        store.fork("r", "f", before=key_of(6))
    with pytest.raises(RunConflict, match="another input"):
        store.fork("r", "f", before=key_of(5), input={"topic": "u"})
    with pytest.raises(RunConflict, match="no fork"):
        store.fork("f", "r", before=key_of(2))
    with pytest.raises(RunNotFound):
        store.fork("nobody", "x", before="y")


def test_what_is_not_there_is_said(store: testing.PrivateStore) -> None:
    twenty.run("r", "t")
    with pytest.raises(UsageError, match="nearest are .*forked.note"):
        store.fork("r", "f", before="forked.notes")
    with pytest.raises(UsageError, match="has no 'topc'; it has: topic"):
        store.fork("r", "f", before=key_of(3), input={"topc": 1})
    with pytest.raises(UsageError, match="no such step for results="):
        store.fork("r", "f", before=key_of(3), results={"nothing": 1})
    with pytest.raises(RunNotFound):
        store.get("f")


def test_a_worker_takes_it(store: testing.PrivateStore) -> None:
    twenty.run("r", "t")
    store.fork("r", "f", before=key_of(10))
    assert store.recover() == ["f"]
    assert store.get("f").status == "completed"
    assert store.get("f").origin == "r"
    steps = store.get("f").steps
    assert [one.borrowed for one in steps] == [True] * 10 + [False] * 10
