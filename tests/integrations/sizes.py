"""How large a store is: what is in its database, wherever that stands at the moment (the WAL of a
store that is open may be longer than all that is in it)."""

from pathlib import Path
from typing import Any

import apsw


def bytes_of(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        found: Any = connection.execute(
            "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        ).fetchall()
        return int(found[0][0])
    finally:
        connection.close()
