"""What a transaction of SQLite changes beside a run: messages to others, questions, pots, memories.

Everything is looked up inside the transaction, and decided as in every other store.
"""

from __future__ import annotations

import msgspec

from holdfast._core.rows import Memo, Message, Pot, RunRow, Write
from holdfast._store import beside_rows, decisions, lookups, records, sharing
from holdfast._store.connections import Connection
from holdfast._store.contract import Exhausted, Outdated, Posted
from holdfast._store.database import Q
from holdfast._store.lookups import Fetch
from holdfast._store.records import SEQ_BITS

ALL = "*"
"""In the place of a name: all questions of the run."""


def deliver(
    connection: Connection, fetch: Fetch, row: RunRow, message: Message
) -> tuple[Posted, bytes | None]:
    """Put a message into the inbox of a run, and return what became of it, and its digest."""
    number = lookups.next_message(fetch, row.run_no, message.message_id)
    if number is None:
        return Posted.DUPLICATE, None
    if not decisions.reads_mail(row):
        return Posted.REFUSED, None
    posted = records.posted(row.run_no << SEQ_BITS | number, row.run_no, message)
    connection.execute(Q["add_message"], msgspec.structs.astuple(posted))
    return Posted.ACCEPTED, posted.digest


def put_pot(connection: Connection, namespace: str, pot: Pot) -> bytes:
    """Write a pot; returns its digest."""
    values = beside_rows.pot_values(namespace, pot)
    connection.execute(Q["put_pot"], values)
    return bytes(values[-2])


def put_memo(connection: Connection, namespace: str, memo: Memo) -> bytes:
    """Write a value of a memory; returns its digest."""
    values = beside_rows.memo_values(namespace, memo)
    connection.execute(Q["put_memo"], values)
    return bytes(values[-2])


def refusal(fetch: Fetch, namespace: str, write: Write, at_us: int) -> Exhausted | Outdated | None:
    """Say what stands against a write beside its run: a pot that is used up, or a value of a memory
    that somebody has changed."""
    spend = write.spend
    if spend is not None and spend.checks:
        pot = beside_rows.find_pot(fetch, namespace, spend.root)
        if pot is not None and sharing.is_exhausted(pot, spend, at_us):
            return Exhausted(pot)
    for memo in write.memos:
        if memo.expected is not None:
            before = beside_rows.find_memo(fetch, namespace, memo.space, memo.key)
            if sharing.current_version(before, at_us) != memo.expected:
                return Outdated()
    return None


def put_beside(connection: Connection, fetch: Fetch, write: Write, row: RunRow) -> None:
    """Write what a write changes beside its run, whose new row is given."""
    for post in write.posts:
        other = lookups.find_run(fetch, row.namespace, post.run_id)
        if other is not None:
            deliver(connection, fetch, other, post.message)
    for name in write.closes:
        if name == ALL:
            connection.execute(Q["close_questions"], (row.run_no,))
        else:
            connection.execute(Q["close_question"], (row.run_no, name))
    for question in write.opens:
        values = beside_rows.question_values(row.run_no, question)
        connection.execute(Q["put_question"], values)
    if write.spend is not None:
        pot = beside_rows.find_pot(fetch, row.namespace, write.spend.root)
        if pot is not None:
            put_pot(connection, row.namespace, sharing.spent(pot, write.spend))
    for memo in write.memos:
        before = beside_rows.find_memo(fetch, row.namespace, memo.space, memo.key)
        put_memo(connection, row.namespace, sharing.next_memo(memo, before, row.updated_us))
