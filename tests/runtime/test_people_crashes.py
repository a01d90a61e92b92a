"""Flows that ask people and wait for approvals, killed at every boundary."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import Approval, aio, ask, effect, flow, gather, step, testing
from holdfast.errors import Rejected

paid: list[int] = []
KINDS = {"question_asked", "question_answered", "step_started"}


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


@step(name="pc-prepare")
def prepare(amount: int) -> int:
    return amount


@effect(name="pc-pay", needs_approval=Approval(to="finance"), on_doubt="retry")
def pay(amount: int) -> str:
    paid.append(amount)
    return f"paid {amount}"


@effect(name="pc-apay", needs_approval=True, on_doubt="retry")
async def apay(amount: int) -> str:
    paid.append(amount)
    return f"paid {amount}"


@flow(name="pc-spend")
def spend(start: int) -> list[Any]:
    amount = ask("How much?", name="amount", type=int)
    word = ask("Which word?", name="word", choices=("short", "long"))
    return [word, pay(prepare(start + amount))]


@flow(name="pc-aspend")
async def aspend(start: int) -> list[Any]:
    amount = await aio.ask("How much?", name="amount", type=int)
    return [await apay(start + amount)]


@flow(name="pc-refused")
def refused(start: int) -> str:
    try:
        pay(start)
    except Rejected as error:
        return f"{error.step} refused by {error.actor}"
    return "paid"


@effect(name="pc-row", needs_approval=True, transaction=True)
def by_row(amount: int) -> str:
    holdfast.context.sql_connection().execute("SELECT 1")
    return f"row {amount}"


@effect(
    name="pc-keyed", needs_approval=lambda amount: amount > 1, key="pc:{amount}", on_doubt="retry"
)
def keyed(amount: int) -> str:
    return f"keyed {amount}"


@flow(name="pc-sealed")
def sealed(amount: int) -> list[str]:
    return [by_row(amount), keyed(amount)]


@flow(name="pc-both")
def both(start: int) -> list[Any]:
    def one() -> int:
        return ask("One?", name="one", type=int)

    def other() -> str:
        return pay(start)

    return list(gather(one, other))


def person(question: Any) -> Any:
    if question.kind == "approval":
        return True
    return question.choices[1] if question.choices else 40


@pytest.mark.parametrize("flow", [spend, aspend, both], ids=lambda it: it.name)
def test_killed_at_every_boundary_it_asks_once_and_pays_what_was_approved(flow: Any) -> None:
    report = testing.crash_matrix(flow, 2, answers=person, check=_paid_once)

    met = " ".join(str(kill) for point in report.points for kill in point.kills)
    assert "question_asked" in met
    if flow is not both:  # What its two lines write together is another thing each time.
        assert {kind for kind in KINDS if kind in met} == KINDS


def _paid_once(_result: Any, _point: Any) -> None:
    assert len(set(paid)) == 1


def test_a_refusal_survives_every_kill() -> None:
    report = testing.crash_matrix(refused, 7, answers=lambda _question: False)

    assert report.result == "pc-pay refused by crash_matrix"
    assert paid == []


def test_with_keys_and_in_the_stores_own_database() -> None:
    report = testing.crash_matrix(
        sealed, 2, answers=lambda _question: True, url="sqlite:", max_points=8
    )

    assert report.result == ["row 2", "keyed 2"]


def test_really_killed() -> None:
    testing.crash_matrix(spend, 2, answers=person, kill="process", max_points=4)
