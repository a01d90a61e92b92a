"""One connection to the server: every call has a time limit, and no call leaves state in the
session.

A pooler in transaction mode may pass each transaction to another session, so nothing is prepared by
number, settings are local to the transaction, and every table is named with its schema. The one
statement that every step uses is prepared under a name that is derived from its text: another
session has either the same statement under it, or none.

PostgreSQL's text type does not allow NUL; a name with NUL is stored with an escape.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import struct
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, cast

import psycopg
from psycopg import generators, pq
from psycopg.rows import tuple_row

from holdfast._stores import named_sql
from holdfast._stores.postgres.postgres_queries import adapts_rows, from_server, to_server

Q = named_sql.load("postgres/queries.sql")

PLANNED_FOR_S = 5.0
"""How long a prepared statement keeps its plan. A plan for a small table reads the whole table at
every step, and a minute may pass until the server analyses a table that has grown."""

ROWS_AT_ONCE = 200
"""How many rows are fetched in one round trip when a whole table is read."""

_ESCAPE = "\ue000"
_BIGINT, _TEXT, _BYTEA = 20, 25, 17
_ARRAY_OF = {_BIGINT: 1016, _TEXT: 1009, _BYTEA: 1001}
_SINGLE = {"bigint": _BIGINT, "text": _TEXT, "bytea": _BYTEA}
_OIDS = _SINGLE | {f"{kind}[]": _ARRAY_OF[oid] for kind, oid in _SINGLE.items()}
_HEAD = struct.Struct("!iiiii").pack
_LENGTH = struct.Struct("!i").pack
_NUMBER = struct.Struct("!iq").pack
_ALONE = struct.Struct("!q").pack
_NULL = _LENGTH(-1)
_NO_SUCH_STATEMENT, _STATEMENT_EXISTS = b"26000", b"42P05"


class Link(psycopg.Connection[Any]):
    """A connection whose waits all have a time limit."""

    patience_s = 15.0
    idle_s = 60.0
    """How long the server waits for the next statement inside a transaction."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._planned_s = time.monotonic()
        self._sent: set[bytes] = set()
        """Names of the statements that this session has prepared."""
        self._is_pooled = False
        """Whether a pooler changes the session: then nothing is prepared."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait for an answer of the server; after the time limit, abandon the connection."""
        try:
            return super().wait(gen, interval, timeout or self.patience_s)
        except psycopg.Error as error:
            if type(error).__name__ != "_WaitTimeout":  # The driver does not export the class.
                raise
            self.abandon()
            raise psycopg.OperationalError(
                f"the server did not answer for {self.patience_s:.0f} s"
            ) from None

    def abandon(self) -> None:
        """Close the socket without a message to the server."""
        with contextlib.suppress(OSError, psycopg.Error):
            handle = self.pgconn.socket
            with open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), handle)
        with contextlib.suppress(psycopg.Error):
            self.pgconn.finish()

    # -- statements ----------------------------------------------------------------------------

    def fetch(self, name: str, values: Any = ()) -> list[Any]:
        """Run a named statement; return its rows."""
        return _rows(name, self._run(name, values))

    def _run(self, name: str, values: Any) -> psycopg.Cursor[Any]:
        # Rows must be tuples, whatever row factory a user's transaction has set.
        cursor = self.cursor(row_factory=tuple_row)
        values = _outward(to_server(name, values))
        return cursor.execute(Q[name].encode(), values, prepare=False)

    def fetch_each(self, *queries: tuple[str, Any]) -> list[list[Any]]:
        """Run several named statements in one round trip; return the rows of each."""
        with self.pipeline():
            cursors = [(name, self._run(name, values)) for name, values in queries]
        return [_rows(name, cursor) for name, cursor in cursors]

    def change(self, name: str, values: Any = ()) -> int:
        """Run a named statement; return the number of changed rows."""
        return self._run(name, values).rowcount

    @contextlib.contextmanager
    def writing(self) -> Generator[Link, None, None]:
        """Open a transaction whose commit is on disk when it returns, whatever the role's
        defaults."""
        try:
            self.fetch_each(("begin", ()), ("commit_for_good", (idle_ms(self.idle_s),)))
            yield self
            self.fetch("commit")
        except BaseException:
            with contextlib.suppress(psycopg.Error):
                if not self.closed and self.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                    self.fetch("rollback")
            raise

    @contextlib.contextmanager
    def one_state(self) -> Generator[Link, None, None]:
        """Open a transaction whose reads all see one state of the database."""
        self.fetch_each(("begin_reading", ()), ("wait_for_reader", (idle_ms(self.idle_s),)))
        try:
            yield self
        finally:
            with contextlib.suppress(psycopg.Error):
                if not self.closed:
                    self.fetch("rollback")

    def each(self, name: str, cursor: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a named statement in batches, in an open transaction."""
        with self.cursor(cursor, row_factory=tuple_row) as rows:
            rows.itersize = ROWS_AT_ONCE
            for row in rows.execute(Q[name].encode()):
                yield from_server(name, _inward(row))

    def call(self, statement: Statement, params: list[bytes | None]) -> list[int]:
        """Run a statement with binary parameters; return its first column, as numbers."""
        pgconn = self.pgconn
        in_transaction = pgconn.transaction_status == pq.TransactionStatus.INTRANS
        if not in_transaction and not self._is_pooled:
            if statement.name not in self._sent:
                self._prepare(statement)
            elif time.monotonic() - self._planned_s > PLANNED_FOR_S:
                self.fetch("discard_plans")
                self._planned_s = time.monotonic()
            pgconn.send_query_prepared(statement.name, params, statement.formats, 1)
            result = self._result()
            if result.error_field(pq.DiagnosticField.SQLSTATE) != _NO_SUCH_STATEMENT:
                return _numbers(self, result)
            self._is_pooled = True  # A session that has not prepared it.
        pgconn.send_query_params(statement.text, params, statement.oids, statement.formats, 1)
        return _numbers(self, self._result())

    def _prepare(self, statement: Statement) -> None:
        self.pgconn.send_prepare(statement.name, statement.text, statement.oids)
        result = self._result()
        state = result.error_field(pq.DiagnosticField.SQLSTATE)
        if state not in (None, _STATEMENT_EXISTS):
            raise psycopg.errors.error_from_result(result, self.info.encoding)
        self._sent.add(statement.name)

    def _result(self) -> pq.abc.PGresult:
        results: list[pq.abc.PGresult] = self.wait(generators.execute(self.pgconn))
        return results[-1]


def idle_ms(seconds: float) -> str:
    """Return a duration in the server's format."""
    return str(max(1000, int(seconds * 1000)))


class Statement:
    """A statement with typed parameters, prepared under a name that is derived from its text."""

    def __init__(self, name: str) -> None:
        text = Q[name]
        types = dict(re.findall(r"\$(\d+)::(\w+(?:\[\])?)", text))
        self.text = text.encode()
        self.name = b"holdfast_" + hashlib.sha256(self.text).hexdigest()[:32].encode()
        self.kinds = [types[str(number)] for number in range(1, len(types) + 1)]
        self.oids = [_OIDS[kind] for kind in self.kinds]
        self._forms = [_FORM[kind] for kind in self.kinds]
        self.formats = [pq.Format.BINARY] * len(self.kinds)

    def params(self, values: Iterable[Any]) -> list[bytes | None]:
        """Return values in the binary form of the protocol; for array parameters they are
        columns."""
        return [
            None if value is None else form(value)
            for form, value in zip(self._forms, values, strict=True)
        ]


def _numbers(link: Link, result: pq.abc.PGresult) -> list[int]:
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise psycopg.errors.error_from_result(result, link.info.encoding)
    found = (result.get_value(at, 0) for at in range(result.ntuples))
    return [int.from_bytes(value or b"", "big", signed=True) for value in found]


# -- values -------------------------------------------------------------------------------------


def _bigints(values: Sequence[Any]) -> bytes:
    parts = [_NULL if value is None else _NUMBER(8, value) for value in values]
    return _array(_BIGINT, parts)


def _texts(values: Sequence[Any]) -> bytes:
    parts = [_NULL if value is None else _sized(_text(value)) for value in values]
    return _array(_TEXT, parts)


def _byteas(values: Sequence[Any]) -> bytes:
    return _array(_BYTEA, [_NULL if value is None else _sized(value) for value in values])


def _array(oid: int, parts: list[bytes]) -> bytes:
    if not parts:
        return struct.pack("!iii", 0, 0, oid)
    return _HEAD(1, 1, oid, len(parts), 1) + b"".join(parts)


def _sized(raw: bytes) -> bytes:
    return _LENGTH(len(raw)) + raw


def _text(value: str | bytes) -> bytes:
    """Encode a string; a body is already bytes, JSON without NUL."""
    return value if isinstance(value, bytes) else escaped(value).encode()


def _bytes(value: bytes) -> bytes:
    return value


_FORM: dict[str, Callable[[Any], bytes]] = {
    "bigint": _ALONE,
    "text": _text,
    "bytea": _bytes,
    "bigint[]": _bigints,
    "text[]": _texts,
    "bytea[]": _byteas,
}


def escaped(text: str) -> str:
    """Return a text with NUL escaped, reversibly."""
    if "\x00" in text or _ESCAPE in text:
        return text.replace(_ESCAPE, _ESCAPE + "e").replace("\x00", _ESCAPE + "0")
    return text


def unescaped(text: str) -> str:
    """Return the original of an escaped text."""
    if _ESCAPE in text:
        return text.replace(_ESCAPE + "0", "\x00").replace(_ESCAPE + "e", _ESCAPE)
    return text


def _outward(values: Any) -> Any:
    if isinstance(values, dict):
        named = cast("dict[str, Any]", values)
        return {name: _escape_any(value) for name, value in named.items()}
    return [_escape_any(value) for value in values]


def _escape_any(value: Any) -> Any:
    if type(value) is str:
        return escaped(value)
    if isinstance(value, list | tuple):
        return [_escape_any(part) for part in cast("Sequence[Any]", value)]
    return str(value) if isinstance(value, str) else value


def _rows(name: str, cursor: psycopg.Cursor[Any]) -> list[Any]:
    if cursor.description is None:
        return []
    rows = [_inward(row) for row in cursor.fetchall()]
    return [from_server(name, row) for row in rows] if adapts_rows(name) else rows


def _inward(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(unescaped(value) if isinstance(value, str) else value for value in row)
