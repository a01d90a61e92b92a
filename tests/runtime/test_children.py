"""Child runs: a flow called inside a flow, its end delivered once, its failure the same live and
replayed, and cancelled with its parent."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast import Done, aio, each, effect, flow, step, testing, wait_for_signal
from holdfast._engine.scripts import child_run as core
from holdfast._runtime.execution.execute import admit_or_none
from holdfast._stores.sqlite.sqlite_database import Database
from holdfast.errors import ChildFailed, Corrupt, RunCancelled, RunFailed, UsageError
from holdfast.testing import FakeClock, PrivateStore
from tests.runtime.facts import until
from tests.runtime.stops import Stop, interrupted, kinds

calls: Counter[str] = Counter()
broken: set[str] = set()
stop = Stop()


@pytest.fixture(autouse=True)
def anew() -> None:
    calls.clear()
    broken.clear()
    stop.passed = 1


@step(name="fam-work")
def work(item: str) -> str:
    calls[item] += 1
    if item in broken:
        raise ValueError(f"{item} is broken")
    return item.upper()


@effect(name="fam-pay", on_doubt="hold")
def pay(item: str) -> str:
    raise ConnectionError("no answer")


@flow(name="fam-child")
def child(item: str) -> str:
    return work(item)


@flow(name="fam-achild")
async def achild(item: str) -> str:
    return await aio_work(item)


@step(name="fam-awork")
async def aio_work(item: str) -> str:
    calls[item] += 1
    return item.upper()


@flow(name="fam-parent")
def parent(item: str) -> str:
    found = child(item)
    stop.here()
    return f"{found}!"


@flow(name="fam-aparent")
async def aparent(item: str) -> str:
    found = await achild(item)
    stop.here()
    return f"{found}!"


@flow(name="fam-grand")
def grand(item: str) -> str:
    return parent(item) + "!"


@flow(name="fam-mixed")
def mixed(item: str) -> str:
    return achild.start("one", item).result()


@flow(name="fam-wrong")
def wrong(item: str) -> Any:
    return achild(item)


@flow(name="fam-awrong")
async def awrong(item: str) -> str:
    return child(item)


@flow(name="fam-amixed")
async def amixed(item: str) -> str:
    return await child.aio(item)


@flow(name="fam-fan")
def fan(items: list[str]) -> list[str]:
    return each(child, items, max_concurrency=2)


@flow(name="fam-afan")
async def afan(items: list[str]) -> list[str]:
    return list(await aio.each(achild, items, max_concurrency=2))


@flow(name="fam-background")
def background(items: list[str]) -> list[str]:
    handles = [child.start(item, item) for item in items]
    work("meanwhile")
    return [handle.result() for handle in handles]


@flow(name="fam-abackground")
async def abackground(items: list[str]) -> list[str]:
    handles = [await achild.aio.start(item, item) for item in items]
    return [await handle.aio.result() for handle in handles]


@flow(name="fam-waits")
def waiting(item: str) -> Any:
    return wait_for_signal("go")


@flow(name="fam-waits-for-it")
def waits_for_it() -> Any:
    return waiting("x")


@flow(name="fam-waits-twice")
def two_levels() -> Any:
    return waits_for_it()


@flow(name="fam-catches")
def catches(item: str) -> str:
    try:
        return child(item)
    except ChildFailed as failed:
        stop.here()
        return f"{failed.run_id} {failed.status} {failed.type_name} {failed.message}"


@flow(name="fam-doubtful")
def doubtful(item: str) -> str:
    return pay(item)


@flow(name="fam-of-doubtful")
def of_doubtful() -> str:
    return doubtful("x")


@flow(name="fam-thrice")
def thrice() -> list[str]:
    return [child("a"), child("b"), child("a")]


EVERY = pytest.mark.parametrize(
    ("it", "child_name"),
    [(parent, "fam-child"), (aparent, "fam-achild")],
    ids=["sync", "async"],
)


def run(it: Any, run_id: str, *args: Any) -> Any:
    """Run a flow of either colour to its end."""
    return asyncio.run(it.run(run_id, *args)) if it.awaits else it.run(run_id, *args)


def ends(store: PrivateStore, run_id: str) -> int:
    return kinds(store, run_id).count("child_ended")


# -- a call ------------------------------------------------------------------------------------


@EVERY
def test_a_flow_called_inside_a_flow_is_a_run(
    store: PrivateStore, it: Any, child_name: str
) -> None:
    assert run(it, "r", "a") == "A!"

    own = store.get(f"r::{child_name}")
    assert (own.status, own.result, own.input) == ("completed", "A", {"item": "a"})
    assert run(it, "r", "a") == "A!"
    assert (calls["a"], ends(store, "r")) == (1, 1)


@EVERY
def test_in_a_worker_with_one_place_nobody_waits_for_ever(
    store: PrivateStore, it: Any, child_name: str
) -> None:
    handles = [it.submit(f"r{number}", "a") for number in range(3)]

    with store.worker(flows=[it, child, achild], concurrency=1):
        assert [handle.result(timeout=30) for handle in handles] == ["A!"] * 3

    assert calls["a"] == 3
    assert [ends(store, f"r{number}") for number in range(3)] == [1, 1, 1]


@EVERY
def test_after_the_end_of_the_child_the_parent_is_stopped_and_replays(
    store: PrivateStore, it: Any, child_name: str
) -> None:
    stop.passed = 0
    interrupted(lambda: run(it, "r", "a"))
    assert run(it, "r", "a") == "A!"
    assert (calls["a"], ends(store, "r")) == (1, 1)


@pytest.mark.parametrize(
    ("it", "instead"),
    [(wrong, r'fam-achild.start\("a name", …\).result\(\)'), (awrong, r"await fam-child.aio\(…\)")],
    ids=["sync", "async"],
)
def test_the_wrong_colour_says_what_to_write(store: PrivateStore, it: Any, instead: str) -> None:
    with pytest.raises(RunFailed, match=instead):
        run(it, "m", "a")


def test_a_sync_child_of_an_async_parent_and_the_reverse(store: PrivateStore) -> None:
    assert run(amixed, "r", "a") == "A"
    assert store.get("r::fam-child").status == "completed"
    assert run(mixed, "s", "b") == "B"
    assert run(mixed, "s", "b") == "B"
    assert store.get("s::fam-achild:one").status == "completed"
    assert calls == {"a": 1, "b": 1}


def test_a_child_of_a_child_knows_its_parent_and_its_root(store: PrivateStore) -> None:
    assert grand.run("r", "a") == "A!!"

    row = store._backend.get("r::fam-parent::fam-child")
    assert row is not None
    assert (row.parent, row.root) == ("r::fam-parent", "r")


def test_the_same_child_again_is_another_run(store: PrivateStore) -> None:
    assert thrice.run("r") == ["A", "B", "A"]
    assert calls == {"a": 2, "b": 1}
    assert store.get("r::fam-child#3").result == "A"


def test_an_id_that_would_be_too_long_is_made_short_and_is_the_same_on_replay(
    store: PrivateStore,
) -> None:
    long = "r" * 190
    stop.passed = 0
    interrupted(lambda: parent.run(long, "a"))
    assert parent.run(long, "a") == "A!"
    [own] = [row.run_id for row in store.runs(parent=long)]
    assert len(own) <= 200
    assert own.startswith("r" * 100)
    assert calls["a"] == 1


# -- many --------------------------------------------------------------------------------------


@pytest.mark.parametrize("it", [fan, afan], ids=["sync", "async"])
def test_a_fan_out_has_a_limit(store: PrivateStore, it: Any) -> None:
    items = list("abcde")
    assert run(it, "r", items) == list("ABCDE")
    assert calls == dict.fromkeys(items, 1)
    assert ends(store, "r") == 5


@pytest.mark.parametrize("it", [fan, afan], ids=["sync", "async"])
def test_a_fan_out_in_a_worker(sqlite: PrivateStore, it: Any) -> None:
    handle = it.submit("r", list("abcde"))
    with sqlite.worker(flows=[it, child, achild], concurrency=2):
        assert handle.result(timeout=30) == list("ABCDE")
    assert set(calls.values()) == {1}
    assert ends(sqlite, "r") == 5


@pytest.mark.parametrize("it", [background, abackground], ids=["sync", "async"])
def test_children_in_the_background(store: PrivateStore, it: Any) -> None:
    assert run(it, "r", ["a", "b"]) == ["A", "B"]
    name = "fam-achild" if it.awaits else "fam-child"
    assert store.get(f"r::{name}:a").status == "completed"
    assert run(it, "r", ["a", "b"]) == ["A", "B"]
    assert (calls["a"], calls["b"], ends(store, "r")) == (1, 1, 2)


def test_a_handle_says_how_a_flow_of_this_colour_waits(store: PrivateStore) -> None:
    @flow(name="fam-blocks")
    async def blocks() -> str:
        return (await child.aio.start("a", "a")).result()

    @flow(name="fam-awaits")
    def awaits() -> Any:
        return child.aio("a")

    with pytest.raises(RunFailed, match=r"an async flow; write `await handle\.aio\.result\(\)`"):
        asyncio.run(blocks.run("r"))
    with pytest.raises(RunFailed, match=r"a sync flow; write `fam-child\(…\)`"):
        awaits.run("s")


def test_a_handle_in_a_flow_has_no_time_out(store: PrivateStore) -> None:
    @flow(name="fam-impatient")
    def impatient() -> str:
        return child.start("a", "a").result(timeout=1)

    with pytest.raises(RunFailed, match="would not be recorded"):
        impatient.run("r")


def test_a_child_is_cancelled_in_a_step_of_its_parent(store: PrivateStore) -> None:
    @step(name="fam-cancels")
    def cancels(run_id: str) -> str:
        return store.cancel(run_id, actor="parent").outcome

    @flow(name="fam-hasty")
    def hasty() -> str:
        handle = waiting.start("slow", "x")
        with pytest.raises(UsageError, match=r"write a step that calls store.cancel"):
            handle.cancel()
        return cancels(handle.run_id)

    assert hasty.run("r") == "cancelled"
    assert store.get("r::fam-waits:slow").status == "cancelled"


# -- failures ----------------------------------------------------------------------------------


def test_a_failed_child_is_the_same_live_and_replayed(store: PrivateStore) -> None:
    broken.add("a")
    stop.passed = 0
    interrupted(lambda: catches.run("r", "a"))
    broken.clear()

    told = catches.run("r", "a")

    assert told.startswith("r::fam-child failed StepFailed")
    assert "a is broken" in told
    assert (calls["a"], ends(store, "r")) == (1, 1)


def test_a_parent_that_is_taken_up_again_takes_its_child_up_again(store: PrivateStore) -> None:
    broken.add("a")
    with pytest.raises(RunFailed, match="ChildFailed"):
        parent.run("r", "a")
    broken.clear()

    assert parent.run("r", "a") == "A!"

    assert calls["a"] == 2
    assert store.get("r::fam-child").generation == 2


def test_two_levels_are_taken_up_again(store: PrivateStore) -> None:
    broken.add("a")
    with pytest.raises(RunFailed):
        grand.run("r", "a")
    with pytest.raises(RunFailed):
        grand.run("r", "a")
    broken.clear()

    assert grand.run("r", "a") == "A!!"
    assert calls["a"] == 3


def test_in_a_worker_too(store: PrivateStore) -> None:
    broken.add("a")
    handle = parent.submit("r", "a")
    with store.worker(flows=[parent, child], concurrency=1):
        with pytest.raises(RunFailed):
            handle.result(timeout=30)
        broken.clear()
        store.resume("r")
        store.wait_until("r", status="completed")
    assert (calls["a"], store.get("r").result) == (2, "A!")


def test_a_held_child_leaves_its_parent_waiting_and_says_why(store: PrivateStore) -> None:
    handle = of_doubtful.submit("r")
    with store.worker(flows=[of_doubtful, doubtful], concurrency=1):
        store.wait_until("r::fam-doubtful", status="held")
        store.wait_until("r", waiting="child:r::fam-doubtful")
        explained = str(store.explain("r"))
        assert "r::fam-doubtful" in explained
        assert "fam-pay may or may not have happened" in explained.replace("\n    ", " ")
        store.settle("r::fam-doubtful", "fam-pay", Done("paid"), actor="ana")
        assert handle.result(timeout=30) == "paid"


def test_a_child_whose_flow_is_in_another_process_waits_for_it(store: PrivateStore) -> None:
    """This worker has the parent's flow only."""
    handle = parent.submit("r", "a")
    with store.worker(flows=[parent], concurrency=1):
        store.wait_until("r", waiting="child:r::fam-child")
        assert store.get("r::fam-child").status == "queued"
    with store.worker(flows=[child], concurrency=1):
        store.wait_until("r::fam-child", status="completed")
    with store.worker(flows=[parent], concurrency=1):
        assert handle.result(timeout=30) == "A!"


