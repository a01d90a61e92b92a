"""What a SQLite store keeps beside the journals: messages, questions, pots, memories, measures; and
how a run is removed.

Whatever is read is verified. What is found by an index is now and then compared with the table, and
that a pot or a value is not there is confirmed by a second path: "no pot" means "no limit".
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast._engine.journal import changes
from holdfast._engine.journal.lifecycle import ENDED
from holdfast._engine.journal.rows import SEQ_BITS, SEQ_MASK, Memo, Message, Pot, Question, RunRow
from holdfast._engine.telemetry.measures import Measure
from holdfast._stores import claim_rules, lineage, lookups, measure_rows, row_codec, side_rows
from holdfast._stores.contract import Measured, Posted
from holdfast._stores.sqlite.apsw_types import Connection
from holdfast._stores.sqlite.sqlite_database import Q
from holdfast._stores.sqlite.transaction_writer import Changed
from holdfast.errors import Corrupt

if TYPE_CHECKING:
    from holdfast._stores.sqlite.sqlite_database import Database
    from holdfast._stores.sqlite.transaction_writer import Writer


PAGE = 100
"""How many values of memories are read at a time."""
DROPPED_AT_ONCE = 1000
"""How many values of memories one transaction drops."""


class SqliteBeside:
    """The part of a SQLite store that is not about one run's journal."""

    if TYPE_CHECKING:
        namespace: str
        _writer: Writer
        _database: Database

        now_us: Callable[[], int]

        def get(self, run_id: str) -> RunRow | None: ...
        def by_number(self, run_no: int) -> RunRow | None: ...
        def _inside(self, connection: Connection) -> lookups.Fetch: ...
        def _existing(self, connection: Connection, run_id: str) -> RunRow: ...
        def _compare(self, name: str) -> None: ...

    # -- messages ------------------------------------------------------------------------------

    def post(self, run_id: str, message: Message, etag: str | None = None) -> Posted:
        def work(connection: Connection) -> tuple[Posted, Changed | None]:
            row = self._existing(connection, run_id)
            claim_rules.check_etag(row, etag)
            posted, digest = deliver(connection, self._inside(connection), row, message)
            return posted, None if digest is None else Changed(digest)

        return self._writer.transact(work)

    def messages(self, run_no: int) -> builtins.list[tuple[Message, int | None]]:
        rows = lookups.messages(self._database.read, run_no)
        return [(row.message(), row.taken_seq) for row in rows]

    def message(self, run_no: int, message_id: str) -> tuple[Message, int | None] | None:
        row = lookups.find_message(self._database.read, run_no, message_id)
        return None if row is None else (row.message(), row.taken_seq)

    def inbox(self, run_no: int, after: int = 0) -> builtins.list[Message]:
        rows = lookups.messages_since(self._database.read, run_no, after)
        return [row.message() for row in rows if row.taken_seq is None]

    def news(self, run_nos: Sequence[int]) -> dict[int, int]:
        if not run_nos:
            return {}
        numbers = msgspec.json.encode(list(run_nos)).decode()
        return dict(self._database.read("news", (numbers,)))

    # -- questions -----------------------------------------------------------------------------

    def questions(self, run_id: str | None = None, limit: int = 1000) -> builtins.list[Question]:
        self._compare("hidden_questions")
        if run_id is None:
            values = {"namespace": self.namespace, "limit": limit}
            found = self._database.read("open_questions", values)
        else:
            row = self.get(run_id)
            if row is None:
                return []
            found = self._database.read("questions_of_run", (row.run_no,))[:limit]
        names: dict[int, str] = {}
        questions: builtins.list[Question] = []
        for values in found:
            if values[0] not in names:
                names[values[0]] = self._name_of(values[0])
            questions.append(side_rows.question_of(values, names[values[0]]))
        return questions

    def _name_of(self, run_no: int) -> str:
        row = self.by_number(run_no)
        if row is None:
            raise Corrupt(f"a question of run number {run_no}", why="there is no such run")
        return row.run_id

    # -- pots ----------------------------------------------------------------------------------

    def pot(self, root: str) -> Pot | None:
        return side_rows.find_pot(self._database.read, self.namespace, root)

    def put_pot(self, pot: Pot, *, only_new: bool = False) -> Pot:
        def work(connection: Connection) -> tuple[Pot, Changed | None]:
            fetch = self._inside(connection)
            before = side_rows.find_pot(fetch, self.namespace, pot.root)
            if before is not None and only_new:
                return before, None
            made = changes.new_limits(pot, before)
            digest = put_pot(connection, self.namespace, made)
            return msgspec.structs.replace(made), Changed(digest)

        return self._writer.transact(work)

    # -- memories ------------------------------------------------------------------------------

    def memo(self, space: str, key: str) -> Memo | None:
        found = side_rows.find_memo(self._database.read, self.namespace, space, key)
        return found if changes.is_there(found, self.now_us()) else None

    def memos(
        self, space: str, prefix: str = "", after: str = "", limit: int = 100
    ) -> builtins.list[Memo]:
        self._compare("hidden_memos")
        now_us, size = self.now_us(), max(limit, PAGE)
        values = {
            "namespace": self.namespace,
            "space": space,
            "prefix": prefix,
            "end": row_codec.end_of_prefix(prefix),
            "limit": size,
        }
        memos: builtins.list[Memo] = []
        while len(memos) < limit:
            found = self._database.read("list_memos", {**values, "after": after})
            page = [side_rows.memo_of(row) for row in found]
            # What is not there any more is left out here: what says so is verified first.
            memos += [memo for memo in page if changes.is_there(memo, now_us)]
            if len(page) < size:
                break
            after = page[-1].key
        return memos[:limit]

    def spaces(self) -> builtins.list[str]:
        return [str(space) for (space,) in self._database.read("spaces", (self.namespace,))]

    def put_memo(self, memo: Memo, expected: int | None = None) -> Memo | None:
        def work(connection: Connection) -> tuple[Memo | None, Changed | None]:
            now_us, fetch = self.now_us(), self._inside(connection)
            before = side_rows.find_memo(fetch, self.namespace, memo.space, memo.key)
            if expected is not None and changes.current_version(before, now_us) != expected:
                return None, None
            made = changes.next_memo(memo, before, now_us)
            digest = put_memo(connection, self.namespace, made)
            return made, Changed(digest)

        return self._writer.transact(work)

    def put_memos(self, memos: Sequence[Memo], expected: Sequence[Memo] = ()) -> bool:
        def work(connection: Connection) -> tuple[bool, Changed | None]:
            now_us, fetch, digest = self.now_us(), self._inside(connection), b""
            for memo in expected:
                before = side_rows.find_memo(fetch, self.namespace, memo.space, memo.key)
                if changes.current_version(before, now_us) != memo.expected:
                    return False, None
            for memo in memos:
                before = side_rows.find_memo(fetch, self.namespace, memo.space, memo.key)
                made = changes.next_memo(memo, before, now_us)
                digest = put_memo(connection, self.namespace, made)
            return True, Changed(digest) if memos else None

        return self._writer.transact(work)

    def expired_memos(self, space: str | None = None, limit: int = 500) -> builtins.list[Memo]:
        values: dict[str, object] = {
            "namespace": self.namespace,
            "at_us": self.now_us(),
            "limit": limit,
        }
        if space is None:
            found = self._database.read("expired_memos", values)
        else:
            found = self._database.read("expired_memos_of_space", {**values, "space": space})
        return [side_rows.memo_of(row) for row in found]

    def drop_memos(self, before_us: int) -> int:
        def work(connection: Connection) -> tuple[int, Changed | None]:
            values = (self.namespace, before_us, DROPPED_AT_ONCE)
            found = self._inside(connection)("stale_memos", values)
            for *memo, row_id in found:
                side_rows.memo_of(memo)  # What is damaged is not removed by what it says.
                connection.execute(Q["remove_memo"], (row_id,))
            return len(found), Changed(b"memos") if found else None

        return self._writer.transact(work)

    # -- measures ------------------------------------------------------------------------------

    def put_measures(self, measures: Sequence[Measure]) -> None:
        def work(connection: Connection) -> None:
            for measure in measures:
                values = measure_rows.measure_values(self.namespace, measure)
                connection.execute(Q["put_measure"], values)

        self._writer.beside(work)

    def measures(self, after_us: int, before_us: int, limit: int = 100_000) -> Measured:
        values = (self.namespace, after_us, before_us, limit)
        return measure_rows.measured(self._database.read("measures", values))

    def drop_measures(self, before_us: int) -> int:
        def work(connection: Connection) -> int:
            values = (self.namespace, before_us, measure_rows.DROPPED_AT_ONCE)
            connection.execute(Q["drop_measures"], values)
            return connection.changes()

        return self._writer.beside(work)

    # -- removing a run ------------------------------------------------------------------------

    def forget(self, row: RunRow, at_us: int) -> bool:
        def work(connection: Connection) -> tuple[bool, Changed | None]:
            last_run_no = self._writer.row.last_run_no
            now = lookups.run_by_number(self._inside(connection), row.run_no, last_run_no)
            if now is None or now.digest != row.digest or now.status not in ENDED:
                return False, None
            forks = (now.namespace, *lineage.written_by_forks(now.run_id))
            if self._inside(connection)("fork_of", forks):
                return False, None
            first = now.run_no << SEQ_BITS
            for name in ("remove_entries", "remove_chunks", "remove_messages"):
                connection.execute(Q[name], (first, first | SEQ_MASK))
            for name in ("remove_keys", "close_questions"):
                connection.execute(Q[name], (now.run_no,))
            connection.execute(Q["remove_pot"], (now.namespace, now.run_id))
            left = claim_rules.deleted(now, at_us)
            guard = (now.run_no, now.epoch, now.last_seq, now.digest)
            connection.execute(Q["run_moved"], row_codec.moved_values(left) + guard)
            assert connection.changes() == 1, "the row was read in this transaction"
            return True, Changed(left.digest)

        return self._writer.transact(work)


# -- single rows -------------------------------------------------------------------------------


def deliver(
    connection: Connection, fetch: lookups.Fetch, row: RunRow, message: Message
) -> tuple[Posted, bytes | None]:
    """Put a message into the inbox of a run, and return what became of it, and its digest."""
    number = lookups.next_message(fetch, row.run_no, message.message_id)
    if number is None:
        return Posted.DUPLICATE, None
    if not changes.reads_mail(row):
        return Posted.REFUSED, None
    row_of = changes.posted(row.run_no, number, message)
    connection.execute(Q["add_message"], msgspec.structs.astuple(row_of))
    return Posted.ACCEPTED, row_of.digest


def put_pot(connection: Connection, namespace: str, pot: Pot) -> bytes:
    """Write a pot; returns its digest."""
    values = side_rows.pot_values(namespace, pot)
    connection.execute(Q["put_pot"], values)
    return bytes(values[-2])


def put_memo(connection: Connection, namespace: str, memo: Memo) -> bytes:
    """Write a value of a memory; returns its digest."""
    values = side_rows.memo_values(namespace, memo)
    connection.execute(Q["put_memo"], values)
    return bytes(values[-2])
