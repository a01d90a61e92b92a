"""A small store with something of everything in it, and what reading all of it gives."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast._engine.journal.changes import (
    ClaimKey,
    CloseQuestion,
    OpenQuestion,
    SetKey,
    TakeMessage,
)
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import Account, Lease, Memo, Message, Question, Write
from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._stores.contract import Limits, Measured, NewRun, Query, ScheduleRow
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import HoldfastError
from tests.contract.store_contract import FakeClock, entry, intent, started, step

PAGE_SIZE = 512
NAME = "a.db"
RUNS = ("first", "second", "third")
REMOVED = "removed"


def open_at(folder: Path, page_size: int = PAGE_SIZE) -> SqliteStore:
    return SqliteStore(str(folder / NAME), clock=FakeClock(), page_size=page_size)


def build(folder: Path, page_size: int = PAGE_SIZE) -> None:
    """Write the store; it is left with a WAL, as a killed process leaves it."""
    made = folder / "made"
    made.mkdir()
    store = open_at(made, page_size)
    owner = store.register_owner()
    for number, run_id in enumerate(RUNS[:-1]):
        add_run(store, owner, number, run_id)
    for queue in ("mail", "report"):
        store.set_limits(Limits(queue, concurrency=3, rate=7))
        store.put_schedule(ScheduleRow(f"{queue} daily", "flow", '{"every_s":86400}', 5), None)
    for number, key in enumerate(("a/1", "a/2", "b")):
        store.put_memo(Memo("notes", key, b'{"n":%d}' % number, None, run_id="first"))
    for number in (1, 2):
        counts = Counts(steps=number, ended={"completed": 1}, attempt_us={number: 3})
        store.put_measures([Measure(number * 60_000_000, "p", flow, counts) for flow in ("", "f")])
    store.put_account(Account("first", 5, usd_nanos=10**9, spent_usd_nanos=3))
    removed = add_run(store, owner, len(RUNS), REMOVED)
    store.append([Write(removed, [entry(Kind.RUN_COMPLETED)], changes=[CloseQuestion("*")])])
    store.forget(removed.row, 9)
    store.close()
    store = open_at(made, page_size)  # What came before is in the file, the rest in the WAL.
    lease = add_run(store, owner, len(RUNS) - 1, RUNS[-1])
    changes = {"owner": None, "waiting_on": "child:x", "wake_us": 5}
    store.append([Write(lease, [entry(Kind.RUN_WAITING)], row=changes)])
    for name in (NAME, f"{NAME}-wal", f"{NAME}-witness", f"{NAME}-owners.lock"):
        shutil.copy(made / name, folder)
    store.close()
    shutil.rmtree(made)


def add_run(store: SqliteStore, owner: int, number: int, run_id: str) -> Lease:
    """Write one run with steps, chunks, an effect with a business key, and messages."""
    digest = bytes(16)
    new = NewRun(run_id, "flow", "1", digest, [started()], [(1, b'"a long text"')])
    lease = store.start(new, owner).lease
    assert lease is not None
    claim = ClaimKey("pay", f"key-{number}", "e", digest)
    done = SetKey("pay", f"key-{number}", "completed", result=True)
    store.append(
        [
            Write(lease, [step("a")]),
            Write(lease, [step("b")], [(2, b'{"chunk":1}')]),
            Write(lease, [intent()], changes=[claim]),
            Write(lease, [step("e")], changes=[done]),
        ]
    )
    store.post(run_id, Message("m1", "signal", "me", 7, b'{"x":1}'))
    store.post(run_id, Message("m2", "signal", "me", 8, b'{"x":2}'))
    opens = [Question(run_id, "ok?", 1, "question", "ops", b'{"text":"?"}', 6, None)]
    store.append(
        [
            Write(
                lease,
                [entry(Kind.VALUE_EMITTED)],
                changes=[TakeMessage("m1"), *map(OpenQuestion, opens)],
            )
        ]
    )
    return lease


def checkpointed(folder: Path) -> None:
    """Move everything from the WAL into the file."""
    open_at(folder).close()
    for suffix in ("-wal", "-shm"):
        assert not (folder / f"{NAME}{suffix}").exists()


def files_of(folder: Path) -> dict[str, bytes]:
    """Return what the files of a store hold; the reserve is left out."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if not path.name.endswith("-reserve")
    }


def put(folder: Path, files: dict[str, bytes]) -> None:
    """Write a set of files into a fresh folder."""
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        path.touch(0o600)
        path.write_bytes(content)


