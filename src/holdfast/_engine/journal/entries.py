"""Entries: the immutable facts of a run's journal, its event log, and the drafts they are made from.

A plain step usually writes its start together with its outcome. Such a pair is one row:
`started_us` is set, the row stands for two entries, and it takes two sequence numbers
(`seq - 1` for the start, `seq` for the outcome). `expand` gives the two entries that people see.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

FORMAT = 1
"""Version of the entry format, written with each run's first entry and with exports."""


class Kind(StrEnum):
    """The kind of an entry."""

    RUN_STARTED = "run_started"
    RUN_CLAIMED = "run_claimed"
    RUN_RESUMED = "run_resumed"
    RUN_RELEASED = "run_released"
    RUN_WAITING = "run_waiting"
    RUN_HELD = "run_held"
    RUN_COMPLETED = "run_completed"
    RUN_FAILED = "run_failed"
    RUN_CANCELLED = "run_cancelled"
    RUN_ROLLED_BACK = "run_rolled_back"
    RUN_FORKED = "run_forked"
    CANCEL_REQUESTED = "cancel_requested"
    ROLLBACK_REQUESTED = "rollback_requested"
    BUDGET_SET = "budget_set"
    DRIFT_FOUND = "drift_found"
    FINDING_NOTED = "finding_noted"
    CHANGE_ACCEPTED = "change_accepted"
    STEP_STARTED = "step_started"
    STEP_COMPLETED = "step_completed"
    STEP_FAILED = "step_failed"
    STEP_IN_DOUBT = "step_in_doubt"
    STEP_SETTLED = "step_settled"
    STEP_CANCELLED = "step_cancelled"
    STEP_PROGRESSED = "step_progressed"
    SKIPPED_DUPLICATE = "skipped_duplicate"
    VALUE_RECORDED = "value_recorded"
    SCOPE_OPENED = "scope_opened"
    STATE_SAVED = "state_saved"
    DEPENDENCY_RECORDED = "dependency_recorded"
    TIMER_SET = "timer_set"
    TIMER_FIRED = "timer_fired"
    SIGNAL_AWAITED = "signal_awaited"
    SIGNAL_RECEIVED = "signal_received"
    QUESTION_ASKED = "question_asked"
    QUESTION_ANSWERED = "question_answered"
    MESSAGE_DISCARDED = "message_discarded"
    CHILD_STARTED = "child_started"
    CHILD_ENDED = "child_ended"
    WAIT_TIMED_OUT = "wait_timed_out"
    VALUE_EMITTED = "value_emitted"


WAIT_BEGINS = frozenset(
    {Kind.TIMER_SET, Kind.SIGNAL_AWAITED, Kind.QUESTION_ASKED, Kind.CHILD_STARTED}
)
"""Entries after which a branch of the run waits for something outside it."""
WAIT_ENDS = frozenset(
    {
        Kind.TIMER_FIRED,
        Kind.SIGNAL_RECEIVED,
        Kind.QUESTION_ANSWERED,
        Kind.CHILD_ENDED,
        Kind.WAIT_TIMED_OUT,
    }
)
"""Entries that end such a wait: the outcome of the waiting call."""


ACCOUNT_LIMITS = "budget"
"""The field of `run_started` with the limits of the run's own account."""
VALUES = frozenset({"args", "input", "result", "value", "state", "raised"})
"""Fields of an entry's body that contain encoded values; all others are plain facts."""


class Draft(msgspec.Struct, gc=False):
    """An entry before the store numbers and seals it."""

    kind: Kind
    at_us: int
    step: str | None = None
    attempt: int = 0
    position: int | None = None
    args_digest: bytes | None = None
    started_us: int | None = None
    body: bytes = b"{}"

    @property
    def span(self) -> int:
        """How many sequence numbers the row takes."""
        return 1 if self.started_us is None else 2


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One sealed row of a journal."""

    seq: int
    kind: Kind
    at_us: int
    step: str | None
    attempt: int
    position: int | None
    args_digest: bytes | None
    started_us: int | None
    body: bytes
    digest: bytes

    @property
    def first_seq(self) -> int:
        """The first sequence number of the row."""
        return self.seq if self.started_us is None else self.seq - 1

    def data(self) -> dict[str, msgspec.Raw]:
        """Split the body into its fields without decoding its values."""
        return _fields.decode(self.body)

    def expand(self) -> Iterator[Entry]:
        """Yield the entries that this row stands for."""
        if self.started_us is None:
            yield self
            return
        yield msgspec.structs.replace(
            self,
            seq=self.seq - 1,
            kind=Kind.STEP_STARTED,
            at_us=self.started_us,
            started_us=None,
            body=start_of_body(self.body),
        )
        yield msgspec.structs.replace(self, started_us=None, body=_end_of_body(self.body))


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def start_of_body(body: bytes) -> bytes:
    """Return the start's part of a joined row's body: its arguments."""
    args = _fields.decode(body).get("args")
    return b"{}" if args is None else b'{"args":' + bytes(args) + b"}"


def _end_of_body(body: bytes) -> bytes:
    """Return the outcome's part of a joined row's body."""
    fields = _fields.decode(body)
    fields.pop("args", None)
    return msgspec.json.encode(fields)
