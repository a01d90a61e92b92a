"""What a person who is woken at night gets to read, for every status and reason.

The texts stand in `explained/`. To see what a change of words makes of them, delete one and run this
test: it is written anew, and the test fails once.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from holdfast._engine.decisions.resume import facts_of
from holdfast._engine.journal.entries import WAIT_BEGINS, Kind
from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.scripts.doubt import DOUBTS
from holdfast._features.operator_side import ALL_IS_WELL, Wait
from holdfast._features.watchdog import store as watchdog
from holdfast._features.watchdog.model import Found
from holdfast._features.watchdog.operator import _OPEN
from holdfast._operator.cli.queue_commands import about_workers
from holdfast._operator.explain.held_reasons import _REASON
from holdfast._operator.explain.open_waits import _ABOUT
from holdfast._operator.explain.status_report import _STATUS, explain
from holdfast._operator.read import queue_views
from holdfast._operator.read.feature_sides import HOLDS
from holdfast._stores.contract import Store
from tests.model.memory_store import MemoryStore
from tests.ops import cases_found, cases_waiting
from tests.ops.cases import CASES
from tests.ops.conftest import Clock
from tests.ops.journals import Journal

assert cases_waiting, cases_found  # They add to the cases.

TEXTS = Path(__file__).parent / "explained"


@pytest.mark.parametrize("name", CASES)
def test_what_is_said(name: str, clock):
    said = str(explain(built(name, clock), "r"))
    assert max(map(len, said.splitlines())) <= 79 or "holdfast" in said
    file = TEXTS / f"{name}.txt"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text(said + "\n", encoding="utf-8")
        pytest.fail(f"{file.name} was written: read it, then run the test again")
    assert said + "\n" == file.read_text(encoding="utf-8")


def built(name: str, clock: Clock) -> MemoryStore:
    store = MemoryStore(clock=clock)
    CASES[name](store)
    clock.advance(7)
    return store


def test_every_status_and_every_reason_is_explained(clock):
    seen: set[tuple[str, str | None]] = set()
    for name in CASES:
        row = built(name, clock).get("r")
        assert row is not None
        seen.add((str(row.status), row.held_reason))
    assert {status for status, _ in seen} == {str(status) for status in Status} == set(_STATUS)
    reasons = {reason for status, reason in seen if status == "held"}
    assert reasons == {str(reason) for reason in HeldReason} == {*_REASON, *HOLDS}


def test_every_cause_of_a_doubt_is_explained(clock):
    seen: set[str] = set()
    for name in CASES:
        store = built(name, clock)
        row = store.get("r")
        assert row is not None
        if name != "damaged":
            kinds = (it for it in store.load(row) if it.kind is Kind.STEP_IN_DOUBT)
            seen |= {facts_of(it)["why"] for it in kinds}
    assert seen == set(DOUBTS)


def test_every_finding_is_explained(clock):
    told: dict[str, str] = {}
    for name in CASES:
        store = built(name, clock)
        row = store.get("r")
        assert row is not None
        said = explain(store, "r")
        for finding in watchdog.Survey(store).findings(row):
            if finding.severity != "info":
                kind = finding.kind.replace("_", " ")
                told[finding.kind] = said.case
                assert any(it.startswith(f"Finding, {kind}: ") for it in said.known)
                assert kind in said.case.partition("The watchdog finds: ")[2]
                assert ALL_IS_WELL not in str(said)
    assert set(told) == set(Found) == set(_OPEN)


def test_every_kind_of_waiting_is_explained(clock):
    seen = {kind for name in CASES for kind in explain(built(name, clock), "r").waits}
    assert seen == set(Wait)
    assert set(_ABOUT) == WAIT_BEGINS


def test_every_text_belongs_to_a_case():
    assert {file.stem for file in TEXTS.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_who_is_woken_is_told_what_to_do(name: str, clock):
    """Something is known, and there is a next action, in every state that a run can be in."""
    said = explain(built(name, clock), "r")
    assert said.known
    assert said.actions
    commands = [action.command for action in said.actions if action.command]
    assert len(set(commands)) == len(commands)
    if said.status == "held" and "paused" not in said.case:
        assert said.unknown


def test_commands_can_be_pasted(store: Store):
    run_id = 'it\'s; rm -rf $HOME `x` "q"'
    journal = Journal(store, run_id, flow="pay")
    journal.held_in_doubt("gather[0]/charge#2")
    words = [shlex.split(action.command) for action in explain(store, run_id).actions]
    assert ["holdfast", "settle", run_id, "gather[0]/charge#2", "--not-done"] in words
    assert all(line[:2] == ["holdfast", "settle"] and line[2] == run_id for line in words)


def test_text_of_others_is_inert(store: Store):
    nasty = "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe\u2066 \r\n\x9b31m"
    Journal(store, "r", flow="pay").held_in_doubt("charge", args={nasty: nasty})
    said = str(explain(store, "r"))
    assert all(char.isprintable() or char == "\n" for char in said)
    assert "\\u001b[2J" in said
    assert "\\u202e" in said
    assert "\\x9b" in said


@pytest.mark.parametrize(
    ("workers", "flows", "told"),
    [
        (1, {"pay": ["2"]}, "The one worker that is alive cannot run version 1 of pay; it runs 2."),
        (2, {"pay": ["2"]}, "None of the 2 workers alive can run version 1 of pay; they run 2."),
        (1, {}, "The one worker that is alive does not have the flow pay."),
        (2, {}, "None of the 2 workers alive has the flow pay."),
        (2, {"pay": ["1"]}, "None of the 2 workers alive takes from its queue, default."),
    ],
)
def test_who_is_alive_and_cannot_execute_it(workers: int, flows: object, told: str, clock):
    store = MemoryStore(clock=clock)
    Journal(store, "r").step("search").released()
    facts = {"pid": 1, "host": "h", "queues": ["mail"], "flows": flows, "concurrency": 8}
    facts |= {"working": 3, "saturation": 0.0, "draining": False}
    for number in range(workers):
        told_of_itself = msgspec.json.encode(facts | {"worker": f"w{number}"}).decode()
        store.pulse(store.register_owner(), told_of_itself, [])
    assert told in explain(store, "r").known
    about = about_workers(queue_views.workers(store))
    assert f"{3 * workers} of {8 * workers} places in use" in about
    assert "as last reported" in about
