"""Changed code: which way a run takes where a flow is `patched`, and which runs a worker takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import each, effect, flow, gather, plan, step, testing, turns
from holdfast._engine.scripts.stops import SORT, Tried
from holdfast._runtime import registry
from holdfast._runtime.execution import version_rules
from holdfast._runtime.execution.fingerprints import of_flow
from holdfast.errors import RunHeld, UsageError
from holdfast.versioning import patched
from tests import sweeps
from tests.crash.harness import wait_for
from tests.runtime.stops import Stop, interrupted

done: list[str] = []
room: list[int] = []
"""How many more steps are executed before the run is interrupted; empty means any number."""


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    done.clear()
    room.clear()
    yield
    room.clear()


@step(name="patched work")
def step_of_work(what: str) -> str:
    done.append(what)
    return what


def stops() -> None:
    """Interrupt the run in front of a step, so that nothing of that step is recorded."""
    if room:
        if not room[0]:
            raise KeyboardInterrupt
        room[0] -= 1


def work(what: str) -> str:
    stops()
    return step_of_work(what)


async def work_async(what: str) -> str:
    stops()
    return await step_of_work.aio(what)


class Code:
    """A flow whose code is replaced, and a run of it that is stopped after so many steps."""

    def __init__(self, store: holdfast.types.Store) -> None:
        self.store = store
        self.body: Callable[[], Any] = list

        @flow(name="patched code")
        def code() -> Any:
            return self.body()

        self.flow = code

    def stopped_after(self, steps: int, body: Callable[[], Any]) -> None:
        self.body = body
        room[:] = [steps]
        interrupted(lambda: self.flow.run("r"))
        room.clear()

    def run(self, body: Callable[[], Any]) -> Any:
        self.body = body
        return self.flow.run("r")


def old() -> list[str]:
    return [work("a"), work("b"), work("c")]


def new() -> list[str]:
    found = [work("a")]
    if patched("check"):
        found.append(work("check"))
    return [*found, work("b"), work("c")]


def newest() -> list[str]:
    """No old run is left, so the question is gone."""
    return [work("a"), work("check"), work("b"), work("c")]


OLD_WAY, NEW_WAY = ["a", "b", "c"], ["a", "check", "b", "c"]


@pytest.fixture
def code(store) -> Code:
    return Code(store)


# -- one line of calls -------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", [0, 1, 2])
@pytest.mark.parametrize("later", [0, 1, 2])
def test_an_old_run_takes_the_way_that_it_was_on(code, recorded, later):
    code.stopped_after(recorded, old)
    way = OLD_WAY if recorded > 1 else NEW_WAY
    if later < len(way) - recorded:
        code.stopped_after(later, new)
    assert code.run(new) == way
    assert done == way, "each step is executed once"
    assert code.store.verify() == []


def test_an_old_run_that_had_only_its_end_before_it(store):
    code = Code(store)

    def ended() -> list[str]:
        found = old()
        room[:] = [0]
        work("never")
        return found

    code.body = ended
    interrupted(lambda: code.flow.run("r"))
    room.clear()

    def more() -> list[str]:
        return [*old(), *([work("d")] if patched("more") else [])]

    assert code.run(more) == ["a", "b", "c", "d"]


def test_a_step_that_was_begun_keeps_to_the_old_way(code):
    """Its intent is recorded: whatever came of it, the run was past the place."""

    @effect(name="patched pay", on_doubt="retry")
    def pay() -> str:
        if room:
            raise KeyboardInterrupt
        return "paid"

    def before() -> list[str]:
        return [work("a"), pay()]

    def after() -> list[str]:
        found = [work("a")]
        if patched("first"):
            found.append(work("check"))
        return [*found, pay()]

    code.stopped_after(1, before)
    assert code.run(after) == ["a", "paid"]


def test_a_fresh_run_takes_the_new_way_and_says_so_in_its_journal(code):
    assert code.run(new) == NEW_WAY
    [entry] = [e for e in code.store.history("r") if e.kind == "value_recorded"]
    assert (entry.step, entry.body["value"]) == ("patched::check", True)
    assert code.flow.run("r") == NEW_WAY


@pytest.mark.parametrize("recorded", [0, 1, 2, 3])
def test_the_question_is_taken_out_when_no_old_run_is_left(code, recorded):
    code.stopped_after(recorded, new)
    assert code.run(newest) == NEW_WAY
    assert done == NEW_WAY


def test_the_same_change_at_several_places(code):
    def twice() -> list[str]:
        found = [work("a")]
        if patched("x"):
            found.append(work("x"))
        found.append(work("b"))
        if patched("x"):
            found.append(work("x"))
        return [*found, work("c")]

    code.stopped_after(2, old)
    assert code.run(twice) == ["a", "b", "x", "c"]
    code.store._backend.get("r")
    assert done == ["a", "b", "x", "c"]


def test_the_same_answer_after_every_stop(store):
    """Two changes, asked for between all steps; stopped after every step, over and over."""

    def asked() -> list[str]:
        found: list[str] = []
        for name in "abc":
            if patched("x"):
                found.append(work(f"x{name}"))
            found.append(work(name))
        return found

    code = Code(store)
    code.stopped_after(2, old)
    for _ in range(2):
        code.stopped_after(1, asked)
    assert code.run(asked) == ["a", "b", "xc", "c"]
    assert done == ["a", "b", "xc", "c"]


def test_a_change_that_is_not_asked_for_is_held_as_before(code):
    code.stopped_after(2, old)
    with pytest.raises(RunHeld, match="diverged"):
        code.run(newest)
    assert code.run(new) == OLD_WAY


def test_calls_with_a_key_of_their_own_are_part_of_the_past(code):
    """They have no position; as long as one is still to be asked for, the run is not past them."""

    def keyed(name: str) -> str:
        stops()
        return step_of_work.with_options(step_key=name)(name)

    def before() -> list[str]:
        return [keyed("a"), keyed("b"), keyed("c")]

    def after() -> list[str]:
        first = keyed("a")
        more = [keyed("check")] if patched("check") else []
        return [first, *more, keyed("b"), keyed("c")]

    code.stopped_after(2, before)
    assert code.run(after) == OLD_WAY
    assert done == OLD_WAY


# -- branches and turns ------------------------------------------------------------------------


def branch(name: str) -> list[str]:
    return [work(f"{name}1"), work(f"{name}2")]


def patched_branch(name: str) -> list[str]:
    first = work(f"{name}1")
    more = [work(f"{name}!")] if patched("more") else []
    return [first, *more, work(f"{name}2")]


def test_branches_are_each_on_their_own_way(code):
    code.stopped_after(3, lambda: each(branch, "xyz", max_concurrency=1))
    assert code.run(lambda: each(patched_branch, "xyz", max_concurrency=1)) == [
        ["x1", "x2"],
        ["y1", "y!", "y2"],
        ["z1", "z!", "z2"],
    ]
    assert sorted(done) == sorted(["x1", "x2", "y1", "y!", "y2", "z1", "z!", "z2"])


def test_a_branch_that_had_ended_gets_nothing_more(code):
    """Nothing is recorded behind the place in the branch, but the run went on behind the branches."""

    def before() -> Any:
        return [gather(lambda: work("x"), lambda: work("y")), work("after"), work("last")]

    def ends(name: str) -> list[str]:
        return [work(name), *([work(f"{name}!")] if patched("more") else [])]

    def after() -> Any:
        return [gather(lambda: ends("x"), lambda: ends("y")), work("after"), work("last")]

    code.stopped_after(3, before)
    assert code.run(after) == [(["x"], ["y"]), "after", "last"]
    assert sorted(done) == ["after", "last", "x", "y"]


def looped(asks: bool) -> Callable[[], list[str]]:
    def loop() -> list[str]:
        for seen in turns([""], max_turns=9):
            turn = len(seen)
            seen.append(work(f"{turn}a"))
            if asks and patched("more"):
                seen.append(work(f"{turn}!"))
            seen.append(work(f"{turn}b"))
            if len(seen) > 5:
                return seen[1:]
        raise AssertionError

    return loop


def test_turns_are_each_on_their_own_way(code):
    code.stopped_after(4, looped(False))  # In the middle of a turn, past the place.
    found = code.run(looped(True))
    assert found == ["1a", "1b", "3a", "3b", "5a", "5!", "5b"]
    assert done == found


def test_a_turn_that_had_not_come_so_far(code):
    code.stopped_after(3, looped(False))
    found = code.run(looped(True))
    assert found == ["1a", "1b", "3a", "3!", "3b"]
    assert done == found


def test_a_last_turn_is_over_when_the_run_went_on_behind_the_loop(code):
    def edited(*, is_new: bool) -> Callable[[], list[str]]:
        if not is_new:

            def body() -> list[str]:
                for _ in turns([0]):
                    work("in")
                    break
                return [work("after"), work("last")]

            return body

        def body() -> list[str]:  # type: ignore[no-redef]
            for _ in turns([0]):
                work("in")
                if patched("more"):
                    work("more")
                break
            return [work("after"), work("last")]

        return body

    code.stopped_after(2, edited(is_new=False))
    assert code.run(edited(is_new=True)) == ["after", "last"]
    assert done == ["in", "after", "last"]


def test_in_async_flows(store):
    body: list[bool] = [False]

    @flow(name="patched async")
    async def code() -> list[str]:
        async def one(name: str) -> list[str]:
            found = [await work_async(f"{name}1")]
            if body[0] and patched("more"):
                found.append(await work_async(f"{name}!"))
            return [*found, await work_async(f"{name}2")]

        first, second = await holdfast.aio.gather(one("x"), one("y"))
        return first + second

    body[0] = True
    assert asyncio.run(code.run("fresh")) == ["x1", "x!", "x2", "y1", "y!", "y2"]
    done.clear()
    body[0] = False
    room[:] = [3]
    with pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
        asyncio.run(code.run("r"))
    room.clear()
    body[0] = True
    found = asyncio.run(code.run("r"))
    assert sorted(done) == sorted(found), "no step twice, none for nothing"
    assert len(found) < 6


# -- failures, changes that were accepted, blocks ----------------------------------------------


def test_a_failed_step_is_tried_again_on_the_new_way(store):
    broken = [True]

    @step(name="patched fails")
    def fails() -> str:
        if broken[0]:
            raise ValueError
        return "works"

    code = Code(store)
    code.body = lambda: [work("a"), fails()]
    with pytest.raises(holdfast.errors.RunFailed):
        code.flow.run("r")
    broken[0] = False

    def after() -> list[str]:
        first = work("a")
        return [first, *([work("check")] if patched("check") else []), fails()]

    # The failure is left behind, and with it the place is the end of what is recorded.
    assert code.run(after) == ["a", "check", "works"]
    assert done == ["a", "check"]


def test_where_a_change_was_accepted_records_count_until_they_are_asked_for(code):
    code.stopped_after(2, old)
    with pytest.raises(RunHeld):
        code.run(newest)
    code.store.resume("r", actor="ops", accept_change=True)
    assert code.run(new) == OLD_WAY
    assert done == OLD_WAY


def test_a_block_that_has_ended_has_no_change(store):
    for _ in range(2):
        with holdfast.run("block"):
            work("a")
    with holdfast.run("block"):
        assert work("a") == "a"
        assert not patched("later")
    assert done == ["a"]


def test_where_it_belongs(store):
    with pytest.raises(UsageError, match="inside a flow"):
        patched("x")

    @step(name="patched inside")
    def inside() -> bool:
        return patched("x")

    code = Code(store)
    code.body = inside
    with pytest.raises(holdfast.errors.RunFailed, match="not inside the step"):
        code.flow.run("r")
    code.body = lambda: patched("")
    with pytest.raises(holdfast.errors.RunFailed, match="must not be empty"):
        code.flow.run("s")


@flow(name="patched matrix")
def matrix() -> list[str]:
    found = [work("a")]
    if patched("one"):
        found.append(work("one"))
    found += sum(each(patched_branch, "xy", max_concurrency=1), [])
    if patched("two"):
        found.append(work("two"))
    return found


@pytest.mark.sweep
@pytest.mark.parametrize("url", ["memory:", "sqlite:"])
def test_at_every_point_of_a_crash(url):
    deaths = sweeps.size(1, 2) if url == "memory:" else 1
    testing.crash_matrix(matrix, url=url, crashes=deaths)


# -- workers -----------------------------------------------------------------------------------


def versioned(version: str, body: Callable[[], Any], accepts_versions: tuple[str, ...] = ()) -> Any:
    @flow(name="deployed", version=version, accepts_versions=accepts_versions)
    def deployed() -> Any:
        return body()

    return deployed


def begun(store: holdfast.types.Store, steps: int, run_id: str = "r") -> None:
    """A run of version 1 that was given back after so many steps."""
    room[:] = [steps]
    interrupted(lambda: versioned("1", old).run(run_id))
    room.clear()


def version_of(store: testing.PrivateStore, run_id: str = "r") -> str:
    row = store._backend.get(run_id)
    assert row is not None
    return row.version


def test_a_worker_takes_what_it_can_execute(store, caplog):
    versioned("1", old).submit("one")
    two = versioned("2", new)
    two.submit("two")
    versioned("3", new).submit("three")
    with store.worker(flows=[two]):
        store.wait_until("two", status="completed")
        explained = " ".join(str(store.explain("one")).split())
        assert "alive cannot run version 1 of deployed; it runs 2" in explained
        assert "accepts_versions=('1',)" in explained
    assert [store.get(run_id).status for run_id in ("one", "three")] == ["queued", "queued"]
    assert "version 1 of flow deployed (such as one) cannot go on" in caplog.text
    assert "version 3 of flow deployed" in caplog.text


def test_nothing_is_said_of_a_version_that_another_worker_executes(store, caplog):
    one, two = versioned("1", old), versioned("2", new)
    facts = '{"flows": {"deployed": ["1"]}}'
    store._backend.pulse(store._backend.register_owner(), facts)
    one.submit("one")
    with store.worker(flows=[two]):
        two.submit("two")
        store.wait_until("two", status="completed")
    assert "cannot go on" not in caplog.text


@pytest.mark.parametrize("recorded", [0, 1, 2])
def test_an_accepted_run_is_replayed_exactly(store, recorded):
    begun(store, recorded)
    two = versioned("2", new, accepts_versions=("1",))
    with store.worker(flows=[two]):
        result = store.wait_until("r", status="completed").result()
    assert result == (OLD_WAY if recorded > 1 else NEW_WAY)
    assert done == result
    assert version_of(store) == "2"
    assert store.verify() == []


def test_from_its_first_entry_on_the_run_is_of_the_newer_version(store):
    """So that a worker with the older code does not come upon what it could not replay."""
    begun(store, 1)

    def stops_later() -> list[str]:
        room[:] = [3]
        return new()

    two = versioned("2", stops_later, accepts_versions=("1",))
    interrupted(store.recover)
    room.clear()
    assert done == ["a", "check"] + ["b"] * (len(done) - 2)
    assert version_of(store) == "2"
    [accepted] = [e for e in store.history("r") if e.kind == "change_accepted"]
    assert accepted.body == {"actor": "version 2 of deployed", "exact": True}
    with store.worker(flows=[versioned("1", old)]):
        other = versioned("1", old).submit("other")
        other.result(20)
        assert store.get("r").status == "queued"
    with store.worker(flows=[versioned("2", new, accepts_versions=("1",))]):
        assert store.wait_until("r", status="completed").result() == NEW_WAY
    assert done.count("check") == 1
    assert two.version == "2"


def test_what_newer_code_wrote_is_replayed_exactly_too(store):
    begun(store, 1)

    def stops_later() -> list[str]:
        room[:] = [3]
        return new()

    versioned("2", stops_later, accepts_versions=("1",))
    interrupted(store.recover)
    room.clear()
    before = list(done)

    def other() -> list[str]:
        return [work("z"), work("check"), work("b"), work("c")]

    with store.worker(flows=[versioned("2", other, accepts_versions=("1",))]):
        store.wait_until("r", status="held")
    assert done == before, "it is not matched by name, and nothing was executed"


def unfit(store: holdfast.types.Store, run_id: str = "r") -> list[Any]:
    """Return the notes of code that did not fit."""
    notes = [e for e in store.history(run_id) if e.kind == "run_released"]
    return [e for e in notes if e.body["why"] == "does_not_fit"]


def test_a_run_that_does_not_fit_is_given_back_for_the_code_of_its_version(store, caplog):
    begun(store, 2)
    two = versioned("2", newest, accepts_versions=("1",))
    with store.worker(flows=[two]):
        wait_for(lambda: unfit(store), "a note of the code that does not fit")
        two.submit("other").result(20)
    assert done[:3] == ["a", "b", "a"], "nothing of the run was executed"
    assert (store.get("r").status, version_of(store)) == ("queued", "1")
    [note] = unfit(store)
    assert note.body["code"] == two.code()
    assert "does not fit version 2 at" in caplog.text
    assert "is held (diverged)" not in caplog.text
    with pytest.raises(RunHeld, match="run 'r' does not fit version 2, and was released: at"):
        two.run("r")
    explained = " ".join(str(store.explain("r")).split())
    assert "waits for code that fits, of version 1: version 2 could not replay it" in explained
    assert note.body["detail"] in explained
    assert "holdfast resume r --accept-change" in explained
    assert "change_accepted" not in [e.kind for e in store.history("r")]
    # The older code fits as it did before.
    with store.worker(flows=[versioned("1", old)]):
        assert store.wait_until("r", status="completed").result() == OLD_WAY
    assert version_of(store) == "1"


def test_the_same_code_does_not_try_twice_in_whatever_process(store):
    begun(store, 2)
    tried: list[int] = []

    def counted() -> list[str]:
        tried.append(1)
        return newest()

    versioned("2", counted, accepts_versions=("1",))
    for _ in range(3):
        store.recover()
    assert (len(tried), store.get("r").status) == (1, "queued")

    def repaired() -> list[str]:
        return old()

    versioned("2", repaired, accepts_versions=("1",))
    store.recover()
    assert (store.get("r").result, version_of(store)) == (OLD_WAY, "2")


def test_what_is_only_said_of_a_run_does_not_move_it(store):
    """A run that waits is replayed by newer code and waits on: it is still of its version."""

    def waits() -> Any:
        work("a")
        return holdfast.wait_for_signal("go")

    def checks() -> Any:
        work("check")
        return waits()

    versioned("1", waits).submit("r")
    with store.worker(flows=[versioned("1", waits)]):
        store.wait_until("r", waiting="signal:go")
    versioned("2", waits, accepts_versions=("1",))
    store.recover()
    assert version_of(store) == "1"
    versioned("2", checks, accepts_versions=("1",))
    store.signal("r", "go", 5)
    store.recover()
    assert (store.get("r").status, version_of(store)) == ("queued", "1")
    with store.worker(flows=[versioned("1", waits)]):
        assert store.wait_until("r", status="completed").result() == 5
    assert done == ["a"]


def test_a_run_that_does_not_fit_goes_on_when_somebody_accepts_the_change(store):
    begun(store, 2)
    versioned("2", newest, accepts_versions=("1",))
    store.recover()
    assert "accepted" in store.resume("r", actor="ops", accept_change=True).did
    store.recover()
    assert store.get("r").result == ["a", "b", "b", "c"], (
        "by key: the second call was recorded as b"
    )
    assert version_of(store) == "2"


# -- diverged runs of one version, together ----------------------------------------------------


def diverged(store: testing.PrivateStore, *run_ids: str) -> None:
    """Runs of version 1 whose code was changed inside what they recorded, under the same version."""
    for run_id in run_ids:
        begun(store, 2, run_id)
    versioned("1", newest)
    store.recover()
    assert {store.get(run_id).held_reason for run_id in run_ids} == {"diverged"}


def test_diverged_runs_are_tried_again_together_when_the_old_code_is_back(store):
    diverged(store, "r", "s")
    versioned("1", old)
    told = store.resume_all(flow="deployed", held_reason="diverged", actor="kim")
    assert {one.run_id: one.error for one in told} == {"r": None, "s": None}
    store.recover()
    assert [store.get(run_id).result for run_id in ("r", "s")] == [OLD_WAY, OLD_WAY]
    assert sorted(done) == ["a", "a", "b", "b", "c", "c"], "each step is executed once"
    assert "change_accepted" not in [entry.kind for entry in store.history("r")]
    assert store.resume_all(flow="deployed", held_reason="diverged") == []
    assert store.verify() == []


def claims(store: testing.PrivateStore, run_id: str = "r") -> int:
    return [entry.kind for entry in store.history(run_id)].count("run_claimed")


def repaired() -> list[str]:
    """Not the old code, and it fits what that recorded."""
    return [*old()]


def test_other_code_of_the_version_tries_a_diverged_run_by_itself(store):
    diverged(store, "r", "s")
    before = claims(store)
    with store.worker(flows=[versioned("1", newest)]):
        versioned("1", newest).submit("fresh").result(60)
    assert (claims(store), store.get("r").status) == (before, "held"), "the same code has tried"
    explained = " ".join(str(store.explain("r")).split())
    assert (
        f"could not replay it (version/fingerprint): {versioned('1', newest).code()}" in explained
    )
    seen: list[str] = []

    def looks() -> list[str]:
        seen.append(" ".join(str(store.explain("r")).split()))
        return old()

    with store.worker(flows=[versioned("1", looks)]):
        for run_id in ("r", "s"):
            assert store.wait_until(run_id, status="completed").result() == OLD_WAY
    assert "is replayed once more because the flow has other code now" in seen[0]
    assert "replayed once more" not in str(store.explain("r"))
    assert claims(store) == before + 1
    assert done.count("a") == 3, "nothing was executed twice"
    assert not {"change_accepted", "run_resumed"} & {it.kind for it in store.history("r")}
    assert store.verify() == []


def test_each_code_that_does_not_fit_tries_a_run_once(store):
    diverged(store, "r")
    before = claims(store)

    def other() -> list[str]:
        return newest()

    for _ in range(2):
        for body in (other, newest):
            versioned("1", body)
            for _ in range(2):
                store.recover()
    assert (claims(store), store.get("r").held_reason) == (before + 1, "diverged")
    versioned("1", repaired)
    store.recover()
    assert (store.get("r").result, claims(store)) == (OLD_WAY, before + 2)
    assert done == OLD_WAY, "each step is executed once"


def test_a_decision_of_a_person_lets_any_code_try_anew(store):
    diverged(store, "r")
    before = claims(store)
    store.resume_all(flow="deployed", held_reason="diverged")
    store.recover()
    assert (claims(store), store.get("r").held_reason) == (before + 1, "diverged")
    store.recover()
    assert claims(store) == before + 1


def test_a_newer_version_that_accepts_the_older_one_may_fit_too(store):
    diverged(store, "r")
    with store.worker(flows=[versioned("2", old, accepts_versions=("1",))]):
        assert store.wait_until("r", status="completed").result() == OLD_WAY
    assert version_of(store) == "2"


def test_a_worker_without_that_version_or_queue_leaves_diverged_runs_alone(store):
    diverged(store, "r")
    before = len(store.history("r"))
    with store.worker(flows=[versioned("2", old)]):
        versioned("2", old).submit("fresh").result(60)
    with store.worker(flows=[versioned("1", old)], queues=["elsewhere"]):
        versioned("1", old).with_options(queue="elsewhere").submit("other").result(60)
    assert len(store.history("r")) == before


def test_run_says_that_the_code_is_another(store):
    diverged(store, "r")
    with pytest.raises(RunHeld):
        versioned("1", newest).run("r")
    assert versioned("1", repaired).run("r") == OLD_WAY
    why = [it.body["why"] for it in store.history("r") if it.kind == "run_released"]
    assert why[-2:] == ["run again", "other_code"]


def test_a_held_child_is_tried_again_by_the_program_that_waits_for_it(store):
    @flow(name="deployed parent")
    def parent() -> Any:
        return deployed()

    def waits() -> Any:
        return [work("a"), holdfast.wait_for_signal("go")]

    def changed() -> Any:
        work("check")
        return waits()

    def put_back() -> Any:
        return [*waits()]

    deployed = versioned("1", waits)
    parent.submit("p")
    with store.worker(flows=[parent, deployed]):
        wait_for(lambda: store.runs(flow="deployed"), "the child")
        [child] = [run.run_id for run in store.runs(flow="deployed")]
        store.wait_until(child, waiting="signal:go")
    store.signal(child, "go", 5)
    deployed = versioned("1", changed)
    store.recover()
    assert store.get(child).held_reason == "diverged"
    deployed = versioned("1", put_back)
    assert parent.run("p") == ["a", 5]
    assert done == ["a"]


def test_a_name_that_became_another_sort_is_part_of_what_was_tried(monkeypatch):
    """It is no part of the fingerprint: the flow calls the same name."""
    monkeypatch.setitem(registry.flows, "look up", object())
    tried = [version_rules.mark("1/abc", SORT, "look up")]
    assert version_rules.has_tried(tried, "1/abc")
    assert not version_rules.has_tried(tried, "1/abd")
    monkeypatch.delitem(registry.flows, "look up")
    assert not version_rules.has_tried(tried, "1/abc")


def test_what_a_run_is_held_on_fits_an_index():
    codes = [f"{version}/0123456789abcdef" for version in range(500)]
    token = Tried("f", "1", "default", codes).token()
    assert len(token) < 2000
    read = Tried.read(token)
    assert read is not None
    assert (read.flow, read.codes[-1]) == ("f", codes[-1])


def test_what_still_does_not_fit_is_held_again(store):
    """Each decision is one more try, also of code that looks the same: its helpers may be mended."""
    tried: list[int] = []

    def counted() -> list[str]:
        tried.append(1)
        return newest()

    begun(store, 2)
    versioned("1", counted)
    store.recover()
    for times in (2, 3):
        store.resume_all(flow="deployed", held_reason="diverged")
        store.recover()
        assert (store.get("r").held_reason, len(tried)) == ("diverged", times)
    assert done == ["a", "b"], "nothing was executed"


def test_a_change_is_accepted_of_all_diverged_runs_of_a_flow(store):
    diverged(store, "r", "s")
    told = store.resume_all(
        flow="deployed", held_reason="diverged", accept_change=True, actor="kim"
    )
    assert all("accepted" in one.did for one in told)
    store.recover()
    assert [store.get(run_id).result for run_id in ("r", "s")] == [["a", "b", "b", "c"]] * 2


def test_only_the_diverged_runs_of_that_flow_are_taken_up(store):
    diverged(store, "r")
    versioned("1", old).submit("paused")
    store.pause("paused")
    assert store.resume_all(flow="other", held_reason="diverged") == []
    told = store.resume_all(flow="deployed", held_reason="diverged")
    assert [one.run_id for one in told] == ["r"]
    assert (store.get("r").status, store.get("paused").held_reason) == ("queued", "paused")


def test_a_run_that_moved_on_meanwhile_is_left_as_it_is(store, monkeypatch):
    """The list is older than the decision: it is taken on the run as it is then."""
    diverged(store, "r")
    listed = store._backend.list

    def late(query: Any) -> Any:
        rows = listed(query)
        versioned("1", old).run("r")
        return rows

    monkeypatch.setattr(store._backend, "list", late)
    [told] = store.resume_all(flow="deployed", held_reason="diverged", accept_change=True)
    assert (told.did, told.error) == ("run 'r' is completed already", None)
    assert store.get("r").result == OLD_WAY


def test_diverged_runs_are_taken_up_flow_by_flow(store):
    with pytest.raises(UsageError, match="flow by flow"):
        store.resume_all(held_reason="diverged")
    with pytest.raises(UsageError, match="not for failed ones"):
        store.resume_all(flow="deployed", accept_change=True)


def test_the_change_of_version_is_not_lost_with_a_refused_write(store):
    """The first entry is an intent whose business key another run has."""

    @effect(name="deployed pay", key="one")
    def pay() -> str:
        return "paid"

    versioned("1", pay).run("first")
    versioned("1", pay).submit("second")
    with store.worker(flows=[versioned("2", pay, accepts_versions=("1",))]):
        assert store.wait_until("second", status="completed").result() == "paid"
    assert version_of(store, "second") == "2"
    kinds = [entry.kind for entry in store.history("second")]
    assert kinds.count("change_accepted") == 1
    assert "skipped_duplicate" in kinds


def test_recover_keeps_to_the_versions_too(store):
    begun(store, 1)
    versioned("2", new)
    assert store.recover() == []
    versioned("2", new, accepts_versions=("1",))
    assert store.recover() == ["r"]
    assert store.get("r").result == NEW_WAY


def test_flow_run_keeps_to_the_same_rule(store):
    begun(store, 2)
    for _ in range(2):
        with pytest.raises(RunHeld, match="does not fit version 2"):
            versioned("2", newest).run("r")
        assert (store.get("r").status, version_of(store)) == ("queued", "1")
    assert done == ["a", "b"], "nothing was matched by name, and nothing executed"
    assert versioned("2", old).run("r") == OLD_WAY
    assert version_of(store) == "2"


def test_versions_are_texts():
    for accepts in ("1", (1,), ("",)):
        with pytest.raises(UsageError):
            versioned("2", new, accepts_versions=accepts)  # type: ignore[arg-type]


DEPLOY = '''
from holdfast import step

@step(name="deployed look")
def look(n): return n

def helper(n=1, *, more=(2, "x"), client=object()):
    """Help."""
    return look(n)

def main():
    return helper()
'''


def of_deploy(source: str) -> str:
    space: dict[str, Any] = {"__name__": "deployed"}
    exec(source, space)  # noqa: S102
    return of_flow(space["main"])


@pytest.mark.parametrize(
    ("old", "new"),
    [("n=1", "n=2"), ('"x"', '"y"'), ("more=", "less="), ('"deployed look"', '"deployed see"')],
)
def test_defaults_and_names_of_steps_are_code_of_a_flow(old, new):
    """A deploy that puts one of these right is other code: its workers try what did not fit."""
    assert old in DEPLOY
    assert of_deploy(DEPLOY.replace(old, new)) != of_deploy(DEPLOY)


DATA = """
from enum import Enum
from holdfast import effect, step

