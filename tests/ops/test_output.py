"""Output that cannot be written is said in one line; a reader who has seen enough is no failure."""

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import flow
from tests.contract.store_contract import new_run

WORDS = [
    ["runs"],
    ["--json", "runs"],
    ["show", "output-1"],
    ["--help"],
    ["runs", "--help"],
    ["--version"],
    ["completion", "bash"],
]


@flow
def output_flow() -> int:
    return 1


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('output')}/runs.db"
    with holdfast.open(url) as store:
        output_flow.run("output-1")
        for number in range(3000):  # More than a pipe takes in.
            store._engine.backend.start(new_run(f"output-{number}-{'x' * 40}"), None)
    return url


def holdfast_command(url: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "holdfast._operator.cli", "--url", url, *words]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_full_disk_is_said_in_one_line(url: str, words: list[str]):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            holdfast_command(url, *words),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == "holdfast: the output cannot be written: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("words", [["runs", "--limit", "3000"], ["--json", "runs"], ["--help"]])
def test_whoever_reads_the_first_line_only_has_seen_enough(url: str, words: list[str]):
    with subprocess.Popen(
        holdfast_command(url, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(30) == 0


def test_nobody_reads_at_all(url: str):
    with subprocess.Popen(
        holdfast_command(url, "runs", "--limit", "2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(30) == 0
