"""Sealed approvals: for exactly these arguments, once, as long as they hold."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import Approval, Retry, effect, flow, gather, testing
from holdfast._operator.cli.entry_lines import summary_of
from holdfast.errors import (
    AnswerConflict,
    Rejected,
    RunEnded,
    RunFailed,
    StaleView,
    StepFailed,
    UsageError,
)
from holdfast.testing import FakeClock, PrivateStore
from tests.runtime.facts import is_free, until

world: list[Any] = []
amounts: dict[str, int] = {}
"""What the flow would do now: changed by tests as code or the world would change it."""


@pytest.fixture(autouse=True)
def _empty_world() -> None:
    world.clear()
    amounts.clear()


@effect(name="ap-pay", needs_approval=True)
def pay(amount: int, whom: str = "ana") -> str:
    world.append((amount, whom))
    return f"paid {amount}"


@effect(name="ap-apay", needs_approval=Approval(to="finance"), key="ap:{amount}")
async def apay(amount: int) -> str:
    world.append(amount)
    return f"paid {amount}"


@effect(name="ap-large", needs_approval=lambda amount, **_: amount > 100)
def pay_large(amount: int) -> str:
    world.append(amount)
    return f"paid {amount}"


@effect(
    name="ap-soon",
    needs_approval=Approval(valid_for="1h"),
    not_done_on=(ConnectionError,),
    retry=Retry(attempts=3, initial_wait_s=7200, max_wait_s=7200, jitter=0),
)
def pay_soon(amount: int) -> str:
    world.append(amount)
    if len(world) == 1:
        raise ConnectionError("not reached")
    return f"paid {amount}"


@effect(
    name="ap-doubt",
    needs_approval=Approval(valid_for="1h"),
    on_doubt="retry",
    retry=Retry(attempts=3, initial_wait_s=7200, max_wait_s=7200, jitter=0),
)
def pay_in_doubt(amount: int) -> str:
    world.append(amount)
    if len(world) == 1:
        raise RuntimeError("who knows")
    return f"paid {amount}"


@effect(name="ap-row", needs_approval=True, transaction=True)
def pay_by_row(amount: int) -> str:
    holdfast.context.sql_connection().execute("SELECT 1")
    world.append(amount)
    return f"paid {amount}"


@flow(name="ap-one")
def one(amount: int) -> str:
    return pay(amount)


@flow(name="ap-aone")
async def aone(amount: int) -> str:
    return await apay(amount)


@flow(name="ap-changing")
def changing(name: str) -> str:
    return pay(amounts[name])


@flow(name="ap-two")
def two() -> list[str]:
    return [pay(1), pay(1)]


@flow(name="ap-by-size")
def by_size() -> list[str]:
    return [pay_large(5), pay_large(500)]


@flow(name="ap-soon-flow")
def soon() -> str:
    return pay_soon(9)


@flow(name="ap-doubt-flow")
def doubtful() -> str:
    try:
        return pay_in_doubt(9)
    except StepFailed as error:
        return f"{error.type_name}, unknown {error.outcome_unknown}"


@flow(name="ap-row-flow")
def by_row() -> str:
    return pay_by_row(9)


@flow(name="ap-beside")
def beside() -> list[Any]:
    return list(gather(lambda: pay(1), lambda: pay_large(5)))


@flow(name="ap-refusable")
def refusable(amount: int) -> str:
    try:
        return pay(amount)
    except Rejected as error:
        return f"{error.step}: {error.actor}, {error.reason}"


def asked(store: PrivateStore, step: str = "ap-pay", run_id: str = "r") -> Any:
    return until(lambda: next((q for q in store.questions(run_id=run_id) if q.name == step), None))


def test_the_effect_waits_and_executes_what_was_shown(store: PrivateStore) -> None:
    handle = one.start("r", 7)
    question = asked(store)
    assert question.kind == "approval"
    assert question.args == {"amount": 7, "whom": "ana"}
    assert world == []

    store.approve("r", "ap-pay", digest=question.digest, actor="ana")

    assert handle.result(timeout=20) == "paid 7"
    assert world == [(7, "ana")]
    [intent] = [entry for entry in store.history("r") if entry.kind == "step_started"]
    assert intent.body["approved"]["actor"] == "ana"
    assert intent.body["approved"]["digest"] == question.digest
    assert store.questions() == []
    assert not store.verify()


def test_async_to_somebody_with_a_business_key(store: PrivateStore) -> None:
    handle = aone.start("r", 7)
    assert asked(store, "ap-apay").to == "finance"
    store.approve("r", "ap-apay", actor="fin")
    assert handle.result(timeout=20) == "paid 7"

    other = aone.start("other", 7)
    asked(store, "ap-apay", "other")
    store.approve("other", "ap-apay", actor="fin")
    assert other.result(timeout=20) == "paid 7"
    assert world == [7]
    assert store.questions() == []
    assert {it.status for it in store.get("other").signals} == {"received"}


def test_twice_after_the_end_and_for_what_is_not_asked(store: PrivateStore) -> None:
    """Fault 74."""
    handle = two.start("r")
    asked(store)
    with pytest.raises(UsageError, match="asks for no approval of 'nothing' now"):
        store.approve("r", "nothing", actor="ana")
    with pytest.raises(UsageError, match="holdfast approve r ap-pay"):
        store.answer("r", "ap-pay", True, actor="ana")
    store.approve("r", "ap-pay", actor="ana")
    asked(store, "ap-pay#2")
    with pytest.raises(AnswerConflict, match="the approval of ap-pay .* by ana"):
        store.approve("r", "ap-pay", actor="bob")
    with pytest.raises(AnswerConflict):
        store.reject("r", "ap-pay", actor="bob")
    assert world == [(1, "ana")], "one approval is good for one call"
    store.approve("r", "ap-pay#2", actor="ana")
    handle.result(timeout=20)
    with pytest.raises(AnswerConflict):
        store.approve("r", "ap-pay", actor="ana")
    with pytest.raises(RunEnded):
        store.approve("r", "ap-pay#3", actor="ana")


def test_after_cancel(store: PrivateStore) -> None:
    one.submit("r", 7)
    with store.worker(flows=[one], concurrency=1):
        asked(store)
        until(lambda: is_free(store))
        store.cancel("r", actor="ana")
    with pytest.raises(RunEnded, match="cancelled"):
        store.approve("r", "ap-pay", actor="ana")
    assert world == []


def test_a_refusal_reaches_the_flow(store: PrivateStore) -> None:
    handle = refusable.start("r", 7)
    asked(store)
    store.reject("r", "ap-pay", reason="too much", actor="fin")

    assert handle.result(timeout=20) == "ap-pay: fin, too much"
    assert world == []
    assert store.get("r").steps[0].status == "failed"


def test_a_refused_run_that_fails_asks_anew_when_it_is_taken_up(store: PrivateStore) -> None:
    handle = one.start("r", 7)
    first = asked(store)
    store.reject("r", "ap-pay", actor="fin")
    with pytest.raises(RunFailed, match="ap-pay was refused by fin"):
        handle.result(timeout=20)
    until(lambda: not store._engine.executing())
    again = one.start("r", 7)
    assert asked(store).number == first.number + 1
    store.approve("r", "ap-pay", actor="fin")
    assert again.result(timeout=20) == "paid 7"
    [intent] = [entry for entry in store.history("r") if entry.kind == "step_started"]
    assert intent.body["approved"]["generation"] == 2


def test_changed_arguments_need_a_new_approval(store: PrivateStore) -> None:
    """Fault 105 at the seam: what was approved is what executes, or nothing does."""
    amounts["r"] = 7
    changing.submit("r", "r")
    with store.worker(flows=[changing], concurrency=1):
        shown = asked(store)
        until(lambda: is_free(store))
        amounts["r"] = 7000
        store.approve("r", "ap-pay", digest=shown.digest, actor="ana")
        store.wait_until("r", status="held")
        assert world == []
        detail = store.get("r").held_detail or ""
        assert "other arguments" in detail
        assert "amount was 7, is 7000" in detail

        store.resume("r", accept_change=True, actor="ana")
        until(lambda: asked(store).digest != shown.digest)
        again = asked(store)
        assert again.args == {"amount": 7000, "whom": "ana"}
        with pytest.raises(StaleView):
            store.approve("r", "ap-pay", digest=shown.digest, actor="ana")
        assert world == []
        store.approve("r", "ap-pay", digest=again.digest, actor="bob")
        assert store.handle("r").result(timeout=20) == "paid 7000"
    [refused] = [entry for entry in store.history("r") if entry.kind == "message_discarded"]
    assert refused.body["why"] == "it was given for other arguments"
    assert summary_of(refused) == "it was given for other arguments, by ana"
    assert world == [(7000, "ana")]


def test_a_predicate_says_who_needs_one(store: PrivateStore) -> None:
    handle = by_size.start("r")
    question = asked(store, "ap-large#2")
    assert world == [5]
    store.approve("r", "ap-large#2", digest=question.digest, actor="ana")
    assert handle.result(timeout=20) == ["paid 5", "paid 500"]


def test_beside_other_branches(store: PrivateStore) -> None:
    handle = beside.start("r")
    key = until(lambda: [q.name for q in store.questions()])[0]
    until(lambda: 5 in world)
    store.approve("r", key, actor="ana")
    assert handle.result(timeout=20) == ["paid 1", "paid 5"]


def test_in_the_stores_own_database(sqlite: PrivateStore) -> None:
    handle = by_row.start("r")
    asked(sqlite, "ap-row")
    sqlite.approve("r", "ap-row", actor="ana")
    assert handle.result(timeout=20) == "paid 9"
    assert [it.status for it in sqlite.get("r").signals] == ["received"]
    assert sqlite._backend.questions() == []


@pytest.mark.parametrize("url", ["memory:", "sqlite:"])
def test_one_that_expired_before_it_was_used_is_void(url: str) -> None:
    """Nobody has the run while the approval comes, and for two hours after that."""
    with testing.store(clock=FakeClock(), url=url) as store:
        soon.submit("r")
        with store.worker(flows=[soon], concurrency=1):
            asked(store, "ap-soon")
            until(lambda: is_free(store))
        store.approve("r", "ap-soon", actor="ana")
        store.clock.advance(7200)
        world.append("the first attempt would fail")
        handle = soon.start("r")
        assert until(lambda: asked(store, "ap-soon").number == 2)
        [void] = [entry for entry in store.history("r") if entry.kind == "message_discarded"]
        assert void.body["why"] == "it had expired 1 h before it was used"
        store.approve("r", "ap-soon", actor="ana")
        assert handle.result(timeout=20) == "paid 9"


@pytest.mark.parametrize(("flow", "step"), [(soon, "ap-soon"), (doubtful, "ap-doubt")])
def test_a_retry_after_the_expiry_needs_another(flow: Any, step: str) -> None:
    with testing.store(clock=FakeClock()) as store:
        handle = flow.start("r")
        asked(store, step)
        store.approve("r", step, actor="ana")
        until(lambda: world == [9])
        until(lambda: store.clock.sleepers)
        store.clock.advance(7201)
        assert asked(store, step).number == 2
        assert world == [9]
        store.approve("r", step, actor="ana")
        assert handle.result(timeout=20) == "paid 9"
        assert world == [9, 9]


def test_refusing_the_retry_of_an_effect_in_doubt_leaves_it_unknown() -> None:
    with testing.store(clock=FakeClock()) as store:
        handle = doubtful.start("r")
        asked(store, "ap-doubt")
        store.approve("r", "ap-doubt", actor="ana")
        until(lambda: world == [9])
        until(lambda: store.clock.sleepers)
        store.clock.advance(7201)
        asked(store, "ap-doubt")
        store.reject("r", "ap-doubt", actor="ana")
        assert handle.result(timeout=20) == "Rejected, unknown True"


def test_a_worker_unloads_the_run_while_it_waits(store: PrivateStore) -> None:
    one.submit("r", 7)
    with store.worker(flows=[one], concurrency=1):
        asked(store)
        until(lambda: is_free(store))
        store.approve("r", "ap-pay", actor="ana")
        assert store.handle("r").result(timeout=20) == "paid 7"
    assert world == [(7, "ana")]


def test_what_is_declared_wrongly() -> None:
    with pytest.raises(UsageError, match="needs_approval='yes' of .*True, Approval"):
        effect(name="ap-wrong", needs_approval="yes")(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="valid_for"):
        effect(name="ap-wrong2", needs_approval=Approval(valid_for="soon"))(lambda: None)
    with pytest.raises(UsageError, match="for what changes the world"):
        holdfast.step(name="ap-wrong3", needs_approval=True)(lambda: None)  # type: ignore[call-overload]
