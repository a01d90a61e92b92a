"""`HoldfastSaver`: LangGraph's checkpoints in a Holdfast store, blocking and awaited.

    graph = builder.compile(checkpointer=HoldfastSaver("sqlite:///runs.db"))

Messages are stored once per thread, however many checkpoints and pending writes have them.
Checkpoints do not enter the journal of a Holdfast run: a thread has its own history.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)

import holdfast
from holdfast.integrations.langgraph import checkpoints, removal
from holdfast.integrations.langgraph.blobs import Packer, Seen, check_serializer
from holdfast.integrations.langgraph.blocking_calls import blocking
from holdfast.integrations.langgraph.checkpoint_rows import Kept, Reader
from holdfast.integrations.langgraph.checkpoints import Reading, config_of, doc_of, place_of
from holdfast.integrations.langgraph.keys import Place
from holdfast.integrations.langgraph.shelf import Shelf

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions
    from langgraph.checkpoint.serde.base import SerializerProtocol

NAMESPACE = "langgraph"
"""The name of the memory with the checkpoints."""
AT_ONCE = 20


class HoldfastSaver(BaseCheckpointSaver[Any]):
    """Keeps checkpoints of graphs in an open store, or in one that it opens by its URL."""

    def __init__(
        self, store: holdfast.types.Store | str, *, serde: SerializerProtocol | None = None
    ) -> None:
        super().__init__(serde=serde)
        check_serializer(self.serde)
        self.store = holdfast.open(store, default=False) if isinstance(store, str) else store
        self._opened_here = isinstance(store, str)
        self._shelf = Shelf(self.store.memory(NAMESPACE, recorded=False))
        self._seen = Seen()

    def close(self) -> None:
        """Close the store, if it was opened here."""
        if self._opened_here:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # -- reading -------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint: the named one, or the newest."""
        return blocking(lambda: self._reading().get_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first."""
        found = self._reading().list(config, filter, before, limit)
        while part := blocking(lambda: [*itertools.islice(found, AT_ONCE)]):
            yield from part

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        """Return for each channel the writes on the way to a checkpoint, oldest first, since its
        last stored value, the `seed`."""
        return blocking(lambda: self._reading().delta_history(config, channels))

    def _reading(self) -> Reading:
        return Reading(self._shelf, self.serde)

    # -- writing -------------------------------------------------------------------------------

    def get_next_version(self, current: int | str | None, channel: None) -> int | str:
        """Return the next version. Versions are integers. A thread of another saver has strings,
        and keeps the form of LangGraph's own savers."""
        if not isinstance(current, str):
            return 1 if current is None else current + 1
        count = current.partition(".")[0]
        if not count.isdecimal():
            raise holdfast.errors.UsageError(
                f"a channel has version {current!r} of another checkpointer, which counts in a "
                "different form, so the thread can only continue there"
            )
        return f"{int(count) + 1:032}.{random.random():016}"  # noqa: S311

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Write a checkpoint; `config` names its parent."""
        place, packer = place_of(config), Packer(self.serde, self._seen)
        doc = doc_of(packer, config, checkpoint, metadata)
        parent = get_checkpoint_id(config)
        needed = packer.needed()
        blocking(
            lambda: self._shelf.put(place, checkpoint["id"], parent, doc, needed, packer.element)
        )
        return config_of(place, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Write a task's writes after a checkpoint."""
        packer = Packer(self.serde, self._seen)
        rows: Any = {}
        for at, (channel, value) in enumerate(writes):
            number = WRITES_IDX_MAP.get(channel, at)
            rows[number] = [number, channel, packer.pack(value), task_path]
        blocking(
            lambda: self._shelf.put_writes(
                place_of(config),
                config["configurable"]["checkpoint_id"],
                task_id,
                [*rows.values()],
                packer.element,
            )
        )

    # -- removing and copying ------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Remove a whole thread."""
        blocking(lambda: removal.remove_all(self._shelf, str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints whose metadata name one of these runs: as `run_id`, or as the run
        of a `durable_graph`. Those that a delta channel of a later one needs are removed too."""
        named = {str(run_id) for run_id in run_ids}

        def chosen(there: Iterable[Kept]) -> Iterable[Kept]:
            return [it for it in there if checkpoints.runs_of(it.doc) & named]

        def work() -> None:
            for thread in sorted({it.thread for it in self._shelf.places() if is_concerned(it)}):
                removal.remove(self._shelf, thread, chosen)

        def is_concerned(place: Place) -> bool:
            return checkpoints.patiently(
                lambda: any(chosen(Reader(self._shelf.memory, place).all()))
            )

        if named:
            blocking(work)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace, and those that its delta channels need;
        with `"delete"` none."""
        if strategy not in ("keep_latest", "delete"):
            raise holdfast.errors.UsageError(
                f"prune(strategy={strategy!r}): 'keep_latest' or 'delete'"
            )

        def older(there: list[Kept]) -> Iterable[Kept]:
            kept = {it.id for it in removal.needed_for_deltas(there)}
            return [it for it in there if it.id not in kept]

        def work() -> None:
            for thread_id in thread_ids:
                if strategy == "delete":
                    removal.remove_all(self._shelf, str(thread_id))
                else:
                    removal.remove(self._shelf, str(thread_id), older)

        blocking(work)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread, with the writes after them."""
        source, target = str(source_thread_id), str(target_thread_id)
        blocking(lambda: checkpoints.patiently(lambda: removal.copy(self._shelf, source, target)))

    # -- awaited -------------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The awaited twin of `get_tuple`."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The awaited twin of `list`."""
        found = self._reading().list(config, filter, before, limit)
        while part := await asyncio.to_thread(lambda: [*itertools.islice(found, AT_ONCE)]):
            for it in part:
                yield it

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        """The awaited twin of `get_delta_channel_history`."""
        return await asyncio.to_thread(
            self.get_delta_channel_history, config=config, channels=channels
        )

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """The awaited twin of `put`."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """The awaited twin of `put_writes`."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """The awaited twin of `delete_thread`."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """The awaited twin of `delete_for_runs`."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """The awaited twin of `copy_thread`."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """The awaited twin of `prune`."""
        await asyncio.to_thread(lambda: self.prune(thread_ids, strategy=strategy))
