"""What an alert says: by whom a run was held, and how grave that is."""

import pytest

from holdfast import flow
from holdfast._core.findings import WATCHDOG
from holdfast._runtime.alerter import state_of


@flow
def alert_text_flow() -> None: ...


@pytest.mark.parametrize(("actor", "severity"), [(WATCHDOG, "warning"), ("ana", "info")])
def test_a_hold_says_by_whom(holdfast_store, actor, severity):
    alert_text_flow.submit("alert-text")
    holdfast_store.pause("alert-text", actor=actor, reason="it is looping")
    told = state_of(holdfast_store.engine, holdfast_store.kept.get("alert-text"))
    assert (told.kind, told.reason, told.severity) == ("held", "paused", severity)
    assert told.text.endswith(f"is held (paused): it was paused by {actor}")