def test_a_parent_that_waits_long_writes_nothing_meanwhile() -> None:
    clock = FakeClock()
    with testing.store(clock=clock, url="sqlite:") as store:
        handle = waits_for_it.start("r")
        store.wait_until("r", waiting="child:")
        store.wait_until("r::fam-waits", waiting="signal:go")
        before = len(store.history("r"))
        for _ in range(3):
            clock.wait_until_sleeping()
            clock.advance(3)
        clock.wait_until_sleeping()
        assert len(store.history("r")) == before
        store.signal("r::fam-waits", "go", 5)
        assert handle.result(timeout=20) == 5


def test_a_child_that_another_process_took_and_left_is_taken_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The parent waits in its process; whoever was quicker to take the child has died."""
    quicker = [True]

    def beaten(*args: Any) -> Any:
        return None if quicker and quicker.pop() else admit_or_none(*args)

    monkeypatch.setattr("holdfast._runtime.execution.child_execution.admit_or_none", beaten)
    clock = FakeClock()
    with testing.store(clock=clock, url="sqlite:") as store:
        handle = parent.start("r", "a")
        store.wait_until("r", waiting="child:r::fam-child")
        assert store.get("r::fam-child").status == "queued"
        clock.wait_until_sleeping()
        clock.advance(2.1)
        assert handle.result(timeout=20) == "A!"
        assert ends(store, "r") == 1


# -- planted -----------------------------------------------------------------------------------


def test_a_result_that_is_taken_twice_is_caught(
    sqlite: PrivateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a replay does not look whether the end of the child is recorded."""
    monkeypatch.setattr(core, "find", lambda *_, **__: None)
    stop.passed = 0
    interrupted(lambda: parent.run("r", "a"))
    parent.run("r", "a")
    assert ends(sqlite, "r") == 2
    with pytest.raises(Corrupt, match="fam-child has an outcome already"):
        sqlite.get("r")


