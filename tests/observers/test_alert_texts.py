"""What an alert says: by whom a run was held, how grave that is, and what nobody has answered."""

import pytest

import holdfast
from holdfast import ask, flow
from holdfast._features.alerts import model as alerts, runtime as alerting
from holdfast._features.alerts.alerter import state_of
from holdfast._features.watchdog.model import WATCHDOG
from holdfast._features.watchdog.watchdog_loop import WatchdogLoop
from holdfast.errors import UsageError
from tests.observers.test_alerts import Told, until


@flow
def alert_text_flow() -> None: ...


@pytest.mark.parametrize(("actor", "severity"), [(WATCHDOG, "warning"), ("ana", "info")])
def test_a_hold_says_by_whom(holdfast_store, actor, severity):
    alert_text_flow.submit("alert-text")
    holdfast_store.pause("alert-text", actor=actor, reason="it is looping")
    told = state_of(holdfast_store._engine, holdfast_store._backend.get("alert-text"))
    assert (told.kind, told.reason, told.severity) == ("held", "paused", severity)
    assert told.text.endswith(f"is held (paused): it was paused by {actor}")


@flow
def alert_text_asking() -> str:
    return ask("How much?", name="amount", type=str)


def waiting(store, run_id: str) -> None:
    with store.worker(flows=[alert_text_asking]):
        alert_text_asking.submit(run_id)
        until(lambda: store.questions(run_id=run_id))


def test_a_question_that_nobody_answers_is_told_once(holdfast_store):
    told, patient = Told(), Told()
    ends = [
        holdfast.observers.on_alert(told, name="hasty", unanswered_s=0.01),
        holdfast.observers.on_alert(patient, name="patient"),
    ]
    try:
        waiting(holdfast_store, "alert-asked")
        rounds = WatchdogLoop(holdfast_store._engine, dict)

        def heard() -> bool:
            rounds._run()
            return bool(told.alerts)

        until(heard)
        rounds._run()
        until(lambda: not alerting.alerter(holdfast_store._engine)._pending)
        [alert] = told.alerts
        assert (alert.kind, alert.reason, alert.run_id) == ("asked", "question", "alert-asked")
        assert "How much?" not in alert.text
        assert patient.alerts == []
    finally:
        for end in ends:
            end()


def test_what_is_answered_meanwhile_is_not_told(holdfast_store):
    told = Told()
    end = holdfast.observers.on_alert(told, name="late", unanswered_s=0.01)
    try:
        waiting(holdfast_store, "alert-answered")
        kept = holdfast_store._backend
        [question] = kept.questions("alert-answered")
        sender = alerting.alerter(holdfast_store._engine)
        row = kept.get("alert-answered")
        alert = alerts.of_question(kept.store_id, row, question)
        assert sender._still_asks(row, alert)
        holdfast_store.answer("alert-answered", "amount", "5", actor="ana")
        with holdfast_store.worker(flows=[alert_text_asking]):
            until(lambda: holdfast_store.get("alert-answered").status == "completed")
        assert not sender._still_asks(kept.get("alert-answered"), alert)
    finally:
        end()
    with pytest.raises(UsageError):
        holdfast.observers.on_alert(told, unanswered_s=0)
