"""The code changes between the crash and the resume, in another process, as it does in life."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import NOT_DONE
from tests.crash.harness import World, assert_sound, kinds

HEAD = """
import sys
from holdfast import effect, flow, step
from tests.crash import probe

@step
def search(topic: str) -> str:
    probe.executed("search")
    return f"notes on {topic}"

@step
def rank(notes: str) -> str:
    probe.executed("rank")
    return f"ranked {notes}"

@step
def summarize(notes: str) -> str:
    probe.executed("summarize")
    probe.point("in summarize")
    return f"summary of {notes}"

@step
def polish(text: str) -> str:
    probe.executed("polish")
    return f"polished {text}"

@effect
def publish(text: str) -> str:
    probe.executed("publish")
    return f"published {text}"
"""

TAIL = """
if __name__ == "__main__":
    with probe.open_store():
        probe.end(lambda: report.run("r"))
"""

FIRST = """
@flow
def report() -> str:
    return summarize(search("refunds"))
"""
EDITED_BEHIND = """
@flow
def report() -> str:
    return polish(summarize(search("refunds")))
"""
OTHER_ARGUMENTS = """
@flow
def report() -> str:
    return summarize(search("invoices"))
"""
INSERTED = """
@flow
def report() -> str:
    rank("everything")
    return summarize(search("refunds"))
"""
REMOVED = """
@flow
def report() -> str:
    return summarize("nothing")
"""
MISSING = """
@flow
def another() -> str:
    return summarize(search("refunds"))

report = another
"""


@pytest.fixture
def crashed(world: World) -> World:
    """A run that was killed in its second step."""
    world.crash(module(world, FIRST), at="in summarize")
    assert world.counts() == {"search": 1, "summarize": 1}
    return world


def module(world: World, body: str) -> Path:
    path = world.root / "agent.py"
    path.write_text(HEAD + body + TAIL)
    return path


def test_edited_behind_the_recorded_part(crashed: World) -> None:
    ended = crashed.run(module(crashed, EDITED_BEHIND))
    assert ended.result == "polished summary of notes on refunds"
    assert crashed.counts() == {"search": 1, "summarize": 2, "polish": 1}


@pytest.mark.parametrize(
    ("edited", "accepted"),
    [
        (OTHER_ARGUMENTS, "summary of notes on refunds"),
        (INSERTED, "summary of notes on refunds"),
        (REMOVED, "summary of nothing"),
    ],
    ids=["other arguments", "inserted", "removed"],
)
def test_edited_inside_the_recorded_part(crashed: World, edited: str, accepted: str) -> None:
    ended = crashed.run(module(crashed, edited))
    assert (ended.error, ended.said["reason"]) == ("RunHeld", "diverged")
    assert "search" in ended.said["message"], "it shows what was recorded"
    assert crashed.status() == "held"
    assert crashed.counts() == {"search": 1, "summarize": 1}, "nothing was executed"

    # Once somebody has said so, records are matched by key, and other calls run live.
    with crashed.store() as store:
        assert "diverged" in str(store.explain("r"))
        store.resume("r", actor="ops", accept_change=True)
    ended = crashed.run(module(crashed, edited))
    assert ended.result == accepted
    assert "change_accepted" in kinds(crashed.history())
    with crashed.store() as store:
        assert_sound(store)


def test_the_former_code_put_back(crashed: World) -> None:
    """Nothing needs to be said: what is recorded fits again."""
    assert crashed.run(module(crashed, INSERTED)).error == "RunHeld"
    assert crashed.run(module(crashed, FIRST)).result == "summary of notes on refunds"
    assert crashed.counts() == {"search": 1, "summarize": 2}


def test_another_flow_under_the_same_id(crashed: World) -> None:
    assert crashed.run(module(crashed, MISSING)).error == "RunConflict"
    assert crashed.run(module(crashed, FIRST)).result == "summary of notes on refunds"


def test_a_process_without_the_flow_leaves_the_run_alone(crashed: World) -> None:
    """This process does not know the flow `report`: recovering takes nothing up, and says so."""
    with crashed.store() as store:
        before = len(store.history("r"))
        store.recover()
        assert len(store.history("r")) == before
    assert crashed.run(module(crashed, FIRST)).result == "summary of notes on refunds"


def test_an_unconsumed_effect_must_be_confirmed(world: World) -> None:
    """The change forgets an effect that was done: somebody has to say that this is meant."""
    with_effect = """
@flow
def report() -> str:
    publish(search("refunds"))
    return summarize("what was published")
"""
    without = """
@flow
def report() -> str:
    search("refunds")
    return summarize("what was published")
"""
    world.crash(module(world, with_effect), at="in summarize")
    assert world.run(module(world, without)).error == "RunHeld"
    with world.store() as store:
        store.resume("r", actor="ops", accept_change=True)
    ended = world.run(module(world, without))
    assert (ended.error, ended.said["reason"]) == ("RunHeld", "diverged")
    assert "publish" in ended.said["message"]
    with world.store() as store:
        store.resume("r", actor="ops", accept_change=True, confirm=True)
    assert world.run(module(world, without)).result == "summary of what was published"
    assert world.counts()["publish"] == 1


# -- an effect in doubt --------------------------------------------------------------------------

PAYS = """
from holdfast import NOT_DONE, effect, flow
from tests.crash import probe

@effect(on_doubt="retry")
def pay(amount: int) -> str:
    probe.executed(f"pay {amount}")
    probe.point("in pay")
    return f"paid {amount}"
"""
LOOKS = """
@pay.on_doubt
def look(amount: int):
    probe.executed(f"look {amount}")
    return NOT_DONE
"""


def paying(world: World, amount: int, head: str) -> Path:
    path = world.root / "agent.py"
    flow = f"@flow\ndef report() -> str:\n    return pay({amount})\n"
    path.write_text(head + flow + TAIL)
    return path


@pytest.mark.parametrize(
    "head", [PAYS, PAYS.replace('(on_doubt="retry")', "") + LOOKS], ids=["retry", "function"]
)
def test_an_effect_in_doubt_is_not_settled_by_a_call_with_other_arguments(
    world: World, head: str
) -> None:
    world.crash(paying(world, 3, head), at="in pay")
    changed = paying(world, 4, head)
    assert world.run(changed).said["reason"] == "diverged"
    with world.store() as store:
        store.resume("r", accept_change=True, actor="ana")
    ended = world.run(changed)
    assert (ended.error, ended.said["reason"]) == ("RunHeld", "in_doubt")
    assert "other arguments" in ended.said["message"]
    assert world.counts() == {"pay 3": 1}, "neither tried with others, nor asked about them"
    with world.store() as store:
        store.settle("r", "pay", NOT_DONE, actor="ana")
    assert world.run(changed).result == "paid 4"
    assert world.counts() == {"pay 3": 1, "pay 4": 1}
    with world.store() as store:
        assert_sound(store)


def test_an_effect_in_doubt_that_is_a_step_now_is_not_executed_again(world: World) -> None:
    world.crash(paying(world, 3, PAYS), at="in pay")
    changed = paying(
        world,
        3,
        PAYS.replace('@effect(on_doubt="retry")', "@step").replace(
            "import NOT_DONE, effect", "import step"
        ),
    )
    ended = world.run(changed)
    assert (ended.error, ended.said["reason"]) == ("RunHeld", "in_doubt")
    assert "it was an effect when it was begun" in ended.said["message"]
    assert world.counts() == {"pay 3": 1}
    with world.store() as store:
        store.settle("r", "pay", NOT_DONE, actor="ana")
    assert world.run(changed).result == "paid 3"
    assert world.counts() == {"pay 3": 2}
