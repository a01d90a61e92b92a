"""Test your own flows: a private store, a clock to move, crashes at every boundary.

from holdfast import testing

def test_refund(holdfast_store):                 # the fixture of the pytest plugin
    assert refund.run("r-1", "42") == "refunded"

def test_refund_survives_any_crash():
    testing.crash_matrix(refund, "42")

def test_refunds_of_last_year_still_replay():
    testing.replay(refund, "tests/histories/refund-41.json")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.clock import FakeClock
    from holdfast.testing.crash_report import CrashReport
    from holdfast.testing.crashes import crash_matrix
    from holdfast.testing.faults import StoreFaults
    from holdfast.testing.history_replay import Diverged, ReplayResult, replay
    from holdfast.testing.models import CallTools, FakeModelServer, Say
    from holdfast.testing.stores import PrivateStore, override, store

_HOME = {
    "CallTools": "models",
    "CrashReport": "crash_report",
    "Diverged": "history_replay",
    "FakeClock": "clock",
    "FakeModelServer": "models",
    "PrivateStore": "stores",
    "ReplayResult": "history_replay",
    "Say": "models",
    "StoreFaults": "faults",
    "crash_matrix": "crashes",
    "override": "stores",
    "replay": "history_replay",
    "store": "stores",
}

__all__ = [
    "CallTools",
    "CrashReport",
    "Diverged",
    "FakeClock",
    "FakeModelServer",
    "PrivateStore",
    "ReplayResult",
    "Say",
    "StoreFaults",
    "crash_matrix",
    "override",
    "replay",
    "store",
]


def __getattr__(name: str) -> Any:
    """Load a part of the kit when it is first used: pytest loads this package in every run."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
