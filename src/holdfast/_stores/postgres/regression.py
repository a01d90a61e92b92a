"""Detect that the server lost acknowledged commits, record it for the whole fleet, and hold the
runs.

Every acknowledged head is an entry of the journal. If one is missing, the row of the store records
it: reads work, and effects wait until somebody accepts the data loss. The affected runs are held as
corrupt, because the lost part may have contained more effects.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.lifecycle import FINAL, HeldReason
from holdfast._engine.journal.rows import Lease, RunRow, Write, apply
from holdfast._stores import row_codec
from holdfast._stores.postgres.acknowledged_heads import Remembered
from holdfast._stores.postgres.row_statement import send
from holdfast._stores.postgres.server_connection import Link

log = logging.getLogger("holdfast.store")

SHOWN_MAX = 5


def missing(link: Link, heads: dict[int, tuple[int, bytes]]) -> list[int]:
    """Return the numbers of the runs whose acknowledged head is missing from the journal."""
    if not heads:
        return []
    seqs = [seq for seq, _ in heads.values()]
    values = (list(heads), seqs, [head for _, head in heads.values()])
    return sorted(run_no for (run_no,) in link.fetch("missing_heads", values))


def check(link: Link, remembered: Remembered, at_us: int) -> None:
    """After a broken connection, check that all acknowledged entries still exist."""
    numbers = missing(link, remembered.heads())
    if numbers:
        note(link, remembered, numbers, at_us)


def note(link: Link, remembered: Remembered, numbers: Sequence[int], at_us: int) -> None:
    """Record that acknowledged entries of these runs are missing, and hold the runs."""
    heads = remembered.heads()
    with link.writing():
        for run_no in numbers:  # No owner can write to them meanwhile.
            link.fetch("lock_run", (run_no,))
        found = link.fetch("runs_by_numbers", (list(numbers),))
        rows = [row_codec.run_row(values) for values in found]
        names = sorted(row.run_id for row in rows)
        gone = len(numbers) - len(rows)
        shown = [repr(name) for name in names[:SHOWN_MAX]]
        shown += [f"{len(names) - SHOWN_MAX} more"] if len(names) > SHOWN_MAX else []
        shown += [f"{gone} that are gone altogether"] if gone else []
        remembered.lost = (
            f"acknowledged entries of {len(numbers)} run(s) are missing ({', '.join(shown)}): the "
            "server went back to an earlier state (a failover that lost its tail, or an old backup)"
        )
        log.error("%s", remembered.lost)
        link.change("put_lost", (remembered.lost,))
        for row in rows:
            if row.status not in FINAL:
                _hold(link, row, heads.get(row.run_no, (0, b""))[0], at_us)
    # Last, so that the next connection detects the loss again if this one breaks before.
    remembered.said(numbers)


def _hold(link: Link, row: RunRow, acknowledged_seq: int, at_us: int) -> None:
    facts = {
        "reason": HeldReason.CORRUPT.value,
        "detail": f"its journal ends at entry {row.last_seq}, but entries up to "
        f"{acknowledged_seq or 'a later one'} were acknowledged: the server lost its tail. What "
        "was recorded there, effects included, may have happened",
        "step": row.current_step or "",
        "actions": ["holdfast store accept-data-loss", command("resume", row.run_id)],
    }
    draft = Draft(Kind.RUN_HELD, at_us, body=msgspec.json.encode(facts))
    changes = {"held_reason": HeldReason.CORRUPT.value, "wake_us": None, "waiting_on": None}
    write = Write(Lease(row, acting=True), [draft], row=changes)
    applied = apply(row, write, 0)
    send(link, [(row, applied)], [])
