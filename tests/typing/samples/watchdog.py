"""What the watchdog looks for, as users declare it and read what it found."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import assert_type

from holdfast.types import Finding, Store
from holdfast import Watchdog, effect, flow, step


def page(finding: Finding) -> None:
    assert_type(finding.run_id, str)
    assert_type(finding.since, dt.datetime)
    assert_type(finding.actions, tuple[str, ...])


@step(polls=True)
def is_ready(job: str) -> bool:
    return True


@flow(
    watchdog=Watchdog(
        stuck="hold",
        looping="cancel",
        duplicate_action=page,
        partial_failure="ignore",
        stuck_after=dt.timedelta(minutes=3),
        usd=Decimal("1.5"),
        duplicates_within="1d",
    )
)
def agent(job: str) -> bool:
    return is_ready(job)


@flow(watchdog=Watchdog(runaway_cost=lambda finding: print(finding.text), tokens_per_minute=1000))
async def awaited(job: str) -> bool:
    return True


def looked(store: Store) -> None:
    assert_type(store.findings(), list[Finding])
    assert_type(store.findings("r"), list[Finding])
    assert_type(store.run_watchdog(), list[Finding])
    store.runs(finding="stuck", status="running")


def wrong() -> None:
    Watchdog(stuck="kill")  # error
    Watchdog("hold")  # error
    Watchdog(loop_after="5")  # error
    flow(watchdog="hold")  # error
    step(polls="yes")  # error
    effect(polls=True)  # error
