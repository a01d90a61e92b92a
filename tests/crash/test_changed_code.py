"""The code changes between the crash and the resume, in another process, as it does in life."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from holdfast import NOT_DONE
from tests.crash.harness import BOTH_STORES, Script, World, assert_sound, kinds, wait_for

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


# -- workers, deployed one after the other ---------------------------------------------------------

WORKS = """
import signal
import sys
import threading
from holdfast import flow, step
from tests.crash import probe

@step
def search(topic: str) -> str:
    probe.executed("search", run=topic)
    return f"notes on {topic}"

@step
def rank(notes: str) -> str:
    return f"ranked {notes}"

@step
def summarize(notes: str) -> str:
    probe.executed("summarize", run=notes.removeprefix("notes on "))
    if "fresh" not in notes:
        probe.mark(f"in summarize of {notes}")
        probe.wait("go on")
    return f"summary of {notes}"

@flow
def report(topic: str) -> str:
BODY

if __name__ == "__main__":
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    with probe.open_store() as store:
        for name in sys.argv[1:]:
            report.submit(name, name)
        with store.worker(flows=[report], concurrency=4, drain_s=0.2):
            ending.wait()
"""
OLD_BODY = "    return summarize(search(topic))"
BAD_BODY = "    rank('everything')\n" + OLD_BODY


class Deploys:
    """Workers of one world, of which each may have other code."""

    def __init__(self, world: World) -> None:
        self.world = world

    def start(self, body: str, *submits: str) -> Script:
        """Deploy this code; the process submits runs, and works."""
        path = self.world.root / f"deploy_{len(self.world.scripts)}.py"
        path.write_text(WORKS.replace("BODY", body))
        return self.world.start(path, *submits, lease_s=2)

    def end(self, worker: Script) -> None:
        worker.signal(signal.SIGTERM)
        ended = worker.end()
        assert ended.code == 0, ended

    def until(self, status: str, *runs: str) -> None:
        with self.world.store() as store:

            def found() -> bool:
                seen = {run.run_id: str(run.status) for run in store.runs(limit=100)}
                return {seen.get(run) for run in runs} == {status}

            wait_for(found, f"{', '.join(runs)} to be {status}")

    def claims(self, run: str) -> int:
        return sum(entry.kind == "run_claimed" for entry in self.world.history(run))


@BOTH_STORES
def test_a_deploy_that_fits_frees_what_the_one_before_could_not_replay(world: World) -> None:
    deploys, runs = Deploys(world), ("r1", "r2", "r3")
    first = deploys.start(OLD_BODY, *runs)
    for run in runs:
        first.until(f"in summarize of notes on {run}")
    assert first.kill().killed
    bad = deploys.start(BAD_BODY)
    deploys.until("held", *runs)
    assert [deploys.claims(run) for run in runs] == [2, 2, 2]
    deploys.end(bad)
    # The same code in another process does not try again. What a worker tries again, it takes before
    # anything else.
    same = deploys.start(BAD_BODY, "fresh")
    deploys.until("completed", "fresh")
    deploys.end(same)
    assert [deploys.claims(run) for run in runs] == [2, 2, 2]

    world.mark("go on")
    good = deploys.start(OLD_BODY)
    deploys.until("completed", *runs)
    deploys.end(good)
    for run in runs:
        assert deploys.claims(run) == 3
        assert world.counts(run) == {"search": 1, "summarize": 2}
        history = world.history(run)
        assert not {"run_resumed", "change_accepted"} & {entry.kind for entry in history}
        [released] = [entry.body for entry in history if entry.kind == "run_released"]
        assert (released["why"], released["actor"]) == ("other_code", "holdfast")
        with world.store() as store:
            assert_sound(store, run)


# -- loops ---------------------------------------------------------------------------------------

LOOPS = """
from holdfast import effect, flow, turns
from tests.crash import probe

@effect
def refund(n: int) -> int:
    probe.executed(f"refund {n}")
    return n + 1

@effect
def invoice(n: int) -> int:
    probe.executed(f"invoice {n}")
    return n + 1

def refunds() -> int:
    for state in turns({"n": 0}, max_turns=9):
        if state["n"] == 2:
            return state["n"]
        if state["n"] == 1 and WHERE == "between two turns":
            probe.point("refunds")
        state["n"] = refund(state["n"])
        if state["n"] == 2 and WHERE == "in a turn":
            probe.point("refunds")
    raise AssertionError

def invoices() -> int:
    for state in turns({"n": 0}, max_turns=9):
        if state["n"] == 2:
            return state["n"]
        state["n"] = invoice(state["n"])
    raise AssertionError
"""
LOOPS_FLOW = """
@flow
def report() -> list[int]:
    return [refunds(), invoices()]
"""
LOOPS_SWAPPED = LOOPS_FLOW.replace("refunds(), invoices()", "invoices(), refunds()")
LOOPS_REMOVED = LOOPS_FLOW.replace("refunds(), invoices()", "invoices()")
LOOPS_INSERTED = LOOPS_FLOW.replace("refunds(), invoices()", "invoices(), refunds(), invoices()")


@pytest.mark.parametrize("where", ["between two turns", "in a turn"])
def test_loops_that_changed_places(world: World, where: str) -> None:
    head = LOOPS.replace("WHERE", repr(where))

    def loops(flow: str) -> Path:
        path = world.root / "agent.py"
        path.write_text(head + flow + TAIL)
        return path

    world.crash(loops(LOOPS_FLOW), at="refunds")
    recorded = world.counts()
    for changed in (LOOPS_SWAPPED, LOOPS_REMOVED, LOOPS_INSERTED):
        ended = world.run(loops(changed))
        assert (ended.error, ended.said["reason"]) == ("RunHeld", "diverged"), changed
        assert world.counts() == recorded, "nothing was executed"
    assert world.run(loops(LOOPS_FLOW)).result == [2, 2]
    assert set(world.counts().values()) == {1}
    with world.store() as store:
        assert_sound(store)


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
