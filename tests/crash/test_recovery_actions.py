"""Resuming and degrading, killed half way through the action itself; docs/proof/guarantees.md lists the
tests of the other recovery actions."""

from __future__ import annotations

import pytest

from tests.crash.harness import World, assert_sound

SQLITE, SERVER = "sqlite", "postgresql"


def killed_at(*cases: tuple[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("world", "at"), cases, indirect=["world"])


def resumed(world: World) -> int:
    return sum(entry.kind == "run_resumed" for entry in world.history())


@killed_at((SQLITE, "before write 1"), (SQLITE, "after write 1"), (SERVER, "after write 1"))
def test_a_resume_is_killed_while_it_is_decided(world: World, at: str) -> None:
    """The decision is there or it is not; said again, it counts once."""
    assert world.run("recovering.py", "run").error == "RunFailed"
    world.crash("recovering.py", "resume", at=at)
    assert resumed(world) == (at == "after write 1")
    if not resumed(world):
        assert world.status() == "failed"
        assert world.run("recovering.py", "resume").code == 0
    check_resumed(world, assembled=2)


@killed_at(
    (SQLITE, "after write 1"),
    (SQLITE, "in assemble"),
    (SQLITE, "before write 2"),
    (SQLITE, "after write 2"),
    (SERVER, "in assemble"),
)
def test_a_resume_is_killed_while_it_is_performed(world: World, at: str) -> None:
    """What is resumed goes on, and what had an outcome before is not repeated."""
    assert world.run("recovering.py", "run").error == "RunFailed"
    assert world.run("recovering.py", "resume").code == 0
    world.crash("recovering.py", "recover", at=at)
    # Once it failed, once it was killed before its outcome was recorded, once it went well.
    check_resumed(world, assembled=3 if at in ("in assemble", "before write 2") else 2)


def check_resumed(world: World, assembled: int) -> None:
    ended = world.run("recovering.py", "recover")
    assert ended.result == "ordered, assembled, delivered"
    assert resumed(world) == 1
    counts = world.counts()
    assert counts == {"order_parts": 1, "assemble": assembled, "deliver": 1}
    with world.store() as store:
        assert_sound(store)


@killed_at(
    (SQLITE, "in the fallback"), (SQLITE, "behind the fallback"), (SERVER, "in the fallback")
)
def test_a_degraded_step_is_killed_in_its_fallback(world: World, at: str) -> None:
    """A fallback that died is used again; one that is recorded is not, and neither is the step."""
    world.crash("recovering.py", "degrade", at=at)
    before = world.counts()
    assert world.run("recovering.py", "degrade").result == "told what is known of tides"
    after = world.counts()
    if at == "behind the fallback":
        assert {step: after[step] for step in ("look_up", "from_memory")} == {
            step: before[step] for step in ("look_up", "from_memory")
        }
    else:
        assert after["from_memory"] == before["from_memory"] + 1
    with world.store() as store:
        assert_sound(store)
        assert store.get("r").totals.degraded == 1
        degraded = [(it.key, it.degraded.type) for it in store.get("r").steps if it.degraded]
        assert degraded == [("look_up", "ConnectionError")]
