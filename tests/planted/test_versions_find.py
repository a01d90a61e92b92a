"""A run that newer code moves to its version before it has replayed the record is noticed."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import testing
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.history import History
from holdfast._runtime.execution import fingerprints
from holdfast._runtime.execution.version_rules import Upgrade
from tests.runtime import test_versions


def stamped_by_any_write(
    self: Upgrade, drafts: list[Draft], changes: dict[str, Any], _history: Any, _consumed: Any
) -> bool:
    drafts.insert(0, Draft(Kind.CHANGE_ACCEPTED, drafts[0].at_us, body=b'{"exact":true}'))
    changes["version"] = self.version
    return True


@pytest.mark.parametrize("planted", [False, True])
def test_a_version_that_is_stamped_though_the_record_does_not_fit(
    planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_versions.done.clear()
    with testing.store() as store:
        if not planted:
            test_versions.test_flow_run_keeps_to_the_same_rule(store)
            return
        monkeypatch.setattr(Upgrade, "joins", stamped_by_any_write)
        with pytest.raises(AssertionError, match="queued.*'2'"):
            test_versions.test_flow_run_keeps_to_the_same_rule(store)


def test_a_fingerprint_without_the_data_of_a_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "_is_data", lambda _value: False)
    with testing.store() as store, pytest.raises(AssertionError, match="held"):
        test_versions.test_a_plan_that_was_put_back_frees_its_run(store)


def test_an_acceptance_for_any_code(monkeypatch: pytest.MonkeyPatch) -> None:
    test_versions.done.clear()
    monkeypatch.setattr(History, "is_read_by", lambda *_args: None)
    with testing.store() as store, pytest.raises(AssertionError, match="completed"):
        test_versions.test_an_accepted_change_is_not_carried_over_to_other_code(store)
