from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast._operator.web import limits
from holdfast._operator.web.access_tokens import Tokens
from holdfast._stores.contract import Store
from tests.web_api.served import Browser, Person, Site, filled, kept_in


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with kept_in(tmp_path / "runs.db") as kept:
        filled(kept)
        yield kept


@pytest.fixture
def tokens(store: Store) -> Tokens:
    return Tokens.of(store)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked too often, and a wrong token costs no time."""
    monkeypatch.setattr(limits, "RATE_PER_S", 1e9)
    monkeypatch.setattr(limits, "BURST", 1e9)
    monkeypatch.setattr(limits, "WRONG_BURST", 1e9)
    monkeypatch.setattr(limits, "FAILURE_DELAY_MAX_S", 0.0)


@pytest.fixture
def site(store: Store, tokens: Tokens) -> Iterator[Site]:
    with Site(store, tokens) as running:
        yield running


@pytest.fixture
def operator(site: Site) -> Person:
    return Person(site, site.tokens.create("kim", "operator"))


@pytest.fixture
def admin(site: Site) -> Person:
    return Person(site, site.tokens.create("ada", "admin"))


@pytest.fixture
def viewer(site: Site) -> Person:
    return Person(site, site.tokens.create("vic", "viewer"))


@pytest.fixture
def browser(site: Site) -> Browser:
    return Browser(site, site.tokens.create("lee", "operator"))