@step(name="data look")
def look(n): return n

@effect(name="data send", aliases=("data mail",))
def send(n): return n

class Colour(Enum):
    RED = 1
    BLUE = 2

def plain(n): return n + 1

FLAG = True
KINDS = ["x", {"y": 1.5}]
STEPS = (look, look)
TABLE = {"a": look}
NAMED = frozenset({"p", "q"})
BEST = Colour.RED
HELPERS = [plain]
CACHE = {}
OBJECT = object()

def main():
    if FLAG:
        send(BEST)
    return [it(k) for it in (*STEPS, *HELPERS) for k in KINDS], TABLE, NAMED, OBJECT, CACHE
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FLAG = True", "FLAG = False"),
        ('"x", {', '"z", "x", {'),
        ("1.5", "2.5"),
        ("(look, look)", "(send, look)"),
        ('{"a": look}', '{"a": send}'),
        ('"q"', '"r"'),
        ("Colour.RED\n", "Colour.BLUE\n"),
        ("n + 1", "n + 2"),
        ('("data mail",)', "()"),
    ],
)
def test_plain_data_and_aliases_are_code_of_a_flow(old, new):
    """What a flow names as a constant decides which steps it calls."""
    assert old in DATA
    assert of_deploy(DATA.replace(old, new)) != of_deploy(DATA)


