"""The connection of a transactional effect: a psycopg connection, inside the store's transaction.

A statement that would end the transaction, or change the connection beyond it, is refused before it
is sent. This checks the text, not its execution: procedures, and statements that bypass psycopg's
cursors, are detected afterwards, by the transaction's number. Then the outcome is unknown, and the
effect is in doubt.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Self

import psycopg
from psycopg import pq, sql

from holdfast._engine.journal.rows import Lease, Write
from holdfast._stores.contract import Broken, EndedByItself, Fenced, Outcome
from holdfast._stores.postgres.postgres_append import Appender, Batch
from holdfast._stores.postgres.postgres_database import Database
from holdfast._stores.postgres.postgres_errors import LinkLost, passes
from holdfast._stores.postgres.server_connection import Link, idle_ms
from holdfast.errors import UsageError

TRIES = 3
"""The maximum number of tries of a user's transaction after a deadlock or a lost connection."""
USERS_PATIENCE_S = 300.0
"""How long one statement of a user's transaction may take."""

_ASIDE = re.compile(
    r"""
      --[^\n]*                        # a comment
    | /\*.*?\*/                       # a comment
    | \b[eE]'(?:[^'\\]|\\.|'')*'      # a string with escapes
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
    """A cursor that refuses statements that would end the transaction."""

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> Self:
        check(query, self.connection)
        return super().execute(query, *args, **kwargs)

    def executemany(self, query: Any, *args: Any, **kwargs: Any) -> None:
        check(query, self.connection)
        super().executemany(query, *args, **kwargs)


def check(query: Any, connection: Any = None) -> None:
    """Refuse a statement that controls the transaction, which Holdfast begins and ends."""
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
    """Lend the connection of a transaction to user code, and restore its settings."""
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
    """Return whether the transaction that began is no longer open."""
    status = link.pgconn.transaction_status
    if status == pq.TransactionStatus.INTRANS:
        return link.fetch("transaction_id") != began
    return status == pq.TransactionStatus.IDLE


# -- the transaction --------------------------------------------------------------------------


class _Refused(Exception):
    """Rolls a user's transaction back, because its write was refused."""


def within(
    database: Database, appender: Appender, lease: Lease, work: Callable[[Any], Write]
) -> Outcome:
    """Commit the user's statements together with the resulting write. Repeat the transaction if a
    deadlock or a lost connection ended it."""
    for left in reversed(range(TRIES)):
        try:
            return _once(database, appender, lease, work)
        except BaseException as error:
            if not left or not passes(error):
                if isinstance(error, LinkLost):
                    raise database.translated(error) from error
                raise
        time.sleep(random.uniform(0.05, 0.2))  # noqa: S311
    raise AssertionError


def _once(
    database: Database, appender: Appender, lease: Lease, work: Callable[[Any], Write]
) -> Outcome:
    """Do everything in one transaction. It is not repeated here after its connection broke: if the
    commit is not found, it was rolled back, and the caller receives the error."""
    batch: Batch | None = None
    link: Link | None = None
    try:
        with database.pool().connection(timeout=database.patience_s) as link:
            link.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            batch = appender.batch(link)
            with link.transaction():
                if not _write_within(link, batch, lease, work):
                    return Fenced()
    except _Refused:
        pass
    except psycopg.OperationalError as error:
        if batch is None or not _was_committed(database, batch):
            raise database.translated(error) from error
    except Exception as error:
        if link is not None and (link.closed or link.broken):
            raise LinkLost("the connection broke inside a user's transaction") from error
        raise
    assert batch is not None
    outcome = appender.concluded(batch)[0]
    if isinstance(outcome, Broken):
        raise outcome.error
    return outcome


def _write_within(link: Link, batch: Batch, lease: Lease, work: Callable[[Any], Write]) -> bool:
    """Execute the user's statements and the write of the run; return False if the run is lost."""
    link.fetch("commit_for_good", (idle_ms(USERS_PATIENCE_S),))
    began = link.fetch("transaction_id")
    row = lease.row
    if not link.fetch("run_stands", (row.run_no, row.epoch, row.last_seq, row.digest)):
        return False
    with lent(link, began, row.run_id):
        write = work(link)
    batch.lock_names(link, [write])
    batch.look(link, [write])
    batch.work_out([write])
    batch.send(link)
    if not batch.leases():
        raise _Refused
    batch.send_rest(link)
    return True


def _was_committed(database: Database, batch: Batch) -> bool:
    def work(link: Link, _tries: int) -> bool:
        with link.writing():
            found: bool = batch.was_committed(link)
            return found

    return database.appending.again(work)
