"""Old and new workers side by side, under load: no run is lost, and none is replayed wrongly."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

import holdfast
from tests.crash.harness import SERVER_IN_SWEEPS, Script, World, wait_for

RUNS = 150
CUT_SHORT = 12
"""How many steps the old workers may have cut short at their ends: one in each of their places."""

STUCK = ("stuck at between ", "stuck at charge ")
"""Old code never gets past these places: behind the first step, and inside the effect."""
ONE, TWO = "deploy/agent_v1.py", "deploy/agent_v2.py"
stores = pytest.mark.parametrize("world", ["sqlite", "postgresql"], indirect=True)


class Deployment:
    """Workers of a world, by name."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.workers: dict[str, Script] = {}

    def start(self, script: str, name: str, **env: object) -> None:
        self.workers[name] = self.world.start(script, "work", name, lease_s=2, **env)

    def submit(self, script: str, prefix: str, count: int) -> Script:
        return self.world.start(script, "submit", prefix, count)

    def kill(self, name: str) -> None:
        assert self.workers.pop(name).kill().killed

    def drain(self, name: str) -> str:
        worker = self.workers.pop(name)
        worker.until(f"working {name}").signal(signal.SIGTERM)
        ended = worker.end()
        assert ended.code == 0, ended
        return ended.stderr


@SERVER_IN_SWEEPS
def test_two_versions_side_by_side(world: World) -> None:
    deployment = Deployment(world)
    with world.store() as store:
        deployment.start(ONE, "old 1")
        for stuck in STUCK:
            deployment.submit(ONE, stuck, 2)
        wait_for(lambda: stuck_in(world) == 4, "four runs in the middle")
        for name in ("old 2", "old 3"):
            deployment.start(ONE, name)
        submitters = [deployment.submit(ONE, "first-", RUNS)]
        until_completed(store, 15)
        deployment.start(TWO, "new 1")
        submitters.append(deployment.submit(TWO, "second-", RUNS))
        until_completed(store, 50)
        deployment.kill("old 1")  # The four go to whoever is faster, and may get stuck there again.
        deployment.start(TWO, "new 2")
        until_completed(store, 80)
        deployment.drain("old 2")
        until_completed(store, 110)
        deployment.drain("old 3")
        assert [submitter.end().code for submitter in submitters] == [0, 0]
        until_completed(store, 2 * RUNS + 4)
        said = [deployment.drain(name) for name in ("new 1", "new 2")]
        assert not any("cannot go on" in text for text in said)

        runs = {run.run_id: store.get(run.run_id) for run in store.runs(limit=10_000)}
        assert len(runs) == 2 * RUNS + 4
        for run in runs.values():
            assert is_right(run.run_id, run.result), f"{run.run_id}: {run.result}"
        results = Counter(" ".join(by[-1] for by in run.result) for run in runs.values())
        assert results["1 1"], "old code finished some"
        assert results["2 2 2 2"] >= RUNS, "new code did the new ones, and some that were waiting"
        gone_on = {run_id for run_id in runs if went_on(store, run_id)}
        assert gone_on >= {f"{stuck}{number}" for stuck in STUCK for number in (0, 1)}
        assert not [run_id for run_id in gone_on if run_id.startswith("second")]
        assert [runs[f"{stuck}0"].result for stuck in STUCK] == [
            ["reserve by 1", "check by 2", "charge by 2", "letter by 2"],
            ["reserve by 1", "charge by 2", "letter by 2"],
        ]
        assert store.verify() == []

    counts = Counter((e.run, e.step) for e in world.executions() if not e.run.startswith("stuck"))
    assert sum(counts.values()) - len(counts) <= CUT_SHORT
    strangers = [e for e in world.executions() if e.note == "1" and e.run.startswith("second")]
    assert not strangers, "old code never touched a run of the new version"


def stuck_in(world: World) -> int:
    return len([mark for mark in world.marks.iterdir() if mark.name.startswith("stuck")])


def is_right(run_id: str, result: list[str]) -> bool:
    """Say whether a run took one of the ways that there are, each step by the code that may."""
    names, by = zip(*(text.split(" by ") for text in result), strict=True)
    if run_id.startswith("second"):
        return names == ("reserve", "check", "charge", "letter") and set(by) == {"2"}
    in_order = list(by) == sorted(by)
    old_way = names == ("reserve", "charge") and set(by) == {"1"}
    # Past the place of the check by old code, then gone on with by new code.
    passed = names == ("reserve", "charge", "letter") and by[0] == "1" and by[2] == "2"
    new_way = names == ("reserve", "check", "charge", "letter") and set(by[1:]) == {"2"}
    return in_order and (old_way or passed or new_way)


def went_on(store: holdfast.types.Store, run_id: str) -> bool:
    entries = store.history(run_id)
    kinds = [entry.kind for entry in entries]
    if "change_accepted" not in kinds:
        return False
    [accepted] = [entry for entry in entries if entry.kind == "change_accepted"]
    assert accepted.body == {"actor": "version 2 of handle_order", "exact": True}
    return any(entry.step for entry in entries[: kinds.index("change_accepted")])


@stores
def test_runs_of_a_version_that_nobody_executes_are_said_aloud_and_not_lost(world: World) -> None:
    deployment = Deployment(world)
    assert deployment.submit(ONE, "first-", 5).end().code == 0
    deployment.start(TWO, "new", accepts="")
    with world.store() as store:
        deployment.submit(TWO, "second-", 5)
        until_completed(store, 5)
        explained = " ".join(str(store.explain("first-0")).split())
        assert "alive cannot run version 1 of handle_order; it runs 2" in explained
        said = deployment.drain("new")
        assert "5 runs of version 1 of flow handle_order" in said
        assert said.count("cannot go on") == 1
        assert [run.run_id for run in store.runs(status="queued")] != []
        deployment.start(ONE, "old again")
        until_completed(store, 10)
        deployment.drain("old again")
    assert {e.note for e in world.executions() if e.run.startswith("first")} == {"1"}


def until_completed(store: holdfast.types.Store, count: int) -> None:
    wait_for(
        lambda: len(store.runs(status="completed", limit=count)) == count, f"{count} completed runs"
    )


AGENT = """
import holdfast
from holdfast import flow, step
from tests.crash import probe

@step
def a() -> None:
    probe.executed("a")

@step
def c() -> None:
    probe.executed("c")

{flow}

if __name__ == "__main__":
    import sys
    with probe.open_store() as store:
        if sys.argv[1] == "submit":
            f.submit("r")
        probe.end(lambda: store.recover())
"""
FIRST = AGENT.format(
    flow='@flow(version="1")\ndef f():\n    a()\n    return holdfast.wait_for_signal("go")\n'
)
SECOND = AGENT.format(
    flow='@flow(version="2", accepts_versions=("1",))\ndef f():\n    c()\n    a()\n    return holdfast.wait_for_signal("go")\n'
)


@stores
def test_newer_code_that_does_not_fit_leaves_the_run_to_the_older(world: World) -> None:
    def run(text: str, what: str) -> None:
        path = world.root / "agent.py"
        path.write_text(text)
        ended = world.run(path, what)
        assert (ended.code, ended.result) == (0, ["r"]), ended

    run(FIRST, "submit")
    with world.store() as store:
        store.signal("r", "go", 5)
    for _ in range(2):
        run(SECOND, "recover")
        assert world.status() == "queued"
    with world.store() as store:
        assert [run.run_id for run in store.runs(version="1")] == ["r"]
    run(FIRST, "recover")
    assert (world.status(), world.counts()) == ("completed", {"a": 1})
