"""One order, one charge, whoever asks: every state that a business key can be in."""

from __future__ import annotations

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from holdfast import NOT_DONE, Done, aio, effect, flow, gather
from holdfast.errors import KeyConflict, RunFailed
from tests.crash.harness import BOTH_STORES, World, kinds, wait_for
from tests.crash.payments import Client

CHARGE = {"charge": "ch-1", "amount": 5}


def order(world: World, run_id: str, number: str = "42", amount: int = 5, **env: object):
    return world.run("business.py", run_id, number, amount, **env)


def test_completed_gives_the_recorded_result_to_another_process(
    world: World, payments: Client
) -> None:
    assert order(world, "a").result == CHARGE
    assert order(world, "b").result == CHARGE
    assert payments.seen() == (1, 1, 1)
    assert world.counts("b") == {"prepare": 1}
    skipped = [e for e in world.history("b") if e.kind == "skipped_duplicate"]
    assert [e.step for e in skipped] == ["charge"]
    assert skipped[0].body["result"] == CHARGE
    assert world.status("b") == "completed"


def test_skipped_is_replayed_as_skipped(world: World, payments: Client) -> None:
    order(world, "a")
    assert order(world, "b").result == order(world, "b").result == CHARGE
    assert kinds(world.history("b")).count("skipped_duplicate") == 1


def test_another_order_is_another_key(world: World, payments: Client) -> None:
    order(world, "a", "42")
    order(world, "b", "43")
    assert payments.seen() == (2, 2, 2)


def test_in_progress_waits_for_the_other_process(world: World, payments: Client) -> None:
    payments.control("delay")
    first = world.start("business.py", "a", "42", 5).until("charging in a")
    second = world.start("business.py", "b", "42", 5)
    wait_for(lambda: world.counts("b") == {"prepare": 1}, "b is about to charge")
    assert second.process.poll() is None
    payments.release()
    assert first.end().result == CHARGE
    assert second.end().result == CHARGE
    assert payments.seen() == (1, 1, 1)
    assert "skipped_duplicate" in kinds(world.history("b"))


def test_in_progress_by_a_process_that_dies(world: World, payments: Client) -> None:
    """The one who waits is not left waiting: taking the first run up again tells both."""
    payments.control("delay")
    first = world.start("business.py", "a", "42", 5).until("charging in a")
    wait_for(lambda: payments.seen()[0] == 1, "the request arrived")
    second = world.start("business.py", "b", "42", 5)
    wait_for(lambda: "b" in {e.run for e in world.executions()}, "b is under way")
    first.kill()
    payments.release()
    assert order(world, "a").error == "RunHeld"
    ended = second.end()
    assert ended.error == "RunHeld"
    assert "'a'" in ended.said["message"]
    assert payments.seen() == (1, 1, 1)


def test_interrupted_is_in_doubt_for_others_too(world: World, payments: Client) -> None:
    """Ctrl-C inside the effect: the key must not look as if somebody were still at work."""
    payments.control("delay")
    first = world.start("business.py", "a", "42", 5).until("charging in a")
    wait_for(lambda: payments.seen()[0] == 1, "the request arrived")
    first.signal(signal.SIGINT)
    assert first.end().error == "KeyboardInterrupt"
    payments.release()
    assert order(world, "a").error == "RunHeld"
    held = order(world, "b")
    assert (held.error, held.said["reason"]) == ("RunHeld", "in_doubt")
    assert payments.seen() == (1, 1, 1)


@pytest.fixture
def in_doubt(world: World, payments: Client) -> World:
    """Run `a` was killed after its charge and is held; `b` wants the same key and is held too."""
    order(world, "a", kill_at="after charge")
    assert order(world, "a").error == "RunHeld"
    held = order(world, "b")
    assert (held.error, held.said["reason"]) == ("RunHeld", "in_doubt")
    assert "'a'" in held.said["message"], "it names the first run"
    assert world.status("b") == "held"
    return world


@pytest.mark.parametrize("settled", ["a", "b"])
def test_in_doubt_settling_one_frees_both(in_doubt: World, payments: Client, settled: str) -> None:
    with in_doubt.store() as store:
        store.settle(settled, "charge", Done(CHARGE), actor="ops")
    assert order(in_doubt, "b").result == CHARGE
    assert order(in_doubt, "a").result == CHARGE
    assert payments.seen() == (1, 1, 1)


def test_in_doubt_explained_for_the_second_run(in_doubt: World) -> None:
    with in_doubt.store() as store:
        text = str(store.explain("b"))
    assert "order:42" in text
    assert "'a'" in text or " a" in text


@pytest.mark.parametrize("claims", ["a", "b"])
def test_not_done_may_be_claimed_by_either(in_doubt: World, payments: Client, claims: str) -> None:
    with in_doubt.store() as store:
        store.settle("a", "charge", NOT_DONE, actor="ops")
    other = "b" if claims == "a" else "a"
    assert order(in_doubt, claims).result == CHARGE
    assert order(in_doubt, other).result == CHARGE
    assert payments.seen() == (2, 1, 1), "one key: the server knew it already"
    assert kinds(in_doubt.history(other)).count("skipped_duplicate") == 1


