"""People talk to runs by the command line: what they see, and what their answers become."""

from __future__ import annotations

import datetime as dt
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

import holdfast as hf
from holdfast import Approval, ask, effect, flow, gather, sleep, wait_for_signal
from holdfast._operator.cli.main import main
from holdfast._operator.read.answer_schema import misfit, placeholder
from holdfast._operator.read.overview import overview
from tests.runtime.facts import until

NASTY = "\x1b[2J\u202egnp.exe"
PAY = "gather[3]/cli-pay"
paid: list[int] = []


@effect(name="cli-pay", needs_approval=Approval(to="finance", valid_for="1h"))
def pay(amount: int) -> str:
    paid.append(amount)
    return f"paid {amount}"


@flow(name="cli-asks")
def asks() -> list[Any]:
    def color() -> str:
        return ask("Which color?", name="color", choices=["red", "blue"], to="ana", timeout="3d")

    def count() -> int:
        return ask(f"How many? {NASTY}", name="count", type=int)

    return list(gather(color, count, lambda: wait_for_signal("go"), lambda: pay(7)))


@flow(name="cli-sleeps")
def sleeps() -> None:
    sleep("3h")


@pytest.fixture
def holdfast(url: str) -> Callable[..., Result]:
    def invoke(*words: str, **options: Any) -> Result:
        runner = CliRunner(env={"COLUMNS": "200"})
        arguments = ["--url", url, *words]
        return runner.invoke(main, arguments, catch_exceptions=False, **options)

    return invoke


def released(store: hf.types.Store) -> bool:
    row = store._backend.get("r")
    return row is not None and row.owner is None


@pytest.fixture
def run(url: str) -> Any:
    """A run that asks for four things, unloaded by the worker that began it."""
    paid.clear()
    with hf.open(url, default=False) as store:
        asks.with_options(store=store).submit("r")
        with store.worker(flows=[asks], concurrency=1):
            until(lambda: len(store.questions()) == 3 and released(store))
        yield store


def test_everything_is_shown_and_answered_by_what_is_printed(
    holdfast: Callable[..., Result], run: hf.types.Store
) -> None:
    shown = holdfast("questions").stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "Run r asks ana" in shown
    assert '"amount":7' in shown
    assert "valid for  60 min after approval" in shown
    explained = holdfast("explain", "r").stdout
    for part in ("asks ana", "waits for the signal 'go'", "needs an approval of finance"):
        assert part in explained.replace("\n    ", " ")

    commands = [line.strip() for line in shown.splitlines() if line.startswith("    holdfast")]
    [blue] = [it for it in commands if it.endswith("answer r color blue")]
    [approve] = [it for it in commands if " approve " in it]
    assert blue in explained
    assert approve in explained
    for each in (blue, approve):
        assert _pasted(each).exit_code == 0
    assert holdfast("answer", "r", "count", "12", "--actor", "bob").exit_code == 0
    assert holdfast("signal", "r", "go", '{"far": true}', "--signal-id", "x").exit_code == 0
    assert "was sent before" in holdfast("signal", "r", "go", "--signal-id", "x").stdout
    assert "No questions are open" in holdfast("questions").stdout

    with run.worker(flows=[asks], concurrency=1):
        result = run.handle("r").result(timeout=30)
    assert result == ["blue", 12, {"far": True}, "paid 7"]
    told = holdfast("show", "r").stdout
    assert "answer count from bob received  12" in told
    history = holdfast("history", "r").stdout.splitlines()
    [started] = [it for it in history if "step_started" in it and PAY in it]
    assert re.search(r'\{"amount":7\}, approved by \w+$', started)
    assert any("question_asked" in it and it.endswith("Which color?") for it in history)


def _pasted(line: str) -> Result:
    words = shlex.split(line)
    assert words[0] == "holdfast"
    return CliRunner().invoke(main, words[1:], catch_exceptions=False)


def test_in_json(holdfast: Callable[..., Result], run: hf.types.Store) -> None:
    questions = json.loads(holdfast("questions", "--json").stdout)["questions"]
    assert {it["name"] for it in questions} == {"color", "count", PAY}
    approval = next(it for it in questions if it["kind"] == "approval")
    assert approval["args"] == {"amount": 7}
    only = json.loads(holdfast("questions", "--json", "--to", "ana").stdout)["questions"]
    assert [it["name"] for it in only] == ["color"]
    said = json.loads(holdfast("answer", "r", "color", "red", "--json").stdout)["answer"]
    assert (said["name"], said["number"], said["early"]) == ("color", 1, False)
    sent = json.loads(holdfast("signal", "r", "go", "--json").stdout)["signal"]
    assert sent["new"] is True
    runs = json.loads(holdfast("runs", "--json").stdout)["runs"]
    assert runs[0]["waiting_for"].startswith("answer")


