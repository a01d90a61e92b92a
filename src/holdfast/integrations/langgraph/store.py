"""`HoldfastStore`: LangGraph's long-term memory in a Holdfast store.

    graph = builder.compile(store=HoldfastStore("sqlite:///runs.db"))

An item is one row. Its key begins with digests of its namespace's labels, so that a part of the
tree is one range; its name is in its value.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Self

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)
from langgraph.store.base.embed import ensure_embeddings, get_text_at_path, tokenize_path

import holdfast
from holdfast.integrations.langgraph import search_filters
from holdfast.integrations.langgraph.blocking_calls import blocking
from holdfast.integrations.langgraph.keys import digest

NAMESPACE = "langgraph-store"
"""The name of the memory with the items."""
SWEEP_MINUTES = 5
_LABELS = 12
"""How many labels of a namespace are in keys, which have at most 200 characters."""

Row = dict[str, Any]
Vectors = Mapping[str, Sequence[float]]


class Found(NamedTuple):
    """An item as it was read."""

    key: str
    version: int
    row: Row

    @property
    def namespace(self) -> tuple[str, ...]:
        return tuple(self.row["n"])

    def named(self) -> dict[str, Any]:
        """Return the arguments of an Item."""
        return {
            "namespace": self.namespace,
            "key": self.row["k"],
            "value": self.row["v"],
            "created_at": self.row["c"],
            "updated_at": self.row["u"],
        }


class HoldfastStore(BaseStore):
    """Keeps items in an open store, or in one that it opens by its URL. With `index=` items are
    found by meaning too: each one is compared, so use it for thousands, not millions."""

    supports_ttl = True

    def __init__(
        self,
        store: holdfast.types.Store | str,
        *,
        index: Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self.index_config = None if index is None else dict(index)
        self._embeddings: Any = None
        self._fields: list[str] = []
        if index is not None:
            if not index.get("embed"):
                raise holdfast.errors.UsageError(
                    "HoldfastStore(index=…) needs an embedding: index={'embed': …, 'dims': …}; "
                    "without index= items are found by namespace and filter"
                )
            self._embeddings = ensure_embeddings(index["embed"])
            self._fields = list(index.get("fields") or ["$"])
        self.ttl_config = ttl
        self.store = holdfast.open(store, default=False) if isinstance(store, str) else store
        self._opened_here = isinstance(store, str)
        self._memory = self.store.memory(NAMESPACE, recorded=False)
        self._sweeper: Sweeper | None = None

    def close(self) -> None:
        """Stop the sweeper; close the store, if it was opened here."""
        self.stop_ttl_sweeper()
        if self._opened_here:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # -- LangGraph's two calls -----------------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute several operations: all reads come before all writes; writes commit together, and
        the last of several writes of one key counts."""
        given = list(ops)
        texts, queries = self._texts(given)
        vectors: dict[str, Any] = {}
        if texts:
            vectors |= zip(texts, self._embeddings.embed_documents(texts), strict=True)
        asked = {query: self._embeddings.embed_query(query) for query in queries}
        return blocking(lambda: self._batch(given, vectors, asked))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The awaited twin of `batch`."""
        given = list(ops)
        texts, queries = self._texts(given)
        vectors: dict[str, Any] = {}
        if texts:
            vectors |= zip(texts, await self._embeddings.aembed_documents(texts), strict=True)
        asked = {query: await self._embeddings.aembed_query(query) for query in queries}
        return await asyncio.to_thread(self._batch, given, vectors, asked)

    def _batch(self, ops: Sequence[Op], vectors: Vectors, asked: Vectors) -> list[Result]:
        for op in ops:
            search_filters.check_labels(op)
        results: list[Result] = [self._read(op, asked) for op in ops]
        self._put({_key(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}, vectors)
        return results

    def _read(self, op: Op, vectors: Vectors) -> Result:
        if isinstance(op, GetOp):
            return self._get(op)
        if isinstance(op, SearchOp):
            return self._search(op, vectors)
        if isinstance(op, ListNamespacesOp):
            rows = self._under(_shared_prefix(op))
            return search_filters.namespaces((it.namespace for it in rows), op)
        if isinstance(op, PutOp):
            return None
        raise holdfast.errors.UsageError(f"a store has no operation {type(op).__name__}")

    # -- expired items -------------------------------------------------------------------------

    def sweep_ttl(self) -> int:
        """Remove expired items, which can no longer be found; returns their number."""
        return blocking(self._memory.remove_expired)

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Sweep now, and every `sweep_interval_minutes` (from `ttl=`, otherwise 5) in its own
        thread, until the future is cancelled, or `stop_ttl_sweeper` or `close` is called."""
        if self._sweeper is None or self._sweeper.future.done():
            configured = (self.ttl_config or {}).get("sweep_interval_minutes")
            minutes = sweep_interval_minutes or configured or SWEEP_MINUTES
            self._sweeper = Sweeper(self._memory, minutes * 60)
            weakref.finalize(self, self._sweeper.future.cancel)
        return self._sweeper.future

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the sweeper; returns whether its thread has ended after at most `timeout`
        seconds."""
        sweeper, ended = self._sweeper, True
        if sweeper is not None:
            ended = sweeper.stop(timeout)
        return ended

    # -- reading -------------------------------------------------------------------------------

    def _get(self, op: GetOp) -> Item | None:
        entry = self._memory.item(_key(op.namespace, op.key))
        if entry is None:
            return None
        found = Found(entry.key, entry.version, entry.value)
        if op.refresh_ttl:
            self._refresh([found])
        return Item(**found.named())

    def _search(self, op: SearchOp, vectors: Vectors) -> list[SearchItem]:
        fitting = [
            it
            for it in self._under(tuple(op.namespace_prefix))
            if all(
                search_filters.fits(search_filters.at(it.row["v"], key), by)
                for key, by in (op.filter or {}).items()
            )
        ]
        scores: dict[str, float] = {}
        if op.query and self._embeddings is not None:
            query = vectors[op.query]
            for it in fitting:
                if it.row.get("x"):
                    scores[it.key] = max(
                        search_filters.likeness(query, kept) for kept in it.row["x"]
                    )
        fitting.sort(key=lambda it: it.row["u"], reverse=True)
        fitting.sort(key=lambda it: scores.get(it.key, -2.0), reverse=True)
        page = fitting[op.offset : op.offset + op.limit]
        if op.refresh_ttl:
            self._refresh(page)
        return [SearchItem(**it.named(), score=scores.get(it.key)) for it in page]

    def _under(self, prefix: tuple[str, ...]) -> list[Found]:
        """Return all items of a namespace and of those below it."""
        rows = self._memory.items(_range(prefix))
        found = [Found(row.key, row.version, row.value) for row in rows]
        return [it for it in found if it.namespace[: len(prefix)] == prefix]

    def _refresh(self, found: Iterable[Found]) -> None:
        """Extend the life of items. One that was written meanwhile has its own expiry."""
        for it in found:
            if it.row.get("t") is not None:
                self._memory.set(it.key, it.row, ttl=_minutes(it.row["t"]), if_version=it.version)

    # -- writing -------------------------------------------------------------------------------

    def _put(self, ops: Mapping[str, PutOp], vectors: Vectors) -> None:
        rows: dict[float | None, dict[str, Row]] = {}
        gone = [key for key, op in ops.items() if op.value is None]
        now = dt.datetime.now(dt.UTC)
        for key, op in ops.items():
            if op.value is not None:
                rows.setdefault(op.ttl, {})[key] = self._row(key, op, vectors, now)
        whole = rows.pop(None, {})
        if whole or gone:
            self._memory.update(whole, delete=gone)
        for ttl, group in rows.items():
            self._memory.update(group, ttl=_minutes(ttl))

    def _row(self, key: str, op: PutOp, vectors: Vectors, now: dt.datetime) -> Row:
        before = self._memory.item(key)
        row: Row = {
            "n": list(op.namespace),
            "k": op.key,
            "v": dict(op.value or {}),
            "c": now if before is None else before.value["c"],
            "u": now,
        }
        if op.ttl is not None:
            row["t"] = op.ttl
        if texts := self._texts_of(op):
            row["x"] = [search_filters.packed(vectors[text]) for text in texts]
        return row

    # -- meaning -------------------------------------------------------------------------------

    def _texts(self, ops: Iterable[Op]) -> tuple[list[str], list[str]]:
        """Return the texts to embed as documents, and as queries; each once."""
        texts: dict[str, None] = {}
        queries: dict[str, None] = {}
        if self._embeddings is not None:
            for op in ops:
                if isinstance(op, SearchOp) and op.query:
                    queries[op.query] = None
                elif isinstance(op, PutOp):
                    texts |= dict.fromkeys(self._texts_of(op))
        return list(texts), list(queries)

    def _texts_of(self, op: PutOp) -> list[str]:
        if self._embeddings is None or op.value is None or op.index is False:
            return []
        fields = self._fields if op.index is None else op.index
        # "$" is the whole item, and no path.
        paths = (field if field == "$" else tokenize_path(field) for field in fields)
        found = (get_text_at_path(op.value, path) for path in paths)
        return [text for texts in found for text in texts]


class Sweeper:
    """A thread that removes expired items. It does not keep the store from being closed or
    collected."""

    def __init__(self, memory: holdfast.types.Memory, every_s: float) -> None:
        self.future: Future[None] = Future()
        self._stopped = threading.Event()
        self.future.add_done_callback(lambda _future: self._stopped.set())
        self._memory = memory
        self._every_s = every_s
        self._thread = threading.Thread(target=self._work, name="holdfast-ttl-sweeper", daemon=True)
        self._thread.start()

    def stop(self, timeout: float | None) -> bool:
        """Stop it, and wait; returns whether it has ended."""
        self.future.cancel()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while True:
            try:
                self._memory.remove_expired()
            except Exception:
                # The next round may reach the store again.
                logging.getLogger("holdfast").warning("items were not swept", exc_info=True)
            if self._stopped.wait(self._every_s):
                return


def _range(prefix: Sequence[str]) -> str:
    """Return the common key prefix of the items below a namespace; keys of others may have it
    too."""
    return "i/" + "".join(f"{digest(label, 8)}." for label in prefix[:_LABELS])


def _key(namespace: tuple[str, ...], key: str) -> str:
    name = json.dumps([*namespace, key])
    return f"{_range(namespace)}/{digest(name, 22)}"


def _shared_prefix(op: ListNamespacesOp) -> tuple[str, ...]:
    """Return the longest namespace with which all requested ones must begin."""
    longest: tuple[str, ...] = ()
    for condition in op.match_conditions or ():
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            plain = path[: path.index("*")] if "*" in path else path
            longest = max(longest, plain, key=len)
    return longest


def _minutes(ttl: float | None) -> dt.timedelta:
    return dt.timedelta(minutes=ttl or 0)