Reading = Callable[[SqliteStore], object]


def readings() -> dict[str, Reading]:
    """Everything that can be asked of the store, by name."""
    asked: dict[str, Reading] = {
        "list": lambda store: store.list(Query()),
        "list queued": lambda store: [row.run_id for row in store.list(Query(tag=("a", "b")))],
        "claimable": lambda store: {row.run_id: row for row in store.claimable(10**16, 10)},
        "waiting": lambda store: {row.run_id: row for row in store.waiting_on("child:x")},
        "limits": lambda store: [
            state.limits for state in store.queues() if state.limits.concurrency
        ],
        "schedules": lambda store: store.schedules(),
        "data_loss": lambda store: store.accepted_through(),
        "store id": lambda store: store.store_id,
        "questions": lambda store: {it.run_id: it for it in store.questions()},
        "memos": lambda store: store.memos("notes"),
        "some memos": lambda store: store.memos("notes", "a/", "a/1"),
        "memo": lambda store: store.memo("notes", "a/2"),
        "no memo": lambda store: store.memo("notes", "none"),
        "measures": lambda store: store.measures(0, 1 << 60),
        "account": lambda store: store.account("first"),
        "no account": lambda store: store.account("second"),
        "removed": lambda store: store.get(REMOVED),
        "no run": lambda store: store.get("none"),
        "no key": lambda store: store.key("pay", "none"),
    }
    for number, run_id in enumerate(RUNS):
        asked |= _of_run(number, run_id)
    return asked


def _of_run(number: int, run_id: str) -> dict[str, Reading]:
    run_no = number + 1 + (run_id == RUNS[-1])  # The removed one stands before it.

    def loaded(store: SqliteStore) -> object:
        row = store.get(run_id)
        return None if row is None else store.load(row)

    return {
        f"{run_id} row": lambda store: store.get(run_id),
        f"{run_id} by number": lambda store: store.by_number(run_no),
        f"{run_id} journal": loaded,
        f"{run_id} entry": lambda store: store.entry(run_no, 4),
        f"{run_id} chunks": lambda store: store.chunks(run_no, 2)[2],
        f"{run_id} key": lambda store: store.key("pay", f"key-{number}"),
        f"{run_id} inbox": lambda store: store.inbox(run_no),
        f"{run_id} questions": lambda store: store.questions(run_id),
    }


def read_all(store: SqliteStore) -> dict[str, object]:
    """Ask everything; an error of ours is an answer too, any other is a bug."""
    answers: dict[str, object] = {}
    for name, reading in readings().items():
        try:
            answers[name] = reading(store)
        except HoldfastError as error:
            answers[name] = error
    return answers


def silent_changes(folder: Path, expected: dict[str, object]) -> list[str]:
    """Open the store, ask everything, and return what differs without having been reported."""
    try:
        store = open_at(folder)
    except HoldfastError:
        return []
    try:
        if store.regression() is not None:
            return []
        found = read_all(store)
        if not _is_measured(found, expected) and not store.verify():
            return ["measures"]
    finally:
        store.close()
    return [name for name in found if name != "measures" and not _is_honest(name, found, expected)]


def _is_measured(found: dict[str, object], expected: dict[str, object]) -> bool:
    """A damaged measure is named and left out; one whose minute was damaged is somewhere else, which
    `verify` says. None is ever told with other numbers."""
    answer, right = found["measures"], expected["measures"]
    if isinstance(answer, HoldfastError) or answer == right:
        return True
    assert isinstance(answer, Measured)
    assert isinstance(right, Measured)
    assert all(row in right.rows for row in answer.rows), "a damaged measure was used"
    return len(answer.rows) + len(answer.damaged) == len(right.rows)


def _is_honest(name: str, found: dict[str, object], expected: dict[str, object]) -> bool:
    """An answer is right or an error. A damaged run is shown as held in a list, and is not given
    to workers: both are honest if asking for that run itself says that it is damaged."""
    answer: Any = found[name]
    right: Any = expected[name]
    if answer == right or isinstance(answer, HoldfastError):
        return True
    if name == "list":
        answer = {row.run_id: row for row in answer if row.held_reason != "corrupt"}
        right = {row.run_id: row for row in right}
    if not isinstance(answer, dict) or not isinstance(right, dict):
        return False
    missing = [run_id for run_id in right if run_id not in answer]
    return all(
        isinstance(found[f"{run_id} by number"], HoldfastError) for run_id in missing
    ) and all(answer[run_id] == right.get(run_id) for run_id in answer)
