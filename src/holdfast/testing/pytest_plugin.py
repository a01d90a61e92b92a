"""The pytest plugin: a fixture with a private store. Loaded by pytest by itself.

    def test_refund(holdfast_store):
        assert refund.run("r-1", order="42") == "done"

Nothing heavy is imported until a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing.clock import FakeClock
    from holdfast.testing.stores import PrivateStore


@pytest.fixture
def holdfast_clock() -> FakeClock:
    """A clock that the test moves; `holdfast_store` runs on it where a test asks for both."""
    from holdfast.testing.clock import FakeClock

    return FakeClock()


@pytest.fixture
def holdfast_store(request: pytest.FixtureRequest) -> Iterator[PrivateStore]:
    """A private store in memory, the process's default while the test runs, in strict mode."""
    from holdfast.testing.stores import store

    clock = None
    if "holdfast_clock" in request.fixturenames:
        clock = request.getfixturevalue("holdfast_clock")
    with store(clock) as opened:
        yield opened
