"""A run that is killed with `kill -9` and resumed is one trace: seen by a receiver of OTLP, to which real
exporters send over real HTTP and gRPC."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import holdfast
from holdfast._engine.telemetry.trace_ids import trace_id_of
from tests.observers.receiver import Receiver, Span

CANARY = "canary-7f3a91"
"""As in the script: part of arguments, results and errors."""
SCRIPT = Path(__file__).parent / "killed.py"
FLOWS = {"sync": "otk-report", "async": "otk-agent"}
FIRST = {"sync": "otk-search", "async": "otk-think"}


class Told:
    """What the receiver got of one run, killed once."""

    def __init__(self, folder: Path, receiver: Receiver, protocol: str, colour: str) -> None:
        self.colour = colour
        self.url = f"sqlite:///{folder / 'runs.db'}"
        self.receiver = receiver
        (folder / "kill").touch()
        first = self._process(folder, protocol, "first")
        assert first.returncode == -signal.SIGKILL, first.stderr
        second = self._process(folder, protocol, "second")
        assert second.returncode == 0, second.stderr
        assert second.stderr == ""
        self.files = {it.name: it.stat().st_size for it in folder.iterdir() if it.is_file()}
        ours = [it for it in receiver.spans() if it.scope == "holdfast"]
        self.all = receiver.spans()
        self.trace = [it for it in self.all if it.trace_id == self.trace_id]
        self.ours = ours

    def _process(self, folder: Path, protocol: str, name: str) -> subprocess.CompletedProcess:
        environment = {
            **os.environ,
            **self.receiver.environment(protocol),
            "OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id={name}",
        }
        command = [sys.executable, str(SCRIPT), self.url, "otk-1", str(folder), self.colour]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    @property
    def trace_id(self) -> str:
        with holdfast.open(self.url, default=False) as store:
            kept = store._engine.backend
            return trace_id_of(kept.store_id, kept.namespace, "otk-1")

    def named(self, name: str, process: str | None = None) -> list[Span]:
        return [it for it in self.trace if it.name == name and process in (None, it.process)]

    def one(self, name: str, process: str | None = None) -> Span:
        found = self.named(name, process)
        assert len(found) == 1, [(it.name, it.process) for it in self.trace]
        return found[0]

    def below(self, parent: Span) -> list[Span]:
        return [it for it in self.trace if it.parent_id == parent.span_id]


@pytest.fixture(scope="module", params=[("http/protobuf", "sync"), ("grpc", "async")], ids=str)
def told(request, tmp_path_factory):
    protocol, colour = request.param
    with Receiver() as receiver:
        yield Told(tmp_path_factory.mktemp("killed"), receiver, protocol, colour)


def test_both_processes_tell_one_trace(told: Told):
    assert {it.trace_id for it in told.ours} == {told.trace_id}
    assert {it.process for it in told.ours} == {"first", "second"}


def test_no_span_is_told_twice(told: Told):
    twice = [it for it, n in Counter((it.trace_id, it.span_id) for it in told.all).items() if n > 1]
    assert twice == []


def test_every_span_has_its_parent(told: Told):
    known = {it.span_id for it in told.trace}
    (root,) = [it for it in told.trace if not it.parent_id]
    assert root.name == f"run {FLOWS[told.colour]}"
    assert root.process == "second"
    assert root["holdfast.status"] == "completed"
    assert [it.name for it in told.trace if it.parent_id and it.parent_id not in known] == []
    assert root.start_ns <= min(it.start_ns for it in told.trace if it.name == "execution")


def test_the_restart_can_be_followed(told: Told):
    before, after = sorted(told.named("execution"), key=lambda it: it["holdfast.epoch"])
    assert before["holdfast.status"] == "died"
    assert before.failed
    assert before.process == "second"  # The first could not tell any more.
    assert after["holdfast.status"] == "completed"
    assert after["holdfast.resumed"]
    to = {it.why: it for it in after.links}
    assert (to["previous_execution"].trace_id, to["previous_execution"].span_id) == (
        told.trace_id,
        before.span_id,
    )
    assert before.start_ns < before.end_ns <= after.start_ns


def test_the_callers_span_is_linked(told: Told):
    requests = [it for it in told.all if it.name == "handle request"]
    assert [it.process for it in requests] == ["second"]  # The first was killed inside its own.
    (after,) = [it for it in told.named("execution") if it["holdfast.epoch"] == 2]
    (caller,) = [it for it in after.links if it.why == "caller"]
    assert (caller.trace_id, caller.span_id) == (requests[0].trace_id, requests[0].span_id)


def test_attempts_are_those_that_were_made(told: Told):
    step = told.one(f"step {FIRST[told.colour]}")
    assert step.process == "first"
    assert step["holdfast.outcome"] == "completed"
    assert step["holdfast.attempts"] == told.files["search"] == 2
    first, second = sorted(told.below(step), key=lambda it: it.start_ns)
    assert (first.name, first.failed, first.status) == ("attempt 1", True, "OSError")
    assert [it.attributes for it in first.events] == [{"exception.type": "OSError"}]
    assert (second.name, second.failed) == ("attempt 2", False)
    assert not step.failed


def test_nothing_is_told_again_on_replay(told: Told):
    replayed = [f"step {FIRST[told.colour]}", "step otk-part", "sleep"]
    assert {it.process for it in told.trace if it.name in replayed} == {"first"}
    assert len(told.named("step otk-part")) == told.files["part"] == 3
    assert len(told.named("sleep")) == 1
    died = next(it for it in told.named("execution") if it["holdfast.status"] == "died")
    assert {it.parent_id for it in told.trace if it.name in replayed} == {died.span_id}


def test_branches_are_told_apart(told: Told):
    parts = told.named("step otk-part")
    keys = {it["holdfast.step"] for it in parts}
    assert len(keys) == 3
    assert {it.name for one in parts for it in told.below(one)} == {"attempt 1"}


def test_the_effect_that_was_killed_is_seen_in_doubt(told: Told):
    killed, settled = sorted(told.named("step otk-publish"), key=lambda it: it.start_ns)
    assert killed["holdfast.outcome"] == "died"
    assert killed.failed
    assert [it.name for it in told.below(killed)] == ["attempt 1"]
    assert settled["holdfast.outcome"] == "completed"
    (doubt, known) = settled.events
    assert (doubt.name, doubt.attributes["holdfast.why"]) == ("step_in_doubt", "process_died")
    assert (known.name, known.attributes["holdfast.source"]) == ("step_settled", "on_doubt")
    assert [it.name for it in told.below(settled)] == ["on_doubt"]
    assert "published" not in told.files


def test_spans_of_libraries_are_children_of_the_attempt(told: Told):
    calls = told.named("POST /search")
    attempts = told.below(told.one(f"step {FIRST[told.colour]}"))
    assert {it.parent_id for it in calls} == {it.span_id for it in attempts}
    assert {it.scope for it in calls} == {"a library"}


def test_model_calls_have_the_names_for_generative_ai(told: Told):
    for attempt in told.below(told.one(f"step {FIRST[told.colour]}")):
        assert attempt["gen_ai.request.model"] == "model-9"
        assert attempt["gen_ai.usage.input_tokens"] == 11
        assert attempt["gen_ai.usage.output_tokens"] == 5
        assert attempt["holdfast.cost_usd"] == 0.25


def test_payloads_and_texts_of_errors_are_nowhere(told: Told):
    assert b"model-9" in told.receiver.everything
    assert CANARY.encode() not in told.receiver.everything


def test_metrics_are_received_too(told: Told):
    points = told.receiver.points()
    outcomes: Counter[tuple[str, str]] = Counter()
    for said, value in points["holdfast.attempts"]:
        outcomes[said["holdfast.step"], said["holdfast.outcome"]] += int(value)
    assert outcomes["otk-last", "completed"] == 1
    assert outcomes["otk-publish", "in_doubt"] == 1
    assert points["holdfast.runs"] == [
        ({"holdfast.flow": FLOWS[told.colour], "holdfast.status": "completed"}, 1)
    ]
    assert {said["holdfast.step"] for said, _ in points["holdfast.step.duration"]} >= {"otk-last"}
    assert [value for _, value in points["holdfast.executing"]] == [0]
