"""Every command on a real server; what is said when it cannot be reached; and no password anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import holdfast as hf
from holdfast import Budget, ask, effect, flow, gather
from holdfast._operator.cli.main import main
from holdfast._stores.addresses import without_password, without_secrets
from holdfast._stores.contract import ScheduleRow
from holdfast._stores.locate import open_store
from holdfast.errors import StoreUnusable
from tests.ops.journals import Journal
from tests.ops.test_cli_run import PATIENCE_S, Command, until
from tests.postgres.server import Server

CANARY = "c4n4ry-pass"
MODULE = "tests.ops.agent"
LOOKING = {"runs", "show", "history", "explain", "state", "top", "trends", "doctor"}
LOOKING |= {"queues list", "queues show", "schedules list", "tokens list", "memory list"}
LOOKING |= {"store verify", "store audit", "completion"}
ACTING = {"settle", "resume", "queues pause", "queues resume", "queues set", "schedules pause"}
ACTING |= {"schedules resume", "tokens create", "tokens rotate", "tokens revoke"}
ACTING |= {"store accept-data-loss", "store backup", "store restore", "store move"}
STEERING = {"questions", "answer", "approve", "signal", "cancel", "pause", "reject", "rollback"}
STEERING |= {"fork", "set-budget", "memory set", "memory get", "memory delete"}
STEERING |= {"store export", "store import", "store prune"}
EXECUTING = {"run", "worker", "demo", "ui", "mcp"}
SPEC = (
    b'{"when":{"cron":"0 9 * * *","every_us":null,"timezone":"UTC","anchor_us":0},'
    b'"catch_up":"latest","input":{}}'
)


@pytest.fixture
def holdfast(postgres_url: str) -> Callable[..., Result]:
    def invoke(*words: str, url: str = postgres_url) -> Result:
        return CliRunner().invoke(main, ["--url", url, *words], catch_exceptions=False)

    return invoke


def has_schema(server: Server, database: str) -> bool:
    found = server.execute("SELECT to_regclass('holdfast.schema') IS NOT NULL", database)
    return bool(found[0][0])


def command_names(group: click.Group, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from command_names(command, f"{name} ")
        else:
            yield before + name


def test_every_command_is_walked_below() -> None:
    assert set(command_names(main)) == LOOKING | ACTING | STEERING | EXECUTING


# -- a server with runs ------------------------------------------------------------------------


@pytest.fixture
def runs(postgres_url: str) -> Iterator[None]:
    store = open_store(postgres_url)
    Journal(store, "done", input={"topic": "x"}).step("search", ["a"]).completed({"ok": True})
    Journal(store, "failed").step("search").failing("think", 2).failed("think")
    Journal(store, "held").step("search").held_in_doubt("charge", args={"n": 1})
    yield
    store.close()


def test_looking(holdfast: Callable[..., Result], runs: None) -> None:
    walked = {
        "runs": holdfast("runs"),
        "show": holdfast("show", "done"),
        "history": holdfast("history", "done"),
        "explain": holdfast("explain", "held"),
        "queues list": holdfast("queues"),
        "queues show": holdfast("queues", "show", "default"),
        "schedules list": holdfast("schedules"),
        "memory list": holdfast("memory"),
        "store verify": holdfast("store", "verify"),
        "doctor": holdfast("doctor", "done"),
        "state": holdfast("state", "done", "--list"),
        "top": holdfast("top", "--once"),
        "trends": holdfast("trends"),
        "tokens list": holdfast("tokens"),
        "completion": holdfast("completion", "bash"),
        "store audit": holdfast("store", "audit"),
    }
    assert set(walked) == LOOKING
    for name, result in walked.items():
        assert result.exit_code == 0, (name, result.output)
    assert "held: in_doubt" in walked["runs"].stdout
    assert '{"ok":true}' in walked["show"].stdout
    assert "run_completed" in walked["history"].stdout
    assert "settle held charge --not-done" in walked["explain"].stdout
    assert "default" in walked["queues list"].stdout
    assert "All stored data is undamaged" in walked["store verify"].stdout
    assert "run_completed" in holdfast("history", "done", "--follow").stdout
    assert "held" in walked["top"].stdout
    for words in (["runs"], ["show", "done"], ["history", "done"], ["explain", "held"], ["queues"]):
        assert json.loads(holdfast(*words, "--json").stdout)["version"] == 1
    assert holdfast("show", "nobody").exit_code == 6


def test_acting(
    holdfast: Callable[..., Result], runs: None, postgres_url: str, tmp_path: Path
) -> None:
    with hf.open(postgres_url, default=False) as store:
        row = ScheduleRow("nightly", "pay", SPEC.decode(), 1, False)
        assert store._backend.put_schedule(row, None)
    a_file = tmp_path / "a.db"
    a_file.touch()
    walked = {
        "settle": holdfast("settle", "held", "charge", "--not-done"),
        "resume": holdfast("resume", "failed"),
        "queues pause": holdfast("queues", "pause", "mails"),
        "queues set": holdfast("queues", "set", "mails", "--concurrency", "2"),
        "queues resume": holdfast("queues", "resume", "mails"),
        "schedules pause": holdfast("schedules", "pause", "nightly"),
        "schedules resume": holdfast("schedules", "resume", "nightly"),
        "tokens create": holdfast("tokens", "create", "kim"),
        "tokens rotate": holdfast("tokens", "rotate", "kim"),
        "tokens revoke": holdfast("tokens", "revoke", "kim"),
        "store accept-data-loss": holdfast("store", "accept-data-loss"),
        "store backup": holdfast("store", "backup", str(tmp_path / "copy.db")),
        "store restore": holdfast("store", "restore", str(a_file)),
        "store move": holdfast(
            "store", "move", postgres_url, f"sqlite:///{tmp_path}/b.db", "--run", "done"
        ),
    }
    assert set(walked) == ACTING
    codes = {name: result.exit_code for name, result in walked.items()}
    assert codes == dict.fromkeys(ACTING, 0) | {"store backup": 1, "store restore": 2}, walked
    assert "settled as not done" in walked["settle"].stdout
    assert "pg_dump" in walked["store backup"].stderr
    assert "pg_restore" in walked["store restore"].stderr
    many = holdfast("resume", "--failed", "--yes")
    assert many.exit_code == 0


@effect(name="pg-pay", needs_approval=True)
def pay(amount: int) -> str:
    return f"paid {amount}"


@flow(name="pg-asks", budget=Budget(steps=5))
def asks() -> list[Any]:
    return list(gather(lambda: ask("Go?", name="go", type=bool), lambda: pay(7)))


def test_steering(
    holdfast: Callable[..., Result], runs: None, postgres_url: str, tmp_path: Path
) -> None:
    with hf.open(postgres_url, default=False) as store:
        for run_id in ("asks", "stopped"):
            asks.with_options(store=store).submit(run_id)
        with store.worker(flows=[asks], concurrency=2):
            until(lambda: len(store.questions()) == 4)
    questions = holdfast("questions", "--run", "asks")
    assert "answer     true or false" in questions.stdout
    walked = {
        "questions": questions,
        "answer": holdfast("answer", "asks", "go", "true"),
        "approve": holdfast("approve", "asks", "gather[1]/pg-pay", "--yes"),
        "signal": holdfast("signal", "asks", "more", "soon"),
        "set-budget": holdfast("set-budget", "asks", "--steps", "9"),
        "pause": holdfast("pause", "asks"),
        "reject": holdfast("reject", "stopped", "go"),
        "cancel": holdfast("cancel", "stopped", "--reason", "enough"),
        "fork": holdfast("fork", "done", "again", "--before", "search"),
        "rollback": holdfast("rollback", "done", "--dry-run"),
        "memory set": holdfast("memory", "set", "notes", "key", "1"),
        "memory get": holdfast("memory", "get", "notes", "key"),
        "memory delete": holdfast("memory", "delete", "notes", "key"),
        "store export": holdfast("store", "export", "done", str(tmp_path / "done.jsonl")),
        "store import": holdfast("store", "import", str(tmp_path / "done.jsonl")),
        "store prune": holdfast("store", "prune", "--older-than", "0", "--yes"),
    }
    assert set(walked) == STEERING
    assert holdfast("resume", "asks", "--dry-run").exit_code == 0
    for name, result in walked.items():
        assert result.exit_code == 0, (name, result.output)
    assert "is answered by" in walked["answer"].stdout
    assert "is given by" in walked["approve"].stdout
    assert "already exists, unchanged" in walked["store import"].stdout
    assert holdfast("show", "stopped").exit_code == 6
    assert "run 'again' was forked from it" in walked["store prune"].stdout
    assert walked["memory get"].stdout.strip() == "1"
    assert holdfast("memory").stdout.strip() == "notes"


# -- no store yet ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["runs"], 0),
        (["queues"], 0),
        (["schedules"], 0),
        (["show", "r"], 1),
        (["history", "r"], 1),
        (["explain", "r"], 1),
        (["store", "verify"], 1),
        (["queues", "show", "mails"], 1),
        (["resume", "r"], 1),
        (["settle", "r", "s", "--not-done"], 1),
        (["schedules", "pause", "s"], 1),
        (["store", "accept-data-loss"], 1),
    ],
)
def test_a_command_that_starts_nothing_makes_no_store(
    holdfast: Callable[..., Result],
    postgres_server: Server,
    postgres_database: str,
    words: list[str],
    code: int,
) -> None:
    result = holdfast(*words)
    assert result.exit_code == code
    assert "there is no store at postgresql://" in result.output
    assert not has_schema(postgres_server, postgres_database)


def test_a_dry_copy_makes_no_store(
    postgres_url: str, postgres_server: Server, postgres_database: str, tmp_path: Path
) -> None:
    source = f"sqlite:///{tmp_path}/a.db"
    hf.open(source, default=False).close()
    for words in ([source, postgres_url, "--dry-run"], [postgres_url, source]):
        CliRunner().invoke(main, ["store", "move", *words], catch_exceptions=False)
        assert not has_schema(postgres_server, postgres_database)


# -- what is wrong is said ---------------------------------------------------------------------

HINT = "is the server running"


def test_a_database_that_does_not_exist(holdfast: Callable[..., Result], postgres_server: Server):
    result = holdfast("runs", url=postgres_server.url("nothing"))
    assert result.exit_code == 1
    assert 'database "nothing" does not exist' in result.stderr
    assert "createdb" in result.stderr
    assert HINT not in result.stderr


def test_an_option_that_does_not_exist(holdfast: Callable[..., Result], postgres_url: str):
    result = holdfast("runs", url=f"{postgres_url}?nonsense=1")
    assert result.exit_code == 1
    assert "nonsense" in result.stderr
    assert HINT not in result.stderr


def test_a_server_that_is_away(holdfast: Callable[..., Result]):
    result = holdfast("runs", url="postgresql://me@127.0.0.1:1/app")
    assert result.exit_code == 1
    assert HINT in result.stderr


def test_a_driver_that_is_missing(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith("holdfast._stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    result = CliRunner().invoke(main, ["--url", "postgresql://db/app", "runs"])
    assert result.exit_code == 1
    assert "pip install" in result.stderr


def test_another_encoding_is_named(holdfast: Callable[..., Result], postgres_server: Server):
    postgres_server.execute(
        "CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
    )
    result = holdfast("runs", url=postgres_server.url("ascii"))
    postgres_server.execute("DROP DATABASE ascii")
    assert result.exit_code == 1
    assert "has the encoding SQL_ASCII" in result.stderr
    assert "fsync" not in result.stderr


# -- no password anywhere ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://me:secret@db:5432/app", "postgresql://me@db:5432/app"),
        ("postgresql://me:s:e/c?r@et@db/app?pool=2", "postgresql://me@db/app?pool=2"),
        ("postgresql://db/app?user=me&password=secret", "postgresql://db/app?user=me"),
        ("postgresql://db/app?sslpassword=secret", "postgresql://db/app"),
        ("postgresql://me:x?y=secret@db/app", "postgresql://…"),
        ("postgresql://me:secret#x@db/app", "postgresql://me@db/app"),
        ("postgersql://me:secret@db/app", "postgersql://me@db/app"),
        ("host=db password=secret", "host=db password=…"),
        ("postgresql://[::1]:5432/app", "postgresql://[::1]:5432/app"),
        ("sqlite:////a:b@c.db?mode=ro", "sqlite:////a:b@c.db?mode=ro"),
        ("memory:", "memory:"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, told: str) -> None:
    assert without_password(url) == told
    assert without_secrets(f"no secret {told}", "postgresql://me:secret@db") == f"no … {told}"


@pytest.mark.parametrize(
    "url",
    [
        "postgersql://me:{}@127.0.0.1:1/app",
        "postgresql://me:{}@127.0.0.1:1/app",
        "postgresql://me:{}/x@127.0.0.1:1/app",
        "postgresql://me:{}?x@127.0.0.1:1/app",
        "postgresql://me:{}#x@127.0.0.1:1/app",
        "postgresql://me:x@{}/y@127.0.0.1:1/app",
        "postgresql://me:[{}@127.0.0.1:1/app",
        "postgresql://me@127.0.0.1:1/app?password={}",
        "postgresql://me:{}%@127.0.0.1:1/app",
        "postgresql://me:{}@127.0.0.1:1/app?pool=x",
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_wrong_address_is_refused_without_its_password(url: str, options: list[str]) -> None:
    words = ["--url", url.format(CANARY), "store", "verify", *options]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 1
    assert CANARY not in result.output
    with pytest.raises(StoreUnusable) as caught:
        open_store(url.format(CANARY))
    error: BaseException | None = caught.value
    while error is not None:
        assert CANARY not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


class Guarded(Command):
    """Commands whose address has a password, in the environment."""

    said: str = ""

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Invoke a command that only looks, in this process, which is quicker."""
        runner = CliRunner(env={"HOLDFAST_URL": self.env["HOLDFAST_URL"]})
        done = runner.invoke(main, list(words), catch_exceptions=False)
        self.said += done.output
        return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)

    def executed_apart(self, *words: str) -> int:
        """Invoke a command in a process of its own."""
        done = super().__call__(*words)
        self.said += done.stdout + done.stderr
        return done.returncode


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Guarded, str]]:
    """A server that wants a password."""
    with Server() as server:
        server.execute(f"ALTER ROLE holdfast PASSWORD '{CANARY}'")
        url = server.database("app").replace("@", f":{CANARY}@", 1)
        hba = server.data / "pg_hba.conf"
        hba.write_text("host all all 127.0.0.1/32 scram-sha-256\n")
        server.program("pg_ctl", "reload", "-D", str(server.data))
        command = Guarded(tmp_path)
        command.env["HOLDFAST_URL"] = url
        yield command, url


