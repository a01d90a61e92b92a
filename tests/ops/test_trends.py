"""Trends: what measures of many processes make together, and how they are shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import msgspec
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._features.measures.model import MINUTE_US, bucket_of, minute_of
from holdfast._operator.act.garbage_collection import collect
from holdfast._operator.cli.main import main
from holdfast._operator.cli.trends_command import BARS, PLAIN, SIGNALS, line
from holdfast._operator.read.trends import Series, trends
from holdfast._stores.contract import Store
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import UsageError

MINUTE_S = 60
DAY_US = 86_400_000_000


@pytest.fixture
def at(store: Store) -> Callable[[float], int]:
    """Return the minute so many minutes ago, by the store's clock."""
    return lambda minutes: minute_of(store.now_us()) - int(minutes * MINUTE_US)


# -- adding up ---------------------------------------------------------------------------------


def test_of_nothing_there_is_a_line_of_nothing(store):
    found = trends(store)
    assert (found.flows, found.processes, found.notes) == ([], 0, [])
    assert set(found.series.steps) == {0}
    assert set(found.series.error_rate) == {None}
    assert set(found.series.saturation) == {None}


@pytest.mark.parametrize(
    ("since", "bucket_s", "buckets"),
    [("6m", 60, 7), ("1h", 60, 61), (21_600, 300, 73), ("24h", 900, 97), ("14d", 10_800, 113)],
)
def test_there_are_about_a_hundred_buckets(store, since, bucket_s, buckets):
    found = trends(store, since=since)
    assert found.bucket_s == bucket_s
    for values in msgspec.structs.astuple(found.series):
        assert len(values) == buckets
    assert (found.end - found.start).total_seconds() == bucket_s * buckets
    assert int(found.start.timestamp()) % bucket_s == 0


@pytest.mark.parametrize("since", [0, -1, float("nan"), "367d", "soon"])
def test_a_time_that_is_none_is_refused(store, since):
    with pytest.raises(UsageError, match="since="):
        trends(store, since=since)


def test_processes_and_flows_are_added_up(store, at):
    counts = Counts(
        steps=3,
        attempts=4,
        errors=1,
        cost_nanos=250_000_000,
        tokens=7,
        traced=3,
        held=1,
        ended={"completed": 2, "failed": 1},
        attempt_us={bucket_of(2_000): 4},
        run_us={bucket_of(3_000_000): 2},
    )
    store.put_measures(
        [Measure(at(2), process, flow, counts) for process in ("p", "q") for flow in ("f", "g")]
    )
    found = trends(store, since=360)
    assert (found.flows, found.processes) == (["f", "g"], 2)
    here = {name: getattr(found.series, name)[-3] for name in Series.__struct_fields__}
    totals = {name: getattr(found.totals, name) for name in Series.__struct_fields__}
    assert {name: [value] for name, value in here.items()} == totals
    assert (here["steps"], here["attempts"], here["errors"]) == (12, 16, 4)
    assert (here["runs_completed"], here["runs_failed"], here["runs_held"]) == (8, 4, 4)
    assert (here["cost_usd"], here["tokens"]) == (1.0, 28)
    assert (here["error_rate"], here["traced"]) == (0.25, 0.75)
    assert here["step_p50_ms"] == pytest.approx(2, rel=0.2)
    assert here["run_p95_s"] == pytest.approx(3, rel=0.2)
    assert sum(found.series.steps) == 12


def test_one_flow_can_be_asked_for(store, at):
    store.put_measures([Measure(at(1), "p", flow, Counts(steps=2)) for flow in ("f", "g")])
    store.put_measures([Measure(at(1), "p", "", Counts(span_us=1, places_us=4, busy_us=1))])
    found = trends(store, since=3600, flow="f")
    assert (found.flow, found.flows, found.totals.steps) == ("f", ["f", "g"], [2])
    assert found.totals.saturation == [0.25]
    assert trends(store, since=3600, flow="none").totals.steps == [0]


def test_what_is_older_is_left_out(store, at):
    store.put_measures([Measure(at(ago), "p", "f", Counts(steps=1)) for ago in (0, 59, 61, 3000)])
    assert trends(store, since=3600).totals.steps == [2]
    assert trends(store, since=360000).totals.steps == [4]


def test_saturation_is_of_all_places(store, at):
    busy = Counts(span_us=MINUTE_US, places_us=4 * MINUTE_US, busy_us=4 * MINUTE_US)
    idle = Counts(span_us=15 * MINUTE_US, places_us=60 * MINUTE_US)
    store.put_measures([Measure(at(5), "busy", "", busy), Measure(at(15), "idle", "", idle)])
    found = trends(store, since=1800).series
    # For fifteen minutes there are four places that wait, for one of them four that are busy too.
    assert found.saturation[-16:] == [*[0.0] * 10, 0.5, *[0.0] * 4, None]


def test_a_span_that_is_half_outside_counts_for_the_half_inside(store, at):
    idle = Counts(span_us=15 * MINUTE_US, places_us=15 * MINUTE_US, busy_us=15 * MINUTE_US)
    store.put_measures([Measure(at(1), "p", "", idle)])
    assert trends(store, since=360).series.saturation[-2:] == [1.0, 1.0]


def test_what_waits_is_the_mean_of_those_who_looked(store, at):
    for process, ready in (("p", 4), ("q", 8)):
        counts = Counts(span_us=1, ready=ready, samples=1)
        store.put_measures([Measure(at(1), process, "", counts)])
    found = trends(store, since=360).series.waiting
    assert (found[-2], found[-1]) == (6.0, None)


# -- damage ------------------------------------------------------------------------------------


def _damaged(path: Path, sql: str) -> None:
    raw = apsw.Connection(str(path))
    raw.execute(sql)
    raw.close()


