"""What a sweep may remove, for any forest of runs: the rules, checked from outside."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import ENDED, FINAL, Status
from holdfast._engine.journal.rows import RunRow, Write
from holdfast._features.retention.model import Asked
from holdfast._features.retention.store import Sweeper
from holdfast._stores.contract import Query
from tests.contract.ground import entry, new_run
from tests.model.memory_store import MemoryStore

DAY_US = 86_400_000_000
ENDS = {
    "completed": Kind.RUN_COMPLETED,
    "failed": Kind.RUN_FAILED,
    "cancelled": Kind.RUN_CANCELLED,
    "running": None,
}
runs = st.tuples(
    st.sampled_from(sorted(ENDS)),
    st.integers(0, 40),  # How many days ago it ended.
    st.none() | st.integers(0, 9),  # Its parent, by number, if that was made before.
    st.booleans(),  # Whether it is a fork of that one, and not its child.
)


def made(store: MemoryStore, now_us: int, forest: list[tuple[str, int, int | None, bool]]) -> None:
    owner = store.register_owner()
    for number, (end, days, other, is_fork) in enumerate(forest):
        new = new_run(f"r{number}")
        if other is not None and other < number:
            if is_fork:
                new.origin = f'{{"run":"r{other}","base":1}}'
            else:
                new.parent = f"r{other}"
        lease = store.start(new, owner).lease
        assert lease is not None
        kind = ENDS[end]
        if kind is not None:
            draft = entry(kind)
            draft.at_us = now_us - days * DAY_US
            store.append([Write(lease, [draft], row={"updated_us": draft.at_us})])


def rows(store: MemoryStore) -> dict[str, RunRow]:
    return {row.run_id: row for row in store.list(Query(limit=1000))}


@settings(deadline=None)
@given(
    forest=st.lists(runs, max_size=10),
    days=st.integers(0, 40),
    statuses=st.sampled_from([FINAL, frozenset({Status.FAILED}), ENDED]),
)
def test_only_what_may_go_goes(
    forest: list[tuple[str, int, int | None, bool]], days: int, statuses: frozenset[Status]
) -> None:
    now_us = 1000 * DAY_US
    store = MemoryStore(clock=lambda: now_us)
    made(store, now_us, forest)
    before = rows(store)
    asked = Asked(days * DAY_US, statuses=statuses)
    plan = [run.run_id for run in Sweeper(store, asked, dry_run=True).sweep() if run.removed]
    assert rows(store) == before
    gone = [run.run_id for run in Sweeper(store, asked).sweep() if run.removed]
    after = rows(store)

    assert gone == plan, "what was announced is what was done"
    assert set(after) == set(before) - set(gone)
    assert all(after[run_id] == before[run_id] for run_id in after), "what stays is not touched"
    for run_id in gone:
        row = before[run_id]
        assert row.status in ENDED
        assert now_us - row.updated_us >= days * DAY_US
        assert row.status in statuses or row.parent in gone
        assert row.parent is None or row.parent in gone, "a child goes with its parent"
    for row in after.values():
        assert row.parent not in gone, "and a parent not without its children"
        assert row.origin is None or not any(f'"{run_id}"' in row.origin for run_id in gone)
    assert store.verify() == []
    again = [run.run_id for run in Sweeper(store, asked).sweep() if run.removed]
    assert again == [], "a second sweep has nothing to do"
    for run_id in gone:
        tombstone = store.get(run_id)
        assert tombstone is not None
        assert tombstone.deleted_us == now_us
