"""Several worker processes, and one of them killed every second: nothing is lost or done twice."""

from __future__ import annotations

import pytest

from tests.crash.fleet import Sizes, judge, under_fire
from tests.crash.harness import SERVER_IN_SWEEPS, World
from tests.crash.payments import Client

TAKEOVER_AT_MOST_S = 5.0
"""Measured: well under a second. A machine that is busy with other tests may take longer; what a
takeover must not wait for is the lease, of 30 s."""


@SERVER_IN_SWEEPS
def test_a_fleet_whose_workers_are_killed(
    world: World, payments: Client, capsys: pytest.CaptureFixture[str]
):
    sizes = Sizes()
    told = under_fire(world, payments, sizes)
    with capsys.disabled():
        print(f"\n{told}")
    assert told.kills >= 1
    assert not told.violations
    assert told.takeovers_s, "a kill hit nobody's run: make it longer"
    assert max(told.takeovers_s) < TAKEOVER_AT_MOST_S
    assert_the_oracle_sees(world, payments, sizes)


def assert_the_oracle_sees(world: World, payments: Client, sizes: Sizes) -> None:
    """Planted: a recorded step that is executed once more, and an effect that happens again."""
    with world.ledger.open("a") as ledger:
        ledger.write('["r3", "work 7", 1, 2.0, ""]\n')
    payments.charge("a key that no run has", 5)
    told = judge(world, payments, sizes, {})
    assert len(told.violations) == 2, told.violations
    assert "r3: work 7 was executed again" in told.violations[0]
    assert "charges" in told.violations[1]
