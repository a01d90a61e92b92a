"""A seeded simulation of several workers on one store, with checkers for the promises.

    python -m tests.simulation --seeds N [--first S] [--sqlite SHARE] [--people] [--log SEED]

A seed decides everything: the flows, who makes the next move, who dies, stalls past its lease and
comes back, how the clock jumps, what the world answers. The same seed is the same schedule, bit
for bit, so a seed that fails is a test case. Runs, scripts, admission and endings are the real
ones; only threads, time and chance are the simulation's own.

    programs   the flows, as data          workers    processes, and the third driver
    outside    what really happened        laws       what must hold after every move
    scheduler  who moves next
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.scheduler import Faults, Outcome, simulate

PEOPLE = Faults(people_stop_runs=2, signals=5, stale_views=4)


def main(arguments: list[str] | None = None) -> int:
    """Play seeds; print a summary and the seeds that fail. Returns 1 if one does."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--sqlite", type=int, default=0, help="every n-th one on a SQLite file")
    parser.add_argument(
        "--people", action="store_true", help="who stop runs, send signals, act on what they saw"
    )
    parser.add_argument("--log", type=int, help="play one seed and print its moves")
    chosen = parser.parse_args(arguments)
    faults = PEOPLE if chosen.people else None
    if chosen.log is not None:
        outcome = simulate(chosen.log, faults=faults)
        _say("\n".join([*outcome.log, str(outcome), f"trace {outcome.trace}"]))
        return int(outcome.violation is not None)
    return _many(chosen.first, chosen.seeds, chosen.sqlite, faults)


def _many(first: int, seeds: int, sqlite_every: int, faults: Faults | None) -> int:
    began = time.monotonic()
    failed: list[Outcome] = []
    counts: dict[str, int] = {}
    moves = 0
    for seed in range(first, first + seeds):
        on_sqlite = sqlite_every > 0 and seed % sqlite_every == 0
        url = "sqlite:" if on_sqlite else "memory:"
        outcome = simulate(seed, url=url, faults=faults)
        moves += outcome.moves
        for name, count in outcome.counts.items():
            counts[name] = counts.get(name, 0) + count
        if outcome.violation is not None:
            failed.append(outcome)
            _say(str(outcome))
    took_s = time.monotonic() - began
    seen = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    _say(f"{seeds} seeds, {moves} moves in {took_s:.1f} s; {len(failed)} failed; seen: {seen}")
    return int(bool(failed))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
