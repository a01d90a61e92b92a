"""What is easily left out of a list, and is told: workers that cannot be read, output that begins again,
what was found and since when."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner

import holdfast
from holdfast import Retry, emit, flow, step
from holdfast._engine.journal.drift_record import Change
from holdfast._operator.cli.entry_lines import summary_of
from holdfast._operator.cli.main import main
from holdfast._operator.explain.status_report import explain
from holdfast._operator.read import queue_views, run_views
from holdfast._operator.read.entry_views import EntryView
from holdfast._stores.contract import Store
from tests.attempts import attempt
from tests.model.memory_store import MemoryStore
from tests.ops import cases_found
from tests.ops.cases import CASES
from tests.ops.journals import Journal

assert cases_found  # It adds to the cases.


def test_a_worker_that_cannot_be_read_is_shown_as_that(store: Store):
    facts = {"worker": "w", "pid": "not a number", "flows": {"pay": ["1"]}}
    store.pulse(store.register_owner(), msgspec.json.encode(facts).decode(), [])
    store.pulse(store.register_owner(), "{}", [])  # A process, and no worker.
    (seen,) = queue_views.workers(store)
    assert seen.unread is not None
    assert "pid" in seen.unread
    assert not seen.takes_from("default"), "nobody knows what it takes"
    Journal(store, "r").released()
    said = explain(store, "r")
    assert any("cannot be read" in line for line in said.unknown), said
    assert "No worker is alive." not in said.known


@step(name="apart-talks", retry=Retry(attempts=2, initial_wait_s=0.0))
def talks() -> int:
    emit("one")
    emit("two")
    if attempt() == 1:
        raise ConnectionError("again")
    return 1


@flow(name="apart-talk")
def talk() -> int:
    return talks()


def test_where_a_step_begins_its_output_again_is_shown(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/runs.db"
    with contextlib.closing(holdfast.open(url, default=False)) as store:
        talk.with_options(store=store).run("r")
        runner = CliRunner(env={"COLUMNS": "120"})
        told = runner.invoke(
            main, ["--url", url, "history", "r", "--follow", "--after", "0"]
        ).output
    lines = [line for line in told.splitlines() if "emitted" in line]
    assert ["begins its output" in line for line in lines] == [True, False, True, False], told


def test_a_note_of_a_finding_says_what_was_found_and_since_when(clock):
    store = MemoryStore(clock=clock)
    CASES["found_looping_and_held_for_it"](store)
    (noted,) = [it for it in run_views.history(store, "r") if it.kind == "finding_noted"]
    told = summary_of(noted)
    assert told.startswith("looping since 20"), told


def test_history_tells_whole_why_a_run_was_held_given_back_or_what_a_gap_brought():
    """What a person has to act on is not cut short, and each such line says something."""
    long = "the journal has charge, not bill. " * 8

    def told(kind: str, **body: Any) -> str:
        entry = EntryView.__new__(EntryView)
        entry.kind, entry.body = kind, body
        return summary_of(entry)

    assert told("run_held", reason="diverged", detail=long) == f"diverged: {long}"
    given_back = told("run_released", why="does_not_fit", code="2/0123456789abcdef", detail=long)
    assert given_back == f"does_not_fit, version 2: {long}"
    change = Change("model", "think", "small", "large", "keep", did="keep")
    found = told("drift_found", changes=[msgspec.to_builtins(change)])
    assert found == "model of step think was small, and is large now (keep)"
