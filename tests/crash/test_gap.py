"""The world changes between the crash and the resume: a file, a model, the code, a key's age."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.crash.harness import ROOT, World, assert_sound, wait_for

AGENT = """
import os
from pathlib import Path
import holdfast
from holdfast import effect, flow, step
from holdfast.versioning import depends_on
from tests.crash import probe

MODEL = "{model}"

@step(versions={{"model": MODEL}})
def gap_think() -> str:
    probe.executed("think")
    probe.point("in think")
    return f"{{MODEL}} saw {{Path('prices.csv').read_text()}}"

@effect(on_doubt="retry", key_ttl={key_ttl})
def gap_send(text: str) -> str:
    probe.executed("send", note=holdfast.idempotency_key())
    probe.point("in send")
    return f"sent {{text}}"

@step
def gap_finish(text: str) -> str:
    {finish}
    probe.point("in finish")
    return text

@flow(on_drift={on_drift})
def gap_agent(sends: bool) -> str:
    depends_on("prices", Path("prices.csv"), on_change="{policy}")
    said = gap_think()
    {behind}
    if sends:
        said = gap_send(said)
    return gap_finish(said)

if __name__ == "__main__":
    with probe.open_store():
        probe.end(lambda: gap_agent.run("r", os.environ["GAP_SENDS"] == "1"))
"""


def agent(world: World, *, sends: bool = False, **text: object) -> Path:
    """Write the agent's module, as it is now."""
    said = {
        "model": "m-1",
        "policy": "hold",
        "key_ttl": 86400,
        "on_drift": {},
        "finish": 'probe.executed("finish")',
        "behind": "pass",
    }
    path = world.root / "agent.py"
    path.write_text(AGENT.format(**{**said, **text}))
    world.env["GAP_SENDS"] = str(int(sends))
    return path


def prices(world: World, text: str) -> None:
    (world.root / "prices.csv").write_text(text)


