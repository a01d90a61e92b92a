"""LangGraph's own tests of savers, all of them: awaited and blocking, on SQLite and PostgreSQL."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

from holdfast.integrations.langgraph import HoldfastSaver

TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "copy_thread": 8,
    "delete_for_runs": 7,
    "prune": 8,
}


class Blocking(HoldfastSaver):
    """Answers what is awaited with the blocking methods, on the event loop itself."""

    async def aput(self, *args: Any) -> Any:
        return self.put(*args)

    async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
        self.put_writes(*args, **kwargs)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, config: Any, **kwargs: Any) -> Any:
        for it in self.list(config, **kwargs):
            yield it

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Any) -> None:
        self.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        self.prune(thread_ids, strategy=strategy)


def conform(kind: type[HoldfastSaver], url: str) -> None:
    @checkpointer_test(name="holdfast")
    async def saver() -> Any:
        with kind(url) as it:
            yield it

    report = asyncio.run(validate(saver)).to_dict()
    results = report["results"]
    assert [name for name in results if results[name]["failures"]] == [], results
    counts = {name: it["tests_passed"] for name, it in results.items() if it["detected"]}
    assert counts.items() >= TESTS.items()
    assert report["conformance_level"] == "FULL"
    with kind(url) as it:
        assert it.store.verify() == []


@pytest.mark.parametrize("kind", [HoldfastSaver, Blocking])
def test_on_sqlite(tmp_path: Path, kind: type[HoldfastSaver]) -> None:
    conform(kind, f"sqlite:///{tmp_path}/runs.db")


@pytest.mark.parametrize("kind", [HoldfastSaver, Blocking])
def test_on_postgresql(postgres_url: str, kind: type[HoldfastSaver]) -> None:
    conform(kind, postgres_url)
