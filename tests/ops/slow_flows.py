"""A flow whose step takes as long as a test wants; executed by worker processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast import Retry, flow, step

PATIENCE_S = 60.0


@step(name="slow-first")
def first() -> int:
    return 1


@step(name="slow-second", retry=Retry(attempts=2, initial_wait_s=0.01))
def second() -> int:
    folder = Path(os.environ["HOLDFAST_SLOW"])
    tried = folder / "tried"
    if not tried.exists():
        tried.touch()
        raise ConnectionError("not yet")
    deadline_s = time.monotonic() + PATIENCE_S
    while not (folder / "go").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return 2


@flow(name="slow")
def slow() -> int:
    return first() + second()
