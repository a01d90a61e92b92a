"""The store of LangGraph in a memory: items, namespaces, filters, times, likeness. On SQLite, and the
part that depends on the order of keys on PostgreSQL too."""

import asyncio
import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

import holdfast
from holdfast import testing
from holdfast.integrations.langgraph import HoldfastStore
from holdfast.testing import FakeClock
from tests.runtime.facts import until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HoldfastStore]:
    with HoldfastStore(f"sqlite:///{tmp_path}/runs.db") as it:
        yield it


def keys(found: Any) -> list[str]:
    return [it.key for it in found]


def test_an_item_comes_back_with_its_names_and_times(store):
    store.put(("users", "ana"), "food", {"likes": ["tea"], "score": 1.5, "none": None})
    item = store.get(("users", "ana"), "food")
    assert (item.namespace, item.key) == (("users", "ana"), "food")
    assert item.value == {"likes": ["tea"], "score": 1.5, "none": None}
    assert item.created_at == item.updated_at
    assert dt.datetime.now(dt.UTC) - item.updated_at < dt.timedelta(minutes=5)
    assert store.get(("users",), "food") is None
    assert store.get(("users", "ana"), "drink") is None


def test_writing_again_keeps_when_it_was_created(store):
    store.put(("a",), "k", {"n": 1})
    first = store.get(("a",), "k")
    store.put(("a",), "k", {"n": 2})
    second = store.get(("a",), "k")
    assert (second.value, second.created_at) == ({"n": 2}, first.created_at)
    assert second.updated_at > first.updated_at


def test_an_item_is_removed(store):
    store.put(("a",), "k", {"n": 1})
    store.delete(("a",), "k")
    store.delete(("a",), "never there")
    assert store.get(("a",), "k") is None
    assert store.search(("a",)) == []
    assert store.list_namespaces() == []


def test_a_batch_reads_first_and_the_last_write_counts(store):
    store.put(("a",), "k", {"n": 0})
    results = store.batch(
        [
            PutOp(("a",), "k", {"n": 1}),
            GetOp(("a",), "k"),
            PutOp(("a",), "k", {"n": 2}),
            SearchOp(("a",)),
            PutOp(("b",), "new", {"n": 3}),
            ListNamespacesOp(),
        ]
    )
    assert [results[0], results[2], results[4]] == [None, None, None]
    assert results[1].value == {"n": 0}
    assert [it.value for it in results[3]] == [{"n": 0}]
    assert results[5] == [("a",)]
    assert store.get(("a",), "k").value == {"n": 2}
    assert store.get(("b",), "new").value == {"n": 3}


def test_a_batch_is_written_together_or_not_at_all(store):
    with pytest.raises(holdfast.errors.NotSerializable):
        store.batch([PutOp(("a",), "good", {"n": 1}), PutOp(("a",), "bad", {"n": object()})])
    assert store.search(()) == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"kind": "tea"}, ["a", "c"]),
        ({"kind": {"$eq": "tea"}, "price": {"$gt": 2}}, ["c"]),
        ({"kind": {"$ne": "tea"}}, ["b", "d"]),
        ({"price": {"$gte": 2, "$lt": 4}}, ["a", "c"]),
        ({"price": {"$lte": 2}}, ["a"]),
        ({"from": {"country": "IN"}}, ["c"]),
        ({"tags": ["x", "y"]}, ["a"]),
        ({"price": {"$gt": "text"}}, []),
        ({"nothing": None}, ["a", "b", "c", "d"]),
        ({"nothing": {"$gt": 1}}, []),
    ],
)
def test_filters(store, wanted, found):
    store.put(("m",), "a", {"kind": "tea", "price": 2, "tags": ["x", "y"]})
    store.put(("m",), "b", {"kind": "mug", "price": 9.5, "tags": ["x"]})
    store.put(("m",), "c", {"kind": "tea", "price": 3, "from": {"country": "IN", "year": 2026}})
    store.put(("m",), "d", {"kind": None})
    assert sorted(keys(store.search(("m",), filter=wanted))) == found