def test_data_that_changes_while_a_process_works_is_no_other_code():
    assert of_deploy(DATA) == of_deploy(DATA)
    space: dict[str, Any] = {"__name__": "deployed"}
    exec(DATA, space)  # noqa: S102
    before = of_flow(space["main"])
    space["CACHE"]["hits"] = 1
    assert of_flow(space["main"]) == before


def test_a_plan_that_was_put_back_frees_its_run(store):
    """The steps of a plan stand in a list: they are its code."""

    def deployed(*names: str) -> Any:
        steps = [step(name=f"planned {name}")(lambda s, n=name: s | {n: 1}) for name in names]

        def last(state: dict[str, Any]) -> dict[str, Any]:
            stop.here()
            return state

        stops = step(name="planned stop")(last)
        return plan("planned", [*steps, stops])

    stop = Stop()
    interrupted(lambda: deployed("x", "y").run("r", {}))
    deployed("z", "x", "y")
    store.recover()
    assert store.get("r").held_reason == "diverged"
    deployed("x", "y")
    store.recover()
    assert store.get("r").status == "completed"


def test_objects_and_docstrings_are_no_code_of_a_flow():
    """The text of an object is another one in each process."""
    assert of_deploy(DEPLOY.replace("Help.", "Helps.")) == of_deploy(DEPLOY)


