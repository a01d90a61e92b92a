"""Writes the stored file of a version: run it with that version's code, once, and keep the file.

PYTHONPATH=<its src>:<this repository> python -m tests.upgrade.write_store tests/upgrade/schema-1.tar.gz
"""

from __future__ import annotations

import contextlib
import os
import sys
import tarfile
import tempfile
from pathlib import Path

import holdfast
from holdfast._engine.journal.changes import OpenQuestion
from holdfast.errors import RunHeld
from tests.upgrade.flows import order, talk


def write(folder: Path) -> None:
    """Leave runs in every state that a process can leave them in."""
    with holdfast.open(f"sqlite:///{folder}/a.db"):
        order.run("done", "done", 30)
        talk.run("talked", 3)
        order.submit("queued", "queued", 2)
        os.environ["HOLDFAST_TEST_STOPS"] = "1"
        with contextlib.suppress(KeyboardInterrupt):
            order.run("stopped", "stopped", 40)
        with contextlib.suppress(KeyboardInterrupt):
            talk.run("silent", 2)
        os.environ["HOLDFAST_TEST_DOUBTS"] = "1"
        with contextlib.suppress(RunHeld):
            order.run("doubted", "doubted", 5)


def write_fleet(folder: Path) -> None:
    """Leave queues, schedules and runs that wait, in a namespace of its own."""
    from holdfast._engine.journal.entries import Draft, Kind
    from holdfast._engine.journal.rows import Message, Write
    from holdfast._stores.contract import Limits, NewRun, ScheduleRow
    from holdfast._stores.sqlite.sqlite_store import SqliteStore

    store = SqliteStore(str(folder / "a.db"), namespace="fleet")
    owner = store.register_owner()
    store.set_limits(Limits("mail", concurrency=3, rate=7))
    store.put_schedule(ScheduleRow("daily", "f", '{"every_s":86400}', 5), None)
    for name, wake_us in (("later", 1 << 60), ("due", 5), ("spoken to", None), ("silent", None)):
        new = NewRun(name, "f", "1", bytes(16), [Draft(Kind.RUN_STARTED, 1)])
        new.queue, new.priority, new.limit_key = "mail", 4, "k"
        lease = store.start(new, owner).lease
        assert lease is not None
        changes = {"owner": None, "waiting_on": "x", "wake_us": wake_us}
        store.append([Write(lease, [Draft(Kind.RUN_WAITING, 2)], row=changes)])
    store.post("spoken to", Message("m", "signal", "me", 3, b"{}"))
    store.start(NewRun("new", "f", "1", bytes(16), [Draft(Kind.RUN_STARTED, 1)]), None)
    store.close()


def write_people(folder: Path) -> None:
    """Leave what a run asks, spends and remembers, and a child, in a namespace of its own."""
    from holdfast._engine.journal.entries import Draft, Kind
    from holdfast._engine.journal.rows import Account, Memo, Question, Write
    from holdfast._stores.contract import NewRun
    from holdfast._stores.sqlite.sqlite_store import SqliteStore

    store = SqliteStore(str(folder / "a.db"), namespace="people")
    owner = store.register_owner()
    lease = store.start(NewRun("asks", "f", "1", bytes(16), [Draft(Kind.RUN_STARTED, 1)]), owner)
    assert lease.lease is not None
    opens = [Question("asks", "ok?", 1, "question", "ops", b'{"text":"?"}', 6, None)]
    store.append(
        [
            Write(
                lease.lease,
                [Draft(Kind.QUESTION_ASKED, 2, step="ok?", body=b'{"name":"ok?","text":"?"}')],
                changes=[*map(OpenQuestion, opens)],
            )
        ]
    )
    changes = {"owner": None, "waiting_on": "message"}
    store.append([Write(lease.lease, [Draft(Kind.RUN_WAITING, 3)], row=changes)])
    child = NewRun("child", "f", "1", bytes(16), [Draft(Kind.RUN_STARTED, 1)])
    child.parent = child.root = "asks"
    store.start(child, None)
    store.put_account(Account("asks", 5, usd_nanos=10**9, spent_usd_nanos=3))
    store.put_memo(Memo("notes", "a", b'{"n":1}'))
    store.close()


def main(target: str) -> None:
    """Write the store and pack its files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        write_fleet(folder)
        write_people(folder)
        with tarfile.open(target, "w:gz") as packed:
            for file in sorted(folder.glob("a.db*")):
                if not file.name.endswith("-reserve"):
                    packed.add(file, file.name, filter=_anonymous)


def _anonymous(found: tarfile.TarInfo) -> tarfile.TarInfo:
    found.uid = found.gid = found.mtime = 0
    found.uname = found.gname = ""
    return found


if __name__ == "__main__":
    main(sys.argv[1])
