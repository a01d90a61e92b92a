"""Where in a graph a call is made: what it is known by, the same whenever the graph goes on.

LangGraph counts the steps of a thread on from its checkpoint, and gives a task the same id whenever
it is begun from the same checkpoint. What lies before the checkpoint is not called again, so no key
may depend on how often something was called before.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Generator, Iterator
from contextvars import ContextVar
from typing import Any

from langgraph.config import get_config

import holdfast
from holdfast.errors import UsageError

_on_thread: ContextVar[bool] = ContextVar("holdfast__on_thread", default=False)
"""Whether the graph goes on from checkpoints: then the ids of its tasks are the same on resume."""
_line: ContextVar[str] = ContextVar("holdfast_line", default="")
"""The tool call that an agent of its own is part of."""
_at_work: dict[tuple[Any, ...], list[Any]] = {}
"""What is asked under each key right now."""
_lock = threading.Lock()
_PULLED = "__pregel_pull"
_MAX_CHARS = 200


@contextlib.contextmanager
def on_thread() -> Generator[None]:
    """Inside it graphs go on from checkpoints, and what nodes record has the key of their task."""
    token = _on_thread.set(True)
    try:
        with holdfast.adapters.step_key(task):
            yield
    finally:
        _on_thread.reset(token)


@contextlib.contextmanager
def within(call_id: str) -> Generator[None]:
    """Inside it, model calls are those of an agent that this tool call has."""
    token = _line.set(f"{_line.get()}.{call_id}".strip("."))
    try:
        yield
    finally:
        _line.reset(token)


def model_call() -> str:
    """Return the key of a model call: agent, namespace and step number."""
    metadata = _metadata()
    path = _path(metadata)
    # Inside a graph, only newer versions tell the name of the agent; there its node says enough.
    agent = (not path and metadata.get("lc_agent_name")) or "agent"
    parts = [_line.get(), *_parents(path), f"{agent}-{metadata.get('langgraph_step', 0)}"]
    return ".".join(part for part in parts if part)[-_MAX_CHARS:]


@contextlib.contextmanager
def alone(asked: Any) -> Generator[None]:
    """Inside a model call: refuse one that asks something else under the same key meanwhile. Their
    order tells them apart, and on resume it can be another one; the run would be held then."""
    run = holdfast.context.current_run()
    assert run is not None
    assert run.step is not None
    branch, _, call = run.step.rpartition("/")
    key = call.partition("#")[0]
    place = (run.flow, run.run_id, run.generation, branch, key)
    with _lock:
        others = _at_work.setdefault(place, [])
        if any(other != asked for other in others):
            raise UsageError(
                f"two agents ask their models at once, both as {key!r}, so that they could change "
                f"places when the run is resumed; make the graph that they are in a durable_graph(…), "
                f"or give agents that a flow calls names of their own, or a branch each"
            )
        others.append(asked)
    try:
        yield
    finally:
        with _lock:
            others.remove(asked)
            if not others:
                del _at_work[place]


def task() -> str:
    """Return the key of the task that we are in: its node, the number of its step, and what tells it
    from others that were sent to the same node."""
    try:
        metadata = _metadata()
    except RuntimeError:
        metadata = {}
    if "langgraph_node" not in metadata:
        raise UsageError(
            "a recorded call was made by a graph, but by none of its nodes, so nothing would tell "
            "it from others; make it in a node"
        )
    node, step = metadata["langgraph_node"], metadata.get("langgraph_step", 0)
    route = list(_flat(metadata.get("langgraph_path") or ()))
    sent = "" if route[:1] == [_PULLED] else "".join(f"+{part}" for part in route[1:])
    parts = [*_parents(_path(metadata)), f"{node}-{step}{sent}"]
    key = ".".join(parts)
    if len(key) <= _MAX_CHARS:
        return key
    return f"{_digest(key)}.{key[-_MAX_CHARS // 2 :]}"


def _metadata() -> dict[str, Any]:
    return dict(get_config().get("metadata") or {})


def _path(metadata: dict[str, Any]) -> list[str]:
    """The tasks that a graph inside a graph is in, each as node and id."""
    return str(metadata.get("langgraph_checkpoint_ns", "")).split("|")[:-1]


def _parents(path: list[str]) -> list[str]:
    parents = [part.partition(":")[0] for part in path]
    if path and _on_thread.get():  # Without checkpoints the ids of tasks are others each time.
        parents.append(_digest("|".join(path)))
    return parents


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _flat(route: Any) -> Iterator[str]:
    for part in route:
        if isinstance(part, (tuple, list)):
            yield from _flat(part)
        else:
            yield str(part)
