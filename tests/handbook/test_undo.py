"""What was sent cannot be unsent: what can be undone is, what cannot is said, and a fork does it right."""

from __future__ import annotations

from tests.handbook.world import World

PROGRAM = """
@step
def quote(order):
    did("quote")
    return 10


@effect
def book(order, price):
    did(f"booked {order}")
    return "b-1"


@book.undo
def unbook(result, order, price):
    did(f"unbooked {order}")


@effect
def mail(to):
    did(f"mailed {to}")
    return "sent"


@flow
def handle(order, to):
    price = quote(order)
    book(order, price)
    mail(to)
    mail(to)
    if to == "nobody":
        raise ValueError("half way")
    return price


if __name__ == "__main__":
    for run_id, to in (("wrong", "kim"), ("half", "nobody")):
        try:
            handle.run(run_id, run_id, to=to)
        except holdfast.errors.RunFailed:
            pass
"""


def test_it_is_planned_undone_and_done_right(world: World):
    world.program(PROGRAM)
    assert world.shell("python agent.py").returncode == 0
    assert "wrong" in world.paste("runs --finding duplicate_action")
    assert "half" in world.paste("runs --finding partial_failure")
    assert "effect" in world.paste("show RUN", RUN="wrong")
    plan = world.paste("rollback RUN --dry-run", RUN="wrong")
    assert "book is undone" in plan
    assert "mail" in plan
    assert world.did("unbooked wrong") == 0

    world.paste("rollback RUN --reason", RUN="wrong", REASON="'wrong order'")
    world.paste("rollback OTHER", OTHER="half", STEP="book")
    world.paste(
        "fork", RUN="wrong", NEW="right", STEP="book", JSON='\'{"order": "right", "to": "ada"}\''
    )
    with world.started("holdfast worker agent.py"):
        world.until("wrong", "rolled_back")
        world.until("right", "completed")
    assert "mail" in world.paste("explain", RUN="wrong")
    assert "completed" in world.paste("show NEW", NEW="right")
    assert [world.did(it) for it in ("unbooked wrong", "unbooked half")] == [1, 0]
    assert (world.did("booked right"), world.did("mailed ada"), world.did("quote")) == (1, 2, 2)