def command(world: World, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Run `holdfast … --json` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast._operator.cli", *arguments, "--url", world.url, "--json"],
        cwd=world.root,
        env={**os.environ, "PYTHONPATH": str(ROOT), **world.env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def preflight(world: World) -> dict[str, Any]:
    """Return what the command says, with the code of the agent as it is now."""
    said = command(world, "resume", "r", "--dry-run", "--app", "agent.py")
    report: dict[str, Any] = said["preview"]
    return report


def changed(report: dict[str, Any]) -> dict[str, str]:
    """Return what has changed, and the policy for it."""
    return {change["kind"]: change["policy"] for change in report["changes"]}


def without_code(world: World) -> holdfast.types.ResumePreview:
    """Return what is told where the agent's code is not known."""
    with world.store() as store:
        return store.preview_resume("r")


def told(world: World) -> list[str]:
    """Return what the run itself was told, by kind, and what became of it."""
    entries = [e for e in world.history() if e.kind == "drift_found"]
    return [f"{c['kind']}: {c['did']}" for e in entries for c in e.body["changes"]]


def assert_whole(world: World) -> None:
    with world.store() as store:
        assert_sound(store)


@pytest.mark.parametrize(
    ("world", "policy"),
    [
        ("sqlite", "keep"),
        ("sqlite", "redo"),
        ("postgresql", "redo"),
        ("sqlite", "hold"),
        ("sqlite", "fail"),
    ],
    indirect=["world"],
)
def test_a_changed_file_by_each_policy(world: World, policy: str) -> None:
    script = agent(world, policy=policy)
    prices(world, "1")
    world.crash(script, at="in finish")
    assert without_code(world).changes == ()
    prices(world, "2")
    (change,) = without_code(world).changes
    assert (change.kind, change.policy) == ("fact", policy), "a file is looked at without the code"
    assert changed(preflight(world)) == {"fact": policy}
    assert world.counts() == {"think": 1, "finish": 1}, "preflight executes nothing"

    ended = world.run(script)
    if policy == "hold":
        assert (ended.error, ended.said["reason"]) == ("RunHeld", "drift")
        assert told(world) == ["fact: hold"]
        command(world, "resume", "r", code=3)
        command(world, "resume", "r", "--redo", "--actor", "ann")
        ended = world.run(script)
    elif policy == "fail":
        assert ended.error == "RunFailed"
        assert told(world) == ["fact: fail"]
        ended = world.run(script)
    kept = policy == "keep"
    assert ended.result == f"m-1 saw {'1' if kept else '2'}"
    assert world.counts()["think"] == (1 if kept else 2)
    assert_whole(world)


@pytest.mark.parametrize(
    ("policy", "point"), [("redo", "in think"), ("redo", "in finish"), ("hold", "in think")]
)
def test_killed_while_it_is_redone(world: World, policy: str, point: str) -> None:
    script = agent(world, policy=policy)
    prices(world, "1")
    world.crash(script, at="in finish")
    prices(world, "2")
    if policy == "hold":
        assert world.run(script).error == "RunHeld"
        command(world, "resume", "r", "--redo", "--actor", "ann")
    for mark in world.marks.glob("killed at *"):
        mark.unlink()
    world.crash(script, at=point)
    assert world.run(script).result == "m-1 saw 2"
    assert world.counts()["think"] == (3 if point == "in think" else 2)
    with world.store() as store:
        assert store.get("r").generation == 2, "it was redone once, however often it died"
    assert_whole(world)


@pytest.mark.parametrize("decision", ["--keep", "--redo"])
def test_an_effect_behind_a_changed_file_needs_a_confirmation(world: World, decision: str) -> None:
    script = agent(world, policy="redo", sends=True)
    prices(world, "1")
    world.crash(script, at="in finish")
    prices(world, "2")
    held = world.run(script)
    assert (held.error, held.said["reason"]) == ("RunHeld", "drift")
    (change,) = without_code(world).changes
    assert change.effects == ("gap_send",)
    if decision == "--redo":
        command(world, "resume", "r", "--redo", code=3)
        assert world.counts()["send"] == 1
    command(world, "resume", "r", decision, "--confirm", "--actor", "ann")
    again = decision == "--redo"
    assert world.run(script).result == f"sent m-1 saw {'2' if again else '1'}"
    keys = [e.note for e in world.executions() if e.step == "send"]
    assert len(keys) == len(set(keys)) == (2 if again else 1)
    assert_whole(world)


@pytest.mark.parametrize("policy", ["keep", "redo", "hold", "fail"])
def test_a_changed_model(world: World, policy: str) -> None:
    drift = {"model": policy}
    prices(world, "1")
    world.crash(agent(world, on_drift=drift), at="in finish")
    script = agent(world, on_drift=drift, model="m-2")
    report = without_code(world)
    assert report.changes == ()
    assert any("versions" in text for text in report.unseen), "it says what it cannot know"
    assert changed(preflight(world)) == {"model": policy}
    ended = world.run(script)
    if policy == "hold":
        assert (ended.error, ended.said["reason"]) == ("RunHeld", "drift")
        command(world, "resume", "r", "--keep", "--actor", "ann")
        ended = world.run(script)
    elif policy == "fail":
        assert ended.error == "RunFailed"
        ended = world.run(agent(world, on_drift=drift))
    assert ended.result == ("m-2 saw 1" if policy == "redo" else "m-1 saw 1")
    assert_whole(world)


def test_an_edited_flow_and_an_edited_step(world: World) -> None:
    prices(world, "1")
    world.crash(agent(world), at="in finish")
    script = agent(world, behind="holdfast.context.is_replaying()", finish='probe.executed("end")')
    assert changed(preflight(world)) == {"flow": "keep"}, "finish has no outcome yet"
    assert world.run(script).result == "m-1 saw 1"
    assert told(world) == ["flow: keep"]
    assert world.counts() == {"think": 1, "finish": 1, "end": 1}


def test_an_edited_flow_can_be_held(world: World) -> None:
    prices(world, "1")
    drift = {"flow": "hold"}
    world.crash(agent(world, on_drift=drift), at="in finish")
    script = agent(world, on_drift=drift, behind="holdfast.context.is_replaying()")
    assert world.run(script).said["reason"] == "drift"
    command(world, "resume", "r", "--redo", "--actor", "ann", code=2)
    command(world, "resume", "r", "--keep", "--actor", "ann")
    assert world.run(script).result == "m-1 saw 1"


def test_an_expired_key_is_told_and_not_sent(world: World) -> None:
    prices(world, "1")
    script = agent(world, sends=True, key_ttl=0.2)
    world.crash(script, at="in send")
    with world.store() as store:
        wait_for(
            lambda: [c.kind for c in store.preview_resume("r").changes] == ["key"], "the key's age"
        )
    report = preflight(world)
    assert changed(report) == {"key": "hold"}
    assert report["in_doubt"] == ["gap_send"]
    assert report["died"]
    ended = world.run(script)
    assert (ended.error, ended.said["reason"]) == ("RunHeld", "in_doubt")
    assert told(world) == ["key: in_doubt"]
    assert world.counts()["send"] == 1
    assert_whole(world)
