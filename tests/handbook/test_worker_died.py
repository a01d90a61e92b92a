"""A worker died: with kill -9, with everything that belongs to it; another one goes on."""

from __future__ import annotations

import contextlib
import os
import signal

from tests.handbook.world import World

PROGRAM = """
@step
def search(topic):
    did("search")
    return topic


@step
def think(topic):
    (HERE / "pid").write_text(str(os.getpid()))
    if did("think") == 1:
        time.sleep(600)
    return f"thought about {topic}"


@flow
def research(topic):
    return think(search(topic))


if __name__ == "__main__":
    research.submit("report", "refunds")
"""


def test_another_worker_takes_over_and_nothing_recorded_is_executed_again(world: World):
    world.program(PROGRAM)
    assert world.shell("python agent.py").returncode == 0
    with world.started("holdfast worker agent.py") as process:
        world.wait(lambda: world.did("think"))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((world.folder / "pid").read_text()), signal.SIGKILL)
    assert "No worker is alive" in world.paste("queues")
    assert "report" in world.paste("runs --status running")
    world.says("has died", world.paste("explain", RUN="report"))
    with world.background("worker"):
        world.until("report", "completed")
        world.paste("doctor")
    assert (world.did("search"), world.did("think")) == (1, 2)
