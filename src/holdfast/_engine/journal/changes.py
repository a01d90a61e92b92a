"""Changes of a write beside its run: keys, messages, questions, accounts, memories. Pure.

Each kind of change decides, for all stores, what becomes of the rows that it concerns, and whether it
refuses the write. The tables, by the names that `View` has for them, and the place of a row in each:

    keys         effect, key                business keys: `KeyState`
    inbox        run number, message id     messages to runs: `MessageRow`
    inbox_end    run number                 the number of the newest message; stored with the messages
    questions    run number, name           open questions; the name "*" is all of the run's
    accounts         run id of the root         what a family of runs may spend: `Account`
    memos        space, key                 values of memories: `Memo`
    runs         run id                     rows of runs, which a change only reads
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec

from holdfast._engine.journal.lifecycle import ENDED
from holdfast._engine.journal.rows import (
    SEQ_BITS,
    Account,
    Applied,
    Change,
    KeyState,
    Memo,
    Message,
    MessageRow,
    Question,
    Refused,
    RunRow,
    View,
    is_moved,
)
from holdfast.errors import KeyConflict

SPENT_MAX = 2**63 - 1
"""A count stops at the limit of the databases."""
ALL = "*"
"""Stands for a question's name: all questions of the run."""
_KEEPS_OWN_KEY = frozenset({"in_progress", "in_doubt"})


# -- business keys -----------------------------------------------------------------------------


class KeyTaken(Refused):
    """Another call has the business key."""

    key: KeyState


class ClaimKey(Change):
    """Claim a business key in the transaction of the intent."""

    effect: str
    key: str
    step: str
    args_digest: bytes

    rank: ClassVar[int] = 10

    @property
    def may_refuse(self) -> bool:
        return True

    def lock(self, namespace: str) -> tuple[str, ...]:
        return (namespace, self.effect, self.key)

    def decide(self, view: View, applied: Applied, now_us: int) -> KeyTaken | None:
        found: KeyState | None = view.find("keys", self.effect, self.key)
        if not self.is_free(found, applied.row):
            assert found is not None
            return KeyTaken(msgspec.structs.replace(found))
        view.put("keys", self.claimed(applied.row), self.effect, self.key)
        return None

    def is_free(self, found: KeyState | None, row: RunRow) -> bool:
        """Return whether the key is free for this call: new, known not to have happened, or already
        its own from an attempt before. With other arguments it never is."""
        if found is None:
            return True
        if found.args_digest != self.args_digest:
            return False
        own = found.run_no == row.run_no and found.step == self.step
        return found.state == "not_done" or (own and found.state in _KEEPS_OWN_KEY)

    def claimed(self, row: RunRow) -> KeyState:
        """Return the key's row after the claim."""
        return KeyState(
            namespace=row.namespace,
            effect=self.effect,
            key=self.key,
            state="in_progress",
            run_no=row.run_no,
            run_id=row.run_id,
            step=self.step,
            generation=row.generation,
            args_digest=self.args_digest,
            result_seq=None,
            updated_us=row.updated_us,
        ).sealed()


class SetKey(Change):
    """Set the state of a key; `result` means that the write's last entry has its result."""

    effect: str
    key: str
    state: str
    result: bool = False

    rank: ClassVar[int] = 11

    def lock(self, namespace: str) -> tuple[str, ...]:
        return (namespace, self.effect, self.key)

    def decide(self, view: View, applied: Applied, now_us: int) -> None:
        found: KeyState | None = view.find("keys", self.effect, self.key)
        if found is None:
            found = self._claimed(applied)
        view.put("keys", self.changed(found, applied.row), self.effect, self.key)

    def _claimed(self, applied: Applied) -> KeyState:
        """Return a key that was never claimed as the run's own: its claim is among the commits that
        the store lost (accepted data loss)."""
        assert applied.entries, f"key {self.key!r} of {self.effect} was never claimed"
        last = applied.entries[-1]
        claim = ClaimKey(self.effect, self.key, last.step or "", last.args_digest or b"")
        return claim.claimed(applied.row)

    def changed(self, found: KeyState, row: RunRow) -> KeyState:
        """Return the key's row after the change. A run changes only its own keys."""
        if found.run_no != row.run_no:
            why = f"run {found.run_id!r} has it now ({found.state})"
            raise KeyConflict(self.effect, self.key, why, other_run=found.run_id)
        return msgspec.structs.replace(
            found,
            state=self.state,
            result_seq=row.last_seq if self.result else found.result_seq,
            updated_us=row.updated_us,
        ).sealed()


