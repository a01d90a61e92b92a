"""Checkpoints in LangGraph's types, made from the rows of a shelf."""

from __future__ import annotations

import heapq
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from langgraph.checkpoint.base import CheckpointTuple, get_checkpoint_id, get_checkpoint_metadata

from holdfast.integrations.langgraph.blobs import Packer, Unpacker, refs
from holdfast.integrations.langgraph.checkpoint_rows import Changed, Doc, Kept, Values, doc_refs
from holdfast.integrations.langgraph.keys import Place
from holdfast.integrations.langgraph.shelf import Shelf

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
    from langgraph.checkpoint.serde.base import SerializerProtocol

RUN = "holdfast_run"
"""The metadata field of a checkpoint with the run of a `durable_graph`."""
TIMES_READ = 5
_PLAIN = (type(None), bool, int, float, str)
_SURROGATE = re.compile("[\ud800-\udfff]")

T = TypeVar("T")


class Reading:
    """Reads of one shelf with one serializer."""

    def __init__(self, shelf: Shelf, serde: SerializerProtocol) -> None:
        self._shelf = shelf
        self._serde = serde

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint: the named one, or the newest."""
        place = place_of(config)

        def read() -> CheckpointTuple | None:
            reader = self._shelf.reader(place)
            asked = get_checkpoint_id(config)
            kept = reader.find(asked) if asked else reader.newest()
            if kept is None:
                return None
            self._shelf.remember(place, kept)
            return self._tuple(place, kept, self._shelf.values(place.thread))

        return patiently(read)

    def list(
        self,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first."""
        end = get_checkpoint_id(before) if before else None
        asked = get_checkpoint_id(config) if config else None
        found = heapq.merge(
            *(self._kept(place, asked, end) for place in self._places(config)),
            key=lambda it: it[1].id,
            reverse=True,
        )
        values: dict[str, Values] = {}
        told = (
            self._checkpoint(
                place,
                kept,
                wanted,
                values.setdefault(place.thread, self._shelf.values(place.thread)),
            )
            for place, kept in found
        )
        yield from itertools.islice((it for it in told if it is not None), limit)

    def _places(self, config: RunnableConfig | None) -> Iterable[Place]:
        if config is None:
            return self._shelf.places()
        if "checkpoint_ns" in config["configurable"]:
            return [place_of(config)]
        return self._shelf.places(str(config["configurable"]["thread_id"]))

    def _kept(
        self, place: Place, asked: str | None, end: str | None
    ) -> Iterator[tuple[Place, Kept]]:
        if asked:
            kept = patiently(lambda: self._shelf.reader(place).find(asked))
            if kept is not None and (end is None or asked < end):
                yield place, kept
            return
        failed = 0
        while True:
            try:
                for kept in self._shelf.reader(place).all(end):
                    yield place, kept
                    end, failed = kept.id, 0
            except Changed:
                failed += 1
                if failed == TIMES_READ:
                    raise
            else:
                return

    def _checkpoint(
        self, place: Place, kept: Kept, wanted: dict[str, Any] | None, values: Values
    ) -> CheckpointTuple | None:
        """Return a checkpoint; None if it does not match, or was removed meanwhile."""
        known: list[Kept] = [kept]

        def read() -> CheckpointTuple | None:
            it = known.pop() if known else self._shelf.reader(place).find(kept.id)
            if it is None or not self._fits(it, wanted, values):
                return None
            return self._tuple(place, it, values)

        return patiently(read)

    def _fits(self, kept: Kept, wanted: dict[str, Any] | None, values: Values) -> bool:
        if not wanted:
            return True
        metadata = self._said(kept.doc, "m", values)
        return all(metadata.get(key) == value for key, value in wanted.items())

    def _tuple(self, place: Place, kept: Kept, values: Values) -> CheckpointTuple:
        writes = self._shelf.writes(place, kept.id)
        values.expect(doc_refs(kept.doc) | {ref for write in writes for ref in refs(write[2])})
        unpack = Unpacker(self._serde, values.get).unpack
        checkpoint = self._said(kept.doc, "c", values) | {
            "id": kept.id,
            "channel_values": {name: unpack(node) for name, node in kept.doc["x"].items()},
        }
        return CheckpointTuple(
            config=config_of(place, kept.id),
            checkpoint=checkpoint,  # type: ignore[arg-type]
            metadata=self._said(kept.doc, "m", values),  # type: ignore[arg-type]
            parent_config=config_of(place, kept.parent) if kept.parent else None,
            pending_writes=[(task, channel, unpack(node)) for task, channel, node in writes],
        )

    def _said(self, doc: Doc, part: str, values: Values) -> dict[str, Any]:
        """Return a checkpoint or its metadata, as a new object each time."""
        said: dict[str, Any] = _copied(doc[part])
        unpack = Unpacker(self._serde, values.get).unpack
        for name, node in doc.get("o", {}).items():
            if name.startswith(part):
                said[name[1:]] = unpack(node)
        return said

    def delta_history(self, config: RunnableConfig, channels: Sequence[str]) -> dict[str, Any]:
        """Return the writes of each channel on the way to a checkpoint, and its seed."""
        return patiently(lambda: self._delta_history(config, channels))

    def _delta_history(self, config: RunnableConfig, channels: Sequence[str]) -> dict[str, Any]:
        place = place_of(config)
        reader, values = self._shelf.reader(place), self._shelf.values(place.thread)
        unpack = Unpacker(self._serde, values.get).unpack
        asked = get_checkpoint_id(config)
        at = reader.find(asked) if asked else reader.newest()
        found: dict[str, Any] = {channel: {"writes": []} for channel in channels}
        left = set(channels)
        met: set[str] = set()
        while left and at is not None and at.parent is not None and at.id not in met:
            met.add(at.id)  # Parents may form a cycle.
            at = reader.find(at.parent)
            if at is None:
                break
            for task, channel, node in reversed(self._shelf.writes(place, at.id)):
                if channel in left:
                    found[channel]["writes"].append((task, channel, unpack(node)))
            for channel in left & at.doc["x"].keys():
                found[channel]["seed"] = unpack(at.doc["x"][channel])
                left.discard(channel)
        for history in found.values():
            history["writes"].reverse()
        return found


