"""What a store on a server keeps beside the journals: messages, questions, pots, memories,
measures; and the removal of a run."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast._engine.journal import changes
from holdfast._engine.journal.lifecycle import ENDED
from holdfast._engine.journal.rows import Applied, Memo, Message, MessageRow, Pot, Question, RunRow
from holdfast._engine.telemetry.measures import Measure
from holdfast._stores import claim_rules, lookups, measure_rows, row_codec, side_rows
from holdfast._stores.contract import Measured, Posted
from holdfast._stores.lookups import Fetch
from holdfast._stores.postgres.fork_origins import has_fork
from holdfast._stores.postgres.postgres_queries import fetch_with, in_order
from holdfast._stores.postgres.postgres_side_tables import (
    inbox_lock,
    memo_lock,
    memo_values,
    message_values,
)
from holdfast._stores.postgres.row_statement import send
from holdfast.errors import RunNotFound

if TYPE_CHECKING:
    from holdfast._stores.postgres.postgres_database import Database
    from holdfast._stores.postgres.server_connection import Link


MEASURES_PATIENCE_S = 3.0
"""Measures are kept by who wrote them, and tried again a minute later: nobody waits for a server."""


class PostgresBeside:
    """The part of the store that is not about one run's journal."""

    if TYPE_CHECKING:
        namespace: str
        _database: Database
        _fetch: Fetch

        def now_us(self) -> int: ...
        def _tell(self) -> None: ...

    # -- messages ------------------------------------------------------------------------------

    def post(self, run_id: str, message: Message, etag: str | None = None) -> Posted:
        def work(link: Link, tries: int) -> Posted:
            with link.writing():
                # Whoever removes the run takes the same lock: what is read now stays true.
                link.fetch("lock_names", ([inbox_lock(self.namespace, run_id)],))
                row = lookups.find_run(fetch_with(link), self.namespace, run_id)
                if row is None:
                    raise RunNotFound(run_id, f"namespace {self.namespace!r}")
                if etag is not None:  # From here on it stays as it is.
                    link.fetch("lock_run", (row.run_no,))
                    row = row_codec.run_row(link.fetch("run_by_number", (row.run_no,))[0])
                return _posted(link, row, message, tries, etag)

        posted = self._database.work(work)
        if posted is Posted.ACCEPTED:
            self._tell()
        return posted

    def messages(self, run_no: int) -> builtins.list[tuple[Message, int | None]]:
        rows = lookups.messages(self._fetch, run_no)
        return [(row.message(), row.taken_seq) for row in rows]

    def message(self, run_no: int, message_id: str) -> tuple[Message, int | None] | None:
        found = self._fetch("messages_by_ids", (run_no, [message_id]))
        rows = [row_codec.message_row(values) for values in found]
        return (rows[0].message(), rows[0].taken_seq) if rows else None

    def inbox(self, run_no: int, after: int = 0) -> builtins.list[Message]:
        rows = lookups.messages_since(self._fetch, run_no, after)
        return [row.message() for row in rows if row.taken_seq is None]

    def news(self, run_nos: Sequence[int]) -> dict[int, int]:
        return dict(self._database.read("news", (list(run_nos),)))

    # -- questions, pots, memories -------------------------------------------------------------

    def questions(self, run_id: str | None = None, limit: int = 1000) -> builtins.list[Question]:
        values = {"namespace": self.namespace, "run_id": run_id, "limit": limit}
        found = self._database.read("questions", values)
        return [side_rows.question_of(row[1:], row[0]) for row in found]

    def pot(self, root: str) -> Pot | None:
        return side_rows.find_pot(self._fetch, self.namespace, root)

    def put_pot(self, pot: Pot, *, only_new: bool = False) -> Pot:
        def work(link: Link, _tries: int) -> Pot:
            with link.writing():
                # There may be no row to lock yet.
                number = row_codec.name_hash("pot", self.namespace, pot.root)
                link.fetch("lock_names", ([number],))
                found = link.fetch("pots_locked", (self.namespace, [pot.root]))
                before: Pot | None = side_rows.pot_of(found[0]) if found else None
                before = before or side_rows.find_pot(fetch_with(link), self.namespace, pot.root)
                if before is not None and only_new:
                    return before
                made = changes.new_limits(pot, before)
                link.change("put_pot", side_rows.pot_values(self.namespace, made))
            return made

        made = self._database.work(work)
        self._tell()
        return made

    def memo(self, space: str, key: str) -> Memo | None:
        memo = side_rows.find_memo(self._fetch, self.namespace, space, key)
        return memo if changes.is_there(memo, self.now_us()) else None

    def memos(
        self, space: str, prefix: str = "", after: str = "", limit: int = 100
    ) -> builtins.list[Memo]:
        values = {
            "namespace": self.namespace,
            "space": space,
            "prefix": in_order(prefix),
            "after": in_order(after),
            "at_us": self.now_us(),
            "limit": limit,
        }
        return [side_rows.memo_of(row) for row in self._fetch("memos", values)]

    def spaces(self) -> builtins.list[str]:
        return sorted(str(space) for (space,) in self._fetch("spaces", (self.namespace,)))

    def put_memo(self, memo: Memo, expected: int | None = None) -> Memo | None:
        tried: builtins.list[Memo] = []

        def work(link: Link, _tries: int) -> Memo | None:
            with link.writing():
                link.fetch("lock_names", ([memo_lock(self.namespace, memo)],))
                at = (self.namespace, memo.space, memo.key)
                before = side_rows.find_memo(fetch_with(link), *at)
                if before is not None and before in tried:
                    link.fetch("lock_memo", (*at[:2], in_order(memo.key)))
                    return before  # An earlier try went through.
                now_us = self.now_us()
                if expected not in (None, changes.current_version(before, now_us)):
                    return None
                made = changes.next_memo(memo, before, now_us)
                tried.append(made)
                link.change("put_memo", memo_values(self.namespace, made))
            return made

        made = self._database.work(work)
        if made is not None:
            self._tell()
        return made

    def put_memos(self, memos: Sequence[Memo], expected: Sequence[Memo] = ()) -> bool:
        tried: builtins.list[Memo] = []

        def work(link: Link, _tries: int) -> bool:
            with link.writing():
                locks = sorted({memo_lock(self.namespace, memo) for memo in (*memos, *expected)})
                link.fetch("lock_names", (locks,))
                now_us, fetch = self.now_us(), fetch_with(link)

                def before(memo: Memo) -> Memo | None:
                    return side_rows.find_memo(fetch, self.namespace, memo.space, memo.key)

                if tried and before(memos[0]) in tried:
                    at = (self.namespace, memos[0].space, in_order(memos[0].key))
                    link.fetch("lock_memo", at)
                    return True  # An earlier try went through.
                for memo in expected:
                    if changes.current_version(before(memo), now_us) != memo.expected:
                        return False
                for memo in memos:
                    made = changes.next_memo(memo, before(memo), now_us)
                    if memo is memos[0]:
                        tried.append(made)
                    link.change("put_memo", memo_values(self.namespace, made))
            return True

        written = self._database.work(work) if memos or expected else True
        if memos and written:
            self._tell()
        return written

    def expired_memos(self, space: str | None = None, limit: int = 500) -> builtins.list[Memo]:
        values = {
            "namespace": self.namespace,
            "space": space,
            "at_us": self.now_us(),
            "limit": limit,
        }
        return [side_rows.memo_of(row) for row in self._fetch("expired_memos", values)]

    def drop_memos(self, before_us: int) -> int:
        def work(link: Link, _tries: int) -> int:
            with link.writing():
                return len(link.fetch("drop_memos", (self.namespace, before_us)))

        return self._database.work(work)

    # -- measures ------------------------------------------------------------------------------

    def put_measures(self, measures: Sequence[Measure]) -> None:
        ordered = measure_rows.in_order(measures)
        rows = [measure_rows.measure_values(self.namespace, measure) for measure in ordered]

        def work(link: Link, _tries: int) -> None:
            with link.writing():
                link.fetch_each(*(("put_measure", values) for values in rows))

        if rows:
            self._database.work(work, MEASURES_PATIENCE_S)

    def measures(self, after_us: int, before_us: int, limit: int = 100_000) -> Measured:
        values = (self.namespace, after_us, before_us, limit)
        return measure_rows.measured(self._database.read("measures", values))

    def drop_measures(self, before_us: int) -> int:
        def work(link: Link, _tries: int) -> int:
            with link.writing():
                values = (self.namespace, before_us, measure_rows.DROPPED_AT_ONCE)
                return len(link.fetch("drop_measures", values))

        return self._database.work(work)

    # -- removing a run ------------------------------------------------------------------------

    def forget(self, row: RunRow, at_us: int) -> bool:
        made: builtins.list[RunRow] = []

        def work(link: Link, _tries: int) -> bool:
            with link.writing():
                # The same order as in every batch: names, rows, pots.
                link.fetch("lock_names", ([inbox_lock(self.namespace, row.run_id)],))
                found = link.fetch("run_by_id_locked", (self.namespace, row.run_id))
                if not found:
                    return False
                now = row_codec.run_row(found[0])
                if any(now.digest == before.digest for before in made):
                    return True  # An earlier try went through.
                if now.digest != row.digest or now.status not in ENDED:
                    return False
                if has_fork(link, self.namespace, row.run_id):
                    return False
                made.append(claim_rules.deleted(now, at_us))
                changed = send(link, [(row, Applied([], made[-1]))], [])
                assert changed, "the row was locked"
                self._remove(link, row)
            return True

        gone = self._database.work(work)
        if gone:
            self._tell()
        return gone

    def _remove(self, link: Link, row: RunRow) -> None:
        at = (row.run_no,)
        link.fetch_each(
            ("forget_pot", (self.namespace, row.run_id)),
            ("forget_journal", at),
            ("forget_chunks", at),
            ("forget_inbox", at),
            ("forget_keys", at),
            ("close_questions", at),
        )


def _posted(link: Link, row: RunRow, message: Message, tries: int, etag: str | None) -> Posted:
    """Put a message into an inbox that is locked."""
    fetch = fetch_with(link)
    found = fetch("messages_by_ids", (row.run_no, [message.message_id]))
    if found:
        if not tries or not _same_message(row_codec.message_row(found[0]), message):
            return Posted.DUPLICATE
        link.fetch("lock_message", (row.run_no, message.message_id))
        return Posted.ACCEPTED  # By an earlier try.
    claim_rules.check_etag(row, etag)
    if not changes.reads_mail(row):
        return Posted.REFUSED
    ends = dict(link.fetch("inbox_ends", (row.namespace, [row.run_id])))
    number = ends.get(row.run_no, 0) + 1
    posted = changes.posted(row.run_no, number, message)
    link.change("add_message", message_values(posted))
    return Posted.ACCEPTED


def _same_message(one: MessageRow, other: Message) -> bool:
    return (one.kind, one.actor, one.at_us, one.body) == (
        other.kind,
        other.actor,
        other.at_us,
        other.body,
    )
