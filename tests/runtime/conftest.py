"""A private store per test: in a file and on a server. `memory:` is the store of a file as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import testing


@pytest.fixture(params=["memory:", "postgresql:"])
def store(request: pytest.FixtureRequest) -> Iterator[testing.PrivateStore]:
    url = request.param
    if url == "postgresql:":
        url = request.getfixturevalue("postgres_store_url")
    with testing.store(url=url) as opened:
        yield opened


@pytest.fixture
def sqlite() -> Iterator[testing.PrivateStore]:
    with testing.store(url="sqlite:") as opened:
        yield opened