def test_what_goes_wrong_says_what_to_do(
    holdfast: Callable[..., Result], run: hf.types.Store
) -> None:
    wrong = holdfast("answer", "r", "count", "many")
    assert (wrong.exit_code, "not integer" in wrong.stderr) == (2, True)
    assert holdfast("answer", "r", "count").exit_code == 2
    assert holdfast("signal", "r", "go", "{not json").exit_code == 2
    missing = holdfast("answer", "nobody", "count", "1")
    assert (missing.exit_code, missing.stderr.split(" in ")[1]) == (6, f"{run._backend.url}\n")
    elsewhere = holdfast("--namespace", "b", "signal", "nobody", "go")
    assert f"no run 'nobody' in namespace 'b' of {run._backend.url}" in elsewhere.stderr
    stale = holdfast("approve", "r", PAY, "--digest", "00")
    assert (stale.exit_code, "'00' is not the digest of what" in stale.stderr) == (5, True)
    assert f"holdfast --url {run._backend.url} questions --run r" in stale.stderr
    nothing = holdfast("approve", "r", "other")
    assert (nothing.exit_code, "questions --run r" in nothing.stderr) == (2, True)
    holdfast("answer", "r", "count", "1", "--actor", "ana")
    second = holdfast("answer", "r", "count", "2")
    assert (second.exit_code, "answered already by ana" in second.stderr) == (1, True)


def test_approving_asks_first_and_refusing_stops_the_flow(
    holdfast: Callable[..., Result], run: hf.types.Store, terminal: None
) -> None:
    declined = holdfast("approve", "r", PAY, input="n\n")
    assert '"amount":7' in declined.stdout
    assert len(run.questions()) == 3
    refused = holdfast("reject", "r", PAY, "--reason", "too much", "--actor", "fin")
    assert refused.exit_code == 0
    assert len(run.questions()) == 2
    for words in (["color", "red"], ["count", "1"]):
        holdfast("answer", "r", *words)
    holdfast("signal", "r", "go")
    with run.worker(flows=[asks], concurrency=1):
        until(lambda: run.get("r").status == "failed")
    assert paid == []
    explained = holdfast("explain", "r").stdout.replace("\n    ", " ")
    assert f"{PAY} was refused by fin: too much." in explained


def test_approving_by_hand(
    holdfast: Callable[..., Result], run: hf.types.Store, terminal: None
) -> None:
    assert holdfast("approve", "r", PAY, input="y\n").exit_code == 0
    assert {it.name for it in run.questions()} == {"color", "count"}


def test_an_approval_is_refused_by_the_command_that_gives_it(
    holdfast: Callable[..., Result], run: hf.types.Store
) -> None:
    refused = holdfast("reject", "r", PAY, "--reason", "too much", "--actor", "fin")
    assert f"the approval of {PAY} of run 'r' is refused by fin." in refused.stdout
    assert {it.name for it in run.questions()} == {"color", "count"}


def test_a_misspelt_name_is_kept_and_pointed_out(
    holdfast: Callable[..., Result], run: hf.types.Store
) -> None:
    names = f"approval '{PAY}', question 'color', question 'count', signal 'go'"
    sent = holdfast("signal", "r", "goo", "now").stdout
    assert "Signal goo is kept" in sent
    assert f"The run waits for {names} now." in sent
    answered = holdfast("answer", "r", "colour", "red").stdout
    assert answered.startswith("WARNING  Run r has no open question 'colour': nothing is answered.")
    assert "kept until run 'r' asks" in answered
    assert "goes on" not in answered
    assert answered.splitlines()[3:5] == [
        "If 'color' is meant:",
        f"  holdfast --url {run._backend.url} answer r color red",
    ]
    refused = holdfast("reject", "r", "colou", "--reason", "no").stdout
    assert "reject r color --reason no" in refused
    assert f"The run waits for {names} now." in answered
    assert "waits for" not in holdfast("signal", "r", "go", "now").stdout
    assert [it.value for it in run.get("r").signals] == ["now", "red", {"refused": "no"}, "now"]


def test_an_approval_that_is_not_open_points_at_the_one_that_is(
    holdfast: Callable[..., Result], run: hf.types.Store
) -> None:
    told = holdfast("reject", "r", "gather[2]/cli-pay", "--reason", "no").stdout
    assert f"If '{PAY}' is meant:" in told
    [line] = [it.strip() for it in told.splitlines() if " reject r " in it]
    assert "the approval of" in _pasted(line).stdout
    assert {it.name for it in run.questions()} == {"color", "count"}
    assert "is meant" not in holdfast("answer", "r", "gather[2]/cli-pay", "red").stdout


def even(number: int) -> None:
    if number % 2:
        raise ValueError(f"{number} is odd")


