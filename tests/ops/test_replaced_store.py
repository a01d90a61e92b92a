"""A store whose file is taken away or replaced: whoever watches says so, and goes on when it is back."""

import http.client
import json
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast import flow, wait_for_signal
from holdfast._operator.cli.reconnecting_store import reconnecting
from holdfast._stores.locate import open_store
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import StoreError, StoreFailed
from tests.contract.store_contract import new_run
from tests.ops.terminal import Terminal
from tests.web_api.test_serving import ui

PATIENCE_S = 60


@flow
def replaced_waits() -> None:
    wait_for_signal("more")


class Files:
    """The files of a store, which can be taken away and put back; not the same ones, but copies."""

    def __init__(self, folder: Path) -> None:
        self.here, self.kept = folder / "here", folder / "kept"
        self.here.mkdir()
        self.kept.mkdir()
        self.url = f"sqlite:///{self.here}/runs.db"
        with holdfast.open(self.url, default=False) as store:
            replaced_waits.with_options(store=store).submit("replaced-1")

    def take_away(self) -> None:
        for file in self.here.iterdir():
            if file.name in ("runs.db", "runs.db-wal", "runs.db-witness", "runs.db-tokens"):
                shutil.copy(file, self.kept)
            file.unlink()

    def put_back(self) -> None:
        for file in self.kept.iterdir():
            shutil.copy(file, self.here)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_top_says_so_and_goes_on(files: Files):
    with Terminal.holdfast("--url", files.url, "top", columns=200) as terminal:
        terminal.until("replaced-1")
        files.take_away()
        terminal.until("deleted or moved")
        files.put_back()
        terminal.until(
            lambda: "deleted" not in terminal.text and "no database" not in terminal.text
        )
        with holdfast.open(files.url, default=False) as store:
            replaced_waits.with_options(store=store).submit("replaced-2")
        terminal.until("replaced-2")
        terminal.press("q")
        assert terminal.ended() == 0


def test_tail_says_so_and_goes_on(files: Files):
    words = [
        sys.executable,
        "-m",
        "holdfast._operator.cli",
        "--url",
        files.url,
        "--json",
        "runs",
        "--follow",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None

        def next_line() -> dict[str, Any]:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.wait()
            found: dict[str, Any] = json.loads(line)
            return found

        try:
            with holdfast.open(files.url, default=False) as store:
                number = 0
                while not select_ready(process.stdout):
                    number += 1
                    replaced_waits.with_options(store=store).submit(f"replaced-first-{number}")
            assert next_line()["event"] == "run"
            files.take_away()
            while (told := next_line())["event"] == "run":
                pass
            assert told["event"] == "away"
            assert "deleted or moved" in told["error"]["message"]
            files.put_back()
            assert next_line()["event"] == "back"
            with holdfast.open(files.url, default=False) as store:
                replaced_waits.with_options(store=store).submit("replaced-2")
            while next_line()["run_id"] != "replaced-2":
                pass
        finally:
            process.kill()


def select_ready(stream: Any) -> bool:
    return bool(select.select([stream], [], [], 0.5)[0])


def test_the_page_says_so_and_goes_on(files: Files):
    with ui(files.url, "--port", "0") as (_, told):
        address = urlsplit(told["url"]).netloc
        secret = told["token"]

        def asked() -> tuple[int, str]:
            link = http.client.HTTPConnection(address, timeout=30)
            link.request("GET", "/api/v1/runs", headers={"Authorization": f"Bearer {secret}"})
            answer = link.getresponse()
            try:
                return answer.status, answer.read().decode()
            finally:
                link.close()

        def until(status: int) -> str:
            deadline = time.monotonic() + PATIENCE_S
            while (found := asked())[0] != status:
                assert time.monotonic() < deadline, found
                time.sleep(0.05)
            return found[1]

        assert "replaced-1" in until(200)
        files.take_away()
        assert "deleted or moved" in until(503)
        files.put_back()
        assert "replaced-1" in until(200)


def test_another_store_is_not_served_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast._stores.sqlite.sqlite_database.LOOK_EVERY_S", 0)
    path = tmp_path / "a.db"
    first = SqliteStore(str(path))
    first.start(new_run("r"), None)
    served = reconnecting(first, lambda: open_store(f"sqlite:///{path}", create=False))
    assert served.get("r") is not None
    assert served.store_id == first.store_id
    for file in tmp_path.iterdir():
        file.unlink()
    for _ in range(2):
        with pytest.raises(StoreError):
            served.get("r")
    SqliteStore(str(path)).close()
    with pytest.raises(StoreFailed, match="another store is at"):
        served.get("r")
    first.close()