def test_an_unknown_operator_is_named(store):
    store.put(("m",), "a", {"n": 1})
    with pytest.raises(holdfast.errors.UsageError, match="'\\$near'.*\\$gte"):
        store.search(("m",), filter={"n": {"$near": 1}})


def test_a_search_goes_down_the_tree_newest_first_by_pages(store):
    for number in range(25):
        store.put(("a", str(number % 2)), f"k{number:02}", {"n": number})
    store.put(("ab",), "other", {"n": 0})
    assert keys(store.search(("a",), limit=3)) == ["k24", "k23", "k22"]
    assert keys(store.search(("a",), limit=3, offset=23)) == ["k01", "k00"]
    assert len(store.search(("a", "1"), limit=100)) == 12
    assert len(store.search((), limit=100)) == 26
    assert store.search(("nowhere",)) == []


def check_namespaces(store: HoldfastStore) -> None:
    spaces = [
        ("a",),
        ("a", "b", "c"),
        ("a", "x", "c"),
        ("b", "c"),
        ("ä/ö", "x|y"),
        tuple("deeper" * 4),
    ]
    for space in spaces:
        store.put(space, "k", {"n": 1})
        store.put(space, "l", {"n": 2})
    assert store.list_namespaces() == sorted(spaces)
    assert store.list_namespaces(prefix=("a",)) == [("a",), ("a", "b", "c"), ("a", "x", "c")]
    assert store.list_namespaces(prefix=("a", "*", "c")) == [("a", "b", "c"), ("a", "x", "c")]
    assert store.list_namespaces(suffix=("c",), max_depth=2) == [("a", "b"), ("a", "x"), ("b", "c")]
    assert store.list_namespaces(prefix=("a",), suffix=("c",), limit=1, offset=1) == [
        ("a", "x", "c")
    ]
    for space in spaces:
        assert store.get(space, "l").value == {"n": 2}
        assert len(store.search(space)) == (6 if space == ("a",) else 2)


def test_namespaces(store):
    check_namespaces(store)


def test_namespaces_on_postgresql(postgres_url):
    with HoldfastStore(postgres_url) as store:
        check_namespaces(store)


def test_the_awaited_twins(store):
    async def main() -> None:
        await store.aput(("a",), "k", {"n": 1})
        item = await store.aget(("a",), "k")
        assert item is not None
        assert item.value == {"n": 1}
        assert keys(await store.asearch(("a",))) == ["k"]
        assert await store.alist_namespaces() == [("a",)]
        await store.adelete(("a",), "k")
        assert store.get(("a",), "k") is None  # Blocking, on the loop.

    asyncio.run(main())


# -- likeness ----------------------------------------------------------------------------------


def embed(texts: Sequence[str]) -> list[list[float]]:
    """How often some words are said."""
    return [[float(text.count(word)) for word in ("tea", "mug", "cat")] for text in texts]


async def aembed(texts: Sequence[str]) -> list[list[float]]:
    return embed(texts)


def test_items_are_found_by_meaning(tmp_path):
    index = {"dims": 3, "embed": embed, "fields": ["text", "parts[*].text"]}
    with HoldfastStore(f"sqlite:///{tmp_path}/runs.db", index=index) as store:
        store.put(("m",), "tea", {"text": "tea tea"})
        store.put(("m",), "cat", {"text": "cat", "parts": [{"text": "mug"}, {"text": "tea cat"}]})
        store.put(("m",), "unseen", {"text": "tea"}, index=False)
        store.put(("m",), "own", {"text": "cat", "other": "mug"}, index=["other"])
        found = store.search(("m",), query="tea")
        assert keys(found)[:2] == ["tea", "cat"]
        assert found[0].score == pytest.approx(1.0)
        assert found[1].score == pytest.approx(0.5**0.5)
        assert {it.key: it.score for it in found}["unseen"] is None
        assert keys(store.search(("m",), query="mug", limit=1, filter={"other": "mug"})) == ["own"]