# -- an acceptance belongs to the code that it was given for ------------------------------------


@effect(name="versioned send")
def send(what: str) -> str:
    done.append(what)
    return what


@effect(name="versioned bill")
def bill(what: str) -> str:
    done.append(what)
    return what


def sends() -> list[str]:
    return [send("x"), work("a"), work("b"), str(holdfast.wait_for_signal("go"))]


def bills_first() -> list[str]:
    return [work("b"), bill("y"), send("x"), work("a"), str(holdfast.wait_for_signal("go"))]


def sends_last() -> list[str]:
    return [work("a"), work("b"), send("other"), str(holdfast.wait_for_signal("go"))]


def accepted_for_bills(store: holdfast.types.Store) -> None:
    """The change is accepted for one code, which is held again before something new."""
    versioned("1", sends).submit("r")
    store.recover()
    assert store.get("r").status == "waiting"
    versioned("1", bills_first)
    store.signal("r", "go", "on")
    store.recover()
    assert store.get("r").held_reason == "diverged"
    store.resume("r", accept_change=True, actor="ana")
    store.recover()
    assert "before it has called versioned send" in (store.get("r").held_detail or "")


def test_an_accepted_change_is_not_carried_over_to_other_code(store):
    accepted_for_bills(store)
    versioned("1", sends_last)
    store.recover()
    run = store.get("r")
    assert (run.status, run.held_reason) == ("held", "diverged")
    assert "the journal has versioned send" in (run.held_detail or "")
    assert done == ["x", "a", "b"]


