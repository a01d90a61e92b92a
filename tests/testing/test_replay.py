"""Recorded histories against today's code."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import aio, effect, flow, gather, step, testing, turns
from holdfast.context import now, uuid4
from holdfast.errors import Corrupt, RunFailed, RunNotFound, UsageError
from holdfast.testing import Diverged

calls: list[str] = []
today: list[Any] = []
"""The body of the flow as it is now."""


@step(name="replay-load")
def load(topic: str) -> list[str]:
    calls.append("load")
    return [topic * 400] * 20


@step(name="replay-count")
def count(texts: list[str]) -> int:
    calls.append("count")
    return len(texts)


@effect(name="replay-send")
def send(text: str) -> str:
    calls.append("send")
    return f"sent {text}"


@step(name="replay-fail")
def fail() -> None:
    calls.append("fail")
    raise ValueError("no")


@flow(name="replay-report")
def report(topic: str) -> object:
    return today[0](topic)


@flow(name="replay-other")
def other() -> None:
    """Not the one."""


def original(topic: str) -> Any:
    uuid4()
    texts = load(topic)
    number = count(texts)
    return [send(str(number)), texts]


@pytest.fixture(autouse=True)
def _original():
    today[:] = [original]
    calls.clear()


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    with testing.store() as store:
        report.run("r", "x")
        path = tmp_path / "r.json"
        store.export_run("r", path)
    calls.clear()
    return path


def test_the_same_code_replays_and_executes_nothing(exported):
    replayed = testing.replay(report, exported)
    assert calls == []
    assert (replayed.run_id, replayed.status, replayed.steps) == ("r", "completed", 4)
    assert replayed.result[0] == "sent 20"
    assert str(replayed) == "r (completed): 4 recorded steps replayed"


def test_a_file_is_json_with_a_line_for_each_entry(exported):
    text = exported.read_text()
    assert json.loads(text.splitlines()[0]) == {"holdfast_export": 2, "run": "r", "runs": 1}
    assert sum('"kind":"step_completed"' in line for line in text.splitlines()) == 3


def changed(body: Any) -> None:
    today[:] = [body]


def test_other_arguments_are_a_divergence(exported):
    changed(lambda topic: [send(str(count(load(topic + "y"))))])
    with pytest.raises(Diverged, match="r: at replay-load"):
        testing.replay(report, exported)
    assert calls == []


def test_another_order_is_a_divergence(exported):
    def body(topic: str) -> Any:
        uuid4()
        count([])
        return load(topic)

    changed(body)
    with pytest.raises(Diverged, match="replay-load"):
        testing.replay(report, exported)


def test_a_step_that_is_left_out_is_a_divergence(exported):
    def body(topic: str) -> Any:
        uuid4()
        return count(load(topic))

    changed(body)
    with pytest.raises(Diverged, match="without calling what the journal has: replay-send"):
        testing.replay(report, exported)


@pytest.mark.parametrize("more", [lambda: count([]), lambda: send("more"), now])
def test_a_step_that_is_new_in_a_completed_run_is_a_divergence(exported, more):
    def body(topic: str) -> Any:
        result = original(topic)
        more()
        return result

    changed(body)
    with pytest.raises(Diverged, match="has completed, but the flow now calls"):
        testing.replay(report, exported)
    assert calls == []


def test_another_result_is_a_divergence(exported):
    changed(lambda topic: original(topic)[0])
    with pytest.raises(Diverged, match="another result"):
        testing.replay(report, exported)


def test_a_flow_that_raises_now_is_a_divergence(exported):
    def body(topic: str) -> Any:
        original(topic)
        raise KeyError("new")

    changed(body)
    with pytest.raises(Diverged, match="now stops"):
        testing.replay(report, exported)


def test_a_run_that_has_not_ended_may_go_on(tmp_path):
    def body(topic: str) -> Any:
        load(topic)
        fail()

    changed(body)
    with testing.store() as store:
        with pytest.raises(RunFailed):
            report.run("r", "x")
        path = tmp_path / "r.json"
        store.export_run("r", path)
    calls.clear()
    assert testing.replay(report, path).status == "failed"

    def mended(topic: str) -> Any:
        try:
            body(topic)
        except Exception:
            return send("it failed")

    changed(mended)
    assert testing.replay(report, path).steps == 2
    assert calls == []
    changed(lambda topic: count([]))
    with pytest.raises(Diverged):
        testing.replay(report, path)


def test_loops_branches_and_async_flows_replay(tmp_path):
    @flow(name="replay-loops")
    def loops() -> int:
        for state in turns({"n": 0}, max_turns=9):
            state["n"] += sum(gather(lambda: count(["a"]), lambda: count(["a", "b"])))
            if state["n"] >= 9:
                return state["n"]
        raise AssertionError

    @step(name="replay-awaited")
    async def awaited(n: int) -> int:
        calls.append("awaited")
        return n

    @flow(name="replay-async")
    async def gathering() -> int:
        return sum(await aio.gather(awaited(1), awaited(2)))

    with testing.store() as store:
        loops.run("loops")
        asyncio.run(gathering.run("async"))
        paths = [tmp_path / name for name in ("loops", "async")]
        for path in paths:
            store.export_run(path.name, path)
    calls.clear()
    assert testing.replay(loops, paths[0]).result == 9
    assert testing.replay(gathering, paths[1]).result == 3
    assert calls == []


def test_a_sqlite_run_is_exported_alike(tmp_path):
    with testing.store(url="sqlite:") as store:
        report.run("r", "x")
        path = tmp_path / "r.json"
        store.export_run("r", path)
    calls.clear()
    assert testing.replay(report, path).steps == 4


def test_an_edited_file_is_refused(exported):
    text = exported.read_text()
    exported.write_text(text.replace('"sent 20"', '"sent 21"', 1))
    with pytest.raises(Corrupt, match="entry"):
        testing.replay(report, exported)
    lines = text.splitlines()
    del lines[-3]
    lines[-3] = lines[-3].rstrip(",")
    exported.write_text("\n".join(lines))
    with pytest.raises(Corrupt, match="entries are missing"):
        testing.replay(report, exported)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"holdfast_export":1}'])
def test_a_file_that_is_none_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="not an exported run"):
        testing.replay(report, path)


def test_a_file_of_another_version_or_flow_is_refused(exported):
    with pytest.raises(UsageError, match="is a run of 'replay-report', not of 'replay-other'"):
        testing.replay(other, exported)
    exported.write_text(exported.read_text().replace('"holdfast_export":2', '"holdfast_export":99'))
    with pytest.raises(UsageError, match="format 99"):
        testing.replay(report, exported)


def test_a_run_that_is_not_there_cannot_be_exported(tmp_path):
    with testing.store() as store, pytest.raises(RunNotFound):
        store.export_run("nobody", tmp_path / "x.json")
