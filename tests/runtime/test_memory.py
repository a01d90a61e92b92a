"""Memories: in a step with its outcome, in a flow recorded, outside at once."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast import Retry, aio, each, effect, flow, step, testing, turns
from holdfast.errors import NotSerializable, RunFailed, StepFailed, UsageError


@dataclasses.dataclass
class Preference:
    colour: str
    sizes: tuple[int, ...]


holdfast.versioning.register_type(Preference)


def kinds(store: testing.PrivateStore, run_id: str) -> list[str]:
    return [entry.kind for entry in store.history(run_id)]


# -- outside any run ----------------------------------------------------------------------------


def test_values_are_read_as_they_were_written(store: testing.PrivateStore) -> None:
    notes = holdfast.memory("notes")
    assert notes.get("a") is None
    assert notes.get("a", default="none") == "none"
    assert notes.version("a") == 0
    value = {"who": Preference("red", (1, 2)), "raw": b"\x00\xff", "text": "x" * 50_000}
    assert notes.set("a", value)
    assert notes.get("a") == value
    entry = notes.item("a")
    assert entry is not None
    assert (entry.key, entry.version, entry.run_id, entry.expires_at) == ("a", 1, None, None)
    assert notes.set("a", None)
    assert notes.get("a", default="none") is None
    assert notes.version("a") == 2
    assert notes.delete("a")
    assert notes.get("a", default="none") == "none"
    assert not notes.delete("a")
    assert not notes.delete("never")
    assert store.verify() == []


def test_namespaces_are_apart(store: testing.PrivateStore) -> None:
    holdfast.memory("one").set("k", 1)
    store.memory("two").set("k", 2)
    assert holdfast.memory("two").get("k") == 2
    assert store.memory("one").get("k") == 1


def test_a_version_is_compared_and_set(store: testing.PrivateStore) -> None:
    count = holdfast.memory("count")
    assert count.set("n", 1, if_version=0)
    assert not count.set("n", 2, if_version=0)
    seen = count.version("n")
    assert count.set("n", 2, if_version=seen)
    assert not count.set("n", 3, if_version=seen)
    assert not count.delete("n", if_version=seen)
    assert count.get("n") == 2
    assert count.delete("n", if_version=count.version("n"))
    assert count.set("n", 9, if_version=0)


def test_a_list_is_by_key_and_in_pages(store: testing.PrivateStore) -> None:
    many = holdfast.memory("many")
    names = [f"user:{n:03}" for n in range(230)]
    for n, name in enumerate(reversed(names)):
        many.set(name, n)
    many.set("other", 0)
    assert [entry.key for entry in many.items("user:")] == names
    assert [entry.key for entry in many.items("user:", limit=120)] == names[:120]
    assert [entry.key for entry in many.items("user:", after="user:228")] == ["user:229"]
    assert many.items()[0].key == "other"


def test_a_value_is_gone_after_its_time() -> None:
    clock = testing.FakeClock()
    with testing.store(url="memory:", clock=clock):
        short = holdfast.memory("short")
        short.set("k", 1, ttl="90s")
        short.set("stays", 1)
        clock.advance(89)
        assert short.get("k") == 1
        clock.advance(1)
        assert short.get("k") is None
        assert [entry.key for entry in short.items()] == ["stays"]
        assert short.set("k", 2, if_version=0)


def test_what_is_over_is_removed_from_the_store_too() -> None:
    clock = testing.FakeClock()
    with testing.store(url="memory:", clock=clock) as store:
        short, other = holdfast.memory("short"), holdfast.memory("other")
        for memory in (short, other):
            memory.set("k", "secret", ttl="90s")
            memory.set("stays", 1)
        clock.advance(90)
        assert short.remove_expired() == 1
        assert short.remove_expired() == 0
        assert [memo.space for memo in store._backend.expired_memos()] == ["other"]
        assert asyncio.run(_removed("other")) == 1
        other.set("k", "secret", ttl="90s")
        clock.advance(90)
        assert store.prune().beside == 1
        assert store._backend.expired_memos() == []
        assert other.get("stays") == 1


def test_what_is_written_anew_beside_a_sweep_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = testing.FakeClock()
    with testing.store(url="memory:", clock=clock) as store:
        short = holdfast.memory("short")
        for key in ("a", "b", "c"):
            short.set(key, "old", ttl="90s")
        clock.advance(90)
        listed = store._backend.expired_memos

        def beside(*args: Any) -> Any:
            found = listed(*args)
            short.set("b", "new")
            return found

        monkeypatch.setattr(store._backend, "expired_memos", beside)
        assert short.remove_expired() == 2
        assert listed() == []
        assert [(entry.key, entry.value) for entry in short.items()] == [("b", "new")]


async def _removed(name: str) -> int:
    return await holdfast.aio.memory(name).remove_expired()


def test_a_flow_does_not_sweep() -> None:
    @flow
    def sweeps() -> int:
        return holdfast.memory("short").remove_expired()

    with testing.store(), pytest.raises(RunFailed, match="remove_expired is for outside runs"):
        sweeps.run("r")


@pytest.mark.parametrize("key", ["", " a", "a\x00b", "k" * 201, "€" * 180, 5])
def test_a_key_that_cannot_be_one(key: Any, store: testing.PrivateStore) -> None:
    with pytest.raises(UsageError, match="a key of memory 'odd'"):
        holdfast.memory("odd").set(key, 1)


def test_values_that_would_not_survive_are_refused(store: testing.PrivateStore) -> None:
    odd = holdfast.memory("odd")
    with pytest.raises(NotSerializable, match="memory 'odd', 'k'"):
        odd.set("k", object())
    with pytest.raises(NotSerializable, match=r"at most 1,048,576; keep it in a file"):
        odd.set("k", "x" * 1_100_000)
    with pytest.raises(UsageError, match="if_version=-1"):
        odd.set("k", 1, if_version=-1)
    with pytest.raises(UsageError, match="ttl"):
        odd.set("k", 1, ttl="soon")
    assert odd.get("k") is None


def test_what_was_written_meanwhile_is_removed_too(
    store: testing.PrivateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = holdfast.memory("notes")
    notes.set("a", 1)
    looked = store._backend.memo
    later = [lambda: notes.set("a", 2)]

    def between(space: str, key: str) -> Any:
        found = looked(space, key)
        if later:
            later.pop()()
        return found

    monkeypatch.setattr(store._backend, "memo", between)
    assert notes.delete("a")
    assert notes.get("a") is None
    assert not notes.delete("a", if_version=0)


@step
def memory_removing() -> list[bool]:
    mine = holdfast.memory("removals")
    mine.set("of step", 1)
    keys = ("stored", "of step", "of step", "never")
    return [mine.delete(key) for key in keys]


@flow
def memory_removals() -> list[Any]:
    mine = holdfast.memory("removals")
    old = mine.delete("old", if_version=7)
    told = [old, *(mine.delete(key) for key in ("old", "old", "never"))]
    return [memory_removing(), told]


def test_a_removal_says_in_a_run_whether_there_was_a_value(store: testing.PrivateStore) -> None:
    mine = holdfast.memory("removals")
    mine.set("stored", 1)
    mine.set("old", 1)
    expected = [[True, True, False, False], [False, True, False, False]]
    assert memory_removals.run("r") == expected
    assert mine.items() == []
    assert store.verify() == []


# -- inside a step ------------------------------------------------------------------------------


@step
def memory_notes(text: str) -> list[Any]:
    mine = holdfast.memory("steps")
    before = mine.get("k")
    mine.set("k", text)
    mine.set("gone", text)
    mine.delete("gone")
    entry = mine.item("k")
    assert entry is not None
    listed = [found.key for found in mine.items()]
    return [before, mine.get("k"), entry.version, listed, mine.get("gone")]


@flow
def memory_in_step(text: str) -> list[Any]:
    return memory_notes(text)


def test_a_step_sees_what_it_wrote_and_others_see_it_afterwards(
    store: testing.PrivateStore,
) -> None:
    holdfast.memory("steps").set("k", "before")
    assert memory_in_step.run("r", "now") == ["before", "now", 0, ["k"], None]
    entry = holdfast.memory("steps").item("k")
    assert entry is not None
    assert (entry.value, entry.version, entry.run_id) == ("now", 2, "r")
    holdfast.memory("steps").set("k", "later")
    assert memory_in_step.run("r", "now") == ["before", "now", 0, ["k"], None]
    assert holdfast.memory("steps").get("k") == "later"
    assert store.verify() == []


tries: list[int] = []


@step(retry=Retry(attempts=2, initial_wait_s=0.001))
def memory_fails_first() -> int:
    mine = holdfast.memory("tries")
    tries.append(1)
    assert mine.get("k") is None
    mine.set("k", len(tries))
    if len(tries) == 1:
        mine.set("of the first", True)
        raise ValueError("not yet")
    return len(tries)


@step
def memory_fails() -> int:
    holdfast.memory("tries").set("lost", 1)
    raise ValueError("never")


@step(fallback=7)
def memory_falls_back() -> int:
    holdfast.memory("tries").set("lost", 1)
    raise ValueError("never")


@step
def memory_unstorable() -> Any:
    holdfast.memory("tries").set("lost", 1)
    return object()


@flow
def memory_of_failures() -> list[Any]:
    told: list[Any] = [memory_fails_first(), memory_falls_back()]
    for failing in (memory_fails, memory_unstorable):
        try:
            failing()
        except StepFailed as failed:
            told.append(failed.step)
    return told


def test_what_a_failed_attempt_wrote_is_dropped(store: testing.PrivateStore) -> None:
    tries.clear()
    assert memory_of_failures.run("r") == [2, 7, "memory_fails", "memory_unstorable"]
    assert {entry.key: entry.value for entry in holdfast.memory("tries").items()} == {"k": 2}


@step(commit="grouped")
def memory_grouped(n: int) -> int:
    holdfast.memory("grouped").set(f"k{n}", n)
    return n


@step
def memory_read_back() -> int:
    return len(holdfast.memory("grouped").items("k"))


@flow
def memory_after_grouped() -> list[Any]:
    memory_grouped(1)
    in_flow = holdfast.memory("grouped").get("k1")
    memory_grouped(2)
    return [in_flow, memory_read_back()]


def test_a_run_sees_what_its_grouped_steps_wrote(store: testing.PrivateStore) -> None:
    assert memory_after_grouped.run("r") == [1, 2]


@effect(transaction=True)
def memory_in_transaction(fails: bool) -> Any:
    mine = holdfast.memory("transaction")
    mine.set("k", 1)
    if fails:
        raise ValueError("rolled back")
    return mine.get("k")


@flow
def memory_transacts(fails: bool) -> Any:
    return memory_in_transaction(fails)


def test_a_transaction_takes_its_memories_along(store: testing.PrivateStore) -> None:
    with pytest.raises(holdfast.errors.RunFailed):
        memory_transacts.run("fails", True)
    assert holdfast.memory("transaction").get("k") is None
    assert memory_transacts.run("works", False) == 1
    assert holdfast.memory("transaction").get("k") == 1


@effect(on_doubt="hold")
def memory_in_effect() -> int:
    holdfast.memory("effects").set("sent", True)
    return 1


@step
def memory_compares() -> None:
    holdfast.memory("steps").set("k", 1, if_version=0)


@flow
def memory_misused(what: str) -> None:
    if what == "effect":
        memory_in_effect()
    else:
        memory_compares()


def test_an_effect_remembers_and_a_step_cannot_compare(store: testing.PrivateStore) -> None:
    memory_misused.run("e", "effect")
    assert holdfast.memory("effects").get("sent") is True
    with pytest.raises(holdfast.errors.RunFailed, match="write with if_version= in the flow"):
        memory_misused.run("c", "compare")


# -- inside a flow ------------------------------------------------------------------------------

stop: list[str] = []


@step
def memory_boundary() -> None:
    if stop:
        raise ValueError("stopped")


@flow
def memory_in_flow() -> list[Any]:
    mine = holdfast.memory("flows")
    seen = mine.get("k", default="nothing")
    wrote = mine.set("k", "mine", ttl="1h")
    first = mine.set("once", 1, if_version=0)
    second = mine.set("once", 2, if_version=0)
    listed = [entry.key for entry in mine.items()]
    mine.delete("once")
    memory_boundary()
    return [seen, wrote, first, second, listed, mine.version("once")]


def test_a_flow_sees_the_same_again(store: testing.PrivateStore) -> None:
    stop[:] = ["once"]
    with pytest.raises(holdfast.errors.RunFailed):
        memory_in_flow.run("r")
    mine = holdfast.memory("flows")
    assert (mine.get("k"), mine.get("once")) == ("mine", None)
    mine.set("k", "somebody else's")
    stop.clear()
    assert memory_in_flow.run("r") == ["nothing", True, True, False, ["k", "once"], 0]
    assert mine.get("k") == "somebody else's"
    assert store.verify() == []
    recorded = [e.step for e in store.history("r") if e.kind == "value_recorded"]
    assert recorded == [
        *("memory.get", "memory.set", "memory.set#2", "memory.set#3"),
        *("memory.list", "memory.delete", "memory.get#2"),
    ]


other_key: list[str] = ["k"]


@flow
def memory_changes() -> Any:
    holdfast.memory("flows").set(other_key[0], 1)
    memory_boundary()


def test_another_key_in_the_recorded_part_diverges(store: testing.PrivateStore) -> None:
    stop[:] = ["once"]
    other_key[:] = ["k"]
    with pytest.raises(holdfast.errors.RunFailed):
        memory_changes.run("r")
    other_key[:] = ["other"]
    stop.clear()
    with pytest.raises(holdfast.errors.RunHeld, match="diverged"):
        memory_changes.run("r")
    assert holdfast.memory("flows").get("other") is None


@step
async def memory_async_step() -> list[Any]:
    mine = aio.memory("async")
    await mine.set("of step", 1)
    return [await mine.get("of step"), [entry.key for entry in await mine.items()]]


@flow
async def memory_async(n: int) -> list[Any]:
    mine = aio.memory("async")
    await asyncio.gather(mine.set("a", n), mine.set("b", n + 1))
    both = await asyncio.gather(mine.get("a"), mine.get("b"))
    told = await memory_async_step()
    taken = await mine.set("a", 0, if_version=0)
    await mine.delete("b")
    return [both, told, taken, await mine.version("a"), (await mine.item("b")) is None]


@flow
async def memory_waits_for_a_read() -> Any:
    return await aio.memory("async").get("slow")


def test_a_task_that_is_cancelled_while_it_reads_is_cancelled(
    store: testing.PrivateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, may_end = threading.Event(), threading.Event()

    def memo(_space: str, _key: str) -> None:
        reads.set()
        assert may_end.wait(20)

    async def cancelled() -> bool:
        task = asyncio.create_task(memory_waits_for_a_read.aio.run("r"))
        await asyncio.to_thread(reads.wait, 20)
        task.cancel()
        may_end.set()
        await asyncio.wait([task])
        return task.cancelled()

    with monkeypatch.context() as patch:
        patch.setattr(store._backend, "memo", memo)
        assert asyncio.run(cancelled())
    assert asyncio.run(memory_waits_for_a_read.aio.run("r")) is None


def test_awaited(store: testing.PrivateStore) -> None:
    expected = [[1, 2], [1, ["a", "b", "of step"]], False, 1, True]
    assert asyncio.run(memory_async.run("r", 1)) == expected
    assert asyncio.run(memory_async.run("r", 1)) == expected

    async def outside() -> Any:
        mine = aio.memory("async")
        assert await mine.set("c", 3)
        with pytest.raises(UsageError, match=r"await holdfast\.aio\.memory"):
            holdfast.memory("async").get("c")
        return await mine.get("c")

    assert asyncio.run(outside()) == 3


@flow
def memory_claims(n: int) -> bool:
    return holdfast.memory("race").set("first", n, if_version=0)


def test_of_many_at_once_one_is_first(store: testing.PrivateStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: memory_claims.run(f"r-{n}", n), range(24)))
    assert sum(won) == 1
    assert holdfast.memory("race").get("first") == won.index(True)
    assert [memory_claims.run(f"r-{n}", n) for n in range(24)] == won
    assert holdfast.memory("race").version("first") == 1


late: list[threading.Event] = []


@step(timeout=0.05)
def memory_too_late() -> None:
    late[0].wait(10)
    holdfast.memory("late").set("k", 1)
    late[1].set()


@step
def memory_after() -> None:
    late[0].set()
    assert late[1].wait(10)


@flow
def memory_abandoned() -> None:
    with contextlib.suppress(StepFailed):
        memory_too_late()
    memory_after()


def test_what_an_abandoned_thread_writes_is_dropped(store: testing.PrivateStore) -> None:
    late[:] = [threading.Event(), threading.Event()]
    memory_abandoned.run("r")
    assert holdfast.memory("late").get("k") is None


@flow
def memory_wrong_colour() -> None:
    aio.memory("flows").get("k")  # type: ignore[unused-coroutine]


def test_the_wrong_colour_is_named(store: testing.PrivateStore) -> None:
    with pytest.raises(holdfast.errors.RunFailed, match=r"write holdfast\.memory\('flows'\)"):
        memory_wrong_colour.run("r")


@flow
def memory_of_another_store() -> None:
    elsewhere[0].memory("x").set("k", 1)


elsewhere: list[holdfast.types.Store] = []


def test_a_memory_of_another_store_is_refused_in_a_run(store: testing.PrivateStore) -> None:
    with holdfast.open("memory:", default=False) as other:
        elsewhere[:] = [other]
        with pytest.raises(holdfast.errors.RunFailed, match="in its own store"):
            memory_of_another_store.run("r")


def test_killed_at_every_boundary() -> None:
    stop.clear()
    expected = ["nothing", True, True, False, ["k", "once"], 0]

    def check(result: object, _point: object) -> None:
        assert result == expected

    report = testing.crash_matrix(memory_in_flow, check=check)
    assert len(report.points) >= 16


@flow
def memory_in_turns() -> list[Any]:
    mine = holdfast.memory("turns")
    for state in turns([0], max_turns=9):
        mine.set("n", len(state))
        state.append(mine.get("n") + mine.get("other", 0))
        memory_boundary()
        if len(state) == 4:
            return state
    raise AssertionError


def branch(n: int) -> int:
    mine = holdfast.memory("branches")
    mine.set(f"k{n}", n)
    memory_boundary()
    return int(mine.get(f"k{n}"))


@flow
def memory_in_branches() -> list[int]:
    done = list(each(branch, [1, 2, 3], max_concurrency=3))
    return [*done, len(holdfast.memory("branches").items("k"))]


@pytest.mark.parametrize(
    ("made", "expected"),
    [(memory_in_turns, [0, 1, 2, 3]), (memory_in_branches, [1, 2, 3, 3])],
)
def test_killed_in_loops_and_branches(made: Any, expected: list[Any]) -> None:
    stop.clear()

    def check(result: object, _point: object) -> None:
        assert result == expected

    assert testing.crash_matrix(made, check=check).points
