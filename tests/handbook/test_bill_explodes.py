"""The bill explodes: a budget holds a run, the watchdog finds another, and a queue is paused."""

from __future__ import annotations

from tests.handbook.world import World

PROGRAM = """
@step
def think(number):
    did("think")
    record_usage(model="large", cost_usd=0.4)
    return number


@step(reserve_usd=0.4)
def paid(number):
    did("paid")
    record_usage(model="large", cost_usd=0.4)
    return number


@flow(budget=Budget(usd=1), queue="agents")
def careful():
    return sum(paid(number) for number in range(3))


@flow(watchdog=Watchdog(usd=1), queue="agents")
def careless():
    for number in range(3):
        think(number)
    return wait_for_signal("more")


if __name__ == "__main__":
    careful.submit("careful")
    careless.submit("careless")
"""


def test_it_is_stopped_looked_at_and_paid_for_or_not(world: World):
    world.program(PROGRAM)
    assert world.shell("python agent.py").returncode == 0
    with world.started("holdfast worker agent.py"):
        world.until("careful", "held: budget")
        world.until("careless", "waiting")
        world.says("held: budget", world.paste("runs --held-reason budget"))
        assert "careless" in world.paste("runs --finding runaway_cost")
        world.paste("trends")
        world.paste("queues pause QUEUE", QUEUE="agents")
        world.paste("pause", RUN="careless")
        assert "$0.80 of $1.00" in world.paste("show", RUN="careful")
        assert world.did("paid") == 2

        world.paste("queues resume QUEUE", QUEUE="agents")
        world.paste("set-budget", RUN="careful", AMOUNT="2")
        world.until("careful", "completed")
        world.paste("resume", RUN="careless")
        world.until("careless", "waiting")
        world.paste("cancel", RUN="careless")
    assert (world.did("paid"), world.did("think")) == (3, 3)
    assert world.status("careless") == "cancelled"
