"""The tables beside the runs on a server: what a batch locks and reads before its writes decide.

Locks are taken in one order by everybody, so that two batches wait for each other but never in a
circle:

    1  names      keys, memories and inboxes: advisory locks, sorted
    2  rows       of the runs that are written to, by number
    3  pots       by the name of their root

Who sends a message does not touch the row of the run that gets it: a parent and its child, each with
its own row locked, may write to each other. The lock on the name of an inbox is held until the
commit, so the numbers of its messages become visible in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast._engine.journal import changes
from holdfast._engine.journal.changes import PostMessage, Spend, TakeMessage
from holdfast._engine.journal.rows import SEQ_MASK, Memo, MessageRow, RunRow, Write
from holdfast._stores import row_codec, side_rows
from holdfast._stores.lookups import Fetch
from holdfast._stores.postgres.postgres_queries import in_order
from holdfast._stores.postgres.server_connection import Link
from holdfast._stores.side_tables import Place, SideTables, Statement


def inbox_lock(namespace: str, run_id: str) -> int:
    """Return the number under which an inbox is locked while a message is put into it."""
    return row_codec.name_hash(*changes.inbox_lock(namespace, run_id))


def memo_lock(namespace: str, memo: Memo) -> int:
    """Return the number under which a value of a memory is locked while it is changed."""
    return row_codec.name_hash(*changes.memo_lock(namespace, memo))


def name_locks(namespace: str, writes: Sequence[Write]) -> list[int]:
    """Return the numbers of all names that a batch locks, in the order in which everybody locks."""
    names = {change.lock(namespace) for write in writes for change in write.changes}
    return sorted(row_codec.name_hash(*name) for name in names if name is not None)


class Beside:
    """What a batch has locked and read before its writes decide; it stays true until the commit."""

    def __init__(self) -> None:
        self.standing: dict[int, bytes] | None = None
        self.targets: dict[str, RunRow] = {}
        """Rows of the runs that get messages."""

    def stands(self, was: RunRow) -> bool | None:
        """Tell whether the row of a run is as the batch saw it; None if nobody has looked."""
        return None if self.standing is None else self.standing.get(was.run_no) == was.digest

    def look(
        self, link: Link, fetch: Fetch, namespace: str, writes: Sequence[Write]
    ) -> Iterator[tuple[Place, Any]]:
        """Lock the rows and the pots, and yield what was read with them."""
        numbers = sorted({write.lease.row.run_no for write in writes})
        roots = sorted({spend.root for write in writes for spend in write.of(Spend)})
        posts = [post for write in writes for post in write.of(PostMessage)]
        queries: list[Statement] = [("lock_runs", (numbers,))]
        if roots:
            queries.append(("pots_locked", (namespace, roots)))
        if posts:
            ids, names = [it.run_id for it in posts], [it.message.message_id for it in posts]
            queries += [
                ("runs_by_ids", (namespace, sorted(set(ids)))),
                ("inbox_ends", (namespace, sorted(set(ids)))),
                ("messages_there", (ids, names, namespace)),
            ]
        rows, *about = link.fetch_each(*queries)
        self.standing = dict(rows)
        if roots:
            yield from self._pots(fetch, namespace, roots, about.pop(0))
        if posts:
            targets, ends, there = about
            self.targets = {row.run_id: row for row in map(row_codec.run_row, targets)}
            yield from self._inboxes(posts, dict(ends), {tuple(it) for it in there})
        for write in writes:
            yield from self._taken(fetch, write)

    def _pots(
        self, fetch: Fetch, namespace: str, roots: Sequence[str], found: Sequence[Any]
    ) -> Iterator[tuple[Place, Any]]:
        """Yield the pots; one that is not there is looked for by both ways."""
        pots = {pot.root: pot for pot in map(side_rows.pot_of, found)}
        for root in roots:
            if root not in pots and side_rows.find_pot(fetch, namespace, root) is not None:
                (values,) = fetch("pots_locked", (namespace, [root]))  # Made a moment ago.
                pots[root] = side_rows.pot_of(values)
            yield ("pots", root), pots.get(root)

    def _inboxes(
        self, posts: Sequence[PostMessage], ends: dict[int, int], there: set[tuple[Any, ...]]
    ) -> Iterator[tuple[Place, Any]]:
        for target in self.targets.values():
            yield ("inbox_end", target.run_no), ends.get(target.run_no, 0)
        for post in posts:
            if post.run_id in self.targets:
                at = (self.targets[post.run_id].run_no, post.message.message_id)
                yield ("inbox", *at), (True if at in there else None)  # Only that it is there.

    def _taken(self, fetch: Fetch, write: Write) -> Iterator[tuple[Place, Any]]:
        names = [change.message_id for change in write.of(TakeMessage)]
        if names:
            run_no = write.lease.row.run_no
            for message in map(row_codec.message_row, fetch("messages_by_ids", (run_no, names))):
                yield ("inbox", run_no, message.message_id), message


class ServerTables(SideTables):
    """How the tables are read and written on a server."""

    def __init__(self, fetch: Fetch, namespace: str, run: Any) -> None:
        super().__init__(fetch, namespace)
        self._run = run

    def read(self, table: str, *at: Any) -> Any:
        """Return a verified row. Runs and inboxes were read beforehand."""
        if table == "runs":
            return self._run(*at)
        return None if table == "inbox" else super().read(table, *at)

    def added(self, message: MessageRow) -> Statement:
        """Return what puts a message into an inbox."""
        return "add_message", message_values(message)

    def taken(self, message: MessageRow) -> Statement:
        """Return what marks a message as taken."""
        number = message.id & SEQ_MASK
        return "take_message", (message.taken_seq, message.digest, message.run_no, number)

    def memo_values(self, memo: Memo) -> tuple[Any, ...]:
        """Return what is put into memos."""
        return memo_values(self._namespace, memo)


def message_values(message: MessageRow) -> tuple[Any, ...]:
    """Return what is inserted into an inbox."""
    return (message.run_no, message.id & SEQ_MASK, *msgspec.structs.astuple(message)[2:])


def memo_values(namespace: str, memo: Memo) -> tuple[Any, ...]:
    """Return what is put into memos; the digest is over the name as users gave it."""
    values = side_rows.memo_values(namespace, memo)
    return (*values[:2], in_order(memo.key), *values[3:])