def doc_of(
    packer: Packer, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
) -> Doc:
    """Return the document of a checkpoint; the packer has the separate values."""
    said: dict[str, Any] = {**checkpoint}
    values = said.pop("channel_values")
    del said["id"]
    doc: Doc = {"x": {name: packer.pack(value) for name, value in values.items()}}
    other: dict[str, Any] = {}
    told: dict[str, Any] = {**get_checkpoint_metadata(config, metadata)}
    if isinstance(told.get("run_id"), UUID):
        told["run_id"] = str(told["run_id"])  # The form of the run ids in `delete_for_runs`.
    for part, given in (("c", said), ("m", told)):
        doc[part] = {name: _copied(value) for name, value in given.items() if _plain(value)}
        odd = [name for name in given if name not in doc[part]]
        other |= {part + name: _odd(packer, given[name]) for name in odd}
    if other:
        doc["o"] = other
    return doc


def runs_of(doc: Doc) -> set[str]:
    """Return the run ids in a checkpoint's metadata: LangGraph's, Holdfast's, or both."""
    return {str(doc["m"][name]) for name in ("run_id", RUN) if doc["m"].get(name) is not None}


def place_of(config: RunnableConfig) -> Place:
    """Return the thread and the namespace of a config."""
    given = config["configurable"]
    return Place(str(given["thread_id"]), given.get("checkpoint_ns", ""))


def config_of(place: Place, checkpoint_id: str) -> RunnableConfig:
    """Return the config that names a checkpoint."""
    return {
        "configurable": {
            "thread_id": place.thread,
            "checkpoint_ns": place.ns,
            "checkpoint_id": checkpoint_id,
        }
    }


def patiently(read: Callable[[], T]) -> T:
    """Read again if rows were removed during the read."""
    for _ in range(TIMES_READ - 1):
        try:
            return read()
        except Changed:
            continue
    return read()


def _plain(value: Any) -> bool:
    """Return whether a value is plain data, which a row preserves exactly."""
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and _plain(key) and _plain(it) for key, it in value.items())
    if kind is list or kind is tuple:
        return all(map(_plain, value))
    if kind is str:
        return _SURROGATE.search(value) is None
    if kind is int:
        return bool(-(2**63) <= value < 2**64)
    return kind in _PLAIN


def _odd(packer: Packer, value: Any) -> Any:
    """Return the node of a value that is not plain data. Strings and numbers that a row cannot
    store are JSON."""
    return {"j": json.dumps(value)} if _is_json(value) else packer.pack(value)


def _is_json(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and _is_json(it) for key, it in value.items())
    if kind is list:
        return all(map(_is_json, value))
    return kind in _PLAIN


def _copied(value: Any) -> Any:
    """Return a copy of plain data, so that callers cannot change the remembered value."""
    if type(value) is dict:
        return {key: _copied(it) for key, it in value.items()}
    if type(value) is list:
        return [_copied(it) for it in value]
    return value
