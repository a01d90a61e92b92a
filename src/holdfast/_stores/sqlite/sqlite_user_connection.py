"""The connection of a transactional effect: access to the user's own tables, inside the store's
transaction.

SQLite's authorizer refuses harmful statements when they are prepared: the end of the transaction,
settings of the connection, other databases, and writes to the tables of the store. All other
statements are allowed, including definitions of tables and indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import apsw

from holdfast._engine.journal.rows import Write
from holdfast._stores.sqlite import migrations
from holdfast._stores.sqlite.apsw_types import Connection, Cursor
from holdfast.errors import UsageError

_READABLE = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo"}
    | {"foreign_key_list", "foreign_key_check", "data_version"}
)
"""Settings that can be read safely."""
_NEVER = {
    apsw.SQLITE_TRANSACTION: "Holdfast begins and ends the transaction; leave {0} out",
    apsw.SQLITE_PRAGMA: "PRAGMA {0} would change the connection for all runs",
    apsw.SQLITE_ATTACH: "other databases do not commit together with this one",
    apsw.SQLITE_DETACH: "other databases do not commit together with this one",
}
OF_THE_DISK = (apsw.IOError, apsw.FullError, apsw.CorruptError, apsw.NotADBError)
"""Errors of the store, not of the statement."""
_CHANGES = frozenset(
    {
        apsw.SQLITE_INSERT,
        apsw.SQLITE_UPDATE,
        apsw.SQLITE_DELETE,
        apsw.SQLITE_ALTER_TABLE,
        apsw.SQLITE_CREATE_INDEX,
        apsw.SQLITE_CREATE_TABLE,
        apsw.SQLITE_CREATE_TRIGGER,
        apsw.SQLITE_CREATE_VIEW,
        apsw.SQLITE_CREATE_TEMP_TRIGGER,
        apsw.SQLITE_DROP_INDEX,
        apsw.SQLITE_DROP_TABLE,
        apsw.SQLITE_DROP_TRIGGER,
        apsw.SQLITE_DROP_VIEW,
        apsw.SQLITE_REINDEX,
    }
)


def lent(connection: Connection, run_id: str, work: Callable[[Any], Write]) -> Write:
    """Lend the connection of a transaction to user code, and take it back."""
    lending = Lent(connection, run_id)
    raw = cast("apsw.Connection", connection)
    raw.authorizer = lending.may
    try:
        write = work(lending)
        lending.check()
        return write
    finally:
        lending.ended = True
        raw.authorizer = None


class Lent:
    """A connection for one transaction: `execute` and `executemany`, with `?` for parameters."""

    def __init__(self, connection: Connection, run_id: str) -> None:
        self.ended = False
        self._connection = connection
        self._run_id = run_id
        self._why = ""
        self._ours = {name.lower() for _, name in migrations.expected()}

    def execute(self, sql: str, parameters: Any = ()) -> Cursor:
        """Run a statement; the cursor yields its rows."""
        self.check()
        return self._translate_refusal(lambda: self._connection.execute(sql, parameters))

    def executemany(self, sql: str, rows: Iterable[Any]) -> None:
        """Run a statement once for each row of parameters."""
        for parameters in rows:
            self.execute(sql, parameters)

    def changes(self) -> int:
        """Return how many rows the last statement changed."""
        return self._connection.changes()

    def last_insert_rowid(self) -> int:
        """Return the rowid of the last inserted row."""
        return cast("apsw.Connection", self._connection).last_insert_rowid()

    def check(self) -> None:
        """Refuse statements outside the transaction, which would commit on their own."""
        if self.ended:
            raise UsageError(
                f"run {self._run_id!r}: the transaction of this connection is over; "
                "use it only inside its effect"
            )
        if not self._connection.in_transaction:
            raise UsageError(
                f"run {self._run_id!r}: the transaction was rolled back by a statement before (OR "
                "ROLLBACK, or an error of the disk); let that error end the effect"
            )

    def _translate_refusal(self, perform: Callable[[], Cursor]) -> Cursor:
        self._why = ""
        try:
            return perform()
        except apsw.AuthError as refused:
            why = self._why or str(refused)
            raise UsageError(f"run {self._run_id!r}: refused in a transaction: {why}") from None

    def may(
        self, operation: int, one: str | None, two: str | None, _base: str | None, _by: str | None
    ) -> int:
        """Return whether a statement that is being prepared may perform an operation."""
        text = _NEVER.get(operation)
        if text is not None and not (
            operation == apsw.SQLITE_PRAGMA and (one or "").lower() in _READABLE
        ):
            self._why = text.format(one)
            return apsw.SQLITE_DENY
        if operation in _CHANGES:
            for name in (one, two):
                if name is not None and name.lower() in self._ours:
                    self._why = f"{name} is a table of the store; only Holdfast writes to it"
                    return apsw.SQLITE_DENY
        return apsw.SQLITE_OK
