"""Kill real processes at random, on a real file, as often as you like.

    python -m tests.torture --n 1000 [--seed 7] [--crowd | --fleet]
    python -m tests.torture --research
    python -m tests.torture --postgres cuts | restarts | failovers [--n 100] [--seed 7]

Prints one line, and exits with 1 if the journal and the world disagree anywhere; the folder with
the store, the ledger and the outputs is then kept, and its name is printed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.crash.fleet import Sizes, Told, under_fire
from tests.crash.harness import World, payment_server
from tests.crash.kills import Summary, kill_at_random, kill_several
from tests.crash.payments import Client

Kill = Callable[..., Summary | Told]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--n", type=int, default=100, help="how many kills")
    parser.add_argument("--seed", type=int, default=None, help="repeat the delays of a former run")
    parser.add_argument("--crowd", action="store_true", help="several processes on the same runs")
    parser.add_argument(
        "--fleet",
        action="store_true",
        help="eight workers, one killed a second, for about n seconds",
    )
    parser.add_argument(
        "--research",
        action="store_true",
        help="kill examples/research before and after each entry of its journal, kept and withdrawn",
    )
    parser.add_argument("--postgres", choices=["cuts", "restarts", "failovers"], default=None)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    if options.postgres:
        return torture_server(options.postgres, options.n, seed)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-torture-"))
    if options.research:
        return torture_example(folder)
    kill: Kill = fleet if options.fleet else kill_several if options.crowd else kill_at_random
    result = torture(folder, options.n, seed, kill)
    print(f"seed {seed}: {result}")
    for violation in result.violations:
        print(f"  {violation}")
    if result.violations:
        print(f"kept: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def fleet(world: World, payments: Client, *, kills: int, seed: int) -> Told:
    """About so much work as eight workers do in as many seconds as there are to be kills."""
    sizes = Sizes(
        processes=8,
        runs=50 * kills,
        concurrency=8,
        pause_s=0.005,
        patience_s=60.0 + 60.0 * kills,
        seed=seed,
    )
    return under_fire(world, payments, sizes)


def torture_server(how: str, count: int, seed: int) -> int:
    from tests.torture import postgres

    if how == "cuts":
        violations = postgres.cut_everywhere()
    elif how == "restarts":
        violations = postgres.crash_server(count, seed)
    else:
        violations = postgres.lose_tails(count, seed)
    print(f"seed {seed}: {how}: {len(violations)} violations")
    for violation in violations:
        print(f"  {violation}")
    return 1 if violations else 0


def torture_example(folder: Path) -> int:
    """Raises AssertionError where the journal and the servers' books disagree."""
    from tests.crash.research import desk

    kills = 0
    with desk() as at_desk:
        for withdrawn in (False, True):
            (place := folder / ("withdrawn" if withdrawn else "kept")).mkdir()
            for when in ("before", "after"):
                entry = 1
                while at_desk.killed_once(place, entry, when, withdrawn=withdrawn):
                    entry += 1
                kills += entry - 1
    print(f"{kills} kills: 0 violations")
    shutil.rmtree(folder)
    return 0


def torture(folder: Path, kills: int, seed: int, kill: Kill) -> Summary | Told:
    world = World(folder)
    try:
        with payment_server() as payments:
            world.env["CRASH_PAYMENTS"] = payments.url
            return kill(world, payments, kills=kills, seed=seed)
    finally:
        world.close()


if __name__ == "__main__":
    sys.exit(main())
