"""`holdfast worker --otel`: its processes send traces and metrics where the variables of OpenTelemetry say,
and a run that was unloaded while it waited is one trace."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import holdfast
from tests.observers.otel_flows import total
from tests.observers.receiver import Receiver

ROOT = Path(__file__).parents[2]
FLOWS = "tests/observers/otel_flows.py"


def worker(url: str, environment: dict[str, str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "holdfast._operator.cli", "--url", url, "worker", FLOWS]
    return subprocess.Popen(
        [*command, "--otel"],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextlib.contextmanager
def killed(process: subprocess.Popen) -> Iterator[None]:
    """Leaves no process behind, whatever comes."""
    try:
        yield
    finally:
        process.kill()


def test_a_run_that_was_unloaded_is_one_trace(tmp_path):
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with Receiver() as receiver, holdfast.open(url, default=False) as store:
        with worker(url, receiver.environment("http/protobuf")) as process, killed(process):
            total.with_options(store=store).submit("otw-1", 1)
            receiver.until(lambda: store.get("otw-1").status == "waiting")
            store.signal("otw-1", "otw-go-on", None)
            receiver.until(lambda: store.get("otw-1").status == "completed")
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
        spans = {
            (it.name, it["holdfast.epoch"]) if it.name == "execution" else it.name: it
            for it in receiver.spans()
        }
        assert len({it.trace_id for it in receiver.spans()}) == 1
        first, second = spans["execution", 1], spans["execution", 2]
        root, waited = spans["run otw-sum"], spans["wait otw-go-on"]
        assert first["holdfast.status"] == "waiting"
        assert [(it.span_id, it.why) for it in second.links] == [
            (first.span_id, "previous_execution")
        ]
        # It lasted from one execution into the next, so it is part of neither.
        assert {first.parent_id, second.parent_id, waited.parent_id} == {root.span_id}
        assert waited.start_ns < first.end_ns < second.start_ns < waited.end_ns
        assert receiver.points()["holdfast.runs"][0][1] == 1
        assert receiver.services() == {"holdfast-worker"}


def said_by(environment: dict[str, str], tmp_path: Path) -> tuple[int, str]:
    process = worker(f"sqlite:///{tmp_path / 'runs.db'}", environment)
    said, _ = process.communicate(timeout=60)
    return process.returncode, said


def test_an_exporter_that_is_not_installed_is_named(tmp_path):
    hides = tmp_path / "hides"
    hides.mkdir()
    (hides / "sitecustomize.py").write_text(
        "import sys\nsys.modules['opentelemetry.exporter.otlp.proto.grpc.trace_exporter'] = None\n"
    )
    environment = {"PYTHONPATH": str(hides), "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    code, said = said_by(environment, tmp_path)
    assert code == 2
    assert "pip install opentelemetry-exporter-otlp-proto-grpc" in said


def test_an_exporter_that_is_not_known_is_refused(tmp_path):
    code, said = said_by({"OTEL_TRACES_EXPORTER": "zipkin"}, tmp_path)
    assert code == 2
    assert "OTEL_TRACES_EXPORTER=zipkin" in said
