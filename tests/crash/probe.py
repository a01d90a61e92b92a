"""What a script under test uses: a ledger outside its process, points to die at, and facts.

Nothing here knows Holdfast but `open_store` and `end`: what it writes survives a SIGKILL because
it is in the kernel before the call returns, and says what really happened.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast
from tests.crash.payments import Client

WAIT_AT_MOST_S = 60.0


def _marks() -> Path:
    return Path(os.environ["CRASH_MARKS"])


def _append(path: str, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def executed(step: object, run: str = "r", note: str = "") -> None:
    """Record that the body of a step is being executed, by whom and when."""
    line = json.dumps([run, str(step), os.getpid(), time.time(), note])
    _append(os.environ["CRASH_LEDGER"], line + "\n")


def point(name: str) -> None:
    """Die here, once or every time, if the test said so."""
    if os.environ.get("CRASH_KILL_AT") == name and _once(f"killed at {name}"):
        _die(os.environ.get("CRASH_DIE_BY", "SIGKILL"))
    if os.environ.get("CRASH_KILL_EVERY_TIME_AT") == name:
        _die("SIGKILL")


def _die(by: str) -> None:
    if by == "_exit":
        os._exit(9)
    if by == "segfault":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.Signals[by])


def _once(name: str) -> bool:
    try:
        (_marks() / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def first_time(name: str) -> bool:
    """Say whether this is the first call with this name, in any process."""
    return _once(f"first {name}")


def mark(name: str) -> None:
    """State a fact for the test to see."""
    (_marks() / name).touch()


def wait(name: str) -> None:
    """Wait until the test has stated a fact."""
    deadline = time.monotonic() + WAIT_AT_MOST_S
    while not (_marks() / name).exists():
        assert time.monotonic() < deadline, f"nobody said {name!r}"
        time.sleep(0.002)


def payments() -> Client:
    return Client(
        os.environ["CRASH_PAYMENTS"], timeout_s=float(os.environ.get("CRASH_CLIENT_TIMEOUT_S", 30))
    )


def open_store() -> holdfast.types.Store:
    lease_s = float(os.environ.get("CRASH_LEASE_S", 30.0))
    return holdfast.open(os.environ["CRASH_URL"], lease_s=lease_s)


def say(**values: Any) -> None:
    """Tell the test how it ended, as the last line of stdout."""
    print(json.dumps(values, default=str), flush=True)


def end(work: Callable[[], Any]) -> None:
    """Do the work and say its result, or the error that reached the caller."""
    try:
        result = work()
    except (holdfast.errors.HoldfastError, KeyboardInterrupt) as error:
        say(error=type(error).__name__, message=str(error), **_attributes(error))
    else:
        say(result=result)


def _attributes(error: BaseException) -> dict[str, Any]:
    return {k: v for k, v in vars(error).items() if k not in {"error", "message", "result"}}
