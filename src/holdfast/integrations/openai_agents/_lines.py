"""The position of a call in a tree of agents: an agent that is a tool of another has its own
line."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextvars import ContextVar

_outer: ContextVar[str] = ContextVar("holdfast_openai_agents_outer", default="")


@contextlib.contextmanager
def inside(call_id: str) -> Generator[None]:
    """Inside it, calls belong to the tool call with this id."""
    token = _outer.set(line(call_id))
    try:
        yield
    finally:
        _outer.reset(token)


def line(name: str) -> str:
    """Return the key of a call: `call_17`, or `call_3.call_17` inside the tool call `call_3`."""
    outer = _outer.get()
    return f"{outer}.{name}" if outer else name