def test_code_that_fits_goes_on_whatever_was_accepted_for_other_code(store):
    accepted_for_bills(store)

    def put_back() -> list[str]:
        return [send("x"), work("a"), work("b"), str(holdfast.wait_for_signal("go"))]

    versioned("1", put_back)
    store.recover()
    assert store.get("r").result == ["x", "a", "b", "on"]
    assert done == ["x", "a", "b"]


def test_the_code_that_a_change_was_accepted_for_goes_on(store):
    accepted_for_bills(store)
    store.resume("r", accept_change=True, confirm=True, actor="ana")
    store.recover()
    assert store.get("r").result == ["a", "y", "x", "b", "on"], "matched by key"
    assert done == ["x", "a", "b", "y"]
    accepted = [it.body for it in store.history("r") if it.kind == "change_accepted"]
    assert [body["code"].split("/")[0] for body in accepted] == ["1", "1"]


def named(version: str, fn: Callable[..., Any], **options: Any) -> Any:
    """Return a flow whose function takes the place of the one before."""
    fn.__qualname__ = "bought"
    return flow(name="with input", version=version, **options)(fn)


def waits(order: str, cents: int) -> str:
    step_of_work("a")
    holdfast.wait_for_signal("go")
    return f"{order} {cents}"


def needs_more(order: str, cents: int, currency: str) -> str:
    return waits(order, cents) + currency


