"""Verify a store: all checks that do not need the meaning of values."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec

from holdfast._engine.journal import fork_history
from holdfast._engine.journal.entries import ACCOUNT_LIMITS, Entry, Kind
from holdfast._engine.journal.lifecycle import ENDED, status_of
from holdfast._engine.journal.rows import GIVES_BACK, SEQ_BITS, SEQ_MASK, RunRow
from holdfast._engine.journal.step_record import facts
from holdfast._stores import (
    claim_rules,
    fleet_rows,
    journal_reader,
    lineage,
    lookups,
    measure_rows,
    row_codec,
    side_rows,
)
from holdfast._stores.contract import LOST_END, Damage
from holdfast._stores.lookups import Fetch
from holdfast._stores.sql.database import Snapshot
from holdfast.errors import Corrupt, HoldfastError, RunNotFound

_TAKES = frozenset({Kind.SIGNAL_RECEIVED, Kind.QUESTION_ANSWERED, Kind.MESSAGE_DISCARDED})
"""Entries that take a message, and have its id."""
_CLOSES_ALL = GIVES_BACK - {Kind.RUN_RELEASED, Kind.RUN_HELD} | {Kind.RUN_RESUMED}
"""Entries after which questions from before need not be open."""


def verify(
    state: Snapshot, namespace: str, run_ids: Iterable[str] | None, lost: str | None
) -> list[Damage]:
    """Return the damage; an empty list means that all data is as it was written. `lost` describes
    missing acknowledged commits."""
    missing = [] if lost is None else [Damage(LOST_END, lost)]
    if run_ids is not None:
        return [*missing, *_named_runs(state, namespace, run_ids)]
    return [
        *missing,
        *state.own_checks(state),
        *rows(state, "all_runs", row_codec.run_row),
        *rows(state, "all_keys", row_codec.key_state),
        *rows(state, "all_messages", row_codec.message_row),
        *rows(state, "all_owners", row_codec.owner_row),
        *_chunks(state),
        *rows(state, "all_limits", fleet_rows.limits_of),
        *rows(state, "all_schedules", fleet_rows.schedule_of),
        *rows(state, "all_questions", _question),
        *rows(state, "all_accounts", side_rows.account_of),
        *rows(state, "all_memos", side_rows.memo_of),
        *rows(state, "all_measures", measure_rows.measure_of),
        *_strays(state.fetch),
        *_all_runs(state),
    ]


def rows(state: Snapshot, name: str, read: Callable[[Any], object]) -> Iterator[Damage]:
    """Read every row of a table separately, so that one damaged row does not hide others."""
    try:
        for values in state.each(name):
            try:
                read(values)
            except Corrupt as error:
                yield finding(error)
    except HoldfastError as error:
        yield finding(error)


def _chunks(state: Snapshot) -> Iterator[Damage]:
    """Check every chunk, and report the progress, because chunks are the largest part of a
    store."""
    done = 0

    def read(values: Any) -> None:
        nonlocal done
        done += 1
        state.progress("values", done, 0)
        _chunk(values)

    yield from rows(state, "all_chunks", read)


def _chunk(values: Any) -> None:
    """Check one row of chunks."""
    row_id, digest, body = values
    run_no, number = row_id >> SEQ_BITS, row_id & SEQ_MASK
    if not isinstance(body, bytes) or digest != row_codec.chunk_digest(run_no, number, body):
        raise Corrupt(f"chunk {number} of run number {run_no}", why="the digest does not match")


def _strays(fetch: Fetch) -> Iterator[Damage]:
    """Check that every row belongs to a run, and every question to a run that has not ended."""
    try:
        strays = fetch("rows_without_run", ())
        late = fetch("questions_of_nobody", ())
    except HoldfastError:
        return  # Reported before.
    for table, run_no in strays:
        yield Damage(f"rows of {table}", f"they belong to run number {run_no}, which is not there")
    for run_id, name in late:
        yield Damage(f"question {name!r}", "it is open, and its run has ended", run_id)


def _question(values: Any) -> None:
    """Check one row of questions."""
    side_rows.question_of(values, f"number {values[0]}")


def _named_runs(state: Snapshot, namespace: str, run_ids: Iterable[str]) -> list[Damage]:
    """Check some runs by their ids."""
    found: list[Damage] = []
    wanted = list(run_ids)
    for done, run_id in enumerate(wanted, 1):
        found.extend(_named_run(state.fetch, namespace, run_id))
        state.progress("runs", done, len(wanted))
    return found


def _named_run(fetch: Fetch, namespace: str, run_id: str) -> Iterator[Damage]:
    """Check one run by its id; an unknown id is an error of the caller, not damage."""
    try:
        row = lookups.find_run(fetch, namespace, run_id)
    except HoldfastError as error:
        yield finding(error)
        return
    if row is None:
        raise RunNotFound(run_id)
    yield from _run(fetch, row)


def _all_runs(state: Snapshot) -> Iterator[Damage]:
    """Check every run with a readable row."""
    with contextlib.suppress(HoldfastError):  # Already reported: `rows` has read the table.
        total = state.fetch("count_runs", ())[0][0]
        for done, values in enumerate(state.each("all_runs"), 1):
            state.progress("runs", done, total)
            try:
                row = row_codec.run_row(values)
            except Corrupt:
                continue
            yield from _run(state.fetch, row)


def _run(fetch: Fetch, row: RunRow) -> Iterator[Damage]:
    """Check one run: its journal, its row against the journal, its chunks and its inbox."""
    try:
        found = lookups.find_run(fetch, row.namespace, row.run_id)
        if found is None or found.run_no != row.run_no:
            yield Damage("the index of run ids", "it shows another run", row.run_id)
        if row.deleted_us is not None:
            return
        journal = journal_reader.load(fetch, row, ())
        status = status_of(claim_rules.kinds(journal))
        if status is not row.status:
            why = f"the journal says {status.value}, the row {row.status.value}"
            yield Damage("its row in runs", why, row.run_id)
        base = row.run_no << SEQ_BITS
        if fetch("entries", (base | row.last_seq + 1, base | SEQ_MASK)):
            yield Damage("its journal", "there are entries after the last one", row.run_id)
        inbox = {message.message_id for message in lookups.messages(fetch, row.run_no)}
        yield from _side_rows(fetch, row, journal, inbox)
        yield from _references(fetch, row, journal)
    except (Corrupt, AssertionError, msgspec.DecodeError) as error:
        yield finding(error, row.run_id)
    except HoldfastError as error:
        yield finding(error, row.run_id)


def _side_rows(
    fetch: Fetch, row: RunRow, journal: list[Entry], inbox: set[str]
) -> Iterator[Damage]:
    """Check that the rows are there that the journal says were written beside it: a message that an
    entry has taken, a question that is open, the account of a run with limits that has begun."""
    for message_id in sorted(_taken_message_ids(journal) - inbox):
        yield Damage(
            f"message {message_id!r}", "an entry has taken it, and it is not there", row.run_id
        )
    if row.status not in ENDED:
        there = {values[1] for values in fetch("questions_of_run", (row.run_no,))}
        for name in sorted(_open_questions(journal) - there):
            why = "the run asks it, and its row is not there"
            yield Damage(f"question {name!r}", why, row.run_id)
    opened = row.root is None and row.origin is None and _has_opened_account(journal)
    if opened and side_rows.find_account(fetch, row.namespace, row.run_id) is None:
        yield Damage(
            "its account", "the run has limits and has begun, and it is not there", row.run_id
        )


def _taken_message_ids(journal: Iterable[Entry]) -> set[str]:
    """Return the ids of the messages that entries have taken."""
    return {
        str(told["id"])
        for entry in journal
        if entry.kind in _TAKES and "id" in (told := facts(entry))
    }


def _open_questions(journal: Iterable[Entry]) -> set[str]:
    """Return the names of questions that are open for certain: nothing came after them at their step,
    and the run was neither ended nor taken up anew."""
    asked: dict[str, set[str]] = {}
    found: set[str] = set()
    for entry in journal:
        if entry.kind in _CLOSES_ALL:
            found.clear()
        elif entry.kind is Kind.QUESTION_ASKED:
            name = str(facts(entry).get("name"))
            asked.setdefault(entry.step or "", set()).add(name)
            found.add(name)
        elif entry.step is not None:
            found -= asked.get(entry.step, set())
    return found


def _has_opened_account(journal: Sequence[Entry]) -> bool:
    """Return whether a run has limits, and has begun a step: its account is opened before that."""
    has_limits = any(
        it.kind is Kind.RUN_STARTED and facts(it).get(ACCOUNT_LIMITS) for it in journal[:1]
    )
    return has_limits and any(
        it.kind is Kind.STEP_STARTED or it.started_us is not None for it in journal
    )


def _references(fetch: Fetch, row: RunRow, journal: Iterable[Entry]) -> Iterator[Damage]:
    """Check that every chunk that an entry or another chunk refers to exists."""
    rows = _chunk_rows(fetch, row)
    there = {row_id & SEQ_MASK for row_id, _, _ in rows} | _borrowed(fetch, row)
    bodies = [entry.body for entry in journal] + [body for _, _, body in rows]
    wanted = {number for body in bodies for number in _chunks_in(msgspec.json.decode(body))}
    for number in sorted(wanted - there):
        yield Damage(f"chunk {number}", "it is not there", row.run_id)


def _chunk_rows(fetch: Fetch, row: RunRow) -> list[Any]:
    base = row.run_no << SEQ_BITS
    return fetch("chunk_range", (base, base | SEQ_MASK))


def _borrowed(fetch: Fetch, row: RunRow) -> set[int]:
    """Return the numbers of the chunks that a fork shares with its origin, and check that its
    borrowed entries are the original ones."""
    origin = lineage.origin_of(row)
    if origin is None:
        return set()
    for part in fork_history.read(row.run_id, journal_reader.entry(fetch, row, 2)).parts:
        other = _origin(fetch, row, part.run)
        until = msgspec.structs.replace(other, last_seq=part.seq, head=bytes.fromhex(part.head))
        journal_reader.load(fetch, until.sealed(), [(1, part.seq)])
    other = _origin(fetch, row, origin.run)
    there = {row_id & SEQ_MASK for row_id, _, _ in _chunk_rows(fetch, other)}
    return {number for number in there | _borrowed(fetch, other) if number < origin.base}


def _origin(fetch: Fetch, row: RunRow, run_id: str) -> RunRow:
    other = lookups.find_run(fetch, row.namespace, run_id)
    if other is None or other.deleted_us is not None:
        what = f"run {run_id!r}, which it was forked from"
        raise Corrupt(what, run_id=row.run_id, why="it is not there")
    return other


def _chunks_in(node: Any) -> Iterator[int]:
    """Yield the chunks that a node refers to; data below `plain` belongs to users."""
    if isinstance(node, list):
        for part in cast("list[Any]", node):  # type: ignore[redundant-cast] # pyright needs it
            yield from _chunks_in(part)
    elif isinstance(node, dict):
        fields = cast("dict[str, Any]", node)
        for name, part in fields.items():
            refers = name in {"chunk", "list"} if len(fields) == 1 else name == "prev"
            if refers and type(part) is int:
                yield part
            elif name != "plain":
                yield from _chunks_in(part)


def finding(error: Exception, run_id: str | None = None) -> Damage:
    """Return the damage that an error describes."""
    if isinstance(error, Corrupt):
        return Damage(error.what, error.why or "it is damaged", error.run_id or run_id)
    return Damage("the store", str(error), run_id)
