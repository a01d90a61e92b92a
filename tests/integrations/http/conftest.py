"""Each test with both libraries, and in both colours."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest


@pytest.fixture(params=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    return request.param
