"""The reference says what the commands do: every command, every field of their JSON, and what each
really prints is held against the types that the pages are made of."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

import holdfast
from holdfast import Budget, ask, effect, errors, flow, step, turns, wait_for_signal
from holdfast._features.schedules.model import Spec, When
from holdfast._operator.cli import exit_codes
from holdfast._operator.cli.command_list import COMMANDS as MODULES, SECTIONS
from holdfast._operator.cli.json_output import SHAPES, answer_type, failure_type
from holdfast._operator.cli.main import main
from holdfast._operator.cli.reference import json_page, json_schema, reference
from holdfast._operator.read.queue_views import workers
from holdfast._stores.contract import ScheduleRow, Store
from holdfast.errors import RunFailed, RunHeld
from tests.ops.journals import Journal
from tests.tidy.source import ROOT

CODE_NAMES = {
    *("OK", "ERROR", "USAGE", "HELD", "FAILED", "BUSY"),
    *("NOT_FOUND", "DAMAGED", "CANCELLED", "INTERRUPTED"),
}


def shape_of(name: str) -> str:
    """Return which type the output of a command has that stands in the table below."""
    return name if name in SHAPES else name.partition(" -")[0].partition(" RUN")[0]


def command_names(group: click.Group = main, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from command_names(command, f"{name} ")
        else:
            yield before + name


def test_every_command_is_in_it() -> None:
    assert {name.removesuffix(" --follow") for name in SHAPES} == set(command_names())
    page = reference()
    assert "\\b" not in page, "a docstring has the two characters that stand for click's mark"
    for name in main.commands:
        assert f"## holdfast {name}\n" in page
    assert "\x08" not in page
    assert re.findall(r"^  --help", page, re.M) == []  # Every command takes -h as well.


def exit_code_rows(page: Path) -> list[list[str]]:
    """Return the cells of the table under the heading "Exit codes" of a page."""
    text = page.read_text(encoding="utf-8").partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| (\d+) \| (.*?) \|(?: (.*?) \|)?$", text, re.M)


def test_the_table_of_exit_codes_says_what_the_code_does() -> None:
    rows = exit_code_rows(ROOT / "docs" / "reference" / "cli.md")
    constants = {number for name, number in vars(exit_codes).items() if name in CODE_NAMES}
    assert {int(code): meaning for code, meaning, _errors in rows} == exit_codes.MEANINGS
    assert [int(code) for code, _meaning, _errors in rows] == sorted(constants)

    named = {name: int(code) for code, _, names in rows for name in re.findall(r"`(\w+)`", names)}
    for kind in vars(errors).values():
        if not isinstance(kind, type) or not issubclass(kind, errors.HoldfastError):
            continue
        error = kind.__new__(kind)
        error.__dict__.setdefault("file", None)
        told = [named[base.__name__] for base in kind.__mro__ if base.__name__ in named]
        assert exit_codes.code_of(error) == (told or [exit_codes.ERROR])[0], kind


def test_only_the_reference_has_a_table_of_exit_codes() -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if exit_code_rows(page)]
    assert [page.name for page in pages] == ["cli.md"]


def test_the_help_has_every_command_once_and_fits_into_80_columns() -> None:
    text = CliRunner(env={"COLUMNS": "80"}).invoke(main, ["--help"]).output
    for name in main.commands:
        assert len(re.findall(rf"^  {re.escape(name)}  ", text, re.M)) == 1, name
    assert {name for names in SECTIONS.values() for name in names} == set(main.commands)
    for name in command_names():
        text += CliRunner(env={"COLUMNS": "80"}).invoke(main, [*name.split(), "--help"]).output
    # What can be chosen stands in one word, which click does not fold.
    long = [line for line in text.splitlines() if len(line) > 80 and "[" not in line]
    assert long == []


# -- what commands print -----------------------------------------------------------------------


@step(name="rf.say")
def say(n: int) -> str:
    return f"said {n}"


@effect(name="rf.pay")
def pay(n: int) -> str:
    raise TimeoutError("no answer")


@effect(name="rf.book")
def book(n: int) -> str:
    return "booked"


@book.undo
def unbook(result: str, n: int) -> None:
    pass


@flow(name="rf.loop")
def loop() -> str:
    for state in turns({"n": 0}):
        said = say(state["n"])
        state["n"] += 1
        if state["n"] == 3:
            return book(3) + said
    raise AssertionError


@flow(name="rf.doubtful")
def doubtful() -> str:
    return pay(1)


@flow(name="rf.broken")
def broken() -> None:
    raise ValueError("broken")


@flow(name="rf.asks")
def asks() -> str:
    return ask("Which?", name="which", type=str)


@flow(name="rf.waits")
def waits() -> Any:
    return wait_for_signal("go")


@flow(name="rf.spends")
def spends() -> str:
    say(1)
    return say(2)


@effect(name="rf.approved", needs_approval=True)
def approved(n: int) -> int:
    return n


@flow(name="rf.approval")
def approval() -> int:
    return approved(1)


@pytest.fixture
def everything(url: str) -> Iterator[holdfast.types.Store]:
    """A store with runs in every state that the commands ask for."""
    with holdfast.open(url) as opened:
        loop.run("done")
        loop.run("other")
        for run_id in ("held", "held-2"):
            with pytest.raises(RunHeld):
                doubtful.run(run_id)
        for run_id in ("failed", "failed-2"):
            with pytest.raises(RunFailed):
                broken.run(run_id)
        with pytest.raises(RunHeld):
            spends.with_options(budget=Budget(steps=1)).run("poor")
        for waiting, name in (
            *((asks, "asks"), (asks, "asks-2"), (waits, "waits")),
            *((approval, "buys"), (approval, "buys-2")),
        ):
            waiting.submit(name)
        with opened.worker(flows=[asks, waits, approval]):
            while len(opened.runs(status="waiting")) < 5:
                opened._backend.wait_for_change(1.0)
        loop.submit("queued")
        loop.submit("queued-2")
        spec = msgspec.json.encode(Spec(When(every_us=3_600_000_000))).decode()
        row = ScheduleRow("hourly", "rf.loop", spec, opened._backend.now_us())
        assert opened._backend.put_schedule(row, None)
        yield opened


COMMANDS: dict[str, list[str]] = {
    "runs": ["runs"],
    "show": ["show", "done"],
    "explain": ["explain", "held"],
    "history": ["history", "done"],
    "state": ["state", "done"],
    "state --list": ["state", "done", "--list"],
    "state --between": ["state", "done", "--between", "6", "99"],
    "history --follow": ["history", "failed", "--follow"],
    "top": ["top"],
    "questions": ["questions"],
    "queues list": ["queues"],
    "queues show": ["queues", "show", "default"],
    "schedules list": ["schedules"],
    "schedules pause": ["schedules", "pause", "hourly"],
    "schedules resume": ["schedules", "resume", "hourly"],
    "trends": ["trends"],
    "store audit": ["store", "audit"],
    "doctor": ["doctor"],
    "doctor RUN_ID": ["doctor", "done"],
    "store verify": ["store", "verify"],
    "resume --dry-run": ["resume", "held", "--dry-run"],
    "settle": ["settle", "held", "rf.pay", "--done", '"paid"'],
    "resume": ["resume", "failed"],
    "resume --failed": ["resume", "--failed", "--yes"],
    "resume --diverged": ["resume", "--diverged", "--flow", "rf.flow", "--yes"],
    "pause": ["pause", "queued"],
    "cancel": ["cancel", "queued-2"],
    "answer": ["answer", "asks", "which", "this"],
    "reject": ["reject", "asks-2", "which", "--reason", "no"],
    "approve": ["approve", "buys", "rf.approved", "--yes"],
    "reject --reason": ["reject", "buys-2", "rf.approved", "--reason", "no"],
    "signal": ["signal", "waits", "go", "1"],
    "set-budget": ["set-budget", "poor", "--steps", "9"],
    "rollback --dry-run": ["rollback", "done", "--dry-run"],
    "rollback": ["rollback", "done", "--yes"],
    "fork --dry-run": ["fork", "other", "f", "--before", "turns[2]/rf.book", "--dry-run"],
    "fork": ["fork", "other", "forked", "--before", "turns[2]/rf.book", "--confirm"],
    "queues set": ["queues", "set", "default", "--concurrency", "5"],
    "queues pause": ["queues", "pause", "default"],
    "queues resume": ["queues", "resume", "default"],
    "memory set": ["memory", "set", "rf.notes", "x", "1"],
    "memory get": ["memory", "get", "rf.notes", "x"],
    "memory list --all": ["memory"],
    "memory list": ["memory", "list", "rf.notes"],
    "memory delete": ["memory", "delete", "rf.notes", "x"],
    "completion": ["completion", "bash"],
    "tokens create": ["tokens", "create", "kim", "--role", "viewer", "--expires", "1d"],
    "tokens list": ["tokens", "list"],
    "tokens rotate": ["tokens", "rotate", "kim"],
    "tokens revoke": ["tokens", "revoke", "kim"],
    "store accept-data-loss": ["store", "accept-data-loss"],
    "store export": ["store", "export", "other", "FOLDER/other.hf"],
    "store import": ["store", "import", "FOLDER/other.hf"],
    "store backup": ["store", "backup", "FOLDER/copy.db"],
    "store prune": ["store", "prune", "--older-than", "0s", "--dry-run"],
    "store move": ["store", "move", "URL", "sqlite:///FOLDER/there.db"],
    "store restore": ["--url", "sqlite:///FOLDER/back.db", "store", "restore", "FOLDER/copy.db"],
}
"""One after the other, in this order, on one store."""
IN_PROCESSES = {"demo", "mcp", "run", "ui", "worker"}


def test_every_command_prints_what_the_page_says(
    everything: holdfast.types.Store, url: str, tmp_path: Path
) -> None:
    assert {shape_of(name) for name in COMMANDS} == set(SHAPES) - IN_PROCESSES - {"runs --follow"}
    for name, words in COMMANDS.items():
        command = [word.replace("FOLDER", str(tmp_path)).replace("URL", url) for word in words]
        said = CliRunner().invoke(main, ["--url", url, *command, "--json"], catch_exceptions=False)
        kind = answer_type(shape_of(name))
        for line in said.stdout.splitlines() if "--follow" in words else [said.stdout]:
            try:
                told: Any = msgspec.json.decode(line, type=kind)
            except msgspec.ValidationError as error:
                raise AssertionError(f"{name}: {error}\n{line}") from None
            assert told.version == 1


def test_a_command_that_fails_prints_what_the_page_says(url: str, sqlite: Store) -> None:
    Journal(sqlite, "held").held_in_doubt("charge")
    for words, code in (
        (["show", "nothing"], 6),
        (["resume", "held"], 3),
        (["runs", "--tag", "x"], 2),
        (["history", "nothing", "--follow"], 6),
        (["state", "held"], 2),
    ):
        said = CliRunner().invoke(main, ["--url", url, *words, "--json"], catch_exceptions=False)
        told: Any = msgspec.json.decode(said.stdout, type=failure_type())
        assert said.exit_code == told.exit_code == code, words


FLOWS = """
from holdfast import flow, step
@step(name="rf.once")
def once(): return 1
@flow(name="rf.process")
def process(): return once()
"""


def test_commands_that_execute_print_what_the_page_says(
    url: str, sqlite: Store, tmp_path: Path
) -> None:
    (tmp_path / "rf_flows.py").write_text(FLOWS)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}

    def started(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "holdfast._operator.cli", "--url", url, *words, "--json"]
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=env,
        )

    told: Any = msgspec.json.decode(
        started("run", "rf_flows.py:process", "r").communicate()[0], type=answer_type("run")
    )
    assert (told.run.result, told.exit_code) == (1, 0)
    with started("worker", "rf_flows.py") as worker, started("ui", "--port", "0") as page:
        assert page.stdout is not None
        while not workers(sqlite):
            assert worker.poll() is None
            sqlite.wait_for_change(0.2)
        worker.send_signal(signal.SIGTERM)
        told = msgspec.json.decode(worker.communicate()[0], type=answer_type("worker"))
        assert told.exit_code == 0
        text = ""
        while not text.endswith("\n}\n"):
            text += page.stdout.readline()
        told = msgspec.json.decode(text, type=answer_type("ui"))
        assert told.url.endswith(told.token)
        page.terminate()
        page.communicate()


# -- the pages ---------------------------------------------------------------------------------


def test_every_object_is_explained_on_the_page() -> None:
    page = json_page()
    for name in SHAPES:
        assert f"\n### holdfast {name}\n" in page
    names = set(re.findall(r"^### (\w.*)$", page, re.M))
    told = re.findall(r"^\* `\w+` \((.*?)\)(?::|$)", page, re.M)
    assert {word for each in told for word in re.findall(r"\b[A-Z]\w+\b", each)} <= names
    assert "* `at` (time)" in page
    assert "* `state` (StateView, or missing): without --list and --between" in page


def test_the_schema_is_one(everything: holdfast.types.Store, url: str) -> None:
    schema = json.loads(json_schema())
    assert set(schema["commands"]) == {*SHAPES, ""}
    refs = set(re.findall(r'"#/\$defs/([^"]+)"', json.dumps(schema)))
    assert refs == set(schema["$defs"])
    summary = schema["$defs"]["RunSummary"]
    assert summary["properties"]["created_at"] == {"type": "string", "format": "date-time"}
    said = CliRunner().invoke(main, ["--url", url, "runs", "--json"], catch_exceptions=False)
    for run in json.loads(said.stdout)["runs"]:
        assert set(run) == set(summary["properties"])
    said = CliRunner().invoke(main, ["--url", url, "questions", "--json"], catch_exceptions=False)
    question = schema["$defs"]["OpenQuestion"]["properties"]
    for asked in json.loads(said.stdout)["questions"]:
        assert set(asked) == set(question)


def test_the_table_of_commands_is_what_their_modules_add():
    for module, names in MODULES.items():
        group = click.Group("main")
        importlib.import_module(f"holdfast._operator.cli.{module}").add_to(group)
        assert sorted(group.commands) == sorted(names)


def test_a_command_loads_what_it_needs_and_not_what_others_need(tmp_path: Path):
    script = (
        "import sys\n"
        "from holdfast._operator.cli.main import main\n"
        "main(['--url', sys.argv[1], 'runs'], standalone_mode=False)\n"
        "print(*(it for it in sys.modules if it.startswith('holdfast')), file=sys.stderr)\n"
    )
    url = f"sqlite:///{tmp_path}/none.db"
    command = [sys.executable, "-c", script, url]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stderr.split()
    assert "holdfast._operator.cli.run_list" in loaded
    others = {f"holdfast._operator.cli.{name}" for name in MODULES} - {
        "holdfast._operator.cli.run_list"
    }
    assert others & set(loaded) == {"holdfast._operator.cli.completion"}


def test_the_help_of_a_group_cuts_no_line():
    for name, group in main.commands.items():
        if isinstance(group, click.Group):
            told = CliRunner(env={"COLUMNS": "80"}).invoke(main, [name, "--help"]).output
            assert "..." not in told.partition("Commands:")[2], told


@pytest.mark.parametrize("name", ["queues", "schedules", "memory", "tokens"])
def test_a_group_without_a_command_lists(everything: holdfast.types.Store, url: str, name: str):
    told = [
        CliRunner().invoke(main, ["--url", url, *words], catch_exceptions=False).stdout
        for words in ([name], [name, "list"], [name, "--json"], [name, "list", "--json"])
    ]
    assert told[0].splitlines()[:1] == told[1].splitlines()[:1]
    assert json.loads(told[2])["command"] == json.loads(told[3])["command"] == f"{name} list"
    before = CliRunner().invoke(main, [name, "--url", url, "--json", "list"]).stdout
    assert json.loads(before).keys() == json.loads(told[2]).keys()


@pytest.mark.parametrize(
    ("word", "meant"),
    [("verify", "store verify"), ("verfy", "store verify"), ("queue", "queues"), ("rn", "run")],
)
def test_an_unknown_command_names_those_that_are_like_it(word: str, meant: str):
    refused = CliRunner().invoke(main, [word])
    assert refused.exit_code == 2
    assert f"No such command '{word}'. Did you mean 'holdfast {meant}'" in refused.stderr
    assert "Did you mean" not in CliRunner().invoke(main, ["zzzzzz"]).stderr


@pytest.mark.parametrize(
    "words",
    [
        ["history", "done", "--follow", "--limit", "3"],
        ["history", "done", "--until-held"],
        ["runs", "--follow", "--finding", "stuck"],
        ["runs", "--follow", "--limit", "3"],
        ["resume", "done", "--app", "agent.py"],
        ["resume", "--failed", "--dry-run"],
        ["resume", "done", "--keep", "--redo"],
        ["runs", "--held-reason", "any"],
        ["runs", "--older-than", "soon"],
        ["pause", "done", "--wait", "-1"],
        ["queues", "set", "default"],
    ],
)
def test_options_that_do_not_go_together_are_refused(
    everything: holdfast.types.Store, url: str, words: list[str]
):
    refused = CliRunner().invoke(main, ["--url", url, *words], catch_exceptions=False)
    assert refused.exit_code == 2, refused.output
