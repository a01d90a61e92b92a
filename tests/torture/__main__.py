"""Kill real processes at random, on a real file, as often as you like.

    python -m tests.torture --n 1000 [--seed 7] [--crowd]

Prints one line, and exits with 1 if the journal and the world disagree anywhere; the folder with
the store, the ledger and the outputs is then kept, and its name is printed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.crash.harness import World, payment_server
from tests.crash.kills import Summary, kill_at_random, kill_several


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--n", type=int, default=100, help="how many kills")
    parser.add_argument("--seed", type=int, default=None, help="repeat the delays of a former run")
    parser.add_argument("--crowd", action="store_true", help="several processes on the same runs")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="holdfast-torture-"))
    result = torture(folder, options.n, seed, crowd=options.crowd)
    print(f"seed {seed}: {result}")
    for violation in result.violations:
        print(f"  {violation}")
    if result.violations:
        print(f"kept: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def torture(folder: Path, kills: int, seed: int, *, crowd: bool = False) -> Summary:
    world = World(folder)
    kill = kill_several if crowd else kill_at_random
    try:
        with payment_server() as payments:
            world.env["CRASH_PAYMENTS"] = payments.url
            return kill(world, payments, kills=kills, seed=seed)
    finally:
        world.close()


if __name__ == "__main__":
    sys.exit(main())
