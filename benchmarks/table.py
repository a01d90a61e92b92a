"""The two tables: how Holdfast stands to its targets, and the numbers behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.results import Results
    from benchmarks.subjects import Subject
    from benchmarks.targets import Outcome, Target
    from benchmarks.workloads import Case, Store

SIGNS = {"at least": "≥", "at most": "≤"}
METRICS = {
    "steps_per_s": "steps/s",
    "cpu_us_per_step": "CPU µs/step",
    "peak_mb": "peak MB",
    "stored_mb": "MB stored",
    "per_content": "× the content",
    "growth": "× last ÷ first",
    "fresh_s": "s fresh start",
    "resume_s": "s to resume",
    "re_executed": "re-executed",
    "import_ms": "ms import",
    "distributions": "distributions",
    "idle_percent": "% of a core",
    "idle_server_percent": "% of a core, server",
    "latency_p50_ms": "ms p50",
    "latency_p95_ms": "ms p95",
    "submits_per_s": "submits/s",
    "runs_per_s": "runs/s",
    "worker_cores": "cores, workers",
    "server_cores": "cores, server",
    "worker_cpu_us_per_step": "CPU µs/step, workers",
    "server_cpu_us_per_step": "CPU µs/step, server",
    "commits_per_s": "commits/s",
    "syncs_per_s": "WAL syncs/s",
    "wal_kb_per_run": "kB of WAL per run",
    "stored_kb_per_run": "kB stored per run",
}
STORES: dict[Store, str] = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


def target_table(store: Store, outcomes: Sequence[Outcome], *, marked: bool) -> Table:
    """`marked` is off at smoke sizes, where the ratios mean nothing."""
    table = Table(title=f"{STORES[store]}: Holdfast against its targets (medians)")
    table.add_column("what")
    for heading in ("result", "lowest – highest", "target"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for outcome in outcomes:
        table.add_row(
            outcome.target.what,
            _with_unit(outcome.value, outcome.target),
            f"{_number(outcome.lowest)} – {_number(outcome.highest)}",
            _aim(outcome.target),
            _mark(outcome) if marked else "",
        )
    return table


def number_table(
    store: Store, cases: Sequence[Case], subjects: Sequence[Subject], results: Results
) -> Table:
    table = Table(title=f"{STORES[store]}: numbers (medians)")
    table.add_column("case")
    table.add_column("of")
    for subject in subjects:
        table.add_column(subject.name, justify="right")
    for case in cases:
        for metric, heading in {**METRICS, **_waits(results, case)}.items():
            medians = [results.median(case.key, subject.name, metric) for subject in subjects]
            if any(median is not None for median in medians):
                table.add_row(_named(case), heading, *map(_number, medians))
    return table


def _waits(results: Results, case: Case) -> dict[str, str]:
    """What the server waited for differs from run to run, so these have no list of their own."""
    return {metric: metric for metric in results.metrics(case.key) if metric.startswith("waits")}


def _named(case: Case) -> str:
    runs = f"{case.runs} × " if case.runs > 1 else ""
    return f"{case.key} ({runs}{case.steps:,})" if case.steps else case.key


def _mark(outcome: Outcome) -> str:
    if outcome.met is None:
        return ""
    return "[green]met[/]" if outcome.met else "[red]missed[/]"


def _aim(target: Target) -> str:
    if target.limit is None:
        return "–"
    return f"{SIGNS[target.bound]} {_with_unit(target.limit, target)}"


def _with_unit(value: float, target: Target) -> str:
    return f"{_number(value)} {target.unit}".rstrip()


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if float(value).is_integer() or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"