# -- messages ----------------------------------------------------------------------------------


class TakeMessage(Change):
    """Take a message from the run's inbox into its history; the write's entries describe it."""

    message_id: str

    rank: ClassVar[int] = 20

    def decide(self, view: View, applied: Applied, now_us: int) -> None:
        row = applied.row
        found: MessageRow | None = view.find("inbox", row.run_no, self.message_id)
        assert found is not None, f"message {self.message_id!r} was never posted"
        assert found.taken_seq is None, f"message {self.message_id!r} was taken before"
        taken = msgspec.structs.replace(found, taken_seq=row.last_seq).sealed()
        view.put("inbox", taken, row.run_no, self.message_id)


class PostMessage(Change):
    """Post a message to another run. A run that has ended does not receive it, and a run that has a
    message with this ID receives it once."""

    run_id: str
    message: Message

    rank: ClassVar[int] = 21
    notifies: ClassVar[bool] = True

    def lock(self, namespace: str) -> tuple[str, ...]:
        return inbox_lock(namespace, self.run_id)

    def decide(self, view: View, applied: Applied, now_us: int) -> None:
        target: RunRow | None = view.find("runs", self.run_id)
        message_id = self.message.message_id
        if target is None or not reads_mail(target):
            return
        if view.find("inbox", target.run_no, message_id) is not None:
            return
        number: int = view.find("inbox_end", target.run_no) + 1
        view.put("inbox_end", number, target.run_no)
        view.put("inbox", posted(target.run_no, number, self.message), target.run_no, message_id)

    def mask(self, masked: Callable[[bytes], bytes]) -> None:
        self.message.body = masked(self.message.body)


def inbox_lock(namespace: str, run_id: str) -> tuple[str, ...]:
    """Return the lock name of an inbox while a message is posted."""
    return ("inbox", namespace, run_id)


def reads_mail(row: RunRow) -> bool:
    """Return whether a message to this run can still be read by anybody."""
    return row.status not in ENDED


def takes_messages(row: RunRow) -> bool:
    """Return whether people can send a message to this run here: it has not ended, and was not moved
    to another store. A message of another run is kept also for a moved one: the next move delivers it."""
    return reads_mail(row) and not is_moved(row)


class CloseInbox(Change):
    """Let every message of people that is being posted come before this write, or find it."""

    run_id: str

    rank: ClassVar[int] = 22

    def lock(self, namespace: str) -> tuple[str, ...]:
        return inbox_lock(namespace, self.run_id)

    def decide(self, view: View, applied: Applied, now_us: int) -> None:
        """Change nothing: from this commit on, the row says that messages are refused."""


def posted(run_no: int, number: int, message: Message) -> MessageRow:
    """Return the row of a new message."""
    return MessageRow(
        id=run_no << SEQ_BITS | number,
        run_no=run_no,
        message_id=message.message_id,
        kind=message.kind,
        actor=message.actor,
        at_us=message.at_us,
        body=message.body,
        taken_seq=None,
    ).sealed()


# -- questions ---------------------------------------------------------------------------------


class CloseQuestion(Change):
    """Close a question of the run; the name "*" closes all of them."""

    name: str

    rank: ClassVar[int] = 30
    notifies: ClassVar[bool] = True

    def decide(self, view: View, applied: Applied, now_us: int) -> None:
        view.put("questions", None, applied.row.run_no, self.name)


RUN_ENDS: tuple[Change, ...] = (CloseQuestion(ALL),)
"""The change beside the end of a run: close its questions."""


class OpenQuestion(Change):
    """Show a question of the run to the people who can answer."""

    question: Question

    rank: ClassVar[int] = 31
    notifies: ClassVar[bool] = True

    def decide(self, view: View, applied: Applied, now_us: int) -> None:
        view.put("questions", self.question, applied.row.run_no, self.question.name)

    def mask(self, masked: Callable[[bytes], bytes]) -> None:
        self.question.body = masked(self.question.body)


# -- accounts --------------------------------------------------------------------------------------


class Exhausted(Refused):
    """The account has not got what the write wanted to spend, or is used up already."""

    account: Account


