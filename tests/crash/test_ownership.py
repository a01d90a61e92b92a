"""Two processes and one run: one works. A stopped one that was replaced writes nothing."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import holdfast
from holdfast import Done, flow, step
from holdfast.errors import RunBusy
from tests.crash.harness import Ended, World, assert_sound, wait_for
from tests.crash.payments import Client

SHORT_LEASE_S = 1.0
LONG_LEASE_S = 30.0
LEASES = 3
"""How many leases a long step lasts at least."""
OWN_PIDS = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
"""Every process started so is number 1 in a pid namespace of its own."""


def test_the_second_process_is_told_who_works(world: World) -> None:
    first = world.start("slow.py", "one").until("one in step")
    ended = world.run("slow.py", "two")
    assert ended.error == "RunBusy"
    assert str(first.process.pid) in ended.said["message"]
    world.mark("one go on")
    assert first.end().result == ["one", "one", "one"]
    assert {e.note for e in world.executions()} == {"one"}


def test_a_race_of_processes_has_one_winner(world: World) -> None:
    world.mark("racer go on")
    racers = [world.start("slow.py", "racer") for _ in range(6)]
    ended = [racer.end() for racer in racers]
    assert {e.said.get("error", "none") for e in ended} <= {"RunBusy", "none"}
    assert any("result" in e.said for e in ended)
    assert world.counts() == {"first": 1, "second": 1, "third": 1}
    with world.store() as store:
        assert_sound(store)


def seen(entries: list[Any]) -> list[tuple[Any, ...]]:
    return [(e.seq, e.kind, e.step, e.attempt, e.at) for e in entries]


def test_stopped_past_its_lease_and_continued_it_writes_nothing(world: World) -> None:
    zombie = world.start("slow.py", "zombie", lease_s=SHORT_LEASE_S).until("zombie in step")
    zombie.signal(signal.SIGSTOP)
    world.mark("heir go on")

    def taken_over() -> Any:
        ended = world.run("slow.py", "heir", lease_s=SHORT_LEASE_S)
        assert ended.said.get("error", "RunBusy") == "RunBusy", ended
        return ended.said.get("result")

    # The stopped process keeps its kernel lock: only the end of the lease lets the heir in.
    assert wait_for(taken_over, "the lease runs out") == ["zombie", "heir", "heir"]
    before = seen(world.history())

    world.mark("zombie go on")
    zombie.signal(signal.SIGCONT)
    ended = zombie.end()
    assert ended.error == "LeaseLost"
    assert seen(world.history()) == before
    assert world.status() == "completed"
    with world.store() as store:
        assert_sound(store)


def test_a_zombie_whose_heir_is_still_at_work_writes_nothing(world: World) -> None:
    zombie = world.start("slow.py", "zombie", lease_s=SHORT_LEASE_S).until("zombie in step")
    zombie.signal(signal.SIGSTOP)

    def heir_at_work() -> Any:
        heir = world.start("slow.py", "heir", lease_s=LONG_LEASE_S)
        wait_for(
            lambda: heir.process.poll() is not None or (world.marks / "heir in step").exists(),
            "the heir is refused, or at work",
        )
        return heir if heir.process.poll() is None else None

    heir = wait_for(heir_at_work, "the lease runs out")
    world.mark("zombie go on")
    zombie.signal(signal.SIGCONT)
    assert zombie.end().error == "LeaseLost"
    world.mark("heir go on")
    assert heir.end().result == ["zombie", "heir", "heir"]
    assert world.counts() == {"first": 1, "second": 2, "third": 1}


def test_pid_namespaces_never_take_each_other_for_dead(world: World) -> None:
    """Boot id, host name and pid are the same on both sides, and mean nothing."""
    world.within = OWN_PIDS
    first = world.start("slow.py", "one").until("one in step")
    assert {e.pid for e in world.executions()} == {1}
    assert world.run("slow.py", "two").error == "RunBusy"
    world.within = ()
    assert world.run("slow.py", "outside").error == "RunBusy"

    # Its end is proven all the same, by the kernel lock that it no longer holds.
    first.kill()
    world.within = OWN_PIDS
    world.mark("heir go on")

    def taken_over() -> Any:
        return world.run("slow.py", "heir").said.get("result")

    assert wait_for(taken_over, "the lock is released") == ["one", "heir", "heir"]
    claims = [e.at.timestamp() for e in world.history() if e.kind == "run_claimed"]
    assert claims[1] - claims[0] < LONG_LEASE_S


def heir_of(world: World, script: str, *args: object) -> Ended:
    """Start heirs until one is not refused, and return how that one ended."""

    def ended() -> Ended | None:
        heir = world.run(script, "heir", *args, lease_s=SHORT_LEASE_S)
        return None if heir.said.get("error") == "RunBusy" else heir

    return wait_for(ended, "the lease runs out")


def test_not_done_is_not_believed_of_a_zombie(world: World, payments: Client) -> None:
    """A lease that ran out is no proof of death: the stopped request may still be sent."""
    zombie = world.start("slow_pay.py", "zombie", "function", lease_s=SHORT_LEASE_S)
    zombie.until("zombie in effect").signal(signal.SIGSTOP)
    heir = heir_of(world, "slow_pay.py", "function")
    assert (heir.error, heir.said["reason"]) == ("RunHeld", "in_doubt")
    world.mark("zombie go on")
    zombie.signal(signal.SIGCONT)
    assert zombie.end().error == "LeaseLost"
    assert payments.seen() == (1, 1, 1), "fencing protects the record, not the world"
    assert world.counts() == {"charge": 1}
    with world.store() as store:
        store.settle("r", "charge_function", Done("ch-1"), actor="ops")
    assert world.run("slow_pay.py", "heir", "function").result == "ch-1"


def test_a_zombie_and_its_heir_send_one_key(world: World, payments: Client) -> None:
    zombie = world.start("slow_pay.py", "zombie", "retry", lease_s=SHORT_LEASE_S)
    zombie.until("zombie in effect").signal(signal.SIGSTOP)
    world.mark("heir go on")
    assert heir_of(world, "slow_pay.py", "retry").result == "ch-1"
    before = seen(world.history())
    world.mark("zombie go on")
    zombie.signal(signal.SIGCONT)
    assert zombie.end().error == "LeaseLost"
    assert payments.seen() == (2, 1, 1)
    assert seen(world.history()) == before


def test_a_step_that_outlasts_its_lease_keeps_it(world: World) -> None:
    """The heartbeat has a thread of its own, so a step may block for as long as it likes."""
    first = world.start("slow.py", "one", lease_s=SHORT_LEASE_S).until("one in step")
    while time.time() - first.started_at < LEASES * SHORT_LEASE_S:
        assert world.run("slow.py", "two", lease_s=SHORT_LEASE_S).error == "RunBusy"
    world.mark("one go on")
    assert first.end().result == ["one", "one", "one"]
    started = [e for e in world.history() if e.kind == "step_started" and e.step == "second"]
    assert len(started) == 1


def test_the_same_run_twice_in_one_process(store: holdfast.types.Store) -> None:
    @step
    async def wait_for_it(i: int) -> int:
        await asyncio.sleep(0)
        return i

    @flow
    async def twice() -> int:
        return sum([await wait_for_it(i) for i in range(10)])

    async def both() -> list[Any]:
        return [*await asyncio.gather(twice.run("r"), twice.run("r"), return_exceptions=True)]

    one, other = asyncio.run(both())
    assert {type(one), type(other)} <= {int, RunBusy}
    assert int in {type(one), type(other)}
    assert store.get("r").totals.steps == 10
