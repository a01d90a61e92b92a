"""A private store per test: in memory, or in both kinds where that may make a difference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import testing


@pytest.fixture(params=["memory:", "sqlite:"])
def store(request: pytest.FixtureRequest) -> Iterator[testing.PrivateStore]:
    with testing.store(url=request.param) as opened:
        yield opened


@pytest.fixture
def sqlite() -> Iterator[testing.PrivateStore]:
    with testing.store(url="sqlite:") as opened:
        yield opened
