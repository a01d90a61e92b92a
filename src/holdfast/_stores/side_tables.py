"""The side tables inside one transaction: read, decided on an overlay, then written.

A store processes the writes of a batch in order. For each it lets the changes decide
(`Overlay.decide`); their rows are staged, so that a refused or fenced write leaves nothing behind.
The changes of an accepted write become statements in the store's dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from holdfast._engine.journal.changes import ALL
from holdfast._engine.journal.rows import Applied, Change, Refused
from holdfast._stores import lookups, row_codec, side_rows
from holdfast._stores.lookups import Fetch

Place = tuple[Any, ...]
"""A table, and the key of a row in it."""
Statement = tuple[str, Any]
"""The name of a query, and its values."""


class Put(msgspec.Struct):
    """One row that a transaction changes: its stored and its new value."""

    place: Place
    before: Any
    after: Any


class Overlay:
    """The `View` of a transaction: the rows that its writes have put, over the rows that `read`
    returns."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read
        self._known: dict[Place, Any] = {}
        self._staged: dict[Place, Any] = {}

    def know(self, rows: Iterable[tuple[Place, Any]]) -> None:
        """Add rows that were read before; they stay valid until the transaction ends."""
        self._known.update(rows)

    def find(self, table: str, *at: Any) -> Any:
        """Return the row with this key, or None."""
        place = (table, *at)
        if place in self._staged:
            return self._staged[place]
        if table == "runs":
            return self._read(table, *at)  # The transaction itself changes these.
        if place not in self._known:
            self._known[place] = self._read(table, *at)
        return self._known[place]

    def put(self, table: str, row: Any, *at: Any) -> None:
        """Stage a row; None removes it. It takes effect if the write is accepted."""
        self._staged[table, *at] = row

    def decide(self, changes: Sequence[Change], applied: Applied, now_us: int) -> Refused | None:
        """Stage the rows of a write's changes, or return the refusal of one of them."""
        self._staged.clear()
        for change in changes if len(changes) == 1 else sorted(changes, key=attrgetter("rank")):
            refused = change.decide(self, applied, now_us)
            if refused is not None:
                self._staged.clear()
                return refused
        return None

    def accept(self) -> list[Put]:
        """Make the staged rows part of the transaction, and return them."""
        puts = [Put(place, self._known.get(place), row) for place, row in self._staged.items()]
        self._known.update(self._staged)
        self._staged.clear()
        return puts

    def discard(self) -> None:
        """Drop the staged rows, because the write did not happen."""
        self._staged.clear()


class SideTables:
    """Reads and writes the tables; a dialect overrides the differences."""

    def __init__(self, fetch: Fetch, namespace: str) -> None:
        self._fetch = fetch
        self._namespace = namespace

    def read(self, table: str, *at: Any) -> Any:
        """Return a verified row, or None if it certainly does not exist."""
        fetch, namespace = self._fetch, self._namespace
        if table == "keys":
            return lookups.find_key(fetch, namespace, *at)
        if table == "inbox":
            return lookups.find_message(fetch, *at)
        if table == "inbox_end":
            return lookups.newest_number(fetch, *at)
        if table == "runs":
            return lookups.find_run(fetch, namespace, *at)
        if table == "accounts":
            return side_rows.find_account(fetch, namespace, *at)
        assert table == "memos", table
        return side_rows.find_memo(fetch, namespace, *at)

    def statements(self, puts: Iterable[Put]) -> list[Statement]:
        """Return the statements that write these rows, in order."""
        return [self._statement(put) for put in puts if put.place[0] != "inbox_end"]

    def _statement(self, put: Put) -> Statement:
        table, *at = put.place
        row = put.after
        if table == "keys":
            return "put_key", row_codec.key_values(row)
        if table == "inbox":
            if put.before is None:
                return "add_message", row_codec.message_values(row)
            return "take_message", (row.taken_seq, row.digest, row.id)
        if table == "questions":
            if row is not None:
                return "put_question", side_rows.question_values(at[0], row)
            return ("close_questions", (at[0],)) if at[1] == ALL else ("close_question", tuple(at))
        if table == "accounts":
            return "put_account", side_rows.account_values(self._namespace, row)
        assert table == "memos", table
        return "put_memo", side_rows.memo_values(self._namespace, row)
