"""A process dies with an effect at work, and the next claim stops the run before its flow comes there."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import NOT_DONE, Done, flow
from holdfast._engine.decisions import control
from holdfast._operator.act import run_decisions
from holdfast._runtime.engine import Engine
from holdfast._runtime.execution import inbox
from tests.ops.journals import Journal

CHARGE = "Journal(store, 'r', flow='dead-pay').intent('charge', business_key='order:1')"


@flow(name="dead-pay")
def pay() -> None:
    raise AssertionError("the run is stopped before its flow is called")


@pytest.fixture
def store(url, in_a_process_that_dies):
    in_a_process_that_dies(CHARGE)
    with holdfast.open(url, default=False) as opened:
        yield opened


def stop_at_the_next_claim(store: holdfast.types.Store, kind: str) -> None:
    message = control.asked(kind, f"{kind}:1", "ana", "", store._backend.now_us())
    store._backend.post("r", message)
    store.recover()


def key_state(store: holdfast.types.Store) -> str | None:
    key = store._backend.key("charge", "order:1")
    return None if key is None else key.state


@pytest.mark.parametrize(
    ("kind", "reason"), [(control.PAUSE, "paused"), (control.CANCEL, "in_doubt")]
)
def test_the_next_claim_says_what_is_in_doubt(store, kind, reason):
    stop_at_the_next_claim(store, kind)
    run = store.get("r")
    assert (run.status, run.held_reason) == ("held", reason)
    kinds = [entry.kind for entry in store.history("r")]
    assert kinds.count("step_in_doubt") == 1
    assert key_state(store) == "in_doubt"
    assert store.verify() == []


@pytest.mark.parametrize("decision", [NOT_DONE, Done(1)])
def test_another_run_that_needs_the_key_is_told_the_truth(store, decision):
    stop_at_the_next_claim(store, control.PAUSE)
    check_other(store, decision)


@pytest.mark.parametrize("decision", [NOT_DONE, Done(1)])
def test_a_key_that_is_in_progress_is_not_settled(store, decision, monkeypatch):
    """Who paused the run may have known nothing of the effect: a key says the truth all the same."""
    monkeypatch.setattr(inbox, "_taken_over", lambda *_args: None)
    stop_at_the_next_claim(store, control.PAUSE)
    assert key_state(store) == "in_progress"
    check_other(store, decision)


def check_other(store: Any, decision: Any) -> None:
    Journal(store._backend, "other", flow="dead-pay").held_on_key(
        "charge", store.get("r"), "order:1"
    )
    told = str(store.explain("other"))
    assert "settled since" not in told
    assert "holdfast settle r charge" in told
    answer = run_decisions.settle(store._backend, "other", "charge", decision, actor="kim")
    assert (answer.run_id, answer.freed) == ("r", ("other",))
    assert key_state(store) == ("not_done" if decision is NOT_DONE else "completed")
    assert store.get("r").held_reason == "paused"


def test_a_claim_after_one_that_did_nothing_reads_no_history(
    store, in_a_process_that_dies, monkeypatch
):
    """It may have died of that: a pause takes effect within two claims."""
    in_a_process_that_dies("Journal.taken(store, 'r')")
    monkeypatch.setattr(Engine, "load", lambda *_args, **_more: pytest.fail("it was read"))
    stop_at_the_next_claim(store, control.PAUSE)
    assert store.get("r").held_reason == "paused"
