"""What every test needs: a process that knows nothing of the store of the person who runs it."""

import pytest


@pytest.fixture(autouse=True)
def _no_store_from_outside(monkeypatch):
    """A test says where its runs are kept; one from the environment would mix them up."""
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
