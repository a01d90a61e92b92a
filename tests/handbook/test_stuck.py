"""A run is stuck: one loops and is held, in another a step hangs and its process is ended."""

from __future__ import annotations

import os
import re
import signal

from tests.handbook.world import World

PROGRAM = """
@step
def search(topic):
    return []


@flow(watchdog=Watchdog(loop_after=3))
def looks(topic):
    for _ in range(3):
        search(topic)
    return wait_for_signal("more")


@step
def hang():
    if did("hang") == 1:
        time.sleep(600)
    return "through"


@flow(watchdog=Watchdog(stuck_after=0.1))
def hangs():
    return hang()


if __name__ == "__main__":
    looks.submit("looks", "refunds")
    hangs.submit("hangs")
"""


def test_it_is_looked_at_held_let_go_and_a_hanging_step_is_ended(world: World):
    world.program(PROGRAM)
    assert world.shell("python agent.py").returncode == 0
    with world.started("holdfast worker agent.py --lease 1"):
        world.until("looks", "waiting")
        world.wait(lambda: "hangs" in world.paste("runs --finding stuck"))
        assert "looks" in world.paste("runs --finding looping")
        world.paste("pause", RUN="looks")
        assert world.status("looks") == "held: paused"
        assert "run_held" in world.paste("history", RUN="looks")
        world.paste("resume", RUN="looks")
        world.until("looks", "waiting")
        world.paste("cancel", RUN="looks")
        assert world.status("looks") == "cancelled"

        told = world.paste("explain", RUN="hangs")
        assert "The watchdog finds: stuck" in re.sub(r"\s+", " ", told)
        found = re.search(r"process (\d+)", told)
        assert found is not None
        os.kill(int(found[1]), signal.SIGKILL)
        world.until("hangs", "completed")
        world.paste("doctor", RUN="hangs")
    assert world.did("hang") == 2
