"""The server that the other tests stand on: it is ours alone, and it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

import holdfast
from holdfast import flow
from tests.crash.harness import ROOT, wait_for
from tests.postgres.server import PortTaken, Server, is_alive

WHO = """
import os
from tests.crash.harness import wait_for
from tests.postgres.server import Server
server = Server().create().start()
pids = wait_for(lambda: server.processes("checkpointer"), "the process has its title")
print(server.folder, server.port, pids[0], flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_database_is_empty_each_time(postgres_server: Server) -> None:
    name = postgres_server.borrow()
    postgres_server.execute("CREATE TABLE left_over (a int)", name)
    with psycopg.connect(postgres_server.url(name)) as still_open:
        postgres_server.give_back(name)
        with pytest.raises(psycopg.OperationalError):
            still_open.execute("SELECT 1")
    again = postgres_server.borrow()
    assert again == name
    found = "SELECT count(*) FROM pg_class WHERE relname = 'left_over'"
    assert postgres_server.execute(found, again) == [(0,)]
    postgres_server.give_back(again)


@flow(name="postgres-server.used")
def used() -> str:
    holdfast.memory("notes").set("left", "over")
    return holdfast.wait_for_signal("go")


def holds(server: Server, database: str) -> dict[str, object]:
    """Return what a database holds, but for the id of its store and when its server started."""
    relations = server.execute(
        "SELECT n.nspname::text, c.relname::text, c.relkind::text FROM pg_class AS c "
        "JOIN pg_namespace AS n ON n.oid = relnamespace "
        "WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ORDER BY 1, 2",
        database,
    )
    found: dict[str, object] = {}
    for schema, name, kind in relations:
        found[name] = kind
        if kind == "r":
            of_id = ["store_id", *(["accepted", "digest"] if name == "incarnations" else [])]
            rows = f"SELECT to_jsonb(t) - '{{{','.join(of_id)}}}'::text[] FROM {schema}.{name} AS t"
            found[name] = server.execute(rows, database)
        elif kind == "S":
            found[name] = server.execute(
                f"SELECT last_value, is_called FROM {schema}.{name}", database
            )
    return found


def test_a_store_is_as_new_each_time(postgres_server: Server) -> None:
    new = postgres_server.borrow()
    holdfast.open(postgres_server.url(new), default=False).close()
    name = postgres_server.borrow()
    ids = []
    for _ in range(2):
        with holdfast.open(postgres_server.url(name)) as store:
            ids.append(store._backend.store_id)
            postgres_server.execute("CREATE TABLE left_over (a int)", name)
            with store.worker(flows=[used]):
                handle = used.submit("r")
                store.signal("r", "go", "on")
                assert handle.result(timeout=60) == "on"
            assert holds(postgres_server, name) != holds(postgres_server, new)
        postgres_server.give_back_store(name)
        assert postgres_server.borrow_store() == name
        assert holds(postgres_server, name) == holds(postgres_server, new)
    assert ids[0] != ids[1]
    postgres_server.give_back(name)
    postgres_server.give_back(new)


def test_what_was_committed_is_there_after_a_kill() -> None:
    with Server() as server:
        server.execute("CREATE TABLE kept (a int)")
        for number, end in enumerate([server.kill, lambda: server.stop("immediate")]):
            server.execute(f"INSERT INTO kept VALUES ({number})")
            end()
            server.start()
        assert server.execute("SELECT a FROM kept ORDER BY a") == [(0,), (1,)]


def test_it_goes_when_its_process_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WHO],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    folder, _, process = done.stdout.split()
    wait_for(lambda: not Path(folder).exists(), "its folder is gone")
    wait_for(lambda: not is_alive(int(process)), "its processes are gone")


def test_a_server_keeps_its_port_and_says_when_it_is_taken(postgres_server: Server) -> None:
    other = Server().create()
    try:
        other.port = postgres_server.port
        with pytest.raises(PortTaken):
            other.start()
    finally:
        other.remove()
    assert not other.folder.exists()
