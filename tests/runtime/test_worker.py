"""A worker takes what is due, executes it, and gives back what it cannot end."""

from __future__ import annotations

import asyncio
import contextvars
import json
import re
import threading
from collections.abc import Iterator

import pytest

from holdfast import effect, errors, flow, step, testing, wait_for_signal
from holdfast._engine.journal.lifecycle import Status
from holdfast._runtime.execution import admission
from holdfast._runtime.worker import slots, worker as workers
from tests.runtime.facts import until

PATIENCE_S = 20.0


@step(name="worker test double")
def double(n: int) -> int:
    return 2 * n


@flow(name="worker test doubled")
def doubled(n: int) -> int:
    return double(n)


@step(name="worker test triple")
async def triple(n: int) -> int:
    await asyncio.sleep(0)
    return 3 * n


@flow(name="worker test tripled")
async def tripled(n: int) -> int:
    return await triple(n)


class Gates:
    """Points at which flows of these tests wait until the test lets them go."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.go = threading.Event()

    def arrive(self) -> None:
        self.reached.release()
        assert self.go.wait(PATIENCE_S)

    def until(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.reached.acquire(timeout=PATIENCE_S)


gates = Gates()
calls: list[str] = []


@pytest.fixture(autouse=True)
def _fresh(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    global gates
    caplog.set_level("INFO", "holdfast")
    gates = Gates()
    calls.clear()
    yield
    gates.go.set()


@step(name="worker test blocks")
def blocks(name: str) -> str:
    calls.append(name)
    gates.arrive()
    return name


@flow(name="worker test blocked")
def blocked(name: str) -> str:
    return blocks(name) + double_text(name)


@step(name="worker test double text")
def double_text(text: str) -> str:
    return text


@step(name="worker test waits")
async def waits(name: str) -> str:
    calls.append(name)
    gates.reached.release()
    await asyncio.sleep(0 if gates.go.is_set() else 3600)
    return name


@flow(name="worker test waiting")
async def waiting(name: str) -> str:
    return await waits(name)


@flow(name="worker test fails")
def fails() -> None:
    raise ValueError("no")


@flow(name="worker test ends the process")
def ends_the_process() -> None:
    raise SystemExit(3)


# -- taking and executing ----------------------------------------------------------------------


def test_what_is_submitted_is_executed(store: testing.PrivateStore):
    with store.worker(flows=[doubled, tripled], concurrency=3) as worker:
        handles = [doubled.submit(f"d{n}", n) for n in range(10)]
        handles += [tripled.submit(f"t{n}", n) for n in range(10)]
        results = [handle.result(PATIENCE_S) for handle in handles]
    assert results == [2 * n for n in range(10)] + [3 * n for n in range(10)]
    assert worker.taken == 20
    assert worker.working == 0


def test_never_more_at_work_than_places(store: testing.PrivateStore):
    for number in range(5):
        blocked.submit(f"r{number}", "x")
    with store.worker(flows=[blocked], concurrency=2) as worker:
        gates.until(2)
        assert worker.working == 2
        assert worker.saturation == 1.0
        [queue] = store.queues()
        assert (queue.running, queue.ready) == (2, 3)
        gates.go.set()
        for number in range(5):
            store.handle(f"r{number}").result(PATIENCE_S)


def test_async_flows_run_in_the_loop_of_the_caller(store: testing.PrivateStore):
    loops: list[asyncio.AbstractEventLoop] = []

    @flow(name="where am i")
    async def where() -> None:
        loops.append(asyncio.get_running_loop())

    async def app() -> asyncio.AbstractEventLoop:
        async with store.worker(flows=[where]):
            handle = await where.aio.submit("w")
            await asyncio.to_thread(handle.result, PATIENCE_S)
        return asyncio.get_running_loop()

    assert loops == [asyncio.run(app())]


def test_sync_flows_do_not_block_the_loop_of_the_caller(store: testing.PrivateStore):
    async def app() -> str:
        async with store.worker(flows=[blocked]):
            handle = await blocked.aio.submit("b", "x")
            await asyncio.to_thread(gates.until)
            gates.go.set()  # Said in the loop, while the flow waits in its thread.
            return await asyncio.to_thread(handle.result, PATIENCE_S)

    assert asyncio.run(app()) == "xx"


def test_an_error_of_one_run_is_logged_and_harms_no_other(
    store: testing.PrivateStore, caplog: pytest.LogCaptureFixture
):
    with store.worker(flows=[fails, ends_the_process, doubled]):
        fails.submit("f")
        ends_the_process.submit("e")
        store.wait_until("f", status="failed")
        assert doubled.submit("d", 4).result(PATIENCE_S) == 8
        until(lambda: any("interrupted by SystemExit" in r.message for r in caplog.records))
    assert any(
        "run f of worker test fails failed: ValueError;" in r.message for r in caplog.records
    )


def test_what_a_run_leaves_in_context_variables_is_not_for_the_next(store: testing.PrivateStore):
    left: contextvars.ContextVar[str] = contextvars.ContextVar("left", default="nothing")
    seen: list[str] = []

    @flow(name="leaves something")
    def leaves(name: str) -> None:
        seen.append(left.get())
        left.set(name)

    with store.worker(flows=[leaves], concurrency=1):
        for name in ("a", "b"):
            leaves.submit(name, name).result(PATIENCE_S)
    assert seen == ["nothing", "nothing"]


def test_a_run_that_this_process_is_at_work_on_is_not_taken(store: testing.PrivateStore):
    handle = blocked.start("mine", "x")
    gates.until()
    with store.worker(flows=[blocked, doubled]):
        assert doubled.submit("d", 1).result(PATIENCE_S) == 2
        gates.go.set()
        assert handle.result(PATIENCE_S) == "xx"
    assert [entry.kind for entry in store.history("mine")].count("run_claimed") == 1


def test_only_known_flows_and_versions_are_taken(store: testing.PrivateStore):
    @flow(name="aged", version="7")
    def aged() -> str:
        return "old"

    aged.submit("old")

    @flow(name="aged", version="8")  # type: ignore[no-redef]
    def aged() -> str:
        return "new"

    with store.worker(flows=[aged, doubled]):
        assert aged.submit("new").result(PATIENCE_S) == "new"
        assert doubled.submit("d", 1).result(PATIENCE_S) == 2
        assert store.get("old").status == "queued"
        explained = str(store.explain("old"))
    assert "alive cannot run version 7 of aged" in " ".join(explained.split())


# -- its life ----------------------------------------------------------------------------------


def test_a_worker_ends_with_what_is_at_work(store: testing.PrivateStore):
    handle = blocked.submit("r", "x")
    with store.worker(flows=[blocked], drain_s=PATIENCE_S) as worker:
        gates.until()
        draining = threading.Thread(target=worker.drain)
        draining.start()
        until(lambda: [seen for seen in store.workers() if seen.draining])
        later = blocked.submit("later", "y")
        gates.go.set()
        draining.join()
        assert handle.status() == Status.COMPLETED
        assert later.status() == Status.QUEUED


def test_what_does_not_end_is_given_back(store: testing.PrivateStore):
    """The sync run stops at its next durable call, the async one where it awaits."""
    blocked.submit("sync", "s")
    waiting.submit("async", "a")
    worker = store.worker(flows=[blocked, waiting], drain_s=0.0)
    with worker:
        gates.until(2)
        threading.Timer(0.05, gates.go.set).start()
    for run_id in ("sync", "async"):
        history = store.history(run_id)
        assert history[-1].kind == "run_released"
        assert history[-1].body["why"] == "drained"
        assert store.get(run_id).status == "queued"
    with store.worker(flows=[blocked, waiting]):
        assert store.handle("sync").result(PATIENCE_S) == "ss"
        assert store.handle("async").result(PATIENCE_S) == "a"
    assert calls.count("s") == 1, "its step was recorded before it stopped"


def test_a_plain_step_that_does_not_end_is_given_back_and_its_late_outcome_is_refused(
    store: testing.PrivateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(workers, "GRACE_S", 0.05)
    blocked.submit("stuck", "s")
    for _ in range(3):
        with store.worker(flows=[blocked], drain_s=0.0) as worker:
            gates.until()
        assert "is released while a call of it is still at work" in caplog.text
        assert store.get("stuck").status == "queued"
        row = store._backend.get("stuck")
        assert row is not None
        assert (row.owner, row.claims) == (None, 0), "an orderly end counts against nobody"
    before = store.history("stuck")
    assert [it.kind for it in before].count("run_released") == 3
    gates.go.set()
    until(lambda: worker.working == 0 and calls.count("s") == 3)
    assert len(store.history("stuck")) == len(before), "what came later is not written"
    with store.worker(flows=[blocked]):
        assert store.handle("stuck").result(PATIENCE_S) == "ss"
    assert store.verify() == []


def test_an_effect_that_does_not_end_is_left_to_its_lease(
    store: testing.PrivateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    @effect(name="worker test pays for long")
    def pay() -> str:
        gates.arrive()
        return "paid"

    @flow(name="worker test payer")
    def payer() -> str:
        return pay()

    monkeypatch.setattr(workers, "GRACE_S", 0.05)
    payer.submit("stuck")
    with store.worker(flows=[payer], drain_s=0.0) as worker:
        gates.until()
    [line] = [it for it in caplog.records if "left to its lease" in it.message]
    assert "the effect worker test pays for long is still at work" in line.message
    assert "it is in doubt, and the next process that takes the run holds it" in line.message
    assert vars(line)["run_id"] == "stuck"
    assert vars(line)["step"] == "worker test pays for long"
    assert store.get("stuck").status == "running"
    gates.go.set()
    until(lambda: worker.working == 0)
    assert [it.kind for it in store.history("stuck")][-2:] == ["step_completed", "run_completed"]


def test_a_pending_cancel_is_carried_out_when_the_worker_lets_go(
    store: testing.PrivateStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(workers, "GRACE_S", 0.05)
    blocked.submit("stuck", "s")
    with store.worker(flows=[blocked], drain_s=0.0):
        gates.until()
        assert store.cancel("stuck", actor="kim", wait_s=0).outcome == "pending"
        until(lambda: store._engine.executing()[0].stopped is not None)
    assert store.get("stuck").status == "cancelled"
    gates.go.set()


def test_an_effect_in_a_drained_async_run_is_in_doubt(
    store: testing.PrivateStore, caplog: pytest.LogCaptureFixture
):
    @effect(name="pay slowly", on_doubt="retry")
    async def pay() -> None:
        gates.reached.release()
        await asyncio.sleep(3600)

    @flow(name="pays slowly")
    async def pays() -> None:
        await pay()

    pays.submit("p")
    with store.worker(flows=[pays], drain_s=0.0):
        gates.until()
    assert "step_in_doubt" in [entry.kind for entry in store.history("p")]
    [line] = [it for it in caplog.records if "cut off" in it.message]
    assert (line.levelname, vars(line)["run_id"]) == ("WARNING", "p")
    assert vars(line)["step"] == "pay slowly"
    assert "sends it again under the same key (on_doubt=retry)" in line.message


def test_the_log_says_that_a_run_is_taken_and_what_it_waits_for(
    store: testing.PrivateStore, caplog: pytest.LogCaptureFixture
):
    @flow(name="worker test waits for money")
    def waits_for_money() -> str:
        return wait_for_signal("paid", timeout="1h", type=str)

    waits_for_money.submit("w")
    with store.worker(flows=[waits_for_money]):
        store.wait_until("w", status="waiting")
        until(lambda: any(" waits for " in it.message for it in caplog.records))
        store.signal("w", "paid", "yes")
        assert store.handle("w").result(PATIENCE_S) == "yes"
    lines = [it for it in caplog.records if getattr(it, "run_id", "") == "w"]
    first, waits, again, *_ = (it.message for it in lines)
    assert first == "run w of worker test waits for money is taken"
    assert re.fullmatch(r"run w of .* waits for the signal paid until 20\d\d-.* UTC", waits)
    assert again == "run w of worker test waits for money is taken up again"
    assert vars(lines[1])["step"] == "wait:paid"


def test_a_cancelled_lifespan_drains_all_the_same(store: testing.PrivateStore):
    waiting.submit("w", "x")

    async def app() -> None:
        async with store.worker(flows=[waiting], drain_s=0.0):
            await asyncio.sleep(3600)

    async def server() -> None:
        lifespan = asyncio.create_task(app())
        await asyncio.to_thread(gates.until)
        lifespan.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lifespan

    asyncio.run(server())
    assert store.get("w").status == "queued"


def test_the_fleet_sees_the_worker(store: testing.PrivateStore):
    blocked.submit("r", "x")
    with store.worker(flows=[blocked], queues=["default", "mail"], concurrency=4, name="w1"):
        gates.until()
        store._engine.heartbeat.beat()
        [seen] = store.workers()
        assert (seen.name, seen.working, seen.concurrency) == ("w1", 1, 4)
        assert seen.queues == ["default", "mail"]
        assert seen.flows == {"worker test blocked": ["1"]}
        assert seen.saturation == 0.25
        facts = json.loads(store._backend.pulses()[-1].facts)
        assert facts["draining"] is False
        gates.go.set()
    assert store.workers() == []


def test_a_store_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture):
    with testing.store(url="memory:") as store:
        broken = threading.Event()
        failed = threading.Semaphore(0)
        take = store._backend.take

        def faulty(wanted: object) -> object:
            if broken.is_set():
                failed.release()
                raise errors.StoreFull("no space")
            return take(wanted)  # type: ignore[arg-type]

        store._backend.take = faulty  # type: ignore[method-assign, assignment]
        broken.set()
        with store.worker(flows=[doubled]) as worker:
            for _ in range(3):
                assert failed.acquire(timeout=PATIENCE_S)
            assert isinstance(worker.trouble, errors.StoreFull)
            broken.clear()
            assert doubled.submit("d", 2).result(PATIENCE_S) == 4
            until(lambda: worker.trouble is None)
        complaints = [r for r in caplog.records if "tries again" in r.message]
        assert len(complaints) == 1


def test_a_run_that_could_not_be_given_back_rests_before_it_is_taken_again(
    store: testing.PrivateStore, monkeypatch: pytest.MonkeyPatch
):
    """Else five quick claims would quarantine it."""
    monkeypatch.setattr(slots, "REST_S", 0.05)
    tries = []
    load = admission.execution_of

    def loads(*args: object, **kwargs: object) -> object:
        tries.append(1)
        if len(tries) < 4:
            raise errors.StoreFull("cannot be read just now")
        return load(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(slots, "execution_of", loads)
    with store.worker(flows=[doubled]):
        assert doubled.submit("d", 3).result(PATIENCE_S) == 6
    assert len(tries) == 4


def test_threads_are_reused_and_end_when_idle(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slots, "IDLE_S", 0.05)
    threads = slots.Threads("these-threads", 3)
    done = threading.Semaphore(0)
    names: list[str] = []

    def job() -> None:
        names.append(threading.current_thread().name)
        done.release()

    def alive() -> int:
        return sum(thread.name == "these-threads" for thread in threading.enumerate())

    for _ in range(2):
        for _ in range(50):
            threads.do(job)
        for _ in range(50):
            assert done.acquire(timeout=PATIENCE_S)
        assert alive() <= 3
        until(lambda: alive() == 0)
    assert len(names) == 100
    threads.close()


# -- mistakes ----------------------------------------------------------------------------------


def test_mistakes_are_told_at_once(store: testing.PrivateStore):
    for options, words in (
        ({"concurrency": 0}, "above 0"),
        ({"concurrency": True}, "above 0"),
        ({"drain_s": -1}, "not less than 0"),
        ({"flows": []}, "leave flows= out"),
        ({"flows": [double]}, "is no flow"),
        ({"queues": "mail"}, "queues=['mail']"),
        ({"queues": []}, "leave queues= out"),
    ):
        with pytest.raises(errors.UsageError, match=words.replace("[", r"\[")):
            store.worker(**options)


def test_one_worker_per_opened_store(store: testing.PrivateStore):
    with store.worker(flows=[doubled]) as worker:
        with (
            pytest.raises(errors.UsageError, match="has a worker in this process already"),
            store.worker(flows=[doubled]),
        ):
            pass
    with pytest.raises(errors.UsageError, match="works once"), worker:
        pass
    with store.worker(flows=[doubled]):
        assert doubled.submit("again", 1).result(PATIENCE_S) == 2


def test_a_method_is_no_flow_for_a_worker(store: testing.PrivateStore):
    class Agent:
        @flow(name="Agent.act")
        def act(self) -> None: ...

    with pytest.raises(errors.UsageError, match="is a method"):
        store.worker(flows=[Agent.act])


def test_a_sync_worker_in_a_loop_is_refused(store: testing.PrivateStore):
    async def app() -> None:
        with store.worker(flows=[doubled]):
            pass

    with pytest.raises(errors.UsageError, match="async with"):
        asyncio.run(app())
