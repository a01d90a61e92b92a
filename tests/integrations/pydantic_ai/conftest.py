"""What all tests of Pydantic AI need."""

from __future__ import annotations

import contextlib
import gc
import importlib
import pkgutil

import pytest

import holdfast

FLOORS = ("holdfast._core.", "holdfast._store.", "holdfast._runtime.", "holdfast._ops.")


@pytest.fixture(scope="session", autouse=True)
def _loaded() -> None:
    """Load our modules first, without collecting garbage meanwhile: there is much of it here, and
    Python 3.11 can then fail to parse ("AST constructor recursion depth mismatch")."""
    gc.disable()
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if module.name.startswith(FLOORS) and not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # What needs an extra.
                importlib.import_module(module.name)
    gc.enable()
