"""What belongs to no run is changed by somebody, and that is kept (I21)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import holdfast
from holdfast._operator.cli.main import main
from holdfast._operator.cli.session import os_user
from holdfast._stores import audit_log
from holdfast._stores.contract import Store
from holdfast._stores.sqlite.sqlite_store import SqliteStore


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'runs.db'}"


def cli(url: str, *words: str) -> str:
    told = CliRunner().invoke(main, ["--url", url, *words], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    return str(told.stdout)


def told(url: str) -> list[tuple[str, str, str]]:
    found: Any = msgspec.json.decode(cli(url, "--json", "store", "audit"))["audit"]
    return [(it["actor"], it["what"], it["did"]) for it in found]


def test_i21_what_the_command_line_changes_for_many_runs_is_kept(url: str):
    holdfast.open(url, default=False).close()
    assert "Nothing was changed" in cli(url, "store", "audit")
    cli(url, "queues", "set", "mail", "--concurrency", "3")
    cli(url, "queues", "pause", "mail")
    secret = cli(url, "tokens", "create", "kim", "--role", "operator").strip()
    cli(url, "tokens", "rotate", "kim")
    cli(url, "tokens", "revoke", "kim")
    me = os_user()
    assert told(url) == [
        (me, "token kim", "revoked"),
        (me, "token kim", "rotated"),
        (me, "token kim", "created"),
        (me, "queue mail", "set"),
        (me, "queue mail", "set"),
    ]
    shown = cli(url, "store", "audit")
    assert '"concurrency":3' in shown.replace("\n", "").replace(" ", "")
    detail: Any = msgspec.json.decode(cli(url, "--json", "store", "audit"))["audit"][-1]["detail"]
    assert detail == {
        "concurrency": 3,
        "concurrency_per_key": None,
        "rate": None,
        "rate_per_key": None,
        "period_s": 60.0,
        "paused": False,
    }
    assert secret not in shown
    assert (
        len(msgspec.json.decode(cli(url, "--json", "store", "audit", "--limit", "2"))["audit"]) == 2
    )


def test_i21_what_a_program_changes_for_many_runs_is_kept(url: str):
    with holdfast.open(url) as opened:
        opened.set_queue(holdfast.Queue("mail", concurrency=2), actor="deploy")
        opened.set_queue(holdfast.Queue("mail", concurrency=4))
    assert told(url) == [(os_user(), "queue mail", "set"), ("deploy", "queue mail", "set")]


def test_the_newest_comes_first_through_all_pages_and_the_old_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store: Store = SqliteStore(str(tmp_path / "runs.db"))
    try:
        for number in range(audit_log.PAGE + 20):
            audit_log.record(store, "kim", f"queue {number}", "set")
        found = [it.what for it in audit_log.recorded_changes(store, 1000)]
        assert found == [f"queue {number}" for number in reversed(range(audit_log.PAGE + 20))]
        assert len(audit_log.recorded_changes(store, 7)) == 7
        monkeypatch.setattr(audit_log, "KEPT_US", -1)
        audit_log.record(store, "kim", "queue old", "set")
        assert audit_log.recorded_changes(store, 1)[0].what != "queue old"
    finally:
        store.close()