class Even(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        even(self.number)


@flow(name="cli-asks-oddly")
def asks_oddly() -> list[Any]:
    when = ask("When?", name="when", type=dt.date)
    how_many = ask("How many?", name="even", type=Even)
    return [when, how_many.number]


@pytest.mark.parametrize("typed", ["2026-12-01", '"2026-12-01"'])
def test_a_date_is_named_and_needs_no_quotes(
    holdfast: Callable[..., Result], url: str, typed: str
) -> None:
    with hf.open(url, default=False) as store:
        handle = asks_oddly.with_options(store=store).submit("d")
        with store.worker(flows=[asks_oddly], concurrency=1):
            until(lambda: [it.name for it in store.questions()] == ["when"])
            shown = holdfast("questions").stdout
            assert "answer     a date, such as 2026-12-01" in shown
            assert "answer d when DATE" in shown
            assert holdfast("answer", "d", "when", typed).exit_code == 0
            holdfast("answer", "d", "even", '{"number": 3}', "--actor", "ana")
            until(lambda: any(it.refused for it in store.questions()))
            told = """ana's answer {"number":3} did not fit: 3 is odd"""
            assert told in holdfast("questions").stdout
            assert told in holdfast("explain", "d").stdout.replace("\n    ", " ")
            holdfast("answer", "d", "even", '{"number": 4}')
            assert handle.result(timeout=30) == [dt.date(2026, 12, 1), 4]


def test_a_sleeper_is_explained(holdfast: Callable[..., Result], url: str) -> None:
    with hf.open(url, default=False) as store:
        sleeps.with_options(store=store).submit("s")
        with store.worker(flows=[sleeps], concurrency=1):
            until(lambda: (row := store._backend.get("s")) and row.wake_us and row.owner is None)
    assert "waiting: timer until" in holdfast("runs").stdout
    told = holdfast("explain", "s").stdout
    assert "sleeps until" in told
    assert "in 2 h 59 min" in told


@pytest.mark.parametrize(
    ("value", "schema", "why"),
    [
        (3, {"type": "integer"}, None),
        (True, {"type": "integer"}, "not integer"),
        (3.5, {"type": "number"}, None),
        (None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ("x", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "not integer"),
        (5, {"type": "integer", "maximum": 4}, "at most 4"),
        ("abc", {"type": "string", "maxLength": 2}, "3 characters"),
        ([1, "x"], {"type": "array", "items": {"type": "integer"}}, r"it\[1\]"),
        ({"a": 1}, {"type": "object", "required": ["b"]}, "no field 'b'"),
        ("b", {"$ref": "#/$defs/E", "$defs": {"E": {"enum": ["a"]}}}, "not one of 'a'"),
        (
            {"a": {"n": "x"}},
            {"properties": {"a": {"properties": {"n": {"type": "null"}}}}},
            "it.a.n",
        ),
        ("anything", {}, None),
    ],
)
def test_what_fits(value: Any, schema: dict[str, Any], why: str | None) -> None:
    found = misfit(value, None, schema)
    if why is None:
        assert found is None
    else:
        assert found is not None
        assert why.replace("\\", "") in found


def test_a_yes_or_no_is_offered_where_it_is_one_of_several_forms() -> None:
    decided = {"$ref": "#/$defs/D", "$defs": {"D": {"type": "object"}}}
    either = {"anyOf": [{"type": "boolean"}, decided]}
    assert placeholder(either) == "true|false, or JSON"
    assert placeholder({"anyOf": [{"type": "integer"}, decided]}) == "JSON"


@flow(name="cli-asks-to-pay")
def asks_to_pay() -> str:
    return pay(9)


def test_a_held_run_that_asks_stays_held_and_says_so(
    holdfast: Callable[..., Result], run: hf.types.Store
):
    assert holdfast("pause", "r", "--actor", "kim").exit_code == 0
    look = overview(run._backend)
    assert [(shown.run.run_id, shown.why) for shown in look.runs] == [("r", "held")]
    explained = holdfast("explain", "r").stdout
    assert "Which color?" in explained
    assert "it stays held" in explained
    told = holdfast("answer", "r", "color", "red").stdout
    assert "stays held (paused) until it is resumed: holdfast resume r" in told
    assert "with its flow, goes on" not in told
    assert json.loads(holdfast("answer", "r", "count", "3", "--json").stdout)["answer"]["held"]
    assert run.get("r").status == "held"


def test_a_refused_approval_is_said_to_be_asked_for_again(url: str):
    with hf.open(url, default=False) as store:
        asks_to_pay.with_options(store=store).submit("p")
        with store.worker(flows=[asks_to_pay]):
            [question] = until(lambda: store.questions(run_id="p"))
            store.reject("p", question.name, actor="kim", reason="too much")
            until(lambda: store.get("p").status == "failed")
        said = " ".join(store.explain("p").known)
    assert "executes these anew" not in said
    assert "asks for the approval of cli-pay again; nothing of it has been executed" in said