# -- cancelled with the parent -----------------------------------------------------------------


def gone(store: PrivateStore) -> None:
    """All three generations are cancelled, the youngest because of the eldest."""
    ids = ["r", "r::fam-waits-for-it", "r::fam-waits-for-it::fam-waits"]
    until(lambda: [store.get(run_id).status for run_id in ids] == ["cancelled"] * 3)
    assert "its parent" in store.history(ids[2])[-1].body["reason"]
    assert store.history(ids[2])[-1].body["actor"] == "ana"


def test_a_cancel_reaches_children_two_levels_deep_in_a_process(store: PrivateStore) -> None:
    handle = two_levels.start("r")
    store.wait_until("r", waiting="child")
    until(lambda: store._backend.get("r::fam-waits-for-it::fam-waits") is not None)
    store.wait_until("r::fam-waits-for-it::fam-waits", waiting="signal:go")

    answer = store.cancel("r", actor="ana", reason="enough")

    assert answer.outcome == "cancelled"
    with pytest.raises(RunCancelled):
        handle.result(timeout=20)
    gone(store)


def test_a_cancel_reaches_children_that_were_unloaded(store: PrivateStore) -> None:
    two_levels.submit("r")
    with store.worker(flows=[two_levels, waits_for_it, waiting], concurrency=1):
        until(lambda: store._backend.get("r::fam-waits-for-it::fam-waits") is not None)
        store.wait_until("r::fam-waits-for-it::fam-waits", waiting="signal:go")
    answer = store.cancel("r", actor="ana")
    assert (answer.outcome, answer.children) == ("cancelled", ("r::fam-waits-for-it",))
    gone(store)


