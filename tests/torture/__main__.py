"""Kill real processes at random, on real files and servers, as often as you like.

    python -m tests.torture --n 1000 [--seed 7]
    python -m tests.torture --crowd | --fleet [--n 100] [--seed 7]
    python -m tests.torture --scene control | signals | clocks | forks | loops [--n 10] [--seed 7]
                            [--on sqlite | postgresql]
    python -m tests.torture --research
    python -m tests.torture --postgres cuts | restarts | failovers [--n 100] [--seed 7]

The first one kills an agent n times, and plays a round of a scene for every two kills (see `scenes`).
Prints what was done, and exits with 1 if the journal and the world disagree anywhere; the folder with
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
from tests.torture import scenes

KILLS_A_ROUND = 2
"""With N=20 there are ten rounds: each scene on both stores."""

Kill = Callable[..., Summary | Told]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--n", type=int, default=100, help="how many kills, or rounds of a scene")
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
    parser.add_argument("--scene", choices=list(scenes.SCENES), help="n rounds of this one only")
    parser.add_argument("--on", choices=scenes.STORES, help="scenes on this store only")
    parser.add_argument("--postgres", choices=["cuts", "restarts", "failovers"], default=None)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    if options.postgres:
        return torture_server(options.postgres, options.n, seed)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-torture-"))
    if options.research:
        return torture_example(folder)
    violations: list[str] = []
    if not options.scene:
        kill: Kill = fleet if options.fleet else kill_several if options.crowd else kill_at_random
        result = torture(folder, options.n, seed, kill)
        print(f"seed {seed}: {result}", flush=True)
        violations += result.violations
    if not (options.fleet or options.crowd):
        names = [options.scene] if options.scene else list(scenes.SCENES)
        rounds = options.n if options.scene else max(1, options.n // KILLS_A_ROUND)
        stores = [options.on] if options.on else scenes.STORES
        for name, played in scenes.play(folder, rounds, seed, names, stores).items():
            print(f"seed {seed}: {name}: {played}")
            violations += played.violations
    for violation in violations:
        print(f"  {violation}")
    if violations:
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
