"""What a memory store keeps beside the journals: questions, accounts, memories; and messages."""

from __future__ import annotations

import builtins
import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._engine.journal import changes
from holdfast._engine.journal.lifecycle import ENDED
from holdfast._engine.journal.rows import Account, Memo, Message, MessageRow, Question, RunRow
from holdfast._engine.telemetry.measures import Measure
from holdfast._stores import claim_rules, lineage, measure_rows
from holdfast._stores.contract import Measured, Posted
from holdfast.errors import RunNotFound

if TYPE_CHECKING:
    from tests.model.memory_store import MemoryWorld


class Beside:
    """What the handles of one memory store share, beside the runs themselves."""

    def __init__(self) -> None:
        self.questions: dict[tuple[int, str], Question] = {}
        self.accounts: dict[tuple[str, str], Account] = {}
        self.memos: dict[tuple[str, str, str], Memo] = {}
        self.measures: dict[tuple[str, int, str, str], Measure] = {}


class MemoryBeside:
    """The part of a memory store that is not about one run's journal."""

    if TYPE_CHECKING:
        world: MemoryWorld
        namespace: str

        def _check_open(self) -> None: ...
        def get(self, run_id: str) -> RunRow | None: ...
        def by_number(self, run_no: int) -> RunRow | None: ...

    # -- messages ------------------------------------------------------------------------------

    def post(self, run_id: str, message: Message, etag: str | None = None) -> Posted:
        with self.world.lock:
            self._check_open()
            row = self.get(run_id)
            if row is None:
                raise RunNotFound(run_id, f"namespace {self.namespace!r}")
            claim_rules.check_etag(row, etag)
            posted = self._deliver(row, message)
            if posted is Posted.ACCEPTED:
                self.world.committed()
            return posted

    def _deliver(self, row: RunRow, message: Message) -> Posted:
        messages = self.world.inboxes.setdefault(row.run_no, [])
        untaken = self.world.untaken.setdefault(row.run_no, {})
        at = (row.run_no, message.message_id)
        if message.message_id in untaken or at in self.world.taken:
            return Posted.DUPLICATE
        if not changes.takes_messages(row):
            return Posted.REFUSED
        untaken[message.message_id] = len(messages) + 1
        messages.append(msgspec.structs.replace(message, number=len(messages) + 1))
        return Posted.ACCEPTED

    def messages(self, run_no: int) -> builtins.list[tuple[Message, int | None]]:
        with self.world.lock:
            return [
                (msgspec.structs.replace(it), self.world.taken.get((run_no, it.message_id)))
                for it in self.world.inboxes.get(run_no, ())
            ]

    def message(self, run_no: int, message_id: str) -> tuple[Message, int | None] | None:
        with self.world.lock:
            for it in self.world.inboxes.get(run_no, ()):
                if it.message_id == message_id:
                    return msgspec.structs.replace(it), self.world.taken.get((run_no, message_id))
        return None

    def inbox(self, run_no: int, after: int = 0) -> builtins.list[Message]:
        with self.world.lock:
            taken = self.world.taken
            messages = self.world.inboxes.get(run_no, [])
            return [
                msgspec.structs.replace(it)
                for it in messages[after:]
                if (run_no, it.message_id) not in taken
            ]

    def news(self, run_nos: Sequence[int]) -> dict[int, int]:
        with self.world.lock:
            newest = {run_no: self._newest(run_no) for run_no in run_nos}
        return {run_no: number for run_no, number in newest.items() if number}

    def _newest(self, run_no: int) -> int:
        return next(reversed(self.world.untaken.get(run_no, {}).values()), 0)

    # -- what a write changes beside its run ---------------------------------------------------

    def _side_row(self, table: str, *at: Any) -> Any:
        """Return a row beside the runs, as `Overlay` asks for it."""
        world = self.world
        if table == "runs":
            return self.get(*at)
        if table == "keys":
            return world.keys.get((self.namespace, *at))
        if table == "inbox":
            return self._message_row(*at)
        if table == "inbox_end":
            return len(world.inboxes.get(at[0], ()))
        rows: dict[Any, Any] = world.beside.accounts if table == "accounts" else world.beside.memos
        return rows.get((self.namespace, *at))

    def _message_row(self, run_no: int, message_id: str) -> MessageRow | None:
        number = self.world.untaken.get(run_no, {}).get(message_id)
        if number is not None:
            return changes.posted(run_no, number, self.world.inboxes[run_no][number - 1])
        for message in self.world.inboxes.get(run_no, ()):
            if message.message_id == message_id:
                row = changes.posted(run_no, message.number, message)
                row.taken_seq = self.world.taken[run_no, message_id]
                return row
        return None

    def _put_side(self, table: str, *at: Any, row: Any) -> None:
        """Set a row beside the runs, as a change has decided."""
        world = self.world
        if table == "keys":
            world.keys[self.namespace, at[0], at[1]] = row
        elif table == "inbox":
            self._put_message(row)
        elif table == "questions" and row is None:
            for place in builtins.list(world.beside.questions):
                if place[0] == at[0] and at[1] in (place[1], changes.ALL):
                    del world.beside.questions[place]
        elif table == "questions":
            world.beside.questions[at[0], at[1]] = msgspec.structs.replace(row)
        elif table == "accounts":
            world.beside.accounts[self.namespace, at[0]] = row
        elif table == "memos":
            world.beside.memos[self.namespace, at[0], at[1]] = row

    def _put_message(self, row: MessageRow) -> None:
        untaken = self.world.untaken.setdefault(row.run_no, {})
        if row.taken_seq is not None:
            self.world.taken[row.run_no, row.message_id] = row.taken_seq
            del untaken[row.message_id]
            return
        message = row.message()
        untaken[message.message_id] = message.number
        self.world.inboxes.setdefault(row.run_no, []).append(message)

    def _put_memo(self, memo: Memo, at_us: int) -> Memo:
        memos = self.world.beside.memos
        at = (self.namespace, memo.space, memo.key)
        memos[at] = changes.next_memo(memo, memos.get(at), at_us)
        return msgspec.structs.replace(memos[at])

    # -- questions, accounts, memories -------------------------------------------------------------

    def questions(self, run_id: str | None = None, limit: int = 1000) -> builtins.list[Question]:
        with self.world.lock:
            found = [
                msgspec.structs.replace(question)
                for (run_no, _), question in self.world.beside.questions.items()
                if self.world.rows[run_no].namespace == self.namespace
                and (run_id is None or question.run_id == run_id)
            ]
        return sorted(found, key=lambda it: (it.asked_us, it.run_id, it.name))[:limit]

    def account(self, root: str) -> Account | None:
        account = self.world.beside.accounts.get((self.namespace, root))
        return None if account is None else msgspec.structs.replace(account)

    def put_account(self, account: Account, *, only_new: bool = False) -> Account:
        with self.world.lock:
            self._check_open()
            before = self.world.beside.accounts.get((self.namespace, account.root))
            if before is None or not only_new:
                before = changes.new_limits(account, before)
                self.world.beside.accounts[self.namespace, account.root] = msgspec.structs.replace(
                    before
                )
                self.world.committed()
            return msgspec.structs.replace(before)

    def memo(self, space: str, key: str) -> Memo | None:
        with self.world.lock:
            memo = self.world.beside.memos.get((self.namespace, space, key))
            there = changes.is_there(memo, self.world.now_us())
            return msgspec.structs.replace(memo) if memo is not None and there else None

    def memos(
        self, space: str, prefix: str = "", after: str = "", limit: int = 100
    ) -> builtins.list[Memo]:
        with self.world.lock:
            now_us = self.world.now_us()
            found = [
                msgspec.structs.replace(memo)
                for (namespace, of_space, key), memo in sorted(self.world.beside.memos.items())
                if (namespace, of_space) == (self.namespace, space)
                and key.startswith(prefix)
                and key > after
                and changes.is_there(memo, now_us)
            ]
        return found[:limit]

    def spaces(self) -> builtins.list[str]:
        with self.world.lock:
            known = self.world.beside.memos
            return sorted({space for namespace, space, _ in known if namespace == self.namespace})

    def put_memo(self, memo: Memo, expected: int | None = None) -> Memo | None:
        with self.world.lock:
            self._check_open()
            now_us = self.world.now_us()
            before = self.world.beside.memos.get((self.namespace, memo.space, memo.key))
            if expected is not None and changes.current_version(before, now_us) != expected:
                return None
            written = self._put_memo(memo, now_us)
            self.world.committed()
            return written

    def put_memos(self, memos: Sequence[Memo], expected: Sequence[Memo] = ()) -> bool:
        with self.world.lock:
            self._check_open()
            now_us, known = self.world.now_us(), self.world.beside.memos
            for memo in expected:
                before = known.get((self.namespace, memo.space, memo.key))
                if changes.current_version(before, now_us) != memo.expected:
                    return False
            for memo in memos:
                self._put_memo(memo, now_us)
            self.world.committed()
            return True

    def expired_memos(self, space: str | None = None, limit: int = 500) -> builtins.list[Memo]:
        with self.world.lock:
            now_us = self.world.now_us()
            found = [
                msgspec.structs.replace(memo)
                for (namespace, of_space, _), memo in self.world.beside.memos.items()
                if namespace == self.namespace
                and space in (None, of_space)
                and changes.is_expired(memo, now_us)
            ]
        found.sort(key=lambda memo: (memo.expires_us or 0, memo.space, memo.key))
        return found[:limit]

    def drop_memos(self, before_us: int) -> int:
        with self.world.lock:
            self._check_open()
            memos = self.world.beside.memos
            stale = [
                at
                for at, memo in memos.items()
                if at[0] == self.namespace and changes.is_stale(memo, before_us)
            ]
            for at in stale[:1000]:
                del memos[at]
            if stale:
                self.world.committed()
            return len(stale[:1000])

    # -- measures ------------------------------------------------------------------------------

    def put_measures(self, measures: Sequence[Measure]) -> None:
        with self.world.lock:
            self._check_open()
            for it in measures:
                at = (self.namespace, it.at_us, it.process, it.flow)
                self.world.beside.measures[at] = copy.deepcopy(it)

    def measures(self, after_us: int, before_us: int, limit: int = 100_000) -> Measured:
        with self.world.lock:
            found = [
                copy.deepcopy(measure)
                for (namespace, at_us, _, _), measure in self.world.beside.measures.items()
                if namespace == self.namespace and after_us <= at_us < before_us
            ]
        return Measured(measure_rows.in_order(found)[:limit])

    def drop_measures(self, before_us: int) -> int:
        with self.world.lock:
            self._check_open()
            kept = self.world.beside.measures
            old = sorted(at for at in kept if at[0] == self.namespace and at[1] < before_us)
            for at in old[: measure_rows.DROPPED_AT_ONCE]:
                del kept[at]
            return len(old[: measure_rows.DROPPED_AT_ONCE])

    # -- removing a run ------------------------------------------------------------------------

    def forget(self, row: RunRow, at_us: int) -> bool:
        with self.world.lock:
            self._check_open()
            now = self.by_number(row.run_no)
            if now is None or now.digest != row.digest or now.status not in ENDED:
                return False
            if self._has_fork(now):
                return False
            world, run_no = self.world, row.run_no
            world.journals[run_no] = []
            world.chunks.pop(run_no, None)
            world.inboxes.pop(run_no, None)
            world.untaken.pop(run_no, None)
            world.taken = {at: seq for at, seq in world.taken.items() if at[0] != run_no}
            world.keys = {at: key for at, key in world.keys.items() if key.run_no != run_no}
            questions = world.beside.questions
            world.beside.questions = {at: it for at, it in questions.items() if at[0] != run_no}
            world.beside.accounts.pop((self.namespace, row.run_id), None)
            world.rows[run_no] = claim_rules.deleted(now, at_us)
            world.committed()
            return True

    def _has_fork(self, origin: RunRow) -> bool:
        low, high = lineage.written_by_forks(origin.run_id)
        return any(
            row.namespace == self.namespace
            and row.origin is not None
            and low <= row.origin < high
            and row.deleted_us is None
            for row in self.world.rows.values()
        )