@pytest.mark.parametrize("fields", [None, ["$"]])
def test_whole_items_are_embedded_as_the_store_of_langgraph_does_it(tmp_path, fields):
    index: Any = {"dims": 3, "embed": embed} | ({"fields": fields} if fields else {})
    theirs = InMemoryStore(index=index)
    with HoldfastStore(f"sqlite:///{tmp_path}/runs.db", index=index) as ours:
        for store in (theirs, ours):
            store.put(("m",), "both", {"text": "tea mug", "deep": {"n": ["tea"]}})
            store.put(("m",), "cat", {"text": "cat tea"})
        told = [
            [(it.key, pytest.approx(it.score)) for it in store.search(("m",), query="tea")]
            for store in (ours, theirs)
        ]
        assert told[0] == told[1]
        assert len(told[0]) == 2
        ours.put(("m",), "own", {"text": "mug"}, index=["$"])
        assert keys(ours.search(("m",), query="mug"))[0] == "own"


class TwoSided(Embeddings):
    """Documents and queries are embedded differently."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, float(len(text))] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [0.0, 1.0]


def test_a_query_is_embedded_as_a_query(tmp_path):
    index: Any = {"dims": 2, "embed": TwoSided(), "fields": ["text"]}
    with HoldfastStore(f"sqlite:///{tmp_path}/runs.db", index=index) as store:
        store.put(("m",), "k", {"text": "x"})
        (found,) = store.search(("m",), query="x")
        assert found.score == pytest.approx(0.5**0.5)
        (found,) = asyncio.run(store.asearch(("m",), query="x"))
        assert found.score == pytest.approx(0.5**0.5)


def test_a_filter_names_a_path_with_dots(store):
    store.put(("m",), "deep", {"a": {"b": {"c": 3}}, "x.y": 1})
    store.put(("m",), "other", {"a": {"b": 2}})
    assert keys(store.search(("m",), filter={"a.b.c": 3})) == ["deep"]
    assert keys(store.search(("m",), filter={"a.b.c": {"$gt": 2}, "x.y": 1})) == ["deep"]
    assert keys(store.search(("m",), filter={"a.b.d": 3})) == []
    assert len(store.search(["m"])) == 2


def test_an_awaited_embedding(tmp_path):
    index = {"dims": 3, "embed": aembed, "fields": ["text"]}

    async def main() -> Any:
        with HoldfastStore(f"sqlite:///{tmp_path}/runs.db", index=index) as store:
            await store.aput(("m",), "mug", {"text": "mug"})
            await store.aput(("m",), "tea", {"text": "tea"})
            return await store.asearch(("m",), query="mug")

    assert keys(asyncio.run(main())) == ["mug", "tea"]


def test_an_index_without_an_embedding_is_refused():
    with pytest.raises(holdfast.errors.UsageError, match="needs an embedding"):
        HoldfastStore("memory:", index={"dims": 3})


# -- labels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["", "a.b", "a\0", 5, None])
def test_a_batch_refuses_labels_that_no_namespace_can_have(store, label):
    for path in ((label,), ("a", label)):
        wrong: list[Any] = [
            GetOp(path, "k"),
            PutOp(path, "k", {"n": 1}),
            SearchOp(path),
            ListNamespacesOp((MatchCondition("prefix", path),)),
        ]
        for op in wrong:
            with pytest.raises(InvalidNamespaceError, match="label"):
                store.batch([PutOp(("a",), "k", {"n": 1}), op])
            with pytest.raises(InvalidNamespaceError, match="label"):
                asyncio.run(store.abatch([op]))
    assert store.list_namespaces() == []


def test_a_namespace_may_have_many_labels_of_any_text(store):
    deep = tuple(f"label {number}" for number in range(20))
    for namespace in (deep, (*deep[:-1], "x"), ("*",), ("a/b", "日本", "x" * 5000)):
        store.put(namespace, "k", {"n": len(namespace)})
        assert keys(store.search(namespace)) == ["k"]
    assert len(store.search(deep[:15])) == 2
    assert store.list_namespaces(prefix=deep[:15], suffix=("x",)) == [(*deep[:-1], "x")]


# -- times -------------------------------------------------------------------------------------


def test_items_live_as_long_as_they_are_told_or_read():
    clock = FakeClock()
    with testing.store(clock=clock) as kept:
        store = HoldfastStore(kept, ttl={"refresh_on_read": True, "default_ttl": 10})
        store.put(("a",), "default", {"n": 1})
        store.put(("a",), "short", {"n": 2}, ttl=1)
        store.put(("a",), "ever", {"n": 3}, ttl=None)
        clock.advance(61)
        assert store.get(("a",), "short") is None
        clock.advance(8 * 60)
        assert store.get(("a",), "default").value == {"n": 1}  # Reading lets it live on.
        clock.advance(8 * 60)
        assert sorted(keys(store.search(("a",), refresh_ttl=False))) == ["default", "ever"]
        clock.advance(3 * 60)
        assert keys(store.search(("a",))) == ["ever"]


@pytest.fixture
def expiring() -> Iterator[tuple[HoldfastStore, holdfast.types.Store, FakeClock]]:
    """A store with one item whose time is over, one whose time is not, and one of another memory."""
    clock = FakeClock()
    with testing.store(clock=clock) as kept:
        store = HoldfastStore(kept, ttl={"default_ttl": 1})
        store.put(("a",), "short", {"n": 1})
        store.put(("a",), "long", {"n": 2}, ttl=60)
        kept.memory("mine").set("k", 1, ttl=1)
        clock.advance(90)
        yield store, kept, clock
        store.close()


def stored(kept: holdfast.types.Store) -> list[str]:
    """Which memories have values whose time is over, though nobody finds them any more."""
    return [memo.space for memo in kept._backend.expired_memos()]


def test_a_sweep_removes_what_is_over_and_nothing_else(expiring):
    store, kept, clock = expiring
    assert sorted(stored(kept)) == ["langgraph-store", "mine"]
    assert store.sweep_ttl() == 1
    assert store.sweep_ttl() == 0
    assert stored(kept) == ["mine"]
    assert keys(store.search(("a",), refresh_ttl=False)) == ["long"]
    clock.advance(3600)

    async def main() -> int:
        return store.sweep_ttl()  # Called on a loop, as any other blocking method of it.

    assert asyncio.run(main()) == 1


def test_what_is_refreshed_is_not_swept(expiring):
    store, _kept, clock = expiring
    clock.advance(59 * 60)
    assert store.get(("a",), "long") is None
    store.put(("a",), "new", {"n": 1}, ttl=60)
    clock.advance(45 * 60)
    assert store.get(("a",), "new", refresh_ttl=True) is not None
    clock.advance(45 * 60)
    assert store.sweep_ttl() == 2
    assert keys(store.search(("a",))) == ["new"]


def test_a_sweeper_sweeps_until_it_is_stopped(expiring):
    store, kept, clock = expiring
    going = store.start_ttl_sweeper(sweep_interval_minutes=0.0001)
    assert store.start_ttl_sweeper() is going
    until(lambda: stored(kept) == ["mine"])
    clock.advance(3600)
    until(lambda: stored(kept) == ["mine"])
    assert store.stop_ttl_sweeper()
    assert going.cancelled()
    store.put(("a",), "later", {"n": 1})
    clock.advance(90)
    assert "langgraph-store" in stored(kept)
    again = store.start_ttl_sweeper(sweep_interval_minutes=0.0001)
    until(lambda: stored(kept) == ["mine"])
    again.cancel()
    assert store.stop_ttl_sweeper()
    assert store.start_ttl_sweeper() is not again
    store.close()
    assert store.stop_ttl_sweeper()


# -- inside a run ------------------------------------------------------------------------------


def test_a_run_says_nothing_of_it_in_its_journal(tmp_path):
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db", default=False) as kept:
        store = HoldfastStore(kept)

        @holdfast.flow
        def remember(name: str) -> int:
            store.put(("a",), name, {"n": 1})
            return len(store.search(("a",)))

        assert remember.with_options(store=kept).run("r-1", "x") == 1
        kinds = [it.kind for it in kept.history("r-1")]
        assert not [kind for kind in kinds if "value" in kind or "step" in kind]
