"""Flows whose signals (figures, alerts, log lines) the tests look at, in workers of their own."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path

from holdfast import effect, flow, step
from holdfast.context import record_usage

FOLDER = Path(os.environ.get("AGENT_FOLDER", "."))
CANARY = "canary-7f3a"
log = logging.getLogger("signalled")


@step
def signalled_think(text: str) -> str:
    record_usage(model="m-1", input_tokens=10, output_tokens=5, cost_usd=0.25)
    log.warning("it thinks\n2026-01-01 ERROR forged \x1b[31m\u202e")
    return f"{text} {CANARY}"


@step
def signalled_break(text: str) -> str:
    raise ValueError(f"{CANARY} {text}")


@effect
def signalled_pay(text: str) -> str:
    raise OSError(f"{CANARY} {text}")


@step
def signalled_die(text: str) -> str:
    if not (FOLDER / "died").exists():
        deadline = time.monotonic() + 60
        while not (FOLDER / "die").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        (FOLDER / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return text


@flow
def signalled_good(text: str) -> str:
    return signalled_think(text)


@flow
def signalled_bad(text: str) -> str:
    return signalled_break(signalled_think(text))


@flow
def signalled_doubtful(text: str) -> str:
    return signalled_pay(signalled_think(text))


@flow
def signalled_deadly(text: str) -> str:
    return signalled_die(signalled_think(text))