@pytest.mark.parametrize(
    "sql",
    [
        """UPDATE measures SET body = '{"steps":900}' WHERE flow = 'g'""",
        "UPDATE measures SET body = '{' WHERE flow = 'g'",
        "UPDATE measures SET flow = 'h' WHERE flow = 'g'",
        "UPDATE measures SET process = CAST(x'ff' AS TEXT) WHERE flow = 'g'",
        "UPDATE measures SET at_us = at_us + 1 WHERE flow = 'g'",
    ],
)
def test_a_damaged_measure_is_left_out_and_said(tmp_path, sql):
    path = tmp_path / "runs.db"
    store = SqliteStore(str(path))
    at_us = minute_of(store.now_us())
    store.put_measures([Measure(at_us, "p", flow, Counts(steps=2)) for flow in ("f", "g")])
    _damaged(path, sql)
    found = trends(store, since=3600)
    assert found.totals.steps == [2]
    [note] = found.notes
    assert note.startswith("1 measure is damaged and left out")
    [wrong] = store.verify()
    assert "measure" in wrong.what
    result = CliRunner().invoke(main, ["--url", f"sqlite:///{path}", "trends", "--since", "1h"])
    assert "1 measure is damaged" in result.stderr
    # Nobody needs it: it goes with the others when it is old.
    assert store.drop_measures(store.now_us() + DAY_US) == 2
    assert store.verify() == []
    store.close()


# -- dropping ----------------------------------------------------------------------------------


def test_gc_drops_measures_after_two_weeks(store, clock, at):
    store.put_measures([Measure(at(0), "p", "f", Counts(steps=1))])
    clock.advance(13 * 86_400)
    store.put_measures([Measure(at(0), "p", "f", Counts(steps=1))])
    assert collect(store).measures == 0
    clock.advance(2 * 86_400)
    assert collect(store, dry_run=True).measures == 0
    assert len(store.measures(0, 1 << 60).rows) == 2
    assert collect(store).measures == 1
    assert collect(store, trends_retention="1d").measures == 1
    assert store.measures(0, 1 << 60).rows == []


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def measured(url: str, sqlite: Store) -> str:
    now_us = minute_of(sqlite.now_us())
    for ago in range(200):
        counts = Counts(
            steps=ago,
            attempts=ago + 2,
            errors=2,
            cost_nanos=10**9 * ago,
            ended={"completed": 1},
            attempt_us={bucket_of(10**6): ago},
            run_us={bucket_of(10**8): 1},
        )
        places = Counts(span_us=MINUTE_US, places_us=4 * MINUTE_US, busy_us=ago * 10**6, ready=ago)
        places.samples = 1
        at_us = now_us - ago * MINUTE_US
        sqlite.put_measures([Measure(at_us, "p", "pay\x1b[31m", counts)])
        sqlite.put_measures([Measure(at_us, "p", "", places)])
    return url


def _holdfast(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast._operator.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80", **env},
    )


def test_it_fits_into_80_columns(measured):
    result = _holdfast("--url", measured, "trends", PYTHONUTF8="1")
    lines = result.stdout.splitlines()
    assert max(cell_len(line.rstrip()) for line in lines) <= 80
    told = next(at for at, line in enumerate(lines) if line.startswith("From "))
    assert [line[:15].strip() for line in lines[1:told]] == [name for name, _, _ in SIGNALS]
    assert set(BARS) & set(result.stdout)
    assert "all flows; parts of 15 min" in lines[told]
    assert "What a process that was killed had not written" in " ".join(lines[told + 1 :])


def test_without_utf_8_it_is_plain(measured):
    result = _holdfast("--url", measured, "trends", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert result.returncode == 0
    assert result.stdout.isascii()
    [steps] = [line for line in result.stdout.splitlines() if line.startswith("steps")]
    assert set(steps) & set(PLAIN)


def test_names_of_flows_are_inert(measured):
    result = _holdfast("--url", measured, "trends", "--flow", "none")
    assert "\x1b" not in result.stdout + result.stderr
    assert "No measures of flow none" in result.stderr
    assert "pay\\x1b[31m" in result.stderr


def test_as_json(measured):
    result = _holdfast("--url", measured, "trends", "--json", "--since", "1h")
    told = json.loads(result.stdout)["trends"]
    assert told["bucket_s"] == 60
    assert told["flows"] == ["pay\x1b[31m"]
    assert told["totals"]["runs_completed"][0] in (60, 61)
    assert set(told["series"]) == set(told["totals"]) == set(Series.__struct_fields__)


def test_an_empty_store_and_none_at_all(url, sqlite, tmp_path):
    result = CliRunner().invoke(main, ["--url", url, "trends"])
    assert "No measures in the last 24 h" in result.stdout
    none = f"sqlite:///{tmp_path}/none.db"
    assert "No trends" in CliRunner().invoke(main, ["--url", none, "trends"]).stdout
    told = CliRunner().invoke(main, ["--url", none, "trends", "--json"])
    assert json.loads(told.stdout)["trends"] is None
    assert CliRunner().invoke(main, ["--url", url, "trends", "--since", "0"]).exit_code == 2


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([], ""),
        ([None, None], "  "),
        ([0, 0], "__"),
        ([0, 1, 7], "_.#"),
        ([0, 0.001, 100], "_.#"),
        ([None, 5], " #"),
        ([1, 2, 3, 4, 5, 6, 7, 8], ":=+#"),
        ([0, None, None, None, 8, 8, 0, None], "_ #_"),
    ],
)
def test_a_line_of_signs(values, shown):
    assert line(values, PLAIN, width=4 if len(values) > 4 else 38) == shown
