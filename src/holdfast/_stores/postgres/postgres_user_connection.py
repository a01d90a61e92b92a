"""The connection that a transactional effect gets: a psycopg connection, inside our transaction.

What would end the transaction, or outlive it in a connection that others use next, is refused
before it is sent. That is a look at the words, not at what the server does: procedures, and ways
round the cursors of psycopg, are found out afterwards, by the number of the transaction. Then
nobody knows any more what has happened, and the effect is in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Self

import psycopg
from psycopg import pq, sql

from holdfast._stores.contract import EndedByItself
from holdfast._stores.postgres.server_connection import Link
from holdfast.errors import UsageError

USERS_PATIENCE_S = 300.0
"""How long one statement of a user's transaction may take."""

_ASIDE = re.compile(
    r"""
      --[^\n]*                        # a comment
    | /\*.*?\*/                       # a comment
    | \b[eE]'(?:[^'\\]|\\.|'')*'      # a text with escapes
    | '(?:[^']|'')*'                  # a text
    | "(?:[^"]|"")*"                  # a name
    | \$(\w*)\$.*?\$\1\$              # a text, such as the body of a function
    """,
    re.VERBOSE | re.DOTALL,
)
_ENDS = re.compile(
    r"\s*(?:commit|end|abort|begin|start\s+transaction|prepare\s+transaction"
    r"|rollback(?!\s+(?:(?:work|transaction)\s+)?to\b))\b",
    re.IGNORECASE,
)
_STAYS = re.compile(r"\s*set\s+(?!local\b|constraints\b|transaction\b)", re.IGNORECASE)
_BODY = re.compile(r"\bbegin\s+atomic\b", re.IGNORECASE)


class LentCursor(psycopg.Cursor[Any]):
    """A cursor that sends nothing that would end the transaction."""

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> Self:
        check(query, self.connection)
        return super().execute(query, *args, **kwargs)

    def executemany(self, query: Any, *args: Any, **kwargs: Any) -> None:
        check(query, self.connection)
        super().executemany(query, *args, **kwargs)


def check(query: Any, connection: Any = None) -> None:
    """Refuse a statement that is not for a transaction that somebody else began and will end."""
    if isinstance(query, sql.Composable):
        query = query.as_string(connection)
    text = query.decode("utf-8", "replace") if isinstance(query, bytes) else str(query)
    bare = _ASIDE.sub(" ", text)
    parts = [bare] if _BODY.search(bare) else bare.split(";")
    for part in parts:
        if _ENDS.match(part):
            raise UsageError(
                f"refused in a transaction: Holdfast begins and ends it; leave {part.strip()!r} "
                "out. To undo a part of it, use a savepoint: `with connection().transaction():`"
            )
        if _STAYS.match(part):
            raise UsageError(
                f"refused in a transaction: {part.strip()!r} would change the connection for all "
                "runs; write SET LOCAL, which ends with the transaction"
            )


@contextmanager
def lent(link: Link, began: list[Any], run_id: str) -> Generator[Link, None, None]:
    """Let somebody work with the connection of a transaction, and take it back as it was."""
    before = link.patience_s, link.cursor_factory, link.row_factory
    link.patience_s, link.cursor_factory = USERS_PATIENCE_S, LentCursor
    error: BaseException | None = None
    try:
        yield link
    except BaseException as raised:
        error = raised
        raise
    finally:
        link.patience_s, link.cursor_factory, link.row_factory = before
        if _has_ended(link, began):
            raise EndedByItself(
                f"run {run_id!r}: a transactional effect ended its transaction by itself (COMMIT "
                "or ROLLBACK), so what it wrote before may stay; leave the end to Holdfast"
            ) from error
    if link.pgconn.transaction_status == pq.TransactionStatus.INERROR:
        raise UsageError(
            f"run {run_id!r}: a statement of a transactional effect failed, and the effect went on; "
            "what it wrote is rolled back. To go on after an error, use a savepoint around the "
            "statement: `with connection().transaction():`"
        )


def _has_ended(link: Link, began: list[Any]) -> bool:
    """Tell whether it is another transaction than the one that began, or none."""
    status = link.pgconn.transaction_status
    if status == pq.TransactionStatus.INTRANS:
        return link.fetch("transaction_id") != began
    return status == pq.TransactionStatus.IDLE
