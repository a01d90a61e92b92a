"""Budgets on the command line: shown, explained, raised."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

import holdfast as hf
from holdfast import Budget, flow, step
from holdfast._operator.cli.exit_codes import ERROR, NOT_FOUND, USAGE
from holdfast._operator.cli.main import main


@step(name="ops-budget-think", reserve_usd=0.30)
def think(number: int) -> int:
    return number


@flow(name="ops-budget-agent", budget=Budget(usd=1, wall="1d"))
def agent(count: int) -> int:
    return sum(think(number) for number in range(count))


@pytest.fixture
def holdfast(url: str) -> Callable[..., Result]:
    def invoke(*words: str) -> Result:
        return CliRunner(env={"COLUMNS": "100"}).invoke(main, ["--url", url, *words])

    return invoke


@pytest.fixture(autouse=True)
def runs(url: str) -> None:
    with hf.open(url, default=False) as store:
        with pytest.raises(hf.errors.RunHeld):
            agent.with_options(store=store).run("held", 5)
        agent.with_options(store=store).run("done", 1)


def test_show_and_explain_say_what_is_spent(holdfast):
    shown = holdfast("show", "held").stdout
    assert "budget     $0.90 of $1.00 spent, 3 attempts, 0 tokens" in shown
    said = holdfast("explain", "held").stdout
    assert "is held, since its budget is used up" in said
    assert "set-budget held --usd 2.00" in said
    budget = json.loads(holdfast("show", "held", "--json").stdout)["run"]["budget"]
    assert (budget["usd"], budget["spent_usd"], budget["tokens"]) == (1.0, 0.9, None)
    assert budget["wall_s"] == 86_400.0


def test_raise_budget_frees_the_run(holdfast, url):
    result = holdfast("set-budget", "held", "--usd", "2", "--actor", "ada")
    assert result.exit_code == 0
    assert "the budget of run 'held' is now $2.00, 1 d" in result.stdout
    assert "holdfast --url" in result.stdout, "the command that executes it"
    with hf.open(url, default=False) as store:
        assert store.get("held").status == "queued"
        raised = next(entry for entry in store.history("held") if entry.kind == "budget_set")
        assert raised.body["actor"] == "ada"
        assert agent.with_options(store=store).run("held", 5) == 10


def test_raise_budget_as_json(holdfast):
    result = holdfast("set-budget", "held", "--steps", "9", "--json")
    answer = json.loads(result.stdout)
    assert answer["answer"]["status"] == "queued"
    assert len(answer["next"]) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("held",), "at least one of --usd, --tokens, --steps and --wall"),
        (("held", "--usd", "0.5"), "$0.90 is spent already"),
        (("held", "--usd", "nan"), "--usd: expected `float` >= 0.0, not nan"),
        (("held", "--wall", "soon"), "2h"),
        (("done", "--usd", "5"), "is completed: that is final"),
        (("nobody", "--usd", "5"), "nobody"),
    ],
)
def test_what_cannot_be_raised_says_why(holdfast, words, said):
    result = holdfast("set-budget", *words)
    assert result.exit_code == {"nobody": NOT_FOUND, "done": ERROR}.get(words[0], USAGE)
    assert said in " ".join(result.stderr.split())
