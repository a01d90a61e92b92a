"""LangGraph and LangChain on a Holdfast store.

`HoldfastSaver` keeps checkpoints, `HoldfastStore` long-term memories. `DurableMiddleware` records
the model and tool calls of an agent, `durable_graph` makes each turn of a graph's thread a run, so
that any worker resumes it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from holdfast.integrations._needs import needs

if TYPE_CHECKING:
    from holdfast.integrations.langgraph.middleware import DurableMiddleware
    from holdfast.integrations.langgraph.saver import HoldfastSaver
    from holdfast.integrations.langgraph.store import HoldfastStore
    from holdfast.integrations.langgraph.turns import durable_graph

for _package in ("langgraph", "langgraph-checkpoint"):
    needs(_package, extra="langgraph")

_MODULES = {
    "DurableMiddleware": "middleware",
    "HoldfastSaver": "saver",
    "HoldfastStore": "store",
    "durable_graph": "turns",
}

__all__ = ["DurableMiddleware", "HoldfastSaver", "HoldfastStore", "durable_graph"]


def __getattr__(name: str) -> Any:
    """Each part is loaded when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
