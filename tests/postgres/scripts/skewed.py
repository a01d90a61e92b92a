"""The worker of worker.py on a machine whose clock is wrong: `python skewed.py SECONDS`.

Whatever asks the machine for the time of day gets a wrong answer, and another one each time.
"""

from __future__ import annotations

import itertools
import sys
import time

SKEW_S = int(sys.argv[1])
_jumps = itertools.cycle([0, 3600, -7200, 86_400])
_time, _time_ns = time.time, time.time_ns


def wrong_time() -> float:
    return _time() + SKEW_S + next(_jumps)


def wrong_time_ns() -> int:
    return _time_ns() + (SKEW_S + next(_jumps)) * 1_000_000_000


time.time, time.time_ns = wrong_time, wrong_time_ns

if __name__ == "__main__":
    from tests.crash import probe
    from tests.postgres.scripts import worker

    probe.end(worker.main)