SETTLES = """
import os
import signal
import sys
import threading
from holdfast import UNKNOWN, Done, effect, flow
from holdfast._runtime.execution import inbox
from tests.crash import probe

@effect(key="receipt:{order}")
def send(order: str) -> str:
    probe.executed("send")
    raise TimeoutError("no answer")

@send.on_doubt
def ask(order: str):
    return Done("receipt") if "CRASH_KNOWS" in os.environ else UNKNOWN

@flow
def close(order: str) -> str:
    return send(order)

releases = inbox.free_waiting

def free_waiting(engine, write) -> None:
    probe.point("settled")
    releases(engine, write)

inbox.free_waiting = free_waiting

if __name__ == "__main__":
    with probe.open_store() as store:
        if sys.argv[1] == "work":
            ending = threading.Event()
            signal.signal(signal.SIGTERM, lambda *_: ending.set())
            with store.worker(flows=[close]):
                ending.wait()
        else:
            probe.end(lambda: close.run(sys.argv[1], "42"))
"""


@BOTH_STORES
def test_who_settles_a_key_dies_before_the_other_run_is_released(world: World) -> None:
    script = world.root / "settles.py"
    script.write_text(SETTLES)
    for run_id in ("first", "second"):
        assert world.run(script, run_id).error == "RunHeld"
    world.crash(script, "first", at="settled", knows=1, lease_s=2)
    assert world.status("second") == "held"
    worker = world.start(script, "work", lease_s=2)
    wait_for(
        lambda: {world.status("first"), world.status("second")} == {"completed"}, "both to end"
    )
    worker.signal(signal.SIGTERM)
    assert worker.end().code == 0
    assert world.counts() == {"send": 1}


def test_a_failure_that_did_not_happen_leaves_the_key_free(world: World, payments: Client) -> None:
    payments.control("refuse")
    assert order(world, "a").error == "RunFailed"
    assert order(world, "b").result == CHARGE
    assert payments.seen() == (2, 1, 1)
    assert order(world, "a").result == CHARGE, "taken up again, it finds the charge of b"
    assert payments.seen() == (2, 1, 1)


def test_other_arguments_are_a_conflict(world: World, payments: Client) -> None:
    order(world, "a")
    assert order(world, "b", amount=6).result == {"conflict": "order:42", "other_run": "a"}
    assert payments.seen() == (1, 1, 1)


# --- in one process ---------------------------------------------------------------------------

sent: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()


@effect(name="business_keys.send", key="mail:{task}")
def send(task: str, address: str) -> str:
    sent.append(task)
    return f"sent to {address}"


@effect(name="business_keys.send_async", key="mail:{task}")
async def send_async(task: str, address: str) -> str:
    sent.append(task)
    await asyncio.sleep(0)
    return f"sent to {address}"


def skipped(store: holdfast.types.Store, run_id: str) -> int:
    return kinds(store.history(run_id)).count("skipped_duplicate")


def test_twice_in_one_run(store: holdfast.types.Store) -> None:
    @flow
    def twice() -> list[str]:
        return [send("t", "ada"), send("t", "ada")]

    assert twice.run("r") == ["sent to ada"] * 2
    assert (sent, skipped(store, "r")) == (["t"], 1)


def test_in_two_branches_of_one_run(store: holdfast.types.Store) -> None:
    @flow
    def branches() -> list[str]:
        return list(gather(*[lambda: send("t", "ada")] * 4))

    assert branches.run("r") == ["sent to ada"] * 4
    assert (sent, skipped(store, "r")) == (["t"], 3)


def test_in_two_branches_of_one_async_run(store: holdfast.types.Store) -> None:
    @flow
    async def branches() -> list[str]:
        return list(await aio.gather(*[send_async("t", "ada") for _ in range(4)]))

    assert asyncio.run(branches.run("r")) == ["sent to ada"] * 4
    assert (sent, skipped(store, "r")) == (["t"], 3)


def test_in_many_runs_at_once(store: holdfast.types.Store) -> None:
    @flow
    async def one(number: int) -> str:
        return await send_async("t", "ada")

    async def many() -> list[str]:
        return await asyncio.gather(*(one.run(f"r{i}", i) for i in range(20)))

    assert asyncio.run(many()) == ["sent to ada"] * 20
    assert sent == ["t"]
    assert sum(skipped(store, f"r{i}") for i in range(20)) == 19


def test_in_many_threads_at_once(store: holdfast.types.Store) -> None:
    @flow
    def one(number: int) -> str:
        return send("t", "ada")

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: one.run(f"r{i}", i), range(20)))
    assert results == ["sent to ada"] * 20
    assert sent == ["t"]


def test_the_key_of_another_effect_is_another_key(store: holdfast.types.Store) -> None:
    @effect(key="mail:{task}")
    def other(task: str) -> str:
        sent.append(f"other {task}")
        return "other"

    @flow
    def both() -> list[str]:
        return [send("t", "ada"), other("t")]

    assert both.run("r") == ["sent to ada", "other"]
    assert sent == ["t", "other t"]


def test_a_conflict_that_nobody_handles(store: holdfast.types.Store) -> None:
    @flow
    def one(address: str) -> str:
        return send("t", address)

    one.run("a", "ada")
    with pytest.raises((KeyConflict, RunFailed)) as error:
        one.run("b", "bob")
    assert "mail:t" in str(error.value)
    assert "'a'" in str(error.value)
    assert store.get("b").status == "failed"
    assert sent == ["t"]