def arguments() -> str:
    """The arguments of all processes of this machine."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode("utf-8", "replace"))
        except OSError:
            continue  # It is gone.
    return "\n".join(found)


def test_the_password_is_nowhere(guarded: tuple[Guarded, str], tmp_path: Path) -> None:
    holdfast, url = guarded
    worker = holdfast.start("worker", MODULE, "--processes", "2")
    try:
        # Meanwhile another one, whose own process is given the address too.
        assert holdfast.executed_apart("run", f"{MODULE}:fails", "f") == 4, holdfast.said
        until(lambda: len(holdfast.json("queues")["workers"]) == 2)
        seen = arguments()
        assert "holdfast._operator.cli.worker_process" in seen
        assert CANARY not in seen
    finally:
        worker.terminate()
        out, err = worker.communicate(timeout=PATIENCE_S)
    holdfast.said += out + err
    for words in (["runs"], ["show", "f"], ["explain", "f"], ["history", "f"], ["queues"]):
        assert holdfast(*words).returncode == 0
        assert holdfast(*words, "--json").returncode == 0
    for words in (["explain", "f"], ["show", "nobody"], ["runs"]):
        result = CliRunner().invoke(main, ["--url", url, *words], catch_exceptions=False)
        assert result.exit_code in (0, 6)
        holdfast.said += result.output
    assert "--url postgresql://holdfast@127.0.0.1" in holdfast.said
    holdfast.env["HOLDFAST_URL"] = url.replace(CANARY, f"wrong-{CANARY}")
    wrong = holdfast("runs")
    assert wrong.returncode == 1
    assert "password authentication failed" in wrong.stderr
    assert "~/.pgpass" in wrong.stderr
    assert HINT not in wrong.stderr
    holdfast.env["HOLDFAST_URL"] = url.replace(f":{CANARY}", "")
    assert "~/.pgpass" in holdfast("runs").stderr
    assert CANARY not in holdfast.said
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or CANARY not in file.read_text("utf-8", "replace")
