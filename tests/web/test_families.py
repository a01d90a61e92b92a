"""A family of runs that one cause holds: page, terminal and API say it once, and count alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Page, expect

from tests.web import flows
from tests.web.stage import Stage, until

MEMBERS = 12


def test_a_budget_that_holds_twelve_children_is_told_once(
    page: Page, stage: Stage, shoot: Callable[..., Any]
):
    with stage.working():
        stage.submit(flows.family, "kin", MEMBERS)
        until(lambda: sum(run.status == "held" for run in stage.store.runs(parent="kin")) >= 11)
        # A first child may have got through before the budget was used up.
        until(lambda: all(run.status in ENDS for run in stage.store.runs(parent="kin")))
        stage.until_status("kin", "waiting")
        children = stage.store.runs(parent="kin", limit=100)
        assert len(children) == MEMBERS
        held = [run for run in children if run.status == "held"]
        budget = stage.store.get("kin").budget
        assert budget is not None
        spent = f"${budget.spent_usd:.2f} of $0.40"

        told = stage.command("explain", "kin")
        assert told.count("set-budget") == 1, told
        assert told.count(f"{len(held)} runs that it started are held (budget)") == 1, told
        assert " ".join(told.split()).count("is used up") == 1, told
        shown = json.loads(stage.command("show", "kin", "--json"))["run"]
        assert shown["children_by_status"]["held: budget"] == len(held)
        assert sum(shown["children_by_status"].values()) == MEMBERS
        of_one = stage.command("explain", held[0].run_id)
        assert raises(of_one) == raises(told), "whoever is asked, it is one command"
        assert f"{len(held) - 1} other runs of its family are held" in of_one
        assert spent in stage.command("show", held[-1].run_id).partition("started")[0]

        page.goto(f"{stage.origin}/run?id=kin")
        case = page.get_by_label("Explanation")
        expect(case).to_contain_text(f"{len(held)} runs that it started are held (budget)")
        expect(case.locator("code", has_text="set-budget")).to_have_count(1)
        expect(case).to_contain_text(f"{spent} is spent")
        expect(page.locator(".children-told")).to_contain_text(f"{MEMBERS}: ")
        expect(page.locator(".children-told")).to_contain_text(f"{len(held)} held: budget")
        expect(page.locator(".children li .badge.is-held")).to_have_count(len(held))
        shoot(page)
        page.goto(f"{stage.origin}/run?id={quote(held[0].run_id, safe='')}")
        expect(case).to_contain_text(f"{len(held) - 1} other runs of its family are held")
        expect(case.locator("code", has_text="set-budget kin")).to_have_count(1)
        shoot(page, "child")
        page.goto(f"{stage.origin}/")
        needs = page.locator(".needs")
        expect(needs.locator("li")).to_have_count(1)
        expect(needs).to_contain_text(f"and {len(held) - 1} more")
        expect(needs).to_contain_text(f"All held: {len(held)}")
        shoot(page, "list")

        stage.command("set-budget", "kin", "--usd", "100")
        stage.until_status("kin", "completed")
        expect(needs).to_have_count(0)


ENDS = ("held", "completed")


def raises(told: str) -> str:
    """The command that raises the budget, without the address of the store."""
    line = next(line for line in told.splitlines() if "set-budget" in line)
    return line.partition("set-budget")[2]
