"""A user's module about gaps, all of it checked.

A line that ends in `# error` is wrong, and every checker has to say so; no other line is.
"""

import datetime as dt
from pathlib import Path
from typing import assert_type

import holdfast
from holdfast.types import ResumePreview, Store
from holdfast import aio, effect, flow, step
from holdfast.versioning import fingerprint, depends_on
from holdfast.context import record_usage

MODEL = "gpt-x"


@step(valid_for="6h", on_expired="redo", versions={"model": MODEL})
def think(topic: str) -> str:
    record_usage(model=MODEL, prompt="be careful", tools=[{"name": "search"}])
    return topic


@step(valid_for=dt.timedelta(hours=1), versions=lambda: {"prompt": fingerprint("be careful")})
def search(topic: str) -> str:
    return topic


@effect(versions={"api": 3})
def mail(to: str) -> bool:
    return True


def look_first(report: ResumePreview) -> str | None:
    return "hold" if report.gap_s > 60 or report.changes or report.in_doubt else None


@flow(on_drift={"model": "hold", "fact": "redo"}, on_resume=look_first)
def agent(topic: str) -> str:
    assert_type(depends_on("prices", Path("prices.csv")), str)
    depends_on("row", lambda: {"price": 1}, on_change="redo")
    depends_on("path", Path("prices.csv"))
    depends_on("row", lambda: 1, on_change="perhaps")  # error
    depends_on("row", 5)  # error
    mail("ada")
    return think(search(topic))


async def row() -> int:
    return 1


@flow
async def awaited(topic: str) -> str:
    assert_type(await aio.depends_on("row", row, on_change="keep"), str)
    return topic


def use_them(store: Store) -> None:
    report = store.preview_resume("r")
    assert_type(report, ResumePreview)
    assert_type([change.kind for change in report.changes], list[str])
    store.resume("r", drift="redo", confirm=True)
    store.resume("r", drift="perhaps")  # error
    try:
        agent.run("r", "x")
    except holdfast.errors.Drifted as drifted:
        assert_type(drifted.was, str)


def misuse() -> None:
    flow(on_drift={"model": "sometimes"})  # error
    step(commit="later")  # error
    step(on_expired="never")  # error
    effect(on_doubt="perhaps")  # error
