"""Writes the stored file of a version: run it with that version's code, once, and keep the file.

PYTHONPATH=<its src>:<this repository> python -m tests.upgrade.write_store schema-1.tar.gz
"""

from __future__ import annotations

import contextlib
import os
import sys
import tarfile
import tempfile
from pathlib import Path

import holdfast
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


def main(target: str) -> None:
    """Write the store and pack its files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
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
