"""Commands that ask before they act. Where nobody can be asked, with --json or without a terminal, each
refuses with exit code 2, changes nothing, and names the option that answers instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from holdfast._operator.cli.main import main
from holdfast._stores.contract import Store
from tests.ops.journals import Journal


def _asks(store: Store) -> None:
    Journal(store, "r").asks_approval("pay", {"amount": 7})


def _mailed(store: Store) -> None:
    Journal(store, "r").effect("mail").completed("done")


def _undoable(store: Store) -> None:
    Journal(store, "r").effect("mail", undo=True).completed("done")


def _failed(store: Store) -> None:
    Journal(store, "r").failing("pay").failed("pay")


def _diverged(store: Store) -> None:
    Journal(store, "r").step("search").held("diverged")


ASKING: dict[str, tuple[Callable[[Store], None], list[str], list[str]]] = {
    "approve": (_asks, ["r", "pay"], ["--digest DIGEST, which ", "--yes"]),
    "rollback": (_undoable, ["r"], ["--yes", "--dry-run"]),
    "rollback --confirm": (_mailed, ["r"], ["--confirm"]),
    "fork": (_mailed, ["r", "again", "--before", "mail"], ["--confirm"]),
    "store prune": (_mailed, ["--older-than", "0"], ["--yes", "--dry-run"]),
    "resume --failed": (_failed, ["--failed"], ["--yes"]),
    "resume --diverged": (_diverged, ["--diverged", "--flow", "pay", "--accept-change"], ["--yes"]),
}
"""By command: what there is, what it is given, and what it names when it cannot ask."""


@pytest.fixture(params=ASKING)
def asking(request: pytest.FixtureRequest, sqlite: Store) -> tuple[list[str], list[str]]:
    make, given, named = ASKING[request.param]
    make(sqlite)
    return [*request.param.partition(" --")[0].split(), *given], named


def invoked(url: str, words: list[str], **options: Any) -> Result:
    runner = CliRunner(env={"COLUMNS": "80"})
    return runner.invoke(main, ["--url", url, *words], catch_exceptions=False, **options)


def recorded(store: Store) -> list[Any]:
    """Everything that a decision could change."""
    rows = [store.get(run_id) for run_id in ("r", "again")]
    said = [(row.run_id, row.status, row.last_seq, row.deleted_us) for row in rows if row]
    return [said, [it.message_id for row in rows if row for it in store.inbox(row.run_no)]]


def test_every_command_that_asks_is_in_the_table():
    def asking(group: click.Group, before: str = "") -> set[str]:
        found: set[str] = set()
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                found |= asking(command, f"{before}{name} ")
            elif any({"--yes", "--confirm"} & {*option.opts} for option in command.params):
                found.add(before + name)
        return found

    assert isinstance(main, click.Group)
    assert asking(main) == {name.partition(" --")[0] for name in ASKING}


@pytest.mark.parametrize("as_json", [True, False])
def test_where_nobody_can_be_asked_it_refuses(
    asking: tuple[list[str], list[str]], sqlite: Store, url: str, *, as_json: bool
):
    words, named = asking
    before = recorded(sqlite)
    # An answer that is piped in is none: nobody has read the question.
    refused = invoked(url, [*words, *(["--json"] if as_json else [])], input="y\n")
    assert refused.exit_code == 2
    told = json.loads(refused.stdout)["error"]["message"] if as_json else refused.stderr
    for option in named:
        assert option in told
    assert recorded(sqlite) == before


def test_yes_is_the_answer(asking: tuple[list[str], list[str]], sqlite: Store, url: str):
    words, named = asking
    before = recorded(sqlite)
    answer = "--confirm" if "--confirm" in named else "--yes"
    done = invoked(url, [*words, answer, "--json"])
    assert done.exit_code == 0, done.output
    assert recorded(sqlite) != before


@pytest.mark.parametrize("answer", ["y", "n"])
def test_at_a_terminal_it_asks(
    asking: tuple[list[str], list[str]],
    sqlite: Store,
    url: str,
    terminal: None,
    answer: str,
):
    words, _ = asking
    before = recorded(sqlite)
    done = invoked(url, words, input=f"{answer}\n")
    assert done.exit_code == 0, done.output
    assert "[y/N]" in done.stderr
    assert (recorded(sqlite) != before) == (answer == "y")


def test_an_approval_needs_its_digest_or_a_yes(sqlite: Store, url: str):
    _asks(sqlite)
    told = invoked(url, ["approve", "r", "pay", "--json"])
    assert "questions --run r" in json.loads(told.stdout)["error"]["message"]
    listed = json.loads(invoked(url, ["questions", "--json"]).stdout)
    digest = listed["questions"][0]["digest"]
    done = invoked(url, ["approve", "r", "pay", "--digest", digest, "--json"])
    assert done.exit_code == 0, done.output


def test_an_approval_by_its_full_name_is_shown_too(sqlite: Store, url: str):
    _asks(sqlite)
    refused = invoked(url, ["approve", "r", "approve:pay"])
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
