"""Commands that are printed can be pasted: about runs whose ids look like options, and with the store
that was named."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import ask, effect, flow
from holdfast._engine.command_lines import command
from holdfast._operator.cli.main import main
from holdfast.errors import RunHeld

IDS = ["-x", "--help", "--", "-", "--json", "-x y", "--accept-change"]
CHOICES = ["--no", "-1", "yes"]


@effect
def odd_pay(amount: int) -> int:
    raise TimeoutError("no answer")


@flow
def odd_order() -> int:
    return odd_pay(5)


@flow
def odd_asks() -> Any:
    return ask("Which one?", name="which", choices=CHOICES)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def paste(line: str) -> tuple[int, str]:
    words = shlex.split(line)
    assert words[0] == "holdfast"
    done = CliRunner().invoke(main, words[1:], catch_exceptions=False)
    return done.exit_code, done.output


def explained(url: str, run_id: str) -> list[str]:
    line = command("explain", run_id, "--json").replace("holdfast", f"holdfast --url {url}", 1)
    code, output = paste(line)
    assert code in (0, 3), output
    told = json.loads(output)["explanation"]
    assert told["run_id"] == run_id
    found = [it["command"] for it in told["actions"] if it["command"]]
    return [it.replace("holdfast", f"holdfast --url {url}", 1) for it in found]


@pytest.mark.parametrize("run_id", IDS)
def test_what_settles_a_doubt_can_be_pasted(url: str, run_id: str) -> None:
    with holdfast.open(url) as store:
        with pytest.raises(RunHeld) as held:
            odd_order.run(run_id)
        done, not_done, fail = (it.split("  (")[0].strip() for it in held.value.actions)
        assert store.get(run_id).status == "held"
    printed = explained(url, run_id)
    assert [it.replace(f" --url {url}", "") for it in printed[:3]] == [done, not_done, fail]
    code, output = paste(printed[0].replace("JSON", "5"))
    assert code == 0, output
    with holdfast.open(url) as store:
        assert "step_settled" in [it.kind for it in store.history(run_id)]
    for name in ("show", "history", "explain", "store verify"):
        code, output = paste(command(name, run_id).replace("holdfast", f"holdfast --url {url}", 1))
        assert code in (0, 3), (name, output)
        assert "Usage:" not in output


@pytest.mark.parametrize("run_id", ["-x", "--help"])
def test_what_answers_a_question_can_be_pasted(url: str, run_id: str) -> None:
    for number, choice in enumerate(CHOICES):
        name = run_id + "." * number
        with holdfast.open(url) as store:
            with store.worker(flows=[odd_asks]):
                odd_asks.submit(name)
                until(lambda: store.get(name).status == "waiting")  # noqa: B023
            code, output = paste(answers(url, name)[number])
            assert code == 0, output
            assert odd_asks.run(name) == choice


def until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def answers(url: str, run_id: str) -> list[str]:
    return [it for it in explained(url, run_id) if " answer " in it]


def test_a_value_that_looks_like_an_option_stands_behind_the_options() -> None:
    assert command("explain", "r") == "holdfast explain r"
    assert command("settle", "r", "pay", "--done", "JSON") == "holdfast settle r pay --done JSON"
    assert command("settle", "-r", "pay", "--done", "1") == "holdfast settle --done 1 -- -r pay"
    assert command("settle", "r", "-pay", "--not-done") == "holdfast settle --not-done -- r -pay"
    assert command("runs", "--parent", "-x") == "holdfast runs --parent -x"
    assert command("answer", "r", "q", "-5") == "holdfast answer -- r q -5"
    assert command("store verify") == "holdfast store verify"


# -- commands that name the store ----------------------------------------------------------------


def said(*words: str) -> str:
    done = CliRunner().invoke(main, list(words), catch_exceptions=False)
    return done.output


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["queues"], "worker MODULE"),
        (["top", "--once"], "worker MODULE"),
        (["tokens", "list"], "tokens create NAME --role operator"),
        (["state", "odd-named"], "show odd-named"),
        (["queues", "show", "nowhere"], "queues"),
    ],
)
def test_whatever_is_printed_finds_the_store_that_was_named(
    url: str, words: list[str], wanted: str
) -> None:
    with holdfast.open(url):
        with pytest.raises(RunHeld):
            odd_order.run("odd-named")
    told = said("--url", url, *words)
    assert f"holdfast --url {url} {wanted}" in told
    assert not re.search(r"holdfast (?!--url)\w+", told.replace("holdfast: ", "")), told


def test_where_damage_is_told_the_store_is_named_too(url: str, tmp_path: Path) -> None:
    with holdfast.open(url):
        with pytest.raises(RunHeld):
            odd_order.run("odd-damaged")
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as file:
        file.execute("UPDATE journal SET body = replace(body, '5', '6')")
        file.commit()
    told = said("--url", url, "history", "odd-damaged")
    assert f"To see all damage: holdfast --url {url} store verify" in told


def test_without_a_named_store_commands_are_as_they_are(url: str, monkeypatch) -> None:
    with holdfast.open(url):
        pass
    monkeypatch.setenv("HOLDFAST_URL", url)
    assert "To start one: holdfast worker MODULE" in said("queues")