def test_a_cancelled_child_fails_in_its_parent(store: PrivateStore) -> None:
    handle = waits_for_it.start("r")
    until(lambda: store._backend.get("r::fam-waits") is not None)
    store.wait_until("r::fam-waits", waiting="signal:go")
    store.cancel("r::fam-waits", actor="ana", reason="enough")
    with pytest.raises(RunFailed, match="ChildFailed.*r::fam-waits' was cancelled by ana: enough"):
        handle.result(timeout=20)


def test_a_held_child_is_cancelled_when_its_doubt_is_settled(store: PrivateStore) -> None:
    of_doubtful.start("r")
    until(lambda: store._backend.get("r::fam-doubtful") is not None)
    store.wait_until("r::fam-doubtful", status="held")

    assert store.cancel("r", actor="ana").outcome == "cancelled"

    assert store.get("r::fam-doubtful").status == "held"
    again = store.cancel("r", actor="ana")
    assert (again.outcome, again.children) == ("cancelled", ("r::fam-doubtful",))
    store.settle("r::fam-doubtful", "fam-pay", Done("paid"), actor="ana")
    assert store.get("r::fam-doubtful").status == "cancelled"


# -- crashes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("it", "argument", "wanted"),
    [(parent, "a", "A!"), (aparent, "a", "A!"), (grand, "a", "A!!"), (fan, ["a", "b"], ["A", "B"])],
    ids=["sync", "async", "two levels", "fan"],
)
def test_killed_at_every_boundary_the_result_is_delivered_once(
    it: Any, argument: Any, wanted: Any
) -> None:
    def check(result: Any, _point: Any) -> None:
        assert result == wanted

    report = testing.crash_matrix(
        it, argument, check=check, url="sqlite:", kill="process", max_points=8
    )
    assert len(report.points) > 4


