"""`python -m tests.integrations`: environments of frameworks, and the tests in them.

list                        what there is, and what is installed
env langgraph-newest        make it if it is not there as wanted; prints its interpreter
run [langgraph …] [--edge lowest|newest|both] [-- pytest args]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.integrations import environments
from tests.integrations.environments import EDGES, TABLE, Environment
from tests.integrations.running import Tested, run_tests

SIDE_BY_SIDE = 2


def main(words: Sequence[str]) -> int:
    ours, pytest_args = _split(words)
    asked = _parser().parse_args(ours)
    if asked.command == "list":
        return _list()
    if asked.command == "env":
        for name in asked.names:
            environment = environments.named(name)
            environments.prepare(environment)
            print(environment.python)
        return 0
    edges = EDGES if asked.edge == "both" else (asked.edge,)
    return _run(asked.names or list(TABLE), edges, pytest_args)


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    if "--" not in words:
        return list(words), []
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1 :])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.integrations")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="what there is, and what is installed")
    env = commands.add_parser("env", help="make environments; print their interpreters")
    env.add_argument("names", nargs="+", choices=[e.name for e in environments.everything()])
    run = commands.add_parser("run", help="run the tests; pytest's own options after --")
    run.add_argument("names", nargs="*", metavar="name", help=", ".join(TABLE))
    run.add_argument("--edge", choices=[*EDGES, "both"], default="both")
    return parser


def _list() -> int:
    for environment in environments.everything():
        installed = environment.installed()
        said = f"{_versions(environment)}  ({installed['seconds']:.1f} s)" if installed else "-"
        print(f"{environment.name:24}{said}")
    return 0


def _run(names: Sequence[str], edges: Sequence[environments.Edge], args: Sequence[str]) -> int:
    if unknown := sorted(set(names) - set(TABLE)):
        print(f"no framework {', '.join(unknown)}; there are: {', '.join(TABLE)}", file=sys.stderr)
        return 2
    began = time.monotonic()
    # Both edges, whichever is tested: a test may go on in the other one.
    wanted = [Environment(name, edge) for name in names for edge in EDGES]
    for environment in wanted:
        _prepare(environment)
    chosen = [environment for environment in wanted if environment.edge in edges]
    live = len(chosen) == 1
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        going = [pool.submit(run_tests, environment, args, live=live) for environment in chosen]
        ended = [_told(done.result()) for done in as_completed(going)]
    return _summary(ended, time.monotonic() - began)


def _prepare(environment: Environment) -> None:
    seconds = environments.prepare(environment)
    how = f"made in {seconds:.1f} s" if seconds else "is there"
    _say(f"{environment.name}: {how}: {_versions(environment)}")


def _told(tested: Tested) -> Tested:
    if tested.output:
        _say(tested.output.rstrip("\n"))
    _say(f"=== {_line(tested)} ===\n")
    return tested


def _summary(ended: Sequence[Tested], seconds: float) -> int:
    for tested in sorted(ended, key=lambda each: each.environment.name):
        _say(f"{_line(tested)}  {_versions(tested.environment)}")
    passed, failed = sum(each.passed for each in ended), sum(each.failed for each in ended)
    ill = [each for each in ended if not each.well]
    _say(f"{len(ended)} environments in {seconds:.0f} s, {len(ill)} of them not well")
    _say(f"{passed} passed, {failed} failed")
    return 1 if ill or not ended else 0


def _line(tested: Tested) -> str:
    counts = f"{tested.passed} passed, {tested.failed} failed"
    if tested.skipped:
        counts += f", {tested.skipped} skipped"
    word = "well" if tested.well else "NOT WELL"
    return f"{tested.environment.name}: {word}: {counts} in {tested.seconds:.1f} s"


def _versions(environment: Environment) -> str:
    return ", ".join(f"{name} {version}" for name, version in environment.versions().items())


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
