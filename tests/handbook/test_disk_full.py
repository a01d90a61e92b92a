"""The disk is full: no file may grow any more; nothing is lost, and it goes on when there is room."""

from __future__ import annotations

from tests.handbook.world import World

PROGRAM = """
@step
def collect(number):
    did(f"collected {number}")
    return os.urandom(60_000).hex()


@effect
def mail(text):
    did("mailed")


@flow
def report():
    size = sum(len(collect(number)) for number in range(20))
    mail(str(size))
    return size
"""
BLOCKS = 2048
"""What one file may have: 1 MiB, in blocks of 512 bytes."""


def test_it_stops_before_the_step_and_goes_on_with_room(world: World):
    world.program(PROGRAM)
    # The limit of the shell stands for the disk: no file of its processes grows beyond it.
    full = world.shell(f"ulimit -f {BLOCKS}; exec holdfast run agent.py:report r")
    assert full.returncode not in (0, 3, 4), full
    world.says("no space left", full.stdout + full.stderr)
    assert "`StoreFull`" in world.page.text
    before = [world.did(f"collected {number}") for number in range(20)]
    assert world.did("mailed") == 0
    assert sum(before) < 20

    assert "MiB free" in world.paste("doctor")
    world.paste("store prune --older-than 30d --dry-run")
    world.paste("store prune --older-than 30d")
    world.paste("run ", FLOW="report", RUN="r")
    after = [world.did(f"collected {number}") for number in range(20)]
    # The one that was under way when there was no room is collected again, and no other.
    assert sum(after) <= 21
    assert world.did("mailed") == 1
    world.paste("store verify")
    assert "completed" in world.paste("show", RUN="r")
