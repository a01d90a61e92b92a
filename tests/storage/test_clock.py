"""The clock of a store, on machines whose time jumps, which sleep, and which start again."""

import pytest

from holdfast._stores import store_clock as clocks
from holdfast._stores.postgres.postgres_store import PostgresStore
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast._stores.store_clock import (
    SLEWED_US,
    DatabaseClock,
    StoreClock,
    since_boot_us,
    system_clock_us,
)
from tests.contract.store_contract import new_run

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
BEGIN_US = 1_700_000_000 * SECOND_US


class Machine:
    """A machine: what its time says, and how long it has been up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time_us = BEGIN_US
        self.up_us = 5 * SECOND_US
        self.boot = b"boot-one"
        monkeypatch.setattr(clocks, "system_clock_us", lambda: self.time_us)
        monkeypatch.setattr(clocks, "since_boot_us", lambda: self.up_us)
        monkeypatch.setattr(clocks, "this_boot", lambda: self.boot)

    def passes(self, us: int) -> None:
        self.time_us += us
        self.up_us += us

    def starts_again(self, down_us: int) -> None:
        self.time_us += down_us
        self.up_us = SECOND_US
        self.boot = b"boot-two"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture
def opened(tmp_path, machine):
    """Open handles on one file; all are closed at the end."""
    handles = []

    def open_one() -> SqliteStore:
        handles.append(SqliteStore(str(tmp_path / "a.db")))
        return handles[-1]

    yield open_one
    for store in handles:
        store.close()


def commit(store: SqliteStore) -> None:
    store.start(new_run(f"r{store.now_us()}"), None)


def test_a_commit_from_the_future_does_not_stop_the_clock(machine, opened):
    machine.time_us += HOUR_US
    ahead = opened()
    commit(ahead)
    machine.time_us -= HOUR_US
    for store in (ahead, opened()):
        now_us = store.now_us()
        assert now_us >= BEGIN_US + HOUR_US
        machine.passes(7 * SECOND_US)
        assert store.now_us() == now_us + 7 * SECOND_US


def test_a_process_that_opens_the_store_later_agrees_with_the_others(machine, opened):
    machine.time_us += HOUR_US
    first = opened()
    commit(first)
    machine.time_us -= HOUR_US
    machine.passes(20 * 60 * SECOND_US)  # Nobody commits.
    assert opened().now_us() == first.now_us()


def test_a_process_that_had_the_store_open_agrees_after_its_next_write(machine, opened):
    early = opened()
    machine.time_us += HOUR_US
    ahead = opened()
    commit(ahead)
    machine.time_us -= HOUR_US
    machine.passes(60 * SECOND_US)
    assert early.now_us() < ahead.now_us()
    commit(early)
    assert early.now_us() == ahead.now_us()


def test_after_a_restart_of_the_machine_it_goes_on_from_the_last_commit(machine, opened):
    machine.time_us += HOUR_US
    store = opened()
    commit(store)
    committed_us = store.now_us()
    machine.time_us -= HOUR_US
    machine.starts_again(down_us=60 * SECOND_US)
    again = opened()
    assert again.now_us() == committed_us
    machine.passes(SECOND_US)
    assert again.now_us() == committed_us + SECOND_US


def test_after_a_restart_it_is_not_behind_the_machine(machine, opened):
    store = opened()
    commit(store)
    machine.starts_again(down_us=HOUR_US)
    assert opened().now_us() == machine.time_us


def test_time_that_a_machine_slept_has_passed(machine, opened):
    machine.time_us += HOUR_US
    store = opened()
    commit(store)
    machine.time_us -= HOUR_US
    now_us = store.now_us()
    machine.passes(8 * HOUR_US)
    assert store.now_us() == now_us + 8 * HOUR_US


def test_it_follows_a_machine_whose_time_was_put_right(machine, opened):
    store = opened()
    machine.time_us += HOUR_US
    assert store.now_us() == machine.time_us


def test_a_small_step_back_is_made_up_for_without_standing_still(machine):
    clock = StoreClock()
    now_us = clock.now_us()
    machine.time_us -= SLEWED_US // 2
    seen = [now_us]
    while seen[-1] > machine.time_us:
        machine.passes(SECOND_US // 10)
        seen.append(clock.now_us())
        assert seen[-1] - seen[-2] >= SECOND_US * 9 // 100
        assert len(seen) < 100
    assert seen[-1] == machine.time_us


def test_a_server_whose_time_goes_back_does_not_stop_the_clock(machine):
    server_us = BEGIN_US + HOUR_US
    clock = DatabaseClock()
    clock.ask(lambda: server_us)
    assert clock.now_us() == server_us
    machine.passes(SECOND_US)
    now_us = clock.now_us()
    server_us -= HOUR_US
    clock.ask(lambda: server_us)
    machine.passes(SECOND_US)
    assert clock.now_us() == now_us + SECOND_US
    later = DatabaseClock()  # Of a process that is started now: others have committed that time.
    later.ask(lambda: server_us)
    later.not_before(now_us)
    machine.passes(SECOND_US)
    assert later.now_us() == now_us + SECOND_US


def test_another_pace_of_the_server_is_followed(machine):
    clock = DatabaseClock()
    ahead_us = 0
    server_us = BEGIN_US
    for _ in range(200):
        clock.ask(lambda: server_us)
        before_us = clock.now_us()
        machine.passes(10 * SECOND_US)
        server_us += 10 * SECOND_US - 1000
        assert clock.now_us() > before_us
        ahead_us = clock.now_us() - server_us
    assert 0 <= ahead_us < 10_000


def test_no_jump_of_the_local_time_moves_the_clock_of_a_database(machine):
    clock = DatabaseClock()
    clock.ask(lambda: BEGIN_US)
    now_us = clock.now_us()
    machine.time_us += 9 * HOUR_US
    assert clock.now_us() == now_us


# --- a server -----------------------------------------------------------------------------------


def test_on_a_server_the_clock_goes_on_between_processes_that_come_and_go(
    postgres_url: str,
) -> None:
    """Its time was ahead by an hour when a run was committed, and was put right. I9."""
    ahead = PostgresStore(postgres_url, clock=lambda: system_clock_us() + HOUR_US)
    ahead.start(new_run("r"), ahead.register_owner())
    ahead.close()

    def opened() -> int:
        store = PostgresStore(postgres_url)
        try:
            return store.now_us()
        finally:
            store.close()

    first_us, began_us = opened(), since_boot_us()
    assert first_us - system_clock_us() > HOUR_US // 2
    while since_boot_us() - began_us < 2 * SECOND_US:
        opened()  # None of them stays to carry the time on.
    assert opened() - first_us > SECOND_US