def takes_less(order: str) -> str:
    return waits(order, 5)


def takes_any(order: str, **rest: Any) -> str:
    return waits(order, **rest)


def takes_a_default(order: str, cents: int, currency: str = " EUR") -> str:
    return needs_more(order, cents, currency)


OTHER_PARAMETERS: dict[str, tuple[Callable[..., Any], str]] = {
    "one more": (needs_more, "now needs currency, which is not recorded"),
    "one less": (takes_less, "no longer takes cents, which is recorded"),
    "any": (takes_any, "no longer takes cents, which is recorded"),
}


@pytest.fixture
def waiting(store: testing.PrivateStore) -> testing.PrivateStore:
    """A store with a run that waits."""
    with store.worker(flows=[named("1", waits)]):
        named("1", waits).submit("r", "shoes", 5)
        store.wait_until("r", status="waiting")
    store.signal("r", "go")
    return store


@pytest.mark.parametrize("name", OTHER_PARAMETERS)
def test_parameters_that_do_not_fit_the_recorded_input_hold_a_run(waiting, name):
    code, why = OTHER_PARAMETERS[name]
    named("1", code)
    waiting.recover()
    run = waiting.get("r")
    assert (run.status, run.held_reason) == ("held", "diverged")
    assert f"at the input: the flow with input {why}" in run.held_detail
    explained = " ".join(str(waiting.explain("r")).split())
    assert why in explained
    assert "--accept-change" not in explained, "no acceptance lets the code be called"
    named("1", takes_a_default)
    waiting.recover()
    assert waiting.get("r").result == "shoes 5 EUR"


def test_a_version_with_other_parameters_gives_the_run_back(waiting):
    with waiting.worker(flows=[named("2", needs_more, accepts_versions=("1",))]):
        wait_for(lambda: unfit(waiting), "a note of the code that does not fit")
    assert (waiting.get("r").status, version_of(waiting)) == ("queued", "1")
    assert "--accept-change" not in str(waiting.explain("r"))
    with waiting.worker(flows=[named("1", waits)]):
        assert waiting.wait_until("r", status="completed").result() == "shoes 5"
