"""What tests of the saver share: savers on each kind of store, and checkpoints by hand."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base.id import uuid6

import holdfast
from holdfast.integrations.langgraph import HoldfastSaver


@contextmanager
def sqlite_saver(folder: Path) -> Iterator[HoldfastSaver]:
    with HoldfastSaver(f"sqlite:///{folder}/runs.db") as saver:
        yield saver


def config(thread: str = "t", ns: str = "", at: str | None = None) -> dict[str, Any]:
    given = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": given | ({"checkpoint_id": at} if at else {})}


def id_of(given: Any) -> str:
    return str(given["configurable"]["checkpoint_id"])


def put(
    saver: HoldfastSaver,
    values: dict[str, Any],
    after: Any = None,
    *,
    name: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> Any:
    """Write a checkpoint with these values; `after` is the config of its parent, or of its thread."""
    checkpoint: Any = {
        "v": 4,
        "id": name or str(uuid6(clock_seq=1)),
        "ts": "2026-11-15T12:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, 1),
        "versions_seen": {},
        "updated_channels": None,
    }
    said: Any = {"source": "loop", "step": 1, "parents": {}} | (metadata or {})
    return saver.put(after or config(), checkpoint, said, {})


def write(saver: HoldfastSaver, at: Any, *values: Any, channel: str = "ch", path: str = "") -> str:
    task = str(uuid.uuid4())
    saver.put_writes(at, [(channel, value) for value in values], task, path)
    return task


def values(saver: HoldfastSaver, at: Any = None) -> Any:
    found = saver.get_tuple(at or config())
    return None if found is None else found.checkpoint["channel_values"]


def rows(saver: HoldfastSaver, kind: str = "") -> list[str]:
    """The keys of all rows, or of those of one kind (see keys.py)."""
    memory = saver.store.memory("langgraph", recorded=False)
    return [entry.key for entry in memory.items(f"{kind}/" if kind else "")]


def journals(store: holdfast.types.Store) -> list[str]:
    return [entry.kind for run in store.runs() for entry in store.history(run.run_id)]
