"""Rows of what runs keep beside their journals, sealed like all others: questions, accounts, memories.

An account that is not there means "no limit", and a value that is not there that nobody has written it:
such an absence is confirmed by a second path, as that of a run or a key is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast._engine.journal.rows import GENESIS, Account, Memo, Question
from holdfast._engine.values.digest import seal
from holdfast._stores.lookups import Fetch
from holdfast._stores.row_codec import name_hash
from holdfast.errors import Corrupt

Values = Sequence[Any]
T = TypeVar("T")


def question_values(run_no: int, question: Question) -> tuple[Any, ...]:
    """Return what is put into questions; the digest comes last. The run is known by its number."""
    return _sealed((run_no, *msgspec.structs.astuple(question)[1:]))


def question_of(values: Values, run_id: str) -> Question:
    """Return a verified question of a run."""
    _check(values, f"question {values[1]!r} of run {run_id!r}")
    return Question(run_id, *values[1:-1])


def account_values(namespace: str, account: Account) -> tuple[Any, ...]:
    """Return what is put into accounts, with its digest, and the hash of its names."""
    return (
        *_sealed((namespace, *msgspec.structs.astuple(account))),
        name_hash(namespace, account.root),
    )


def account_of(values: Values) -> Account:
    """Return a verified account."""
    _check(values, f"the account of run {values[1]!r}")
    return Account(*values[1:-1])


def memo_values(namespace: str, memo: Memo) -> tuple[Any, ...]:
    """Return what is put into memos, with its digest, and the hash of its names."""
    return (
        *_sealed((namespace, *msgspec.structs.astuple(memo)[:-1])),  # Without what was expected.
        name_hash(namespace, memo.space, memo.key),
    )


def memo_of(values: Values) -> Memo:
    """Return a verified value of a memory."""
    _check(values, f"memory {values[2]!r} of {values[1]!r}")
    return Memo(*values[1:-1])


def find_account(fetch: Fetch, namespace: str, root: str) -> Account | None:
    """Return a verified account, or None if there certainly is none."""
    return _found(fetch, "account", (namespace, root), account_of)


def find_memo(fetch: Fetch, namespace: str, space: str, key: str) -> Memo | None:
    """Return a verified value of a memory, removed ones too, or None if there certainly is none."""
    return _found(fetch, "memo", (namespace, space, key), memo_of)


def _found(
    fetch: Fetch, what: str, names: tuple[str, ...], read: Callable[[Values], T]
) -> T | None:
    # One statement looks by both ways: what others write or remove in between is no damage.
    both = fetch(f"{what}_both_ways", (*names, name_hash(*names)))
    for by_name, *values in sorted(both, key=lambda row: not row[0]):
        found = read(values)
        same = tuple(values[: len(names)]) == names
        if by_name and not same:
            raise Corrupt(f"the index at {names[-1]!r}", why="it shows another one")
        if by_name:
            return found
        if same:
            raise Corrupt(f"the index of {what}s at {names[-1]!r}", why="it does not show it")
    return None


def _sealed(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*values, seal(GENESIS, values))


def _check(values: Values, what: str) -> None:
    try:
        expected = seal(GENESIS, tuple(values[:-1]))
    except (TypeError, ValueError, AttributeError) as error:
        raise Corrupt(what, why=f"it has a value that cannot be: {error}") from None
    if values[-1] != expected:
        raise Corrupt(what, why="the digest does not match")
