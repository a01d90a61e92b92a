"""Runs that write to each other from different processes: nobody waits in a circle, nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import psycopg
import pytest

from holdfast._engine.journal.changes import CloseInbox, TakeMessage, inbox_lock, posted
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import Account, Lease, Message, Write
from holdfast._stores import row_codec
from holdfast._stores.contract import Committed, Posted, Store
from holdfast._stores.locate import open_store
from holdfast._stores.postgres import server_connection as link_module
from holdfast._stores.postgres.server_connection import Link
from tests.contract.store_contract import entry, new_run, step
from tests.crash.harness import World, wait_for
from tests.postgres.scripts.letters import SHARED_EVERY
from tests.postgres.server import Server

SCRIPT = Path(__file__).parent / "scripts" / "letters.py"
ROUNDS = 40
NAMES = ["a", "b", "c"]
MESSAGE = Message("m", "signal", "me", 1, b"{}")


@pytest.fixture
def world(tmp_path: Path, postgres_url: str) -> Iterator[World]:
    world = World(tmp_path, elsewhere=postgres_url)
    yield world
    world.close()


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    store = open_store(postgres_url)
    yield store
    store.close()


def test_processes_that_write_to_each_other_never_wait_in_a_circle(
    world: World, store: Store, postgres_server: Server, postgres_database: str
) -> None:
    for name in NAMES:
        for part in range(2):
            store.start(new_run(f"{name}-{part}"), None)
    shared = 2 * ROUNDS * len(NAMES) // SHARED_EVERY
    store.put_account(Account("all", 1, steps=shared))
    scripts = [
        world.start(SCRIPT, name, NAMES[at - 2], NAMES[at - 1], ROUNDS)
        for at, name in enumerate(NAMES)
    ]
    for name, script in zip(NAMES, scripts, strict=True):
        script.until(f"ready {name}")
    world.mark("go")
    assert [script.end().result for script in scripts] == [2 * ROUNDS] * len(NAMES)
    # Each run got every message once, under numbers without a gap.
    for at, name in enumerate(NAMES):
        expected = Counter({NAMES[at - 1]: ROUNDS, NAMES[at - 2]: ROUNDS // 2})
        for part in range(2):
            row = store.get(f"{name}-{part}")
            assert row is not None
            letters = [message for message, _ in store.messages(row.run_no)]
            assert Counter(message.actor for message in letters) == expected
            assert [message.number for message in letters] == list(range(1, len(letters) + 1))
    account, memo = store.account("all"), store.memo("s", "all")
    assert account is not None
    assert memo is not None
    assert (account.spent_steps, memo.version) == (shared, shared)
    assert store.verify() == []
    ((deadlocks,),) = postgres_server.execute(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
        postgres_database,
    )
    assert deadlocks == 0


def started(store: Store, run_id: str) -> Lease:
    lease = store.start(new_run(run_id), store.register_owner()).lease
    assert lease is not None
    return lease


def test_a_message_does_not_wait_for_the_row_of_the_run_that_gets_it(
    store: Store, postgres_url: str
) -> None:
    """Whoever has the row may be about to write to us."""
    lease = started(store, "busy")
    with Link.connect(postgres_url, autocommit=True) as beside, beside.writing():
        assert beside.fetch("lock_runs", ([lease.row.run_no],))
        assert store.post("busy", MESSAGE) is Posted.ACCEPTED
        assert [message.number for message in store.inbox(lease.row.run_no)] == [1]
    assert isinstance(
        store.append([Write(lease, [step()], changes=[TakeMessage("m")])])[0], Committed
    )


@pytest.mark.parametrize("locked", [True, False])
def test_messages_that_arrive_together_have_different_numbers(
    store: Store, postgres_url: str, monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    """And a store that does not lock the inbox is found: both would have the same number."""
    if not locked:
        monkeypatch.setitem(link_module.Q, "lock_names", "SELECT %s::bigint[]")
    run_no = started(store, "together").row.run_no
    first = msgspec.structs.replace(MESSAGE, message_id="first")
    with ThreadPoolExecutor(1) as threads:
        with Link.connect(postgres_url, autocommit=True) as link, link.writing():
            name = row_codec.name_hash(*inbox_lock("default", "together"))
            link.fetch("lock_names", ([name],))
            link.change("add_message", row_codec.message_values(posted(run_no, 1, first)))
            second = threads.submit(store.post, "together", MESSAGE)
            wait_for(lambda: is_waited_for(link), "somebody waits")
        if locked:
            assert second.result() is Posted.ACCEPTED
        else:
            assert isinstance(second.exception(), psycopg.errors.UniqueViolation)
    found = [(message.message_id, message.number) for message in store.inbox(run_no)]
    assert found == ([("first", 1), ("m", 2)] if locked else [("first", 1)])


@pytest.mark.parametrize("closed", [True, False])
def test_a_move_waits_for_a_message_that_is_being_posted(
    store: Store, postgres_url: str, closed: bool
) -> None:
    """And a move that does not is found: the message is acknowledged, and nobody takes it along."""
    lease = started(store, "moved")
    run_no = lease.row.run_no
    first = msgspec.structs.replace(MESSAGE, message_id="first")
    changes = [CloseInbox("moved")] if closed else []
    move = Write(lease, [entry(Kind.RUN_HELD)], row={"held_reason": "moved"}, changes=changes)

    def moved() -> list[str]:
        assert isinstance(store.append([move])[0], Committed)
        return [message.message_id for message, _ in store.whole(lease.row).messages]

    with ThreadPoolExecutor(1) as threads:
        with Link.connect(postgres_url, autocommit=True) as link, link.writing():
            name = row_codec.name_hash(*inbox_lock("default", "moved"))
            link.fetch("lock_names", ([name],))
            link.change("add_message", row_codec.message_values(posted(run_no, 1, first)))
            taken_along = threads.submit(moved)
            wait_for(lambda: taken_along.done() or is_waited_for(link), "it waits, or has moved")
        assert taken_along.result() == (["first"] if closed else [])
    assert store.post("moved", MESSAGE) is Posted.REFUSED


def is_waited_for(link: Link) -> bool:
    """Tell whether another connection waits for what this one has locked."""
    link.execute("SELECT pg_stat_clear_snapshot()")  # A transaction sees the same processes else.
    found = link.execute(
        "SELECT 1 FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    )
    return found.fetchone() is not None


@pytest.mark.parametrize("knows", [True, False])
def test_a_run_that_another_process_removed_does_not_look_lost(
    store: Store,
    postgres_url: str,
    postgres_server: Server,
    postgres_database: str,
    monkeypatch: pytest.MonkeyPatch,
    knows: bool,
) -> None:
    """And a store that asks for the entry alone is found."""
    if not knows:
        query = link_module.Q["missing_heads"].partition(" AND NOT EXISTS")[0]
        monkeypatch.setitem(link_module.Q, "missing_heads", query)
    lease = started(store, "removed")
    assert isinstance(store.append([Write(lease, [entry(Kind.RUN_COMPLETED)])])[0], Committed)
    other = open_store(postgres_url)
    assert other.forget(lease.row, 99)
    other.close()
    postgres_server.cut_off(postgres_database)
    row = store.get("removed")
    assert row is not None
    assert row.deleted_us == 99
    assert (store.regression() is None) is knows
