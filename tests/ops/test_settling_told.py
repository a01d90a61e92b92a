"""Who settles a step by the id of its call alone is told the command that is meant."""

from __future__ import annotations

import shlex
from pathlib import Path

from click.testing import CliRunner, Result

from holdfast._operator.cli.main import main
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.ops.journals import Journal


def settled(url: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["--url", url, "settle", "r", *words])


def test_the_id_of_a_call_is_completed(tmp_path: Path) -> None:
    store = SqliteStore(f"{tmp_path}/runs.db")
    Journal(store, "r").held_in_doubt("pay:call_1")
    store.close()
    url = f"sqlite:///{tmp_path}/runs.db"
    refused = settled(url, "call_1", "--fail", "too late")
    assert refused.exit_code == 2
    line = refused.stderr.partition("If pay:call_1 is meant: ")[2].strip()
    assert "settle r pay:call_1 --fail 'too late'" in line
    assert "is meant" not in settled(url, "call_2", "--not-done").stderr
    quoted = settled(url, "pay:call_1", "--done", "paid").stderr
    assert "a string needs its quotes" in quoted
    assert CliRunner().invoke(main, shlex.split(line)[1:]).exit_code == 0
