"""What lies on the disk, measured with one ruler for all subjects."""

from __future__ import annotations

from pathlib import Path

import apsw

SQLITE_HEADER = b"SQLite format 3\0"


def stored_bytes(directory: Path) -> int:
    """All files of a closed store, after its WAL went back into the database."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    for path in files:
        with path.open("rb") as opened:
            is_database = opened.read(len(SQLITE_HEADER)) == SQLITE_HEADER
        if is_database:
            _checkpoint(path)
    return sum(path.stat().st_size for path in files if path.exists())


def _checkpoint(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def filesystem_of(directory: Path) -> str:
    """The kind of file system, or "unknown" where the system does not tell."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    resolved = directory.resolve()
    best, kind = -1, "unknown"
    for line in mounts.read_text().splitlines():
        _, point, found, *_ = line.split()
        if resolved.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), found
    return kind
