"""An effect that comes back under another key, since the model was asked again, is not done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import NOT_DONE, Done
from tests.crash.harness import World, assert_sound

HEAD = """
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from holdfast import NOT_DONE, Done, effect, flow, step
from holdfast.adapters import step_key
from holdfast._runtime.execution import effect_repetition
from tests.crash import probe

@effect(POLICY)
def pay(amount: int) -> str:
    probe.executed(f"pay {amount}")
    probe.point(f"in pay {amount}")
    return f"paid {amount}"

@step
def think() -> str:
    probe.executed("think")
    probe.point("in think")
    return "well"

def called(call_id, amount):
    with step_key(call_id):
        return pay(amount)
"""
TAIL = """
if __name__ == "__main__":
    with probe.open_store():
        probe.end(lambda: agent.run("r"))
"""
ASKED = """
@pay.on_doubt
def look(amount: int):
    probe.executed(f"look {amount}")
    return FOUND
"""


def agent(world: World, body: str, policy: str = "", found: str = "") -> Path:
    path = world.root / "agent.py"
    look = ASKED.replace("FOUND", found) if found else ""
    head = HEAD.replace("POLICY", policy)
    path.write_text(f"{head}{look}\n@flow\ndef agent():\n    {body}\n{TAIL}")
    return path


@pytest.mark.parametrize("policy", ["", 'on_doubt="retry"'])
def test_an_effect_in_doubt_under_another_key_is_held(world: World, policy: str) -> None:
    world.crash(agent(world, 'return called("call_1", 3)', policy), at="in pay 3")
    # Another amount does not make it another payment: a model never says the same twice.
    ended = world.run(agent(world, 'return called("call_2", 4)', policy))
    assert (ended.error, ended.said["reason"]) == ("RunHeld", "in_doubt")
    assert "pay:call_2 may be the repetition of pay:call_1" in ended.said["message"]
    assert world.counts() == {"pay 3": 1}
    with world.store() as store:
        told = str(store.explain("r"))
        assert "pay:call_2 was not called" in told
        store.settle("r", "pay:call_2", Done("paid already"), actor="ana")
        store.settle("r", "pay:call_1", Done("paid already"), actor="ana")
    assert world.run(agent(world, 'return called("call_2", 4)', policy)).result == "paid already"
    assert world.counts() == {"pay 3": 1}
    with world.store() as store:
        assert_sound(store)


def test_what_a_person_says_is_another_effect_is_done(world: World) -> None:
    world.crash(agent(world, 'return called("call_1", 3)'), at="in pay 3")
    assert world.run(agent(world, 'return called("call_2", 4)')).error == "RunHeld"
    with world.store() as store:
        store.settle("r", "pay:call_1", NOT_DONE, actor="ana")
        store.settle("r", "pay:call_2", NOT_DONE, actor="ana")
    assert world.run(agent(world, 'return called("call_2", 4)')).result == "paid 4"
    assert world.counts() == {"pay 3": 1, "pay 4": 1}


def test_its_function_can_tell(world: World) -> None:
    body = 'return called("call_1", 3)'
    world.crash(agent(world, body, found='Done("found")'), at="in pay 3")
    ended = world.run(agent(world, 'return called("call_2", 3)', found='Done("found")'))
    assert (ended.error, ended.said["step"]) == ("RunHeld", "pay:call_1"), "nobody came back to it"
    assert world.counts() == {"pay 3": 1, "look 3": 1}
    with world.store() as store:
        store.settle("r", "pay:call_1", Done("found"), actor="ana")
    assert world.run(agent(world, 'return called("call_2", 3)', found='""')).result == "found"


def test_what_was_done_is_not_done_again_under_another_key(world: World) -> None:
    body = 'called("{}", 3); return think()'
    world.crash(agent(world, body.format("call_1")), at="in think")
    ended = world.run(agent(world, body.format("call_2")))
    assert (ended.error, ended.said["reason"]) == ("RunHeld", "in_doubt")
    assert world.counts()["pay 3"] == 1


def test_with_other_arguments_it_is_another(world: World) -> None:
    body = 'called("{}", {}); return think()'
    world.crash(agent(world, body.format("call_1", 3)), at="in think")
    assert world.run(agent(world, body.format("call_2", 4))).result == "well"
    assert world.counts() == {"pay 3": 1, "pay 4": 1, "think": 2}


def test_a_run_does_not_end_with_a_doubt_that_nobody_came_back_to(world: World) -> None:
    world.crash(agent(world, 'return called("call_1", 3)'), at="in pay 3")
    other = agent(world, "return think()")
    ended = world.run(other)
    assert (ended.error, ended.said["step"]) == ("RunHeld", "pay:call_1")
    assert "without coming back to it" in ended.said["message"]
    with world.store() as store:
        store.settle("r", "pay:call_1", Done("paid"), actor="ana")
    assert world.run(other).result == "well"
    assert world.counts() == {"pay 3": 1, "think": 1}


def test_calls_at_the_same_time_are_no_repetitions(world: World) -> None:
    """The one in doubt is called again after one that is new: that is waited for."""
    body = """
    looked, look = threading.Event(), effect_repetition._look
    def spied(execution, request):
        looked.set()
        return look(execution, request)
    effect_repetition._look = spied
    def second():
        assert not {both} or looked.wait(20)
        return called("call_1", 3)
    with ThreadPoolExecutor(2) as pool:
        new = pool.submit(copy_context().run, called, "call_2", 4) if {both} else None
        old = pool.submit(copy_context().run, second)
        return [it.result() for it in (old, new) if it]
"""
    world.crash(agent(world, body.format(both=False), found="NOT_DONE"), at="in pay 3")
    ended = world.run(agent(world, body.format(both=True), found="NOT_DONE"))
    assert ended.result == ["paid 3", "paid 4"]
    assert world.counts() == {"pay 3": 2, "look 3": 1, "pay 4": 1}


def test_a_framework_that_goes_on_from_checkpoints_does_not_repeat_what_it_did(
    world: World,
) -> None:
    body = """
    with step_key(lambda: "{}"):
        pay(3)
        return think()
"""
    world.crash(agent(world, body.format("node-1")), at="in think")
    assert world.run(agent(world, body.format("node-2"))).result == "well"
    assert world.counts()["pay 3"] == 2, (
        "the journal cannot tell: the framework said that it is new"
    )


def test_business_keys_say_themselves_what_is_the_same(world: World) -> None:
    policy = 'key="order:{amount}"'
    body = 'called("{}", 3); return think()'
    world.crash(agent(world, body.format("call_1"), policy), at="in think")
    assert world.run(agent(world, body.format("call_2"), policy)).result == "well"
    assert world.counts()["pay 3"] == 1
