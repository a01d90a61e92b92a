"""A payment server in another process counts what a killed run, or a late answer, did to it."""

from __future__ import annotations

import pytest

from holdfast import NOT_DONE, Done
from holdfast.types import Failed
from tests.crash.harness import BOTH_STORES, World, assert_sound, kinds
from tests.crash.payments import Client

pytestmark = BOTH_STORES

POLICIES = ["ask", "retry", "fail", "function"]
PAID = {"receipt": "o-1: ch-1"}
CLIENT_TIMEOUT_S = 0.3
"""The server holds its answer back until the test ends, so this is never too short."""

#            policy: (requests when killed before the charge, when killed after it)
REQUESTS = {"ask": (0, 1), "retry": (1, 2), "fail": (0, 1), "function": (1, 1)}


def step_of(policy: str) -> str:
    return f"charge_{policy}"


def assert_ended_as_declared(world: World, policy: str, *, charged: bool) -> None:
    """Run it again after a crash, and see the policy at work."""
    ended = world.run("pay.py", policy)
    if policy == "ask":
        assert (ended.error, ended.said["reason"]) == ("RunHeld", "in_doubt")
        assert ended.said["step"] == step_of(policy)
        assert ended.said["actions"], "it says what can be done"
        assert world.status() == "held"
    elif policy == "fail":
        assert ended.result == {"step_failed": step_of(policy), "outcome_unknown": True}
    else:
        assert ended.result == PAID
    counts = world.counts()
    assert counts["prepare"] == 1
    assert counts["look_up"] == (policy == "function")
    with world.store() as store:
        assert_sound(store)
    assert ("step_in_doubt" in kinds(world.history())) or policy == "retry" or charged


@pytest.mark.parametrize("policy", POLICIES)
def test_killed_before_the_charge(world: World, payments: Client, policy: str) -> None:
    world.crash("pay.py", policy, at="before charge")
    assert_ended_as_declared(world, policy, charged=False)
    requests = REQUESTS[policy][0]
    assert payments.seen() == (requests, requests, requests)


@pytest.mark.parametrize("policy", POLICIES)
def test_killed_between_charge_and_record(world: World, payments: Client, policy: str) -> None:
    world.crash("pay.py", policy, at="after charge")
    assert_ended_as_declared(world, policy, charged=True)
    assert payments.seen() == (REQUESTS[policy][1], 1, 1), "one charge, one key"


