"""Memories from the command line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import holdfast
from holdfast._engine.journal.rows import Memo
from holdfast._engine.values import codec
from holdfast._operator.cli.json_output import answer_type
from holdfast._operator.cli.main import main
from holdfast._runtime import queues
from holdfast._stores import audit_log
from holdfast.errors import UsageError


@dataclasses.dataclass
class CliPreference:
    colour: str


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def said(address: str, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["--url", address, *words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_a_value_is_set_seen_and_removed(address: str) -> None:
    assert said(address, "memory", "set", "notes", "a", '{"n": 1}') == "Written: a, version 1.\n"
    assert said(address, "memory", "get", "notes", "a") == '{"n":1}\n'
    answer = json.loads(said(address, "memory", "get", "notes", "a", "--json"))
    assert (answer["command"], answer["value"]["value"]) == ("memory get", {"n": 1})
    assert "has changed" in said(
        address, "memory", "set", "notes", "a", "2", "--if-version", "0", code=5
    )
    assert "has changed" in said(
        address, "memory", "delete", "notes", "a", "--if-version", "9", code=5
    )
    said(address, "memory", "set", "notes", "b", "[]", "--ttl", "1h")
    listed = said(address, "memory", "list", "notes")
    assert [line.split()[0] for line in listed.splitlines()] == ["KEY", "a", "b"]
    assert "no such keys" in said(address, "memory", "list", "notes", "x")
    assert said(address, "memory", "delete", "notes", "a") == "Removed: a.\n"
    assert "has no 'a'" in said(address, "memory", "get", "notes", "a", code=6)
    assert "has no 'a'" in said(address, "memory", "delete", "notes", "a", code=6)
    assert "has no 'n'" in said(address, "memory", "delete", "never", "n", code=6)
    assert "takes JSON" in said(address, "memory", "set", "notes", "a", "text", code=2)
    assert "a key of memory" in said(address, "memory", "set", "notes", " ", "1", code=2)


def test_memories_of_holdfast_itself_are_not_listed_unless_asked_for(address: str) -> None:
    with holdfast.open(address, default=False) as store:
        store._backend.put_memo(Memo(queues.DECLARED, "mail", codec.encode(1)))
        store._backend.put_memo(Memo(audit_log.SPACE, "k", codec.encode(1)))
    assert said(address, "memory", "list") == "No memory has a value.\n"
    said(address, "memory", "set", "notes", "a", "1")
    assert said(address, "memory", "list") == "notes\n"
    assert json.loads(said(address, "memory", "list", "--json"))["memories"] == ["notes"]
    assert "mail" in said(address, "memory", "list", queues.DECLARED)


def test_what_is_refused_has_an_error_and_its_code_in_json(address: str) -> None:
    said(address, "memory", "set", "notes", "a", "1")
    for words, code in (
        (["get", "notes", "b"], 6),
        (["set", "notes", "a", "2", "--if-version", "0"], 5),
        (["delete", "notes", "a", "--if-version", "9"], 5),
        (["delete", "notes", "b"], 6),
    ):
        text = said(address, "memory", *words, "--json", code=code)
        answer = json.loads(text)
        assert (answer["exit_code"], bool(answer["error"]["message"])) == (code, True)
        msgspec.json.decode(text, type=answer_type(f"memory {words[0]}"))


def test_classes_of_users_are_shown_by_name(address: str) -> None:
    holdfast.versioning.register_type(CliPreference)
    with holdfast.open(address, default=False) as store:
        store.memory("notes").set("p", CliPreference("red\x1b[31m"))
    shown = said(address, "memory", "get", "notes", "p")
    assert shown == '{"CliPreference":{"colour":"red\\\\u001b[31m"}}\n'.replace("\\\\", "\\")


@pytest.mark.parametrize("name", [queues.DECLARED, audit_log.SPACE, "holdfast"])
def test_memories_of_holdfast_itself_are_not_written(address: str, name: str) -> None:
    with holdfast.open(address, default=False) as store:
        memo = store._backend.put_memo(Memo(name, "k", codec.encode(1)))
        with pytest.raises(UsageError, match="reserved for Holdfast"):
            store.memory(name)
        for words in (["set", name, "k", "2"], ["delete", name, "k"]):
            told = json.loads(said(address, "memory", *words, "--json", code=2))
            assert told["error"]["type"] == "UsageError"
            assert f"memory {name!r}: names that begin with 'holdfast'" in told["error"]["message"]
        assert store._backend.memo(name, "k") == memo
