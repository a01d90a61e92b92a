"""The store is damaged: a backup is put in its place. An old copy was put back: it is noticed."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3

import holdfast as hf
from tests.handbook.world import World

PROGRAM = """
@effect
def mail(to):
    did(f"mailed {to}")
    return "sent"


@flow
def remind(to):
    wait_for_signal("go")
    return mail(to)


if __name__ == "__main__":
    remind.submit(sys.argv[1], sys.argv[1])
    with holdfast.open("sqlite:///holdfast.db", default=False) as store:
        store.recover()
"""


def copied(world: World, name: str) -> None:
    place = world.folder / name
    place.mkdir()
    for file in world.folder.glob("holdfast.db*"):
        shutil.copy2(file, place)


def test_damage_is_restored_and_a_lost_tail_adopted(world: World):
    world.program(PROGRAM)
    assert world.shell("python agent.py kim").returncode == 0
    world.store.backup(str(world.folder / "backup.db"))
    world.close()
    with contextlib.closing(sqlite3.connect(world.folder / "holdfast.db")) as database:
        database.execute("UPDATE journal SET at_us = at_us + 1")
        database.commit()
    assert "kim" in world.paste("store verify")
    assert world.shell("mkdir away && mv holdfast.db* away").returncode == 0
    world.paste("store restore", BACKUP="backup.db")
    assert world.store.verify() == []

    # The mail is sent, and then the database of before that is put back, beside its witness.
    world.close()
    copied(world, "before")
    world.store.signal("kim", "go")
    assert world.shell("holdfast run agent.py:remind kim").returncode == 3, "after a restore: asked"
    world.store.settle("kim", "mail", hf.NOT_DONE, actor="kim")
    assert world.shell("holdfast run agent.py:remind kim").returncode == 0
    assert world.did("mailed kim") == 1
    world.close()
    for file in ("holdfast.db", "holdfast.db-wal", "holdfast.db-shm"):
        (world.folder / file).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(world.folder / "before" / file, world.folder / file)
    told = world.shell("holdfast runs")
    assert told.returncode == 7
    world.says("lost acknowledged commits", told.stdout + told.stderr)
    world.paste("store accept-data-loss")
    world.paste("doctor", code=0)
    assert "kim" not in world.paste("runs --held-reason corrupt")
    world.store.signal("kim", "go")
    # What may have happened in the part that is gone is asked about, and not executed.
    assert world.shell("holdfast run agent.py:remind kim").returncode == 3
    assert world.status("kim") == "held: in_doubt"
    assert world.did("mailed kim") == 1
