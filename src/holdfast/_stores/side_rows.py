"""Sealed rows of the side tables: questions, accounts, memories.

A missing account means "no limit", and a missing value means that it was never written. So such an
absence is confirmed through a second path, like that of a run or a key.
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
    """Return the values to insert into questions; the digest comes last. The run is identified by
    its number."""
    return _sealed((run_no, *msgspec.structs.astuple(question)[1:]))


def question_of(values: Values, run_id: str) -> Question:
    """Return a verified question of a run."""
    _check(values, f"question {values[1]!r} of run {run_id!r}")
    return Question(run_id, *values[1:-1])


def account_values(namespace: str, account: Account) -> tuple[Any, ...]:
    """Return the values to insert into accounts, with the digest and the hash of the names."""
    return (
        *_sealed((namespace, *msgspec.structs.astuple(account))),
        name_hash(namespace, account.root),
    )


def account_of(values: Values) -> Account:
    """Return a verified account."""
    _check(values, f"the account of run {values[1]!r}")
    return Account(*values[1:-1])


def memo_values(namespace: str, memo: Memo) -> tuple[Any, ...]:
    """Return the values to insert into memos, with the digest and the hash of the names."""
    return (
        *_sealed((namespace, *msgspec.structs.astuple(memo)[:-1])),  # Without the expected version.
        name_hash(namespace, memo.space, memo.key),
    )


def memo_of(values: Values) -> Memo:
    """Return a verified value of a memory."""
    _check(values, f"memory {values[2]!r} of {values[1]!r}")
    return Memo(*values[1:-1])


def find_account(fetch: Fetch, namespace: str, root: str) -> Account | None:
    """Return a verified account, or None if there certainly is none."""
    return _read_both_ways(fetch, "account", (namespace, root), account_of)


def find_memo(fetch: Fetch, namespace: str, space: str, key: str) -> Memo | None:
    """Return a verified value of a memory, even a removed one, or None if there certainly is
    none."""
    return _read_both_ways(fetch, "memo", (namespace, space, key), memo_of)


def _read_both_ways(
    fetch: Fetch, what: str, names: tuple[str, ...], read: Callable[[Values], T]
) -> T | None:
    # One statement uses both paths, so that concurrent changes are not reported as damage.
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
