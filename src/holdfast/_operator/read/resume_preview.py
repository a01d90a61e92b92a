"""The preview of a resume, a dry run, for a run that no process owns.

Without code it reads the journal alone: how long the interruption lasted, which effects are in doubt
and whose keys are too old, what will be executed again, and files that the run depends on. Comparisons
with code need a process that has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast._engine.decisions.redo import effects_behind
from holdfast._engine.decisions.resume import resume_drafts
from holdfast._engine.journal.drift_record import Change
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.history import History, Record
from holdfast._engine.journal.lifecycle import ENDED
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.journal.step_record import facts
from holdfast._features.drift import comparison
from holdfast._features.drift.comparison import CodeNow, ResumePreview
from holdfast._features.drift.model import DEFAULTS
from holdfast._operator.read.run_views import may_be_taken
from holdfast._stores import lineage
from holdfast._stores.contract import Store
from holdfast.errors import HoldfastError


def replayed_history(store: Store, row: RunRow) -> History:
    """Return what a process that takes the run up would replay."""
    skips = [(int(low), int(high)) for low, high in msgspec.json.decode(row.skips)]
    return lineage.fold(store, row, skips)


def preview_resume(
    store: Store,
    row: RunRow,
    past: History,
    now: CodeNow | None,
    changed: Sequence[Change] = (),
    looked_at: frozenset[str] = frozenset(),
) -> ResumePreview:
    """Return what a run would find. `now` is what the code of this process says, None without it;
    `changed` are facts that were looked at with it and have changed, `looked_at` the steps of all."""
    at_us = store.now_us()
    changes = comparison.code_changes(past, row.flow, now or CodeNow(), at_us)
    unseen: list[str] = []
    if now is None:
        unseen.append("code, versions and expired results: the flow is not known in this process")
    elif not now.flow:
        unseen.append("the code of the flow: it is not known in this process, or has no source")
    changes += changed
    for record in _watched(past):
        if record.key in looked_at:
            continue
        change = _file(past, record)
        if change is None:
            name = facts(record.outcome)["name"] if record.outcome is not None else record.key
            unseen.append(f"the fact {name}: it needs the flow's code")
        elif change.now != change.was:
            changes.append(change)
    last = past.drift.last
    assert last is not None
    return ResumePreview(
        row.run_id,
        row.flow,
        str(row.status),
        max(0, at_us - last.at_us) / 1e6,
        str(last.kind),
        row.owner is not None and row.status not in ENDED and may_be_taken(store, row),
        tuple(_whole(store, row, change) for change in changes),
        comparison.redone(past),
        tuple(record.key for record in past.open_doubts()),
        tuple(unseen),
        *_taken_up(store, row, at_us),
    )


def _taken_up(store: Store, row: RunRow, at_us: int) -> tuple[int | None, tuple[str, ...], str]:
    """Return the generation that a resume of a failed run begins and what it leaves behind; or why it
    would be refused. What is left behind may stand before a snapshot, so everything is read."""
    if row.status not in ENDED:
        return None, (), ""
    try:
        drafts, _ = resume_drafts(lineage.fold(store, row), actor="", at_us=at_us)
    except HoldfastError as refused:
        return None, (), str(refused)
    resumed = msgspec.json.decode(drafts[0].body)
    return int(resumed["generation"]), tuple(resumed["superseded"]), ""


def _watched(past: History) -> list[Record]:
    return [
        record
        for record in past.records.values()
        if record.outcome is not None and record.outcome.kind is Kind.DEPENDENCY_RECORDED
    ]


def _file(past: History, record: Record) -> Change | None:
    """Compare a watched file, which needs no code; None if it is no file."""
    assert record.outcome is not None
    told = facts(record.outcome)
    if "file" not in told:
        return None
    found = hashlib.blake2b(digest_size=8)
    try:
        with Path(told["file"]).open("rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
        now = found.hexdigest()
    except FileNotFoundError:
        now = "absent"
    except OSError as error:
        now = f"unreadable ({type(error).__name__})"
    was = str(told["fingerprint"])
    was = now if now == was else past.drift.accepted.get(f"fact:{record.key}", was)
    policy = told.get("on_change") or DEFAULTS["fact"]
    return Change("fact", str(told["name"]), was, now, policy, (record.key,))


def _whole(store: Store, row: RunRow, change: Change) -> Change:
    """Complete what a redo would execute again: a snapshot may hide some of it."""
    if not change.steps or change.kind == "key":
        return change
    whole = lineage.fold(store, row)
    return msgspec.structs.replace(change, effects=effects_behind(whole, change.steps))
