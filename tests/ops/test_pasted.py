"""Commands that `explain` prints, pasted: each does what the text says, and nothing happens twice.

`situations.py` has the runs, made by real processes that really died, and what each command is to
lead to. A command that is printed and not listed there, or the other way round, fails a test. It is
pasted as it stands, but for what the text leaves to the reader: `FILLED`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import holdfast as hf
from holdfast._operator.cli.main import main
from tests.ops import cases_found, cases_waiting, pasted_flows, situations_open
from tests.ops.cases import CASES
from tests.ops.prompt import Prompt
from tests.ops.situations import SITUATIONS, Then
from tests.tidy.source import ROOT

assert situations_open, (cases_found, cases_waiting)  # They add to the situations and cases.

FILLED = {
    "JSON": "'\"by hand\"'",
    "REASON": "'nobody knows'",
    "VALUE": "5",
    "MODULE": "tests.ops.pasted_flows",
    "BACKUP": "backup.db",
}
PATIENCE_S = 60
FLOWS = [it for it in vars(pasted_flows).values() if isinstance(it, hf.types.Flow)]
BIN = Path(sys.executable).parent
PASTED = [(name, command) for name, it in SITUATIONS.items() for command in it.leads]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All situations, made once for all processes of the test run."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = base / "situations"
    with (base / "situations.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (base / "situations.made").exists():
            folder.mkdir()
            words = [sys.executable, "-m", "tests.ops.make_situations", str(folder)]
            env = os.environ | {"PYTHONPATH": str(ROOT)}
            subprocess.run(words, env=env, check=True, timeout=PATIENCE_S)
            (base / "situations.made").touch()
    return folder


@pytest.fixture(scope="module")
def prompt() -> Iterator[Prompt]:
    prompt = Prompt()
    yield prompt
    prompt.close()


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A copy of a situation, which is then the current folder."""

    def copied(name: str) -> Path:
        shutil.copytree(made / name, tmp_path / name)
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / name

    return copied


def printed() -> list[str]:
    """The commands that `explain` prints, of the store in the current folder."""
    said = CliRunner().invoke(main, ["explain", "r"], catch_exceptions=False).output
    return [line.strip() for line in said.splitlines() if line.startswith("      holdfast ")]


def listed(command: str) -> str:
    """A printed command as it is listed: what differs from run to run has a name."""
    command = re.sub(r"--digest [0-9a-f]{32}", "--digest DIGEST", command)
    return re.sub(r"sqlite:////\S+/there.db", "sqlite:///there.db", command)


def paste(command: str, prompt: Prompt, *, in_a_shell: bool = True) -> tuple[int, str]:
    for name, text in FILLED.items():
        command = re.sub(rf"\b{name}\b", text, command)
    if not in_a_shell:
        quick = prompt(shlex.split(command)[1:], Path.cwd(), os.environ)
        return quick.returncode, quick.stdout
    done = subprocess.run(
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def pasted_worker(command: str, *, in_a_shell: bool) -> tuple[int, str]:
    """A worker works until it is told to end: when it has done what it was started for."""
    if not in_a_shell:
        with hf.open("sqlite:///holdfast.db", default=False) as store, store.worker(flows=FLOWS):
            _until_completed(store)
        return 0, ""
    words = shlex.split(command.replace("MODULE", FILLED["MODULE"]))
    with subprocess.Popen(
        words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        with hf.open("sqlite:///holdfast.db", default=False) as store:
            _until_completed(store)
        process.send_signal(signal.SIGTERM)
        told, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, told


def _until_completed(store: hf.types.Store) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while store.get("r").status != "completed":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def status() -> str:
    with hf.open("sqlite:///holdfast.db", default=False) as store:
        row = store._backend.get("r")
        assert row is not None
        return str(row.status)


def happened() -> Counter[str]:
    log = Path("done.log")
    return Counter(log.read_text().split() if log.exists() else [])


def go_on() -> None:
    """What a process that has the flow does, until nothing is left to do."""
    with hf.open("sqlite:///holdfast.db", default=False) as store:
        while store.recover():
            pass


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_command_that_is_printed_is_tried(name: str, place: Callable[[str], Path]):
    place(name)
    assert sorted(map(listed, printed())) == sorted(SITUATIONS[name].leads)


@pytest.mark.parametrize(("name", "command"), PASTED)
def test_a_command_does_what_the_text_says(
    name: str, command: str, place: Callable[[str], Path], prompt: Prompt
):
    place(name)
    then: Then = SITUATIONS[name].leads[command]
    [exact] = [it for it in printed() if listed(it) == command]
    before = happened()
    prepare(then.after, prompt)
    if command.startswith("holdfast worker"):
        code, told = pasted_worker(exact, in_a_shell=then.in_a_shell)
    else:
        code, told = paste(exact, prompt, in_a_shell=then.in_a_shell)
    assert (code, status()) == (then.code, then.status), told
    if then.ends is not None:
        assert happened() == before, "a decision executes nothing"
        go_on()
        assert status() == then.ends
    assert happened() == (before if then.log is None else Counter(then.log.split()))


def prepare(after: str, prompt: Prompt) -> None:
    """What the text says is to be done before: a command of ours that it prints, or what mends it."""
    if after.startswith("holdfast"):
        [exact] = [it for it in printed() if listed(it) == after]
        assert paste(exact, prompt, in_a_shell=False)[0] == 0
    elif after:
        assert subprocess.run(after, shell=True, check=False).returncode == 0


def test_situations_are_named_like_the_texts():
    assert set(SITUATIONS) <= set(CASES)
