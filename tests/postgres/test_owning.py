"""Who has a run, among processes that race, stop, come back, and do not know what time it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest

from holdfast._engine.journal.rows import Lease, Write
from holdfast._stores.contract import Committed, Fenced, Limits, Wanted
from holdfast._stores.locate import open_store
from tests.contract.store_contract import FakeClock, new_run, step as step_entry
from tests.crash import test_ownership as on_a_file
from tests.crash.harness import World, payment_server
from tests.crash.payments import Client
from tests.postgres.fleet import Fleet
from tests.postgres.server import Server

SCRIPTS = Path(__file__).parent / "scripts"
RACERS = 50
DAY_S = 86_400


@pytest.fixture
def world(tmp_path: Path, postgres_url: str) -> Iterator[World]:
    world = World(tmp_path, elsewhere=postgres_url)
    yield world
    world.close()


@pytest.fixture
def payments(world: World) -> Iterator[Client]:
    with payment_server() as client:
        world.env["CRASH_PAYMENTS"] = client.url
        yield client


def test_row_50_of_fifty_processes_one_gets_the_run(world: World, postgres_url: str) -> None:
    store = open_store(postgres_url)
    store.start(new_run("r"), None)
    answers = world.run(SCRIPTS / "race.py", RACERS).result
    assert len(answers) == RACERS
    assert [answer for answer in answers if "epoch" in answer] == [{"epoch": 1}]
    assert len({answer["busy"] for answer in answers if "busy" in answer}) == 1
    row = store.get("r")
    assert row is not None
    assert (row.epoch, row.claims) == (1, 1)
    assert store.verify() == []
    store.close()


ZOMBIES = [
    on_a_file.test_stopped_past_its_lease_and_continued_it_writes_nothing,
    on_a_file.test_a_zombie_whose_heir_is_still_at_work_writes_nothing,
]


@pytest.mark.parametrize("check", ZOMBIES)
def test_row_51_a_zombie_writes_nothing(world: World, check: Callable[[World], None]) -> None:
    check(world)


def test_row_51_a_zombie_and_its_heir_send_one_key(world: World, payments: Client) -> None:
    on_a_file.test_a_zombie_and_its_heir_send_one_key(world, payments)


def test_row_52_an_owner_is_a_number_of_its_own_and_not_a_name(postgres_url: str) -> None:
    """The same process, name and pid, twice: the second has another number, the first is fenced."""
    clock = FakeClock()
    first = open_store(postgres_url, clock=clock)
    owner = first.register_owner()
    lease = first.start(new_run("r"), owner).lease
    assert lease is not None
    clock.advance_s(first.lease_s + 1)
    second = open_store(postgres_url, clock=clock)
    again = second.register_owner()
    assert again != owner
    assert first.owner_name(owner) == second.owner_name(again)
    taken = second.claim("r", again, clock())
    assert isinstance(taken, Lease)
    # A sign of life comes too late: it brings nothing back.
    assert first.pulse(owner, "{}", [(lease.row.run_no, lease.row.epoch)]) == [lease.row.run_no]
    assert isinstance(first.append([Write(lease, [step_entry()])])[0], Fenced)
    assert isinstance(first.append([Write(lease, [])])[0], Fenced)
    assert isinstance(second.append([Write(taken, [step_entry()])])[0], Committed)
    first.close()
    second.close()


def test_row_53_a_step_that_outlasts_its_lease_keeps_it(world: World) -> None:
    on_a_file.test_a_step_that_outlasts_its_lease_keeps_it(world)


def test_row_55_and_56_the_time_is_that_of_the_database(
    tmp_path: Path, postgres_url: str, payments: Client
) -> None:
    """Workers with clocks that are days apart, and jump at each look."""
    fleet = Fleet(tmp_path, env={"CRASH_PAYMENTS": payments.url}, elsewhere=postgres_url)
    try:
        began = time.time()
        names = fleet.submit(12)
        for skew_s in (-5 * DAY_S, 5 * DAY_S):
            fleet.start(SCRIPTS / "skewed.py", skew_s, acks=fleet.acks, lease_s=2.0)
        fleet.until_completed(names)
        fleet.stop_workers()
        ended = time.time()
        assert fleet.violations(names, payments) == []
        with fleet.store() as store:
            for name in names:
                entries = store.history(name)
                times = [entry.at.timestamp() for entry in entries]
                assert began - 1 <= min(times)
                assert max(times) <= ended + 1
                # Nobody was taken for dead, and no lease ran out.
                claims = [entry for entry in entries if entry.kind == "run_claimed"]
                assert {entry.body["why"] for entry in claims} <= {"free", "own"}
    finally:
        fleet.close()


def test_an_owner_whose_pulse_was_forgotten_is_found_all_the_same(
    postgres_server: Server, postgres_database: str, postgres_url: str
) -> None:
    """A process that was idle for a day has no pulse any more when it takes its next run."""
    store = open_store(postgres_url, lease_s=2.0)
    store.start(new_run("r"), store.register_owner())
    postgres_server.execute("DELETE FROM holdfast.pulses", postgres_database)
    later_us = store.now_us() + 4_000_000
    assert [row.run_id for row in store.claimable(later_us, 9)] == ["r"]
    other = store.register_owner()
    taken = store.take(Wanted(other, 9, later_us))
    assert [lease.row.run_id for lease in taken] == ["r"]
    store.close()


def test_what_was_taken_is_given_although_another_queue_is_stuck(
    postgres_url: str, postgres_database: str, postgres_server: Server
) -> None:
    """Leases that were committed must not be lost with an error that came after them."""
    store = open_store(postgres_url, lease_s=2.0)
    owner = store.register_owner()
    for queue in ("a", "b"):
        store.set_limits(Limits(queue, concurrency=5))
        store.start(msgspec.structs.replace(new_run(queue), queue=queue), None)
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT * FROM holdfast.queues WHERE queue = 'b' FOR UPDATE")
        taken = store.take(Wanted(owner, 9, store.now_us(), queues=["a", "b"]))
        assert [lease.row.run_id for lease in taken] == ["a"]
    taken = store.take(Wanted(owner, 9, store.now_us(), working=[taken[0].row.run_no]))
    assert [lease.row.run_id for lease in taken] == ["b"]
    store.close()
