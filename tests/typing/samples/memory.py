"""A user's module that remembers, removes and exports, all of it checked.

A line that ends in `# error` is wrong, and every checker has to say so; no other line is.
"""

import datetime as dt
from typing import Any, assert_type

import holdfast
from holdfast.types import Memory, Store
from holdfast import aio, flow, step


@step
def note(key: str) -> int:
    mine = holdfast.memory("notes")
    assert_type(mine, Memory)
    assert_type(mine.get(key), Any)
    assert_type(mine.version(key), int)
    assert_type(mine.set(key, {"n": 1}, ttl="30d"), bool)
    mine.set(key, 1, ttl=dt.timedelta(days=1))
    mine.set(key, 1, "30d")  # error
    entry = mine.item(key)
    if entry is not None:
        assert_type(entry.updated_at, dt.datetime)
    return sum(found.version for found in mine.items("a", limit=5))


@flow(retention="30d")
def keeping(key: str) -> bool:
    note(key)
    return holdfast.memory("notes").delete(key, if_version=3)


@flow(retention=dt.timedelta(days=3))
async def keeping_async(key: str) -> bool:
    mine = aio.memory("notes")
    assert_type(await mine.version(key), int)
    return await mine.set(key, 1, if_version=0)


def hide(path: str, value: Any) -> Any:
    return None if path.endswith(".token") else value


def house(store: Store) -> None:
    with holdfast.open("memory:", default=False, redact=hide) as other:
        other.memory("notes").set("k", 1)
    collected = store.prune(older_than="30d", status=["failed"], dry_run=True)
    assert_type([run.run_id for run in collected.removed], list[str])
    assert_type(store.export_run("r", "r.jsonl").run_ids, list[str])
    assert_type(store.import_run("r.jsonl").there, list[str])
    store.export_run("r")  # error
