"""The database is away: commands say so, a worker waits, and goes on when the server is back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.handbook.world import World
from tests.postgres.server import Server

PROGRAM = """
@step
def search(topic):
    did("search")
    return topic


@step
def think(topic):
    did("think")
    while not (HERE / "let-go").exists():
        time.sleep(0.02)
    return topic


@flow
def research(topic):
    return think(search(topic))


if __name__ == "__main__":
    research.submit("report", "refunds")
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def test_a_worker_goes_on_by_itself_when_the_server_is_back(world: World, server: Server):
    world.program(PROGRAM)
    world.env["HOLDFAST_URL"] = world.url = server.database("runs")
    assert world.shell("python agent.py").returncode == 0
    log = world.folder / "background.log"
    with world.started("holdfast worker agent.py"):
        world.wait(lambda: world.did("think"))
        server.stop("immediate")
        told = world.paste("queues")
        assert "Traceback" not in told
        world.wait(lambda: "cannot use the store" in log.read_text(), log.read_text)
        server.start()
        (world.folder / "let-go").touch()
        world.until("report", "completed")
        world.wait(lambda: "can be used again" in log.read_text(), log.read_text)
        assert "can be used again" in world.page.text
        world.paste("doctor")
        assert "report" not in world.paste("runs --held-reason corrupt")
        assert "missing" in world.paste("store accept-data-loss")
        assert "report" not in world.paste("runs --status running")
    assert world.did("search") == 1