class Spend(Change):
    """Take something from an account; negative amounts give back. With `checks`, the write is refused if
    the account has not got it, or is used up."""

    root: str
    usd_nanos: int = 0
    tokens: int = 0
    steps: int = 0
    checks: bool = False

    rank: ClassVar[int] = 40

    @property
    def may_refuse(self) -> bool:
        return self.checks

    def decide(self, view: View, applied: Applied, now_us: int) -> Exhausted | None:
        account: Account | None = view.find("accounts", self.root)
        if account is None:
            return None
        if self.checks and is_exhausted(account, self, now_us):
            return Exhausted(msgspec.structs.replace(account))
        view.put("accounts", spent(account, self), self.root)
        return None


def is_exhausted(account: Account, spend: Spend, at_us: int) -> bool:
    """Return whether an account has not got what somebody wants to spend, or is used up already."""
    for limit, used, amount in (
        (account.usd_nanos, account.spent_usd_nanos, spend.usd_nanos),
        (account.tokens, account.spent_tokens, spend.tokens),
        (account.steps, account.spent_steps, spend.steps),
    ):
        if limit is not None and (used + amount > limit or (amount <= 0 and used >= limit)):
            return True
    return account.wall_us is not None and at_us - account.opened_us >= account.wall_us


def spent(account: Account, spend: Spend) -> Account:
    """Return the account after something was taken from it."""
    return msgspec.structs.replace(
        account,
        spent_usd_nanos=min(SPENT_MAX, account.spent_usd_nanos + spend.usd_nanos),
        spent_tokens=min(SPENT_MAX, account.spent_tokens + spend.tokens),
        spent_steps=min(SPENT_MAX, account.spent_steps + spend.steps),
    )


def new_limits(account: Account, before: Account | None) -> Account:
    """Return an account with new limits, and what was spent of the one before."""
    if before is None:
        return account
    return msgspec.structs.replace(
        before,
        usd_nanos=account.usd_nanos,
        tokens=account.tokens,
        steps=account.steps,
        wall_us=account.wall_us,
    )


# -- memories ----------------------------------------------------------------------------------


class Outdated(Refused):
    """A memory value has a different version than the write expects."""


class PutMemo(Change):
    """Write a memory value. With an expected version (`Memo.expected`), the write is refused if the
    value has a different one."""

    memo: Memo

    rank: ClassVar[int] = 50
    is_read_back: ClassVar[bool] = True

    @property
    def may_refuse(self) -> bool:
        return self.memo.expected is not None

    def lock(self, namespace: str) -> tuple[str, ...]:
        return memo_lock(namespace, self.memo)

    def decide(self, view: View, applied: Applied, now_us: int) -> Outdated | None:
        memo = self.memo
        before: Memo | None = view.find("memos", memo.space, memo.key)
        if memo.expected not in (None, current_version(before, now_us)):
            return Outdated()
        written = next_memo(memo, before, applied.row.updated_us)
        view.put("memos", written, memo.space, memo.key)
        return None


def memo_lock(namespace: str, memo: Memo) -> tuple[str, ...]:
    """Return the lock name of a memory value while it is changed."""
    return ("memo", namespace, memo.space, memo.key)


def next_memo(memo: Memo, before: Memo | None, at_us: int) -> Memo:
    """Return a memory value to write, with the next version."""
    version = 1 if before is None else before.version + 1
    return msgspec.structs.replace(memo, version=version, updated_us=at_us, expected=None)


def is_there(memo: Memo | None, at_us: int) -> bool:
    """Return whether a value of a memory can be read: it was not removed, and its time is not over."""
    return (
        memo is not None
        and memo.value is not None
        and (memo.expires_us is None or memo.expires_us > at_us)
    )


def is_expired(memo: Memo, at_us: int) -> bool:
    """Return whether the time of a value is over, and it has not been removed yet."""
    return memo.value is not None and memo.expires_us is not None and memo.expires_us <= at_us


def is_stale(memo: Memo, before_us: int) -> bool:
    """Return whether a value of a memory has been over for so long that it can be dropped."""
    ended_us = memo.updated_us if memo.value is None else memo.expires_us
    return ended_us is not None and ended_us < before_us


def current_version(memo: Memo | None, at_us: int) -> int:
    """Return the version that a writer must have seen; 0 without a value."""
    return memo.version if memo is not None and is_there(memo, at_us) else 0
