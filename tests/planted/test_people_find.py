"""Each guard round answers and approvals, taken out, is noticed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from holdfast import ask, effect, flow, testing, wait_for_signal
from holdfast._features.approvals import model as approvals
from holdfast._operator.act import message_actions
from holdfast._runtime.inbox_poller import RunInbox
from holdfast.errors import AnswerConflict, RunError
from tests.runtime.facts import until

world: list[int] = []
amounts: list[int] = []


@effect(name="pl-pay", needs_approval=True)
def pay(amount: int) -> int:
    world.append(amount)
    return amount


@flow(name="pl-pays")
def pays() -> int:
    return pay(amounts[-1])


@flow(name="pl-asks")
def asks() -> list[Any]:
    return [ask("?", name="q"), wait_for_signal("go")]


@flow(name="pl-waits")
def waits() -> list[Any]:
    return [wait_for_signal("go"), wait_for_signal("go")]


def approved_then_changed() -> list[int]:
    """Approve one amount, change it, accept the change; return what was executed."""
    world.clear()
    amounts[:] = [7]
    with testing.store() as store:
        pays.submit("r")
        with store.worker(flows=[pays], concurrency=1):
            until(lambda: store.questions() and store.get("r").owner is None)
            amounts.append(7000)
            store.approve("r", "pl-pay", actor="ana")
            store.wait_until("r", status="held")
            store.resume("r", accept_change=True, actor="ana")
            until(lambda: world or store.questions())
    return list(world)


def test_the_digest_of_an_approval_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert approved_then_changed() == []
    monkeypatch.setattr(approvals.ApprovalGate, "_is_void", lambda *_: None)
    assert approved_then_changed() == [7000], "the planted bug executes what nobody approved"


def answers() -> list[str]:
    """Let two people answer one question; return who was told that it counts."""
    won: list[str] = []
    with testing.store() as store:
        asks.submit("r")
        for actor in ("ana", "bob"):
            try:
                store.answer("r", "q", actor, actor=actor)
                won.append(actor)
            except AnswerConflict:
                pass
    return won


def test_one_id_per_answer_keeps_the_second_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers() == ["ana"]
    count = itertools.count()
    monkeypatch.setattr(
        message_actions, "answer_id", lambda name, _number: f"answer:{name}:{next(count)}"
    )
    monkeypatch.setattr(message_actions, "_last_answer", lambda *_: None)
    assert answers() == ["ana", "bob"], "the planted bug takes both"


def received() -> list[Any]:
    with testing.store() as store:
        waits.submit("r")
        store.signal("r", "go", 1)
        store.signal("r", "go", 2)
        return waits.run("r")


def test_a_message_is_given_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert received() == [1, 2]

    def again(self: RunInbox, kind: str | None) -> Any:
        return next(iter(self._untaken.get(str(kind), {}).values()), None)

    monkeypatch.setattr(RunInbox, "reserve", again)
    monkeypatch.setattr(RunInbox, "mark_taken", lambda self, message_ids: None)
    with pytest.raises(RunError, match="was taken before"):
        received()
