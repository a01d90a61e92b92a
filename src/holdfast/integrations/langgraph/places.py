"""The position of a call in a graph, which is its key: the same whenever the graph continues.

LangGraph continues the step count of a thread from its checkpoint, and gives a task the same id
whenever it starts from the same checkpoint. Calls before the checkpoint are not repeated, so a key
must not depend on the number of earlier calls.
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
"""Whether the graph continues from checkpoints: then the ids of its tasks are the same on
resume."""
_line: ContextVar[str] = ContextVar("holdfast_line", default="")
"""The tool call that contains an inner agent."""
_at_work: dict[tuple[Any, ...], list[Any]] = {}
"""The current requests, by key."""
_lock = threading.Lock()
_PULLED = "__pregel_pull"
_MAX_CHARS = 200


@contextlib.contextmanager
def on_thread() -> Generator[None]:
    """Inside it graphs continue from checkpoints, and recorded calls of nodes have the key of their
    task."""
    token = _on_thread.set(True)
    try:
        with holdfast.adapters.step_key(task):
            yield
    finally:
        _on_thread.reset(token)


@contextlib.contextmanager
def within(call_id: str) -> Generator[None]:
    """Inside it, model calls belong to the inner agent of this tool call."""
    token = _line.set(f"{_line.get()}.{call_id}".strip("."))
    try:
        yield
    finally:
        _line.reset(token)


def model_call() -> str:
    """Return the key of a model call: agent, namespace and step number."""
    metadata = _metadata()
    path = _path(metadata)
    # Inside a graph, only newer versions have the agent's name; there its node is enough.
    agent = (not path and metadata.get("lc_agent_name")) or "agent"
    parts = [_line.get(), *_parents(path), f"{agent}-{metadata.get('langgraph_step', 0)}"]
    return ".".join(part for part in parts if part)[-_MAX_CHARS:]


@contextlib.contextmanager
def alone(asked: Any) -> Generator[None]:
    """Inside a model call: refuse a concurrent one with another request and the same key. Only
    their order would distinguish them, and it may differ on resume; then the run would be held."""
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
                f"two agents call their models concurrently, both as {key!r}, so they could change "
                f"places when the run is resumed; make their graph a durable_graph(…), "
                f"or give each agent that a flow calls its own name or branch"
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
    """Return the key of the current task: its node, the number of its step, and a part that
    distinguishes it from other tasks sent to the same node."""
    try:
        metadata = _metadata()
    except RuntimeError:
        metadata = {}
    if "langgraph_node" not in metadata:
        raise UsageError(
            "a recorded call was made by a graph outside its nodes, so nothing would distinguish "
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
    """Return the tasks that contain an inner graph, each as node and id."""
    return str(metadata.get("langgraph_checkpoint_ns", "")).split("|")[:-1]


def _parents(path: list[str]) -> list[str]:
    parents = [part.partition(":")[0] for part in path]
    if path and _on_thread.get():  # Without checkpoints the ids of tasks differ each time.
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
