"""A failed run is taken up again: what its next generation leaves behind, and what it keeps."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast import Retry, aio, effect, flow, gather, step, turns
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Lease, Write
from holdfast._stores.contract import Busy
from holdfast.errors import RunFailed, RunHeld, StepFailed
from tests.runtime.stops import Stop, interrupted, steps


class World:
    """Counts calls, and is down until it is mended."""

    def __init__(self) -> None:
        self.down = True
        self.calls: list[str] = []

    def ask(self, name: str) -> str:
        self.calls.append(name)
        if self.down and name.startswith("bad"):
            raise ConnectionError(name)
        return name

    def mended(self) -> None:
        self.down = False
        self.calls.clear()


@pytest.fixture
def world() -> World:
    return World()


def superseded(store: holdfast.types.Store, run_id: str = "r") -> list[str]:
    resumed = [e for e in store.history(run_id) if e.kind == "run_resumed"]
    return sorted(key.rpartition(".")[2] for key in resumed[-1].body["superseded"])


def test_what_stands_before_the_failure_is_kept(store, world):
    @step
    def ask(name: str) -> str:
        return world.ask(name)

    @flow
    def work() -> list[str]:
        return [ask("a"), ask("bad"), ask("c")]

    with pytest.raises(RunFailed):
        work.run("r")
    world.mended()
    assert work.run("r") == ["a", "bad", "c"]
    assert world.calls == ["bad", "c"]
    run = store.get("r")
    assert (run.generation, run.status, run.error) == (2, "completed", None)
    assert superseded(store) == ["ask#2"]
    assert [s.superseded for s in run.steps if s.key.endswith("ask#2")] == [True, False]
    assert store.verify() == []


def test_no_worker_gets_a_run_between_its_resuming_and_its_claim(store, world, monkeypatch):
    @step
    def ask(name: str) -> str:
        return world.ask(name)

    @flow
    def work() -> str:
        return ask("bad")

    with pytest.raises(RunFailed):
        work.run("r")
    kept = store._backend
    append, worker, got = kept.append, kept.register_owner(), []

    def raced(writes):
        outcomes = append(writes)
        if writes[0].lease.acting:
            got.append(kept.claim("r", worker, kept.now_us()))
        return outcomes

    monkeypatch.setattr(kept, "append", raced)
    with pytest.raises(RunFailed):
        work.run("r")
    assert [type(it) for it in got] == [Busy]
    assert store.get("r").generation == 2


@pytest.mark.parametrize("mended", [False, True])
def test_a_run_that_another_took_and_ended_is_told_by_its_end(store, world, monkeypatch, mended):
    @step
    def ask(name: str) -> str:
        return world.ask(name)

    @flow
    def work() -> str:
        return ask("bad")

    with pytest.raises(RunFailed):
        work.run("r")
    kept = store._backend
    append = kept.append

    def overtaken(writes):
        monkeypatch.setattr(kept, "append", append)
        row = kept.get("r")
        ends = kept.entry(row.run_no, row.last_seq)
        resumed = Draft(Kind.RUN_RESUMED, kept.now_us(), body=b'{"generation":2,"superseded":[]}')
        append([Write(Lease(row, acting=True), [resumed], row={"generation": 2})])
        lease = kept.claim("r", kept.register_owner(), kept.now_us())
        end = Draft(ends.kind, kept.now_us(), body=ends.body)
        if mended:
            end = Draft(Kind.RUN_COMPLETED, kept.now_us(), body=b'{"result":"theirs"}')
        append([Write(lease, [end])])
        return append(writes)

    monkeypatch.setattr(kept, "append", overtaken)
    if mended:
        assert work.run("r") == "theirs"
    else:
        with pytest.raises(RunFailed):
            work.run("r")
    assert store.get("r").generation == (2 if mended else 3)


def test_it_may_fail_again_and_again(store, world):
    @step
    def ask(name: str) -> str:
        return world.ask(name)

    @flow
    def work() -> str:
        return ask("bad")

    for generation in (1, 2, 3):
        with pytest.raises(RunFailed):
            work.run("r")
        assert store.get("r").generation == generation
    world.mended()
    assert work.run("r") == "bad"


def test_cleanup_after_the_failure_is_left_behind_too(store, world):
    @step
    def ask(name: str) -> str:
        return world.ask(name)

    @step
    def cleanup() -> str:
        return world.ask("cleanup")

    @flow
    def work() -> str:
        ask("before")
        try:
            return ask("bad")
        finally:
            cleanup()

    with pytest.raises(RunFailed):
        work.run("r")
    world.mended()
    assert work.run("r") == "bad"
    assert world.calls == ["bad", "cleanup"]
    assert superseded(store) == ["ask#2", "cleanup"]


def test_a_chain_of_causes_is_followed(store, world):
    class Wrapped(Exception):
        pass

    @step
    def ask(name: str) -> str:
        return world.ask(name)

    @flow
    def work() -> list[str]:
        try:
            return [ask("bad one")]
        except StepFailed as first:
            try:
                return [ask("bad two")]
            except StepFailed:
                raise Wrapped("both") from first

    with pytest.raises(RunFailed, match="Wrapped"):
        work.run("r")
    assert superseded_now(store) == ["ask", "ask#2"]
    world.mended()
    assert work.run("r") == ["bad one"]
    assert superseded(store) == ["ask", "ask#2"]


def superseded_now(store: holdfast.types.Store) -> list[str]:
    failed = [e for e in store.history("r") if e.kind == "run_failed"][-1]
    return sorted(key.rpartition(".")[2] for key in failed.body["steps"])


def test_exception_groups_are_looked_into(store, world):
    @step
    async def ask(name: str) -> str:
        await asyncio.sleep(0)
        return world.ask(name)

    @flow
    async def work() -> list[str]:
        found = await asyncio.gather(
            ask("bad one"), ask("fine"), ask("bad two"), return_exceptions=True
        )
        errors = [error for error in found if isinstance(error, Exception)]
        if errors:
            raise ExceptionGroup("several", [ExceptionGroup("inner", errors)])
        return [str(value) for value in found]

    with pytest.raises(RunFailed):
        asyncio.run(work.run("r"))
    world.mended()
    assert asyncio.run(work.run("r")) == ["bad one", "fine", "bad two"]
    assert sorted(world.calls) == ["bad one", "bad two"]


def test_siblings_of_a_failed_branch_are_kept(store, world):
    @step
    def ask(name: str) -> str:
        return world.ask(name)

    @step
    def after() -> str:
        return world.ask("after")

    @flow
    def work() -> list[str]:
        first, second = gather(
            lambda: ask("good") + ask("good too"), lambda: ask("x") + ask("bad") + ask("y")
        )
        return [first, second, after()]

    with pytest.raises(RunFailed):
        work.run("r")
    world.mended()
    assert work.run("r") == ["goodgood too", "xbady", "after"]
    assert sorted(world.calls) == ["after", "bad", "y"]


def test_a_handled_failure_stays_handled(store, world):
    @step
    def ask(name: str) -> str:
        return world.ask(name)

    @flow
    def work() -> str:
        try:
            ask("bad one")
        except StepFailed:
            ask("instead")
        return ask("bad two")

    with pytest.raises(RunFailed):
        work.run("r")
    world.mended()
    assert work.run("r") == "bad two"
    assert world.calls == ["bad two"]


def test_a_failure_that_is_only_the_context_of_the_error_counts_as_escaped(store, world):
    """`except StepFailed: raise Mine` without `from`: it is what the run failed of."""

    @step
    def ask(name: str) -> str:
        return world.ask(name)

    @flow
    def work() -> str:
        try:
            return ask("bad")
        except StepFailed:
            raise LookupError("mine")  # noqa: B904 - as many write it

    with pytest.raises(RunFailed, match="LookupError"):
        work.run("r")
    world.mended()
    assert work.run("r") == "bad"
    assert superseded(store) == ["ask"]


def test_an_error_of_the_flow_itself_leaves_everything(store):
    broken = [True]
    calls: list[int] = []

    @step
    def one() -> int:
        calls.append(1)
        return 1

    @flow
    def work() -> int:
        found = one()
        if broken:
            raise KeyError("a bug of the flow")
        return found

    with pytest.raises(RunFailed, match="KeyError"):
        work.run("r")
    broken.clear()
    assert work.run("r") == 1
    assert calls == [1]
    assert superseded(store) == []


def test_effects_before_the_failure_are_not_repeated_and_keep_their_result(store, world):
    @effect
    def charge() -> str:
        return world.ask("charge")

    @step
    def ask(name: str) -> str:
        return world.ask(name)

    @flow
    def work() -> str:
        return charge() + ask("bad")

    with pytest.raises(RunFailed):
        work.run("r")
    world.mended()
    assert work.run("r") == "chargebad"
    assert world.calls == ["bad"]


def test_an_effect_that_is_executed_again_has_a_new_key(store, world):
    keys: list[str] = []

    @effect(not_done_on=(ConnectionError,))
    def charge() -> str:
        keys.append(holdfast.idempotency_key())
        return world.ask("bad")

    @flow
    def work() -> str:
        return charge()

    with pytest.raises(RunFailed):
        work.run("r")
    world.mended()
    work.run("r")
    assert len(set(keys)) == 2


@pytest.mark.parametrize("policy", ["retry", "function"])
def test_a_doubt_from_the_former_generation_keeps_its_key(holdfast_store, policy):
    """It is not superseded, so it is the same effect: it must be asked for, or sent again, under
    the key that the other side has seen."""
    sent: list[str] = []
    ledger: dict[str, str] = {}
    slow = [True]

    def ask():
        found = ledger.get(holdfast.idempotency_key())
        return holdfast.Done(found) if found else holdfast.NOT_DONE

    @effect(
        on_doubt=ask if policy == "function" else "retry", retry=Retry(attempts=5, initial_wait_s=0)
    )
    async def charge() -> str:
        sent.append(holdfast.idempotency_key())
        ledger[holdfast.idempotency_key()] = f"ch-{len(sent)}"
        if slow:
            await asyncio.sleep(10)
        return ledger[holdfast.idempotency_key()]

    @flow
    async def work() -> str:
        task = asyncio.ensure_future(charge())
        while slow and not sent:
            await asyncio.sleep(0.001)
        if slow:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            raise TimeoutError from None

    with pytest.raises(RunFailed, match="TimeoutError"):
        asyncio.run(work.run("r"))
    slow.clear()
    asyncio.run(work.run("r"))
    assert len(set(sent)) == 1
    assert len(ledger) == 1


def test_an_effect_of_unknown_outcome_is_confirmed_first(store):
    calls: list[int] = []

    @effect(on_doubt="fail")
    def charge() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError
        return "charged"

    @flow
    def work() -> str:
        return charge()

    with pytest.raises(RunFailed):
        work.run("r")
    with pytest.raises(RunHeld, match="is not known"):
        work.run("r")
    assert calls == [1]
    store.resume("r", confirm=True, actor="kim")
    assert work.run("r") == "charged"


def test_a_turn_that_failed_is_tried_anew_and_the_ones_before_are_not(store, world):
    @step
    def ask(name: str) -> str:
        return world.ask(name)

    @flow
    def work() -> list[str]:
        for state in turns({"names": []}, max_turns=10):  # type: ignore[var-annotated]
            names = state["names"]
            if len(names) == 4:
                return names
            names.append(ask("bad" if len(names) == 2 else f"ok {len(names)}"))
        raise AssertionError

    with pytest.raises(RunFailed):
        work.run("r")
    world.mended()
    assert work.run("r") == ["ok 0", "ok 1", "bad", "ok 3"]
    assert world.calls == ["bad", "ok 3"]
    assert store.verify() == []


def test_a_loop_after_the_failure_begins_anew(store, world):
    @step
    def ask(name: str) -> str:
        return world.ask(name)

    @flow
    def work() -> list[str]:
        error: Exception | None = None
        how = "good"
        try:
            ask("bad")
        except StepFailed as failed:
            error, how = failed, "poor"
        names: list[str] = []
        for state in turns({"names": [], "how": how}, max_turns=10):
            names = state["names"]  # type: ignore[assignment]
            if len(names) == 2:
                break
            names.append(ask(state["how"]))  # type: ignore[arg-type]
        if error is not None:
            raise error
        return names

    with pytest.raises(RunFailed):
        work.run("r")
    world.mended()
    assert work.run("r") == ["good", "good"]


def test_async_branches_are_taken_up_alike(store, world):
    @step
    async def ask(name: str) -> str:
        await asyncio.sleep(0)
        return world.ask(name)

    async def branch(name: str) -> str:
        return await ask(f"before {name}") + await ask(name)

    @flow
    async def work() -> list[str]:
        return list(await aio.gather(branch("bad"), branch("good")))

    with pytest.raises(RunFailed):
        asyncio.run(work.run("r"))
    world.mended()
    assert asyncio.run(work.run("r")) == ["before badbad", "before goodgood"]
    assert world.calls == ["bad"]


def test_an_interrupted_second_generation_goes_on(store, world):
    stop = Stop()

    @step
    def ask(name: str) -> str:
        return world.ask(name)

    @flow
    def work() -> str:
        found = ask("a") + ask("bad")
        stop.here()
        return found + ask("c")

    with pytest.raises(RunFailed):
        work.run("r")
    world.mended()
    interrupted(lambda: work.run("r"))
    assert work.run("r") == "abadc"
    assert world.calls == ["bad", "c"]
    assert store.get("r").generation == 2
    assert "failed" not in steps(store, "r").values() or store.get("r").status == "completed"
