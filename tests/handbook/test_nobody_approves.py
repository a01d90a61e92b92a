"""Somebody must approve, and nobody is there: somebody else does, refuses, answers, cancels."""

from __future__ import annotations

import json

from tests.handbook.world import World

PROGRAM = """
@effect(needs_approval=holdfast.Approval(to="ana"))
def refund(order, cents):
    did(f"refunded {order}")
    return cents


@flow
def handle(order):
    return refund(order, 1999)


@flow
def plan():
    return ask("How many days?", name="days", type=int, to="ana")


if __name__ == "__main__":
    for order in ("yes", "no", "late"):
        handle.submit(order, order)
    plan.submit("plan")
"""


def test_it_is_approved_refused_answered_and_cancelled(world: World):
    world.program(PROGRAM)
    assert world.shell("python agent.py").returncode == 0
    with world.started("holdfast worker agent.py"):
        for run_id in ("yes", "no", "late", "plan"):
            world.until(run_id, "waiting")
        assert "1999" in world.paste("questions")
        asked = json.loads(world.shell("holdfast questions --json").stdout)["questions"]
        digests = {it["run_id"]: it.get("digest") for it in asked}
        assert "plan" in world.paste("questions --to", PERSON="ana")
        world.filled |= {"STEP": "refund", "REASON": "'not ours'"}
        # The digest of another call is not good for this one.
        world.paste("approve", RUN="yes", DIGEST=str(digests["no"]), code=5)
        assert world.did("refunded yes") == 0
        world.paste("approve", RUN="yes", DIGEST=str(digests["yes"]))
        world.paste("reject RUN STEP", RUN="no")
        world.paste("answer RUN NAME", RUN="plan", NAME="days", VALUE="4")
        world.paste("cancel", RUN="late")
        world.until("yes", "completed")
        world.until("no", "failed")
        world.until("plan", "completed")
    assert [world.did(f"refunded {it}") for it in ("yes", "no", "late")] == [1, 0, 0]
    assert "step_started" in world.paste("history", RUN="yes")
    assert len(world.actors("no")) == 1