# -- what many children cost -------------------------------------------------------------------


@flow(name="many-kid")
def kid(number: int) -> int:
    return number


@flow(name="many-parent")
def parent_of_many(count: int) -> int:
    return sum(each(kid, list(range(count)), max_concurrency=8))


def read_per_child(store: Any, run_id: str, count: int, monkeypatch: Any) -> tuple[float, float]:
    """Return how many rows a store hands out per child, and how many instructions SQLite takes."""
    seen = Counter[str]()
    real = Database.fetch

    def fetch(self: Database, connection: Any, name: str, values: Any = ()) -> list[Any]:
        def instructed() -> bool:
            seen["instructions"] += 100
            return False

        connection.set_progress_handler(instructed, 100)
        found = real(self, connection, name, values)
        seen["rows"] += len(found)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Database, "fetch", fetch)
        assert parent_of_many.with_options(store=store).run(run_id, count) == sum(range(count))
    return seen["rows"] / count, seen["instructions"] / count


def test_a_child_costs_the_same_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = 40, 320
    with testing.store(url=f"sqlite:///{tmp_path}/few.db") as store:
        rows, instructions = read_per_child(store, "few", few, monkeypatch)
    with testing.store(url=f"sqlite:///{tmp_path}/many.db") as store:
        more_rows, more_instructions = read_per_child(store, "many", many, monkeypatch)
    # Eight times as many children, read by a whole inbox or journal each, would be eight times this.
    assert more_rows < 2 * rows
    assert more_instructions < 2 * instructions
