"""Findings as they are looked for in a store: who is alive, what other runs show, what is written."""

from __future__ import annotations

import json
import shlex

import pytest
from click.testing import CliRunner

from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import CLAIMABLE
from holdfast._engine.text import moment
from holdfast._features.watchdog import store as watchdog
from holdfast._operator.cli.main import main
from holdfast._operator.explain.status_report import explain
from holdfast._operator.read import run_views
from holdfast._stores.contract import Limits, Store
from tests.model.memory_store import MemoryStore
from tests.ops.journals import Journal

FLOOR_S = 300


def findings(store: Store, run_id: str = "r") -> list[tuple[str, tuple[str, ...]]]:
    row = store.get(run_id)
    assert row is not None
    return [(str(it.kind), it.steps) for it in watchdog.Survey(store).findings(row)]


def pulse(store: Store, owner: int, **facts: object) -> None:
    store.pulse(owner, json.dumps(facts))


# -- who is alive ------------------------------------------------------------------------------


def test_a_step_that_a_live_process_does_not_get_done(store, clock):
    journal = Journal(store, "r").intent("mail")
    clock.advance(6 * FLOOR_S)
    pulse(store, journal.owner)
    assert findings(store) == []
    clock.advance(1)
    assert findings(store) == [("stuck", ("mail",))]
    said = str(explain(store, "r"))
    assert "Finding, stuck: mail is at work for 30 min 1 s without an entry" in said
    assert "holdfast pause r" in said


def test_what_other_runs_took_says_how_long_is_long(store, clock):
    for number in range(5):
        before = Journal(store, f"before{number}").intent("mail")
        clock.advance(100)
        before.write(before.draft(Kind.STEP_COMPLETED, "mail", 1, result=None)).completed()
    journal = Journal(store, "r").intent("mail")
    clock.advance(4 * 100)
    pulse(store, journal.owner)
    assert findings(store) == []
    clock.advance(1)
    assert findings(store) == [("stuck", ("mail",))]


def test_a_run_that_nobody_has_is_stuck_unless_a_worker_would_take_it(store, clock):
    Journal(store, "r").step("search").released()
    clock.advance(FLOOR_S + 1)
    assert [kind for kind, _ in findings(store)] == ["stuck"]
    worker = store.register_owner()
    flows = {"worker": "w", "flows": {"pay": ["1"]}, "queues": None, "draining": False}
    pulse(store, worker, **flows)
    assert findings(store) == []
    for change in ({"flows": {"pay": ["2"]}}, {"queues": ["mail"]}, {"draining": True}):
        pulse(store, worker, **{**flows, **change})
        assert [kind for kind, _ in findings(store)] == ["stuck"], change
    store.pulse(worker, "no JSON")
    assert [kind for kind, _ in findings(store)] == ["stuck"]
    store.set_limits(Limits("default", paused=True))
    assert findings(store) == []


# -- what is written ---------------------------------------------------------------------------


@pytest.mark.parametrize("did", ["note", "hold", "cancel"])
def test_what_a_dead_process_left_open_is_said_with_it(clock, did):
    store = MemoryStore(clock=clock)
    journal = Journal(store, "r").step("search").intent("mail")
    store.world.kill(journal.owner)
    clock.advance(FLOOR_S + 1)
    row = store.get("r")
    assert row is not None
    [finding] = watchdog.Survey(store).findings(row)
    watchdog.tell(store, finding, did)
    watchdog.tell(store, finding, did)
    row = store.get("r")
    assert row is not None
    kinds = [entry.kind for entry in store.load(row)]
    assert kinds.count(Kind.FINDING_NOTED) == 1
    assert kinds.count(Kind.STEP_IN_DOUBT) == 1
    assert row.owner is None
    if did == "note":
        assert row.status in CLAIMABLE
        assert [it.run_id for it in store.claimable(store.now_us(), 9)] == ["r"]
    else:  # An effect in doubt is not cancelled away.
        reason = {"hold": "paused", "cancel": "in_doubt"}[did]
        assert (row.status, row.held_reason) == ("held", reason)


def test_a_live_process_is_told_and_nobody_else_writes(store, clock):
    journal = Journal(store, "r").intent("mail")
    clock.advance(6 * FLOOR_S + 1)
    pulse(store, journal.owner)
    row = store.get("r")
    [finding] = watchdog.Survey(store).findings(row)
    watchdog.tell(store, finding, "hold")
    watchdog.tell(store, finding, "note")
    assert [it.message_id for it in store.inbox(row.run_no)] == [f"finding:{finding.id}"]
    assert store.get("r").last_seq == row.last_seq
    assert watchdog.is_decided(store, row, finding)


def test_nothing_is_written_into_a_run_that_has_ended(store):
    Journal(store, "r").effect("mail").effect("mail#2").completed()
    row = store.get("r")
    [finding] = watchdog.Survey(store).findings(row)
    watchdog.tell(store, finding, "cancel")
    assert store.get("r").last_seq == row.last_seq
    assert [it.kind for it in watchdog.of_run(store, row)] == ["duplicate_action"]


# -- commands ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["released", "completed", "failed", "held"])
def test_every_command_of_a_finding_works_in_the_status_that_the_run_has(sqlite, url, end):
    journal = Journal(sqlite, "r").effect("mail").effect("mail#2")
    for number in range(2, 12):
        journal.step(f"search#{number}")
    getattr(journal, end)(*(["quarantined"] if end == "held" else []))
    found = watchdog.of_run(sqlite, sqlite.get("r"))
    assert {"looping", "duplicate_action"} <= {str(it.kind) for it in found}
    commands = dict.fromkeys(action for it in found for action in it.actions)
    for command in sorted(commands, key=lambda text: "cancel" in text):
        words = ["--url", url, *shlex.split(command)[1:]]
        result = CliRunner().invoke(main, words, catch_exceptions=False)
        assert result.exit_code == 0, (command, result.output)


def test_nobody_has_a_run_since_its_process_was_last_heard_of(clock):
    store = MemoryStore(clock=clock)
    journal = Journal(store, "r").step("search")
    for _ in range(60):  # A long step: its process lives, and writes nothing.
        clock.advance(10)
        store.pulse(journal.owner, "{}", [])
    clock.advance(301)
    [finding] = watchdog.of_store(store)
    assert finding.text.startswith("it could go on for 5 min 1 s, nobody has it")
    assert store.heard_us(journal.owner) == store.now_us() - 301_000_000
    assert store.heard_us(99) == 0


def test_a_note_does_not_change_when_a_run_changed_or_failed(clock):
    store = MemoryStore(clock=clock)
    Journal(store, "r").effect("mail").failing("think").failed("think")
    before = store.get("r")
    assert before is not None
    clock.advance(3600)
    [finding] = watchdog.of_store(store)
    watchdog.tell(store, finding, "note")
    after = store.get("r")
    assert after is not None
    assert after.last_seq > before.last_seq
    assert after.updated_us == before.updated_us
    failed = [entry.at_us for entry in store.load(after) if entry.kind is Kind.RUN_FAILED]
    assert any(f"({moment(failed[0])})" in fact for fact in explain(store, "r").known)
    assert run_views.summary_of(store, after).failed_in == "think"
