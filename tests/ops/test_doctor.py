"""`holdfast doctor`: what is wrong with a store or a run, what can be done, and how it ends."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast._engine.journal.entries import Kind
from holdfast._features.watchdog import store as watchdog
from holdfast._operator.cli.main import main
from holdfast._operator.explain import doctor
from holdfast._operator.read import store_metrics
from holdfast._stores.contract import Limits, Store
from holdfast._stores.locate import open_store
from holdfast.errors import Corrupt
from tests.model.memory_store import MemoryStore
from tests.ops.journals import Journal


@pytest.fixture
def holdfast(url: str) -> Callable[..., Result]:
    def invoke(*words: str, at: str = url) -> Result:
        runner = CliRunner(env={"COLUMNS": "200"})
        return runner.invoke(main, ["--url", at, *words], catch_exceptions=False)

    return invoke


def as_json(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout)


def failed(store: Store) -> None:
    Journal(store, "half").effect("mail").failing("think").failed("think")


def test_a_store_in_which_all_is_well(holdfast, sqlite):
    Journal(sqlite, "done").step("search").completed()
    result = holdfast("doctor")
    assert result.exit_code == 0
    assert "Nothing needs to be done." in result.stdout
    told = as_json(holdfast("doctor", "--json"))
    assert (told["findings"], told["checkup"]["troubles"], told["exit_code"]) == ([], [], 0)
    assert told["checkup"]["schema_version"] == 1
    assert told["checkup"]["file_bytes"] > 0
    assert told["checkup"]["free_bytes"] > 0


def test_what_is_found_in_runs_is_said_with_commands_that_work(holdfast, sqlite, url):
    failed(sqlite)
    result = holdfast("doctor")
    assert result.exit_code == 3
    assert (
        "run half, partial failure: it is failed, and what it did stays as it is" in result.stdout
    )
    commands = [line.strip() for line in result.stdout.splitlines() if "    holdfast" in line]
    assert commands
    for command in commands:
        words = shlex.split(command)[1:]
        assert CliRunner().invoke(main, words, catch_exceptions=False).exit_code in (0, 4), command


def test_one_run(holdfast, sqlite):
    failed(sqlite)
    Journal(sqlite, "done").step("search").completed()
    assert holdfast("doctor", "done").exit_code == 0
    told = as_json(holdfast("doctor", "half", "--json"))
    assert (told["checkup"], told["exit_code"]) == (None, 3)
    [finding] = told["findings"]
    assert (finding["kind"], finding["noted_at"], finding["open"]) == (
        "partial_failure",
        None,
        True,
    )
    assert holdfast("doctor", "nobody").exit_code == 6


def test_one_run_that_waits_for_somebody(holdfast, sqlite):
    Journal(sqlite, "doubt").held_in_doubt("charge")
    Journal(sqlite, "paused").held("paused")
    Journal(sqlite, "plain").failing("think").failed("think")
    for run_id, said in (
        ("doubt", "held (in_doubt): it waits for a decision"),
        ("paused", "held (paused): it waits for somebody to resume it"),
        ("plain", "failed: it can be taken up again"),
    ):
        result = holdfast("doctor", run_id)
        assert (result.exit_code, said in result.stdout) == (3, True), result.stdout
        assert f"explain {run_id}" in result.stdout
        assert as_json(holdfast("doctor", run_id, "--json"))["exit_code"] == 3


def test_what_was_noted_is_said_also_when_it_is_over(holdfast, sqlite):
    failed(sqlite)
    [finding] = watchdog.of_store(sqlite)
    watchdog.tell(sqlite, finding, "note")
    watchdog.tell(sqlite, finding, "note")
    entries = sqlite.load(sqlite.get("half"))
    assert [it.kind for it in entries].count(Kind.FINDING_NOTED) == 1
    assert "noted" in holdfast("doctor", "half").stdout
    assert holdfast("resume", "half").exit_code == 0
    said = holdfast("doctor", "half")
    assert "it is over" in said.stdout
    assert said.exit_code == 0
    assert holdfast("explain", "half").exit_code == 0


def test_runs_are_listed_by_what_is_found(holdfast, sqlite):
    failed(sqlite)
    Journal(sqlite, "done").step("search").completed()
    listed = as_json(holdfast("runs", "--finding", "partial_failure", "--json"))["runs"]
    assert [run["run_id"] for run in listed] == ["half"]
    assert as_json(holdfast("runs", "--finding", "stuck", "--json"))["runs"] == []


def test_runs_that_wait_for_somebody_and_queues_that_nobody_serves(holdfast, sqlite):
    Journal(sqlite, "doubt").held_in_doubt("charge")
    Journal(sqlite, "poison").held("quarantined")
    Journal(sqlite, "resting").held("paused")
    Journal(sqlite, "left").step("search").released()
    told = as_json(holdfast("doctor", "--json"))
    assert told["exit_code"] == 3
    troubles = {it["what"]: it["text"] for it in told["checkup"]["troubles"]}
    assert set(troubles) == {"in_doubt", "quarantined", "paused", "queue"}
    assert troubles["queue"] == "1 run in queue default, and no live worker takes from it"
    sqlite.set_limits(Limits("default", paused=True))
    told = as_json(holdfast("doctor", "--json"))
    assert "queue" not in {it["what"] for it in told["checkup"]["troubles"]}


def test_a_lease_that_ran_out(clock):
    store = MemoryStore(clock=clock)
    Journal(store, "r").step("search")
    assert doctor.checkup(store)[0].troubles == []
    clock.advance(95)
    [trouble] = doctor.checkup(store)[0].troubles
    assert (trouble.what, trouble.actions) == ("lease", ("holdfast explain r",))


def test_runs_whose_process_died_are_said_to_be_abandoned(holdfast, sqlite, url):
    other = open_store(url)
    Journal(other, "lost-1").step("search")
    Journal(other, "lost-2").step("search")
    mine = Journal(sqlite, "mine").step("search")
    [before] = as_json(holdfast("queues", "--json"))["queues"]
    assert (before["running"], before["abandoned"], before["oldest_s"]) == (3, 0, None)
    other.close()
    [after] = as_json(holdfast("queues", "--json"))["queues"]
    assert (after["running"], after["abandoned"]) == (1, 2)
    assert after["oldest_s"] is not None
    assert "1, 2 abandoned" in holdfast("queues").stdout
    result = holdfast("doctor")
    assert result.exit_code == 3
    assert "abandoned: 2 runs, such as lost-1" in result.stdout
    assert "explain lost-1" in result.stdout
    runs = {it["run_id"]: it for it in as_json(holdfast("runs", "--json"))["runs"]}
    assert [it for it in runs if runs[it]["abandoned"]] == ["lost-2", "lost-1"]
    text = store_metrics.store_metrics(sqlite)
    assert 'holdfast_queue_runs{queue="default",status="running"} 1.0' in text
    assert 'holdfast_queue_runs{queue="default",status="abandoned"} 2.0' in text
    assert 'holdfast_queue_oldest_ready_seconds{queue="default"} 0.0\n' not in text
    mine.completed()


def test_what_was_not_read_is_said(holdfast, sqlite):
    Journal(sqlite, "done").step("search").completed()
    Journal(sqlite, "open-1").released()
    Journal(sqlite, "open-2").released()
    assert "Not read: runs that have ended, keys of effects" in holdfast("doctor").stdout
    told = as_json(holdfast("doctor", "--limit", "1", "--json"))["checkup"]
    assert told["unchecked"][0] == "open and failed runs that are older"


@pytest.mark.parametrize("read", ["questions", "queues", "claimable", "pulses"])
def test_a_look_that_fails_is_damage_and_not_silence(sqlite, monkeypatch, read):
    Journal(sqlite, "r").step("search")

    def unreadable(*_args: object, **_named: object) -> None:
        raise Corrupt("planted")

    monkeypatch.setattr(sqlite, read, unreadable)
    told, _ = doctor.checkup(sqlite)
    assert told.is_damaged


def test_a_run_that_may_ask_and_cannot_be_read_is_damage(sqlite, monkeypatch):
    Journal(sqlite, "asks").asks("ask:size", "size", "How large?").unloaded("answer:size")

    def unreadable(*_args: object, **_named: object) -> None:
        raise Corrupt("its inbox", run_id="asks")

    monkeypatch.setattr(sqlite, "inbox", unreadable)
    told, _ = doctor.checkup(sqlite)
    assert [it.actions for it in told.troubles if it.what == "damage"] == [
        ("holdfast store verify asks",)
    ]


def test_a_store_that_lost_commits(holdfast, sqlite, url, monkeypatch):
    monkeypatch.setattr(type(sqlite), "regression", lambda _store: "the last commit is missing")
    result = holdfast("doctor")
    assert result.exit_code == 7
    assert "store accept-data-loss" in result.stdout


def test_a_full_disk_and_a_log_that_grows(sqlite, url, monkeypatch):
    wal = Path(url.removeprefix("sqlite:///") + "-wal")
    assert doctor.checkup(sqlite)[0].troubles == []
    monkeypatch.setattr(doctor, "WAL_BYTES", max(0, wal.stat().st_size - 1))
    usage = SimpleNamespace(total=10**12, used=10**12 - 10**6, free=10**6)
    monkeypatch.setattr("holdfast._operator.explain.doctor.shutil.disk_usage", lambda _path: usage)
    troubles = doctor.checkup(sqlite)[0].troubles
    assert [(it.what, str(it.severity)) for it in troubles] == [
        ("disk", "error"),
        ("wal", "warning"),
    ]


def test_only_so_many_runs_are_looked_at(sqlite, holdfast):
    for number in range(3):
        Journal(sqlite, f"r{number}").effect("mail").failing("think").failed("think")
    told, found = doctor.checkup(sqlite, limit=2)
    assert (told.looked_at, told.complete, len(found)) == (2, False, 2)
    assert "there are more" in holdfast("doctor", "--limit", "2").stdout


def test_on_a_server(holdfast, postgres_url):
    with_runs = open_store(postgres_url, namespace="default")
    failed(with_runs)
    with_runs.close()
    told = as_json(holdfast("doctor", "--json", at=postgres_url))
    assert told["exit_code"] == 3
    assert [it["run_id"] for it in told["findings"]] == ["half"]
    assert told["checkup"]["schema_version"] == 1
    assert told["checkup"]["file_bytes"] is None


def test_a_run_that_cannot_be_read_is_said_and_hides_no_other(clock, monkeypatch):
    store = MemoryStore(clock=clock)
    failed(store)
    Journal(store, "sound").effect("mail").failing("think").failed("think")
    load = store.load

    def damaged(row: Any, *more: Any) -> Any:
        if row.run_id == "half":
            raise Corrupt("entry 3", run_id="half", why="the digest does not match")
        return load(row, *more)

    monkeypatch.setattr(store, "load", damaged)
    told, found = doctor.checkup(store)
    assert [it.run_id for it in found] == ["sound"]
    assert [(it.what, it.actions) for it in told.troubles] == [
        ("damage", ("holdfast store verify half",)),
        ("failed", ("holdfast runs --status failed",)),
    ]
    assert told.is_damaged


@pytest.mark.parametrize(
    ("make", "what", "told"),
    [
        (
            lambda journal: journal.failing("think").failed("think"),
            "failed",
            "1 run failed, and can be taken up again when the cause is mended",
        ),
        (
            lambda journal: journal.held("paused"),
            "paused",
            "1 run held: paused; waits for somebody to resume it",
        ),
        (
            lambda journal: journal.asks("ask", "amount", "How much?").unloaded("answer:amount"),
            "asks",
            "1 run asks somebody, and waits for an answer",
        ),
    ],
)
def test_whatever_needs_a_person_is_said_and_told_by_the_exit_code(
    holdfast, sqlite, make, what, told
):
    make(Journal(sqlite, "r"))
    said = as_json(holdfast("doctor", "--json"))
    assert said["exit_code"] == 3
    assert {it["what"]: it["text"] for it in said["checkup"]["troubles"]} == {what: told}
    [trouble] = said["checkup"]["troubles"]
    words = shlex.split(trouble["actions"][0])[1:]
    assert "r " in holdfast(*words).stdout + " "


def test_a_run_that_was_moved_needs_nobody(holdfast, sqlite):
    there = {"url": "sqlite:///there.db", "namespace": "default", "actor": "kim"}
    gone = Journal(sqlite, "gone")
    draft = gone.draft(Kind.RUN_HELD, reason="moved", detail="moved", moved_to=there)
    gone.write(draft, held_reason="moved")
    assert holdfast("doctor").exit_code == 0


def test_a_worker_that_executes_one_run_alone_says_so(holdfast, sqlite):
    pulse(sqlite, alone={"run_id": "bad", "why": "its process ended twice"})
    result = holdfast("doctor")
    assert result.exit_code == 0
    told = "worker w executes only run bad now, because its process ended twice"
    assert f"alone: {told}; for a minute at most" in result.stdout
    assert f"{told}." in holdfast("queues").stdout
    assert as_json(holdfast("queues", "--json"))["workers"][0]["alone"]["run_id"] == "bad"


def pulse(store: Store, **facts: Any) -> None:
    told = {"worker": "w", "pid": 1, "host": "h", "queues": None, "flows": {"pay": ["1"]}}
    told |= {"concurrency": 4, "working": 1, "saturation": 0.25, "draining": False, **facts}
    store.pulse(store.register_owner(), json.dumps(told), [])
