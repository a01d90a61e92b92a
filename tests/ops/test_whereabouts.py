"""Commands that import the user's modules use the store that these open, or say that they do not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
from holdfast._operator.cli import default_store
from holdfast._operator.cli.default_store import Opened
from tests.ops.test_cli_run import Command, until

MODULE = """
import holdfast

store = holdfast.open({given})

@holdfast.step
def double(n: int) -> int:
    return 2 * n

@holdfast.flow
def doubled(n: int) -> int:
    return double(n)
"""


@pytest.fixture
def holdfast(tmp_path: Path) -> Command:
    write(tmp_path, '"sqlite:///own.db"')
    return Command(tmp_path)


def write(folder: Path, given: str) -> None:
    (folder / "own_agent.py").write_text(MODULE.format(given=given))


def statuses(path: Path, namespace: str = "default") -> dict[str, str]:
    with hf.open(f"sqlite:///{path}", namespace=namespace, default=False) as store:
        return {run.run_id: run.status for run in store.runs()}


def test_run_uses_the_store_that_the_module_opens(holdfast: Command) -> None:
    done = holdfast("run", "own_agent:doubled", "r", "--input", "[4]")
    assert done.returncode == 0, done.stderr
    assert "Result: 8" in done.stdout
    assert "WARNING" not in done.stderr.upper()
    assert statuses(holdfast.folder / "own.db") == {"r": "completed"}
    assert not (holdfast.folder / "holdfast.db").exists()


def test_the_module_s_namespace_is_used_too(holdfast: Command) -> None:
    write(holdfast.folder, '"sqlite:///own.db", namespace="tests"')
    done = holdfast("run", "own_agent:doubled", "r", "--input", "[4]")
    assert done.returncode == 0, done.stderr
    assert statuses(holdfast.folder / "own.db", "tests") == {"r": "completed"}


def test_a_worker_works_on_the_store_that_the_module_opens(holdfast: Command) -> None:
    code = "import own_agent; own_agent.doubled.submit('r', 4)"
    submit = [sys.executable, "-c", code]
    subprocess.run(submit, cwd=holdfast.folder, env=holdfast.env, check=True)
    process = holdfast.start("worker", "own_agent")
    try:
        until(lambda: statuses(holdfast.folder / "own.db") == {"r": "completed"})
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert "own.db" in err
    assert not (holdfast.folder / "holdfast.db").exists()


@pytest.mark.parametrize("how", ["--url", "HOLDFAST_URL"])
def test_another_store_than_the_module_s_is_used_and_said(holdfast: Command, how: str) -> None:
    other = "sqlite:///other.db"
    words = ["run", "own_agent:doubled", "r", "--input", "[4]"]
    if how == "--url":
        words += ["--url", other]
    else:
        holdfast.env["HOLDFAST_URL"] = other
    done = holdfast(*words)
    assert done.returncode == 0, done.stderr
    assert "the module opened sqlite:///own.db" in done.stderr
    assert other in done.stderr
    assert statuses(holdfast.folder / "other.db") == {"r": "completed"}
    assert statuses(holdfast.folder / "own.db") == {}


def test_the_same_store_under_another_name_is_not_said(holdfast: Command) -> None:
    url = f"sqlite:///{holdfast.folder}/own.db"
    done = holdfast("run", "own_agent:doubled", "r", "--input", "[4]", "--url", url)
    assert done.returncode == 0, done.stderr
    assert "the module opened" not in done.stderr


def test_a_warning_shows_no_password(caplog: pytest.LogCaptureFixture, monkeypatch) -> None:
    mine = Opened("postgresql://app:secret@db/app", "default")
    monkeypatch.setattr(default_store, "_opened_default", lambda: mine)
    default_store.warn("postgresql://app:hidden@other/app", "default")
    assert "app@db/app" in caplog.text
    assert "app@other/app" in caplog.text
    assert "secret" not in caplog.text
    assert "hidden" not in caplog.text


def test_a_store_in_memory_is_not_followed(holdfast: Command) -> None:
    write(holdfast.folder, '"memory:"')
    done = holdfast("run", "own_agent:doubled", "r", "--input", "[4]")
    assert done.returncode == 0, done.stderr
    assert "the module opened memory:" in done.stderr
    assert statuses(holdfast.folder / "holdfast.db") == {"r": "completed"}


def test_open_without_a_url_is_where_everything_else_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    with hf.open(default=False) as store:
        assert store.url.endswith("/holdfast.db")
    assert f"runs are kept in {tmp_path}/holdfast.db" in capsys.readouterr().err
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///named.db")
    with hf.open(default=False) as store:
        assert store.url.endswith("/named.db")
    assert capsys.readouterr().err == ""


def test_an_empty_list_says_where_it_looked(holdfast: Command) -> None:
    with hf.open(f"sqlite:///{holdfast.folder}/holdfast.db", default=False):
        pass
    done = holdfast("runs")
    assert "No runs yet in sqlite:///holdfast.db." in done.stdout
    done = holdfast("runs", "--namespace", "other")
    assert "No runs yet in namespace 'other' of sqlite:///holdfast.db." in done.stdout
