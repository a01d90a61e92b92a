"""`history --follow` and `top` while the server is away: they say so, wait, and go on where they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from holdfast._stores.locate import open_store
from tests.ops.journals import Journal
from tests.ops.terminal import PATIENCE_S, Terminal
from tests.postgres.proxy import Proxy
from tests.postgres.server import Server

IMPATIENT = """
import functools
from holdfast._stores import locate
locate.open_store = functools.partial(locate.open_store, lease_s=3.0)
from holdfast._operator.cli.main import main
main(prog_name="holdfast")
"""
"""A store with a short lease gives up sooner; else that takes twenty seconds."""


def test_they_wait_for_the_server(postgres_server: Server, postgres_database: str) -> None:
    store = open_store(postgres_server.url(postgres_database))
    journal = Journal(store, "r", flow="aw.f").step("before")
    with Proxy(postgres_server.port) as proxy:
        url = proxy.url(postgres_database)
        command = [sys.executable, "-c", IMPATIENT, "--url", url]
        tail = subprocess.Popen(
            [*command, "history", "r", "--follow", "--json", "--after", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        try:
            assert tail.stdout is not None
            lines = (json.loads(line) for line in tail.stdout)
            seen = [next(lines)["event"] for _ in range(5)]
            assert seen == ["entry", "entry", "entry", "entry", "run"]
            with Terminal.holdfast("--url", url, "top") as top:
                top.until("  r ")
                proxy.refuses = True
                proxy.cut_all()
                journal.step("meanwhile")
                top.until("! the store does not answer")
                assert "  r " in top.text  # What was known is still shown.
                assert "no answer for" in top.text
                assert next(lines)["event"] == "away"
                proxy.mend()
                assert next(lines)["event"] == "back"
                top.until(lambda: "does not answer" not in top.text)
                top.press("q")
                assert top.ended() == 0
            journal.completed("done")
            rest = list(lines)
            assert [line["entry"]["step"] for line in rest if line["event"] == "entry"] == [
                *("meanwhile", "meanwhile"),
                None,
            ]
            assert rest[-1]["event"] == "end"
            assert tail.wait(PATIENCE_S) == 0
        finally:
            tail.kill()
            tail.communicate()
            store.close()
