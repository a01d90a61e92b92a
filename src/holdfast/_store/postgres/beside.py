"""What a batch of writes changes beside its runs: messages to others, questions, pots, memories.

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

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast._core.rows import Memo, Pot, RunRow, Write
from holdfast._store import beside_rows, decisions, records, sharing
from holdfast._store.contract import Exhausted, Outdated
from holdfast._store.lookups import Fetch
from holdfast._store.postgres.link import Link
from holdfast._store.postgres.packing import in_order
from holdfast._store.records import SEQ_BITS, SEQ_MASK, MessageRow


def inbox_lock(namespace: str, run_id: str) -> int:
    """Return the number under which an inbox is locked while a message is put into it."""
    return records.name_hash("inbox", namespace, run_id)


def memo_lock(namespace: str, memo: Memo) -> int:
    """Return the number under which a value of a memory is locked while it is changed."""
    return records.name_hash("memo", namespace, memo.space, memo.key)


def message_values(message: MessageRow) -> tuple[Any, ...]:
    """Return what is inserted into an inbox."""
    return (message.run_no, message.id & SEQ_MASK, *msgspec.structs.astuple(message)[2:])


def is_concerned(write: Write) -> bool:
    """Tell whether a write changes something beside its run that others share."""
    return bool(write.posts or write.spend or write.memos)


class Beside:
    """The part of a batch that is beside its runs. What was looked up stays true until the commit."""

    def __init__(self, fetch: Fetch, namespace: str, now_us: Callable[[], int]) -> None:
        self._fetch = fetch
        self._namespace = namespace
        self._now_us = now_us
        self._standing: dict[int, bytes] | None = None
        self._pots: dict[str, Pot] = {}
        self._spent: set[str] = set()
        self._memos: dict[tuple[str, str], Memo | None] = {}
        self._written: dict[tuple[str, str], Memo] = {}
        self._targets: dict[str, RunRow] = {}
        self._ends: dict[int, int] = {}
        self._there: set[tuple[int, str]] = set()
        self._posted: dict[tuple[int, str], MessageRow] = {}
        self._questions: list[tuple[int, tuple[str, Any]]] = []

    # -- looking -------------------------------------------------------------------------------

    def names(self, writes: Sequence[Write]) -> Iterator[int]:
        """Yield what is to be locked by its name."""
        for write in writes:
            yield from (memo_lock(self._namespace, memo) for memo in write.memos)
            yield from (inbox_lock(self._namespace, post.run_id) for post in write.posts)

    def look(self, link: Link, writes: Sequence[Write]) -> None:
        """Lock the rows and the pots, and see who gets messages."""
        if not any(is_concerned(write) for write in writes):
            return
        numbers = sorted({write.lease.row.run_no for write in writes})
        roots = sorted({write.spend.root for write in writes if write.spend})
        queries: list[tuple[str, Any]] = [
            ("lock_runs", (numbers,)),
            ("pots_locked", (self._namespace, roots)),
        ]
        posts = [post for write in writes for post in write.posts]
        if posts:
            ids, names = [it.run_id for it in posts], [it.message.message_id for it in posts]
            queries += [
                ("runs_by_ids", (self._namespace, sorted(set(ids)))),
                ("inbox_ends", (self._namespace, sorted(set(ids)))),
                ("messages_there", (ids, names, self._namespace)),
            ]
        rows, pots, *about = link.fetch_each(*queries)
        self._standing = dict(rows)
        self._pots = {pot.root: pot for pot in map(beside_rows.pot_of, pots)}
        if about:
            targets, ends, there = about
            self._targets = {row.run_id: row for row in map(records.run_row, targets)}
            self._ends = dict(ends)
            self._there = {(run_no, name) for run_no, name in there}
        for write in writes:
            self._confirm(write)

    def _confirm(self, write: Write) -> None:
        """Read what is to be written over; a pot that is not there is looked for by both ways."""
        spend = write.spend
        if spend is not None and spend.root not in self._pots:
            at = (self._namespace, spend.root)
            if beside_rows.find_pot(self._fetch, *at) is not None:  # It was made a moment ago.
                (values,) = self._fetch("pots_locked", (self._namespace, [spend.root]))
                self._pots[spend.root] = beside_rows.pot_of(values)
        for memo in write.memos:
            at = (memo.space, memo.key)
            if at not in self._memos:
                self._memos[at] = beside_rows.find_memo(self._fetch, self._namespace, *at)

    def stands(self, was: RunRow) -> bool | None:
        """Tell whether the row of a run is as the batch saw it; None if nobody has looked."""
        if self._standing is None:
            return None
        return self._standing.get(was.run_no) == was.digest

    # -- what each write makes of it -----------------------------------------------------------

    def refusal(self, write: Write) -> Exhausted | Outdated | None:
        """Say why a write cannot be: its pot is used up, or a memory has moved on."""
        spend = write.spend
        if spend is not None and spend.checks:
            pot = self._pots.get(spend.root)
            if pot is not None and sharing.is_exhausted(pot, spend, self._now_us()):
                return Exhausted(msgspec.structs.replace(pot))
        for memo in write.memos:
            here = self._memos[memo.space, memo.key]
            if memo.expected not in (None, sharing.current_version(here, self._now_us())):
                return Outdated()
        return None

    def keep(self, write: Write, row: RunRow, made: Callable[[str], RunRow | None]) -> None:
        """Note what a write changes. `made` gives the rows that writes before it have made."""
        for post in write.posts:
            target = made(post.run_id) or self._targets.get(post.run_id)
            if target is not None:
                self._deliver(target, post.message)
        self._questions += [(row.run_no, it) for it in question_changes(write, row.run_no)]
        spend = write.spend
        if spend is not None and spend.root in self._pots:
            self._pots[spend.root] = sharing.spent(self._pots[spend.root], spend)
            self._spent.add(spend.root)
        for memo in write.memos:
            at = (memo.space, memo.key)
            self._memos[at] = self._written[at] = sharing.next_memo(
                memo, self._memos[at], row.updated_us
            )

    def _deliver(self, target: RunRow, message: Any) -> None:
        at = (target.run_no, message.message_id)
        if at in self._there or not decisions.reads_mail(target):
            return
        number = self._ends.get(target.run_no, 0) + 1
        self._posted[at] = records.posted(
            target.run_no << SEQ_BITS | number, target.run_no, message
        )
        self._there.add(at)
        self._ends[target.run_no] = number

    def posted(self, run_no: int, message_id: str) -> MessageRow | None:
        """Return a message that this batch sends, as it is so far."""
        found = self._posted.get((run_no, message_id))
        return None if found is None else msgspec.structs.replace(found)

    def taken(self, messages: Sequence[MessageRow]) -> list[MessageRow]:
        """Note which messages of this batch it takes itself; return the others."""
        others: list[MessageRow] = []
        for message in messages:
            at = (message.run_no, message.message_id)
            if at in self._posted:
                self._posted[at] = message
            else:
                others.append(message)
        return others

    # -- the server ----------------------------------------------------------------------------

    def statements(self, changed: set[int]) -> list[tuple[str, Any]]:
        """Return what the server is told, in order. Only the questions were not looked at before,
        and only those of runs that changed count."""
        namespace = self._namespace
        return [
            *(("add_message", message_values(message)) for message in self._posted.values()),
            *(statement for run_no, statement in self._questions if run_no in changed),
            *(
                ("put_pot", beside_rows.pot_values(namespace, self._pots[root]))
                for root in sorted(self._spent)
            ),
            *(
                ("put_memo", memo_values(namespace, memo))
                for _, memo in sorted(self._written.items())
            ),
        ]


def question_changes(write: Write, run_no: int) -> list[tuple[str, Any]]:
    """Return the statements that close and open questions of a run."""
    changes: list[tuple[str, Any]] = []
    for name in write.closes:
        if name == "*":
            changes.append(("close_questions", (run_no,)))
        else:
            changes.append(("close_question", (run_no, name)))
    opened = (beside_rows.question_values(run_no, question) for question in write.opens)
    return [*changes, *(("put_question", values) for values in opened)]


def memo_values(namespace: str, memo: Memo) -> tuple[Any, ...]:
    """Return what is put into memos; the digest is over the name as users gave it."""
    values = beside_rows.memo_values(namespace, memo)
    return (*values[:2], in_order(memo.key), *values[3:])