@pytest.mark.parametrize("policy", POLICIES)
def test_killed_after_the_record(world: World, payments: Client, policy: str) -> None:
    world.crash("pay.py", policy, at="after record")
    assert world.run("pay.py", policy).result == PAID
    assert payments.seen() == (1, 1, 1)
    assert world.counts() == {"prepare": 1, "charge": 1, "receipt": 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_live_timeout_after_the_charge(world: World, payments: Client, policy: str) -> None:
    """Nothing crashes: the request times out, and the effect is in doubt all the same."""
    payments.control("hang")
    ended = world.run("pay.py", policy, client_timeout_s=CLIENT_TIMEOUT_S)
    requests = 2 if policy == "retry" else 1
    assert payments.seen() == (requests, 1, 1)
    if policy == "ask":
        assert (ended.error, ended.said["reason"]) == ("RunHeld", "in_doubt")
    elif policy == "fail":
        assert ended.result == {"step_failed": step_of(policy), "outcome_unknown": True}
    else:
        assert ended.result == PAID
    assert "step_in_doubt" in kinds(world.history())


@pytest.mark.parametrize("policy", ["ask", "fail", "function"])
def test_declared_timeout_after_the_charge(world: World, payments: Client, policy: str) -> None:
    """The `timeout=` of the effect ends the wait; the abandoned thread still hangs in the call."""
    payments.control("hang")
    ended = world.run("pay.py", policy, step_timeout_s=CLIENT_TIMEOUT_S)
    assert payments.seen() == (1, 1, 1)
    if policy == "ask":
        assert (ended.error, ended.said["reason"]) == ("RunHeld", "in_doubt")
    elif policy == "fail":
        assert ended.result == {"step_failed": step_of(policy), "outcome_unknown": True}
    else:
        assert ended.result == PAID


def test_not_done_is_not_believed_while_the_attempt_may_still_act(
    world: World, payments: Client
) -> None:
    """The look-up says that nothing happened, but the abandoned request is still on its way."""
    payments.control("delay")
    ended = world.run("pay.py", "function", step_timeout_s=CLIENT_TIMEOUT_S)
    assert (ended.error, ended.said["reason"]) == ("RunHeld", "in_doubt")
    assert payments.seen() == (1, 0, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_key_on_a_server_that_forgets_nothing_and_dedupes_nothing(
    world: World, payments: Client, policy: str
) -> None:
    """Without de-duplication on the other side only `retry` charges twice: as declared."""
    payments.control("normal", times=0, dedupe=False)
    world.crash("pay.py", policy, at="after charge")
    world.run("pay.py", policy)
    assert payments.seen() == ((2, 2, 1) if policy == "retry" else (1, 1, 1))


@pytest.mark.parametrize("policy", POLICIES)
def test_an_error_after_the_charge_is_doubt(world: World, payments: Client, policy: str) -> None:
    """A 500 is not in `not_done_on`, so nobody may say that it did not happen."""
    payments.control("broken")
    ended = world.run("pay.py", policy)
    assert payments.seen() == (2 if policy == "retry" else 1, 1, 1)
    assert ("error" in ended.said) == (policy == "ask")


# --- held, explained, settled -----------------------------------------------------------------


@pytest.fixture
def held(world: World, payments: Client) -> World:
    """A world whose run is held: it was killed between the charge and its record."""
    world.crash("pay.py", "ask", at="after charge")
    assert world.run("pay.py", "ask").error == "RunHeld"
    return world


def test_explain_says_what_is_known_and_what_can_be_done(held: World) -> None:
    with held.store() as store:
        text = str(store.explain("r"))
        view = store.get("r")
    assert view.status == "held"
    assert view.held_reason == "in_doubt"
    assert "charge_ask" in text
    assert "o-1" in text, "the exact arguments"
    assert "settle" in text
    for choice in ("--done", "--not-done", "--fail"):
        assert choice in text


def test_still_held_when_run_again(held: World, payments: Client) -> None:
    assert held.run("pay.py", "ask").error == "RunHeld"
    assert payments.seen() == (1, 1, 1)


def test_settled_as_done(held: World, payments: Client) -> None:
    with held.store() as store:
        store.settle("r", "charge_ask", Done({"charge": "ch-1", "amount": 5}), actor="ops")
    assert held.run("pay.py", "ask").result == PAID
    assert payments.seen() == (1, 1, 1)
    settled = [e for e in held.history() if e.kind == "step_settled"]
    assert [e.step for e in settled] == ["charge_ask"]
    assert settled[0].body["actor"] == "ops"


def test_settled_as_not_done(held: World, payments: Client) -> None:
    with held.store() as store:
        store.settle("r", "charge_ask", NOT_DONE, actor="ops")
    assert held.run("pay.py", "ask").result == PAID
    assert payments.seen() == (2, 1, 1), "it is run, under the same key"


def test_settled_as_failed(held: World, payments: Client) -> None:
    with held.store() as store:
        store.settle("r", "charge_ask", Failed("the customer left"), actor="ops")
    result = held.run("pay.py", "ask").result
    assert result["step_failed"] == "charge_ask"
    assert payments.seen() == (1, 1, 1)


def test_settled_twice_is_refused(held: World) -> None:
    with held.store() as store:
        store.settle("r", "charge_ask", Done({"charge": "ch-1", "amount": 5}), actor="ops")
        before = store.history("r")
        with pytest.raises(Exception, match="charge_ask|settle"):
            store.settle("r", "charge_ask", NOT_DONE, actor="somebody else")
        assert len(store.history("r")) == len(before)
    assert held.run("pay.py", "ask").result == PAID


def test_killed_before_the_charge_and_settled_as_not_done(world: World, payments: Client) -> None:
    world.crash("pay.py", "ask", at="before charge")
    assert world.run("pay.py", "ask").error == "RunHeld"
    with world.store() as store:
        store.settle("r", "charge_ask", NOT_DONE, actor="ops")
    assert world.run("pay.py", "ask").result == PAID
    assert payments.seen() == (1, 1, 1)
