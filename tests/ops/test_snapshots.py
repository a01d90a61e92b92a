"""Snapshots of loops: which there are, what they held, what changed, and what became of them."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import flow, step, turns
from holdfast._engine.journal.rows import SEQ_BITS
from holdfast._operator.read import snapshots
from holdfast.errors import Corrupt, RunFailed, RunNotFound, UsageError


@dataclasses.dataclass
class Noted:
    messages: list[dict[str, Any]]
    notes: dict[str, int] = dataclasses.field(default_factory=dict)


broken: set[str] = set()


@step(name="snap.say")
def say(number: int) -> str:
    return f"message {number} " + "x" * 700


@step(name="snap.check")
def check() -> None:
    if "check" in broken:
        raise ValueError("not now")


@flow(name="snap.agent")
def agent(length: int) -> int:
    for talk in turns(Noted([])):
        talk.messages.append({"role": "model", "text": say(len(talk.messages))})
        talk.notes["count"] = len(talk.messages)
        if len(talk.messages) == length:
            break
    return length


@flow(name="snap.nested")
def nested() -> int:
    for outer in turns({"n": 0}):
        if outer["n"] == 2:
            return outer["n"]
        for inner in turns({"m": 0}):
            if inner["m"] == 2:
                break
            inner["m"] += 1
        outer["n"] += 1
    raise AssertionError


@flow(name="snap.again")
def again() -> int:
    check()
    return agent_loop()


def agent_loop() -> int:
    for state in turns({"n": 0}):
        say(state["n"])
        state["n"] += 1
        if state["n"] == 3:
            check()
            return state["n"]
    raise AssertionError


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[holdfast.types.Store]:
    broken.clear()
    with holdfast.open(f"sqlite:///{tmp_path}/snap.db") as store:
        yield store


def test_each_turn_has_one(opened: holdfast.types.Store) -> None:
    agent.run("r", 5)
    found = snapshots.snapshots(opened._backend, "r")
    assert [(it.path, it.turn) for it in found] == [("turns", turn) for turn in (1, 2, 3, 4)]
    assert [it.seq for it in found] == sorted(it.seq for it in found)
    assert all(0 < it.bytes < 5000 and not it.superseded and not it.borrowed for it in found)
    history = {entry.seq: entry.kind for entry in opened.history("r")}
    assert {history[it.seq] for it in found} == {"state_saved"}


def test_the_state_is_readable_and_the_newest_unless_another_is_asked_for(opened) -> None:
    agent.run("r", 5)
    found = snapshots.snapshots(opened._backend, "r")
    newest = snapshots.state(opened._backend, "r")
    assert (newest.seq, newest.turn) == (found[-1].seq, 4)
    assert [m["text"][:9] for m in newest.state["Noted"]["messages"]] == [
        f"message {n}" for n in range(4)
    ]
    second = snapshots.state(opened._backend, "r", found[1].seq)
    assert second.state["Noted"]["notes"] == {"count": 2}
    # An entry between two snapshots: what was saved last when it was written.
    assert snapshots.state(opened._backend, "r", found[2].seq - 1) == second
    decoded = snapshots.state(opened._backend, "r", found[0].seq, plain=False).state
    assert isinstance(decoded, Noted)
    with pytest.raises(UsageError, match="no snapshot yet at entry 1; the first is entry"):
        snapshots.state(opened._backend, "r", 1)


def test_what_changed_between_two(opened) -> None:
    agent.run("r", 5)
    first, second, *_ = snapshots.snapshots(opened._backend, "r")
    compared = snapshots.compared(opened._backend, "r", first.seq, second.seq)
    assert (compared.before, compared.after, compared.cut) == (first, second, False)
    assert [(it.path, it.kind) for it in compared.differences] == [
        ("Noted.messages[1]", "added"),
        ("Noted.notes.count", "changed"),
    ]
    back = snapshots.compared(opened._backend, "r", second.seq, first.seq)
    assert [it.kind for it in back.differences] == ["removed", "changed"]
    assert snapshots.compared(opened._backend, "r", first.seq, first.seq).differences == []


def test_nested_loops_have_their_own(opened) -> None:
    nested.run("r")
    found = [(it.path, it.turn) for it in snapshots.snapshots(opened._backend, "r")]
    assert found == [
        ("turns[0]/turns", 1),
        ("turns[0]/turns", 2),
        ("turns", 1),
        ("turns[1]/turns", 1),
        ("turns[1]/turns", 2),
        ("turns", 2),
    ]
    assert snapshots.state(opened._backend, "r", path="turns[0]/turns").state == {"m": 2}
    assert snapshots.state(opened._backend, "r").state == {"n": 2}
    with pytest.raises(UsageError, match="no loop 'nothing'"):
        snapshots.state(opened._backend, "r", path="nothing")


def test_a_loop_that_started_over_says_so(opened) -> None:
    again.run("r")
    opened.rollback("r", to="snap.check", actor="kim", reason="do it again")
    opened.resume("r", actor="kim")
    assert again.run("r") == 3
    found = snapshots.snapshots(opened._backend, "r")
    assert [(it.turn, it.generation, it.superseded) for it in found] == [
        (1, 1, True),
        (2, 1, True),
        (1, 2, False),
        (2, 2, False),
    ]


def test_a_fork_has_what_it_borrowed_and_what_it_was_given(opened) -> None:
    agent.run("r", 4)
    opened.fork("r", "f", before="turns[2]/snap.say")
    agent.run("f", 4)
    found = snapshots.snapshots(opened._backend, "f")
    assert [(it.turn, it.borrowed) for it in found] == [(2, True), (3, False)]
    assert found[0].seq < 0 < found[1].seq
    texts = snapshots.state(opened._backend, "f", found[0].seq).state["Noted"]["messages"]
    assert len(texts) == 2
    changed = snapshots.compared(opened._backend, "f", found[0].seq, found[1].seq).differences
    assert [it.path for it in changed] == ["Noted.messages[2]", "Noted.notes.count"]

    opened.fork("r", "given", before="turns[2]/snap.say", state=Noted([{"role": "user"}]))
    [given, *_] = [it for it in snapshots.snapshots(opened._backend, "given") if it.seq == 0]
    assert given.borrowed
    assert given.turn == 2
    assert snapshots.state(opened._backend, "given", 0).state == {
        "Noted": {"messages": [{"role": "user"}], "notes": {}}
    }


def test_a_run_without_loops(opened) -> None:
    broken.add("check")
    with pytest.raises(RunFailed):
        again.run("r")
    assert snapshots.snapshots(opened._backend, "r") == []
    with pytest.raises(UsageError, match="only loops over turns"):
        snapshots.state(opened._backend, "r")
    with pytest.raises(RunNotFound):
        snapshots.snapshots(opened._backend, "no such run")


def test_damage_is_said_and_not_shown(opened, tmp_path: Path) -> None:
    agent.run("r", 3)
    row = opened._backend.get("r")
    assert row is not None
    with sqlite3.connect(tmp_path / "snap.db") as file:
        changed = file.execute(
            "UPDATE journal SET body = replace(body, '\"turn\":1', '\"turn\":7') "
            f"WHERE id >> {SEQ_BITS} = ? AND body LIKE '%\"turn\":1%'",
            (row.run_no,),
        ).rowcount
    assert changed == 1
    for look in (snapshots.snapshots, snapshots.state):
        with pytest.raises(Corrupt):
            look(opened._backend, "r")
