"""How large a store is: what is in its database, wherever that stands at the moment (the WAL of a
store that is open may be longer than all that is in it)."""

from pathlib import Path

import apsw


def bytes_of(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        (pages,) = connection.execute("PRAGMA page_count").fetchall()[0]
        (size,) = connection.execute("PRAGMA page_size").fetchall()[0]
        return int(pages) * int(size)
    finally:
        connection.close()
