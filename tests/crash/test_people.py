"""Answers, approvals and signals come while processes die: each is taken once, and nothing is lost."""

from __future__ import annotations

import contextlib
import functools

import pytest

import holdfast
from holdfast.errors import AnswerConflict, RunEnded, RunNotFound
from tests.crash.harness import BOTH_STORES, Ended, Script, World, assert_sound, wait_for

RESULT = [3, "paid 3", "went"]


def waiting_for(store: holdfast.types.Store, what: str) -> bool:
    row = store._backend.get("r")
    return row is not None and (row.waiting_on or "").startswith(what)


def say(store: holdfast.types.Store) -> None:
    """Say what the run waits for now, as often as one likes: it counts once."""
    with contextlib.suppress(AnswerConflict, RunEnded, RunNotFound):
        for question in store.questions(run_id="r"):
            if question.kind == "approval":
                store.approve("r", question.name, digest=question.digest, actor="fin")
            else:
                store.answer("r", question.name, 3, actor="ana")
        if waiting_for(store, "signal:go"):
            store.signal("r", "go", "went", signal_id="the one")


def tended(world: World, script: Script) -> Ended:
    """Answer whatever a process asks until it ends, however it ends."""
    with world.store() as store:

        def is_over() -> bool:
            say(store)
            return script.process.poll() is not None

        wait_for(is_over, "the end of the script")
    return script.end()


def check(world: World, ended: Ended, **counts: int) -> None:
    assert ended.result == RESULT
    executed = world.counts()
    once = {"facts": 1, "pay": 1, "after the answer": 1, "after the payment": 1}
    assert {step: executed[step] for step in once} == once | counts
    with world.store() as store:
        assert_sound(store)
        assert [(it.kind, it.status) for it in store.get("r").signals] == [
            ("answer", "received"),
            ("answer", "received"),
            ("signal", "received"),
        ]
        assert store._backend.questions() == []
        intents = [e for e in store.history("r") if e.kind == "step_started" and e.step == "pay"]
        assert {entry.body["approved"]["actor"] for entry in intents} == {"fin"}


@BOTH_STORES
def test_killed_while_it_waits_and_told_while_nobody_has_it(world: World) -> None:
    for what in ("answer:count", "answer:approve:pay", "signal:go"):
        script = world.start("people.py")
        with world.store() as store:
            wait_for(functools.partial(waiting_for, store, what), what)
            assert script.kill().killed
            say(store)

    check(world, world.run("people.py"))


@pytest.mark.parametrize(
    ("world", "at", "counts"),
    [
        ("sqlite", "after the answer", {"after the answer": 2}),
        ("sqlite", "inside pay", {"pay": 2}),
        ("postgresql", "inside pay", {"pay": 2}),
        ("sqlite", "after the signal", {}),
    ],
    indirect=["world"],
)
def test_killed_behind_what_it_was_told(world: World, at: str, counts: dict[str, int]) -> None:
    assert tended(world, world.start("people.py", kill_at=at)).killed
    check(world, tended(world, world.start("people.py")), **counts)


def test_killed_again_and_again_while_it_waits_it_is_no_poison(world: World) -> None:
    for _ in range(6):
        script = world.start("people.py")
        with world.store() as store:
            wait_for(functools.partial(_is_at_rest, store), "a run that waits in that process")
        assert script.kill().killed
    assert world.status() == "waiting"
    assert world.counts()["facts"] == 1


def _is_at_rest(store: holdfast.types.Store) -> bool:
    row = store._backend.get("r")
    return (
        row is not None
        and row.status == "waiting"
        and row.owner is not None
        and not store._backend.owner_is_dead(row.owner)
    )
