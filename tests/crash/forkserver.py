"""Processes that are forked from one which has the library loaded, instead of started from nothing.

Starting Python and importing Holdfast costs more than what most scripts of the crash tests do. The
server process has imported both, has no thread and no store open, and forks a child for each script:
a process of its own, that is killed and dies as any other. `ForkServer.start` returns the few methods
of `subprocess.Popen` that the tests use.

    test process ──(socket: argv, cwd, environment; stdout, stderr, status pipe)──▶ server ──fork──▶ script
         ▲                                                                            │ waitpid
         └──────────────────────────(status pipe: exit code)──────────────────────────┘
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).parents[2]
REQUEST_BYTES = 1 << 20
READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "TZ")
"""Variables that a process reads when it starts: a fork would not see another value of them."""


class ForkedProcess:
    """A process of the server's, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Return the exit code, or None while it is at work."""
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends; return its exit code, negative for a signal."""
        code = self._ended_within(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("forked script", timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended: that may happen between the look and the signal."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it: SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end: SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def _ended_within(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            said = os.read(self._status, 16)
            os.close(self._status)
            assert said, "the fork server ended before this process did"
            self.returncode = int(said)
        return self.returncode


class ForkServer:
    """The server's side that a test talks to. One per test process; it ends with it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._lock = threading.Lock()
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.forkserver", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                env=self._environment,
            )

    def can_start(self, environment: dict[str, str]) -> bool:
        """Say whether a fork behaves like a process that was started with this environment."""
        return _at_start(environment) == _at_start(self._environment)

    def start(
        self,
        command: list[str],
        *,
        stdout: IO[bytes],
        stderr: IO[bytes],
        cwd: Path,
        env: dict[str, str],
    ) -> ForkedProcess:
        """Execute a script with its arguments, as `python script …` would."""
        status, theirs = os.pipe()
        request = json.dumps({"command": command, "cwd": str(cwd), "env": env}).encode()
        with self._lock:
            files = [stdout.fileno(), stderr.fileno(), theirs]
            socket.send_fds(self._socket, [request], files)
            os.close(theirs)
            answer = self._socket.recv(16)
        assert answer, "the fork server has ended"
        return ForkedProcess(int(answer), status)


@cache
def fork_server() -> ForkServer:
    """Return the server of this test process, started at its first use."""
    return ForkServer()


def _at_start(environment: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(READ_AT_START)}


# --- the server -------------------------------------------------------------------------------


def serve(control: socket.socket) -> tuple[list[str], dict[str, str], str] | None:
    """Fork on request. Returns in the child, with what it is to execute; None at the end."""
    woken, wakes = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    children: dict[int, int] = {}
    while True:
        ready = select.select([control.fileno(), woken], [], [])[0]
        if woken in ready:
            os.read(woken, 1024)
            _report(children)
        if control.fileno() in ready:
            message, files, _, _ = socket.recv_fds(control, REQUEST_BYTES, 3)
            if not message:
                return None
            request = json.loads(message)
            pid = os.fork()
            if pid == 0:
                _become(files[0], files[1], [control.detach(), woken, wakes, *files])
                for status in children.values():
                    os.close(status)
                return request["command"], request["env"], request["cwd"]
            os.close(files[0])
            os.close(files[1])
            children[pid] = files[2]
            control.send(str(pid).encode())


def _report(children: dict[int, int]) -> None:
    """Tell how the children ended that have."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        to = children.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        try:
            os.write(to, str(code).encode())
        except BrokenPipeError:
            pass  # The test process no longer asks.
        os.close(to)


def _become(stdout: int, stderr: int, leftover: list[int]) -> None:
    """Make a fork look like a process that has just been started."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for file in leftover:
        os.close(file)


def execute_script(command: list[str], environment: dict[str, str], cwd: str) -> NoReturn:
    """Execute a script in this process as its main module, and end."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    script = command[0]
    sys.argv = command
    sys.path[0] = str(Path(script).parent)
    sys.path.insert(1, str(ROOT))
    main = types.ModuleType("__main__")
    names: dict[str, Any] = main.__dict__
    names["__file__"] = script
    sys.modules["__main__"] = main
    code = compile(Path(script).read_bytes(), script, "exec")
    execute(lambda: exec(code, names))


def execute(work: Callable[[], object]) -> NoReturn:
    """Do something as the last thing of a fork, and end as Python ends a process: wait for threads,
    call what is registered, write out what was printed. Only the interpreter is not taken apart: in a
    fork that copies all that was loaded before, and costs more than most scripts do."""
    code = 0
    try:
        work()
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise  # Python prints it.
        code = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code & 0xFF)


LOADED = (
    "asyncio",
    "apsw",
    "psycopg",
    "psycopg_pool",
    "holdfast",
    "holdfast._operator.explain.status_report",
    "holdfast._operator.read.run_views",
    "holdfast._stores.sqlite.sqlite_store",
    "holdfast._stores.postgres.postgres_store",
    "tests.crash.probe",
    "tests.docs.page",
)
"""What the scripts would import."""


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as connected:
        for name in LOADED:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()  # What a child does not look at stays shared.
        to_execute = serve(connected)
    if to_execute is not None:
        execute_script(*to_execute)
