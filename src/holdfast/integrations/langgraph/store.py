"""`HoldfastStore`: what agents remember beyond a thread, in a memory of a Holdfast store.

    graph = builder.compile(store=HoldfastStore("sqlite:///runs.db"))

An item is one row. Its key begins with digests of the labels of its namespace, so that a part of the
tree is one range; what it is called stands in its value.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
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
from holdfast.integrations.langgraph import searching
from holdfast.integrations.langgraph.keys import digest
from holdfast.integrations.langgraph.waiting import blocking

NAMESPACE = "langgraph-store"
"""The memory of the store that has the items."""
_LABELS = 12
"""So many labels of a namespace stand in keys, which have at most 200 characters."""

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
        """Return what an Item is made of."""
        return {
            "namespace": self.namespace,
            "key": self.row["k"],
            "value": self.row["v"],
            "created_at": self.row["c"],
            "updated_at": self.row["u"],
        }


class HoldfastStore(BaseStore):
    """Keeps items in a store that is open, or in one that is opened by its URL. With `index=` items
    are found by meaning too: each is compared, so it is for thousands of them, not for millions."""

    supports_ttl = True

    def __init__(
        self,
        store: holdfast.Store | str,
        *,
        index: Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
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

    def close(self) -> None:
        """Close the store, if it was opened here."""
        if self._opened_here:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # -- LangGraph's two calls -----------------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do several things: what is read is read before anything is written; what is written is
        written together, and the last of several writes of one key counts."""
        given = list(ops)
        texts = self._texts(given)
        vectors: Any = self._embeddings.embed_documents(texts) if texts else []
        return blocking(lambda: self._batch(given, dict(zip(texts, vectors, strict=True))))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The awaited twin of `batch`."""
        given = list(ops)
        texts = self._texts(given)
        vectors: Any = await self._embeddings.aembed_documents(texts) if texts else []
        known = dict(zip(texts, vectors, strict=True))
        return await asyncio.to_thread(self._batch, given, known)

    def _batch(self, ops: Sequence[Op], vectors: Vectors) -> list[Result]:
        results: list[Result] = [self._read(op, vectors) for op in ops]
        self._put({_key(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}, vectors)
        return results

    def _read(self, op: Op, vectors: Vectors) -> Result:
        if isinstance(op, GetOp):
            return self._get(op)
        if isinstance(op, SearchOp):
            return self._search(op, vectors)
        if isinstance(op, ListNamespacesOp):
            rows = self._under(_shared_prefix(op))
            return searching.namespaces((it.namespace for it in rows), op)
        if isinstance(op, PutOp):
            return None
        raise holdfast.errors.UsageError(f"a store knows no operation {type(op).__name__}")

    # -- reading -------------------------------------------------------------------------------

    def _get(self, op: GetOp) -> Item | None:
        entry = self._memory.entry(_key(op.namespace, op.key))
        if entry is None:
            return None
        found = Found(entry.key, entry.version, entry.value)
        if op.refresh_ttl:
            self._refresh([found])
        return Item(**found.named())

    def _search(self, op: SearchOp, vectors: Vectors) -> list[SearchItem]:
        fitting = [
            it
            for it in self._under(op.namespace_prefix)
            if all(
                searching.fits(it.row["v"].get(key), by) for key, by in (op.filter or {}).items()
            )
        ]
        scores: dict[str, float] = {}
        if op.query and self._embeddings is not None:
            query = vectors[op.query]
            for it in fitting:
                if it.row.get("x"):
                    scores[it.key] = max(searching.likeness(query, kept) for kept in it.row["x"])
        fitting.sort(key=lambda it: it.row["u"], reverse=True)
        fitting.sort(key=lambda it: scores.get(it.key, -2.0), reverse=True)
        page = fitting[op.offset : op.offset + op.limit]
        if op.refresh_ttl:
            self._refresh(page)
        return [SearchItem(**it.named(), score=scores.get(it.key)) for it in page]

    def _under(self, prefix: tuple[str, ...]) -> list[Found]:
        """Return all items of a namespace and of those below it."""
        rows = self._memory.list(_range(prefix))
        found = [Found(row.key, row.version, row.value) for row in rows]
        return [it for it in found if it.namespace[: len(prefix)] == prefix]

    def _refresh(self, found: Iterable[Found]) -> None:
        """Let items live on for their time. One that was written meanwhile has its own."""
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
        before = self._memory.entry(key)
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
            row["x"] = [searching.packed(vectors[text]) for text in texts]
        return row

    # -- meaning -------------------------------------------------------------------------------

    def _texts(self, ops: Iterable[Op]) -> list[str]:
        """Return what is to be embedded, each text once."""
        texts: dict[str, None] = {}
        if self._embeddings is not None:
            for op in ops:
                if isinstance(op, SearchOp) and op.query:
                    texts[op.query] = None
                elif isinstance(op, PutOp):
                    texts |= dict.fromkeys(self._texts_of(op))
        return list(texts)

    def _texts_of(self, op: PutOp) -> list[str]:
        if self._embeddings is None or op.value is None or op.index is False:
            return []
        fields = self._fields if op.index is None else op.index
        found = (get_text_at_path(op.value, tokenize_path(field)) for field in fields)
        return [text for texts in found for text in texts]


def _range(prefix: Sequence[str]) -> str:
    """Return what the keys of items below a namespace begin with; those of others may do so too."""
    return "i/" + "".join(f"{digest(label, 8)}." for label in prefix[:_LABELS])


def _key(namespace: tuple[str, ...], key: str) -> str:
    name = json.dumps([*namespace, key])
    return f"{_range(namespace)}/{digest(name, 22)}"


def _shared_prefix(op: ListNamespacesOp) -> tuple[str, ...]:
    """Return the longest namespace that all which are asked for must begin with."""
    longest: tuple[str, ...] = ()
    for condition in op.match_conditions or ():
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            plain = path[: path.index("*")] if "*" in path else path
            longest = max(longest, plain, key=len)
    return longest


def _minutes(ttl: float | None) -> dt.timedelta:
    return dt.timedelta(minutes=ttl or 0)
