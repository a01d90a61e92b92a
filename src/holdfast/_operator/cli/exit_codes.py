"""Exit codes of commands, and the error that each one reports."""

from __future__ import annotations

from holdfast.errors import (
    ConfirmationRequired,
    Corrupt,
    HoldfastError,
    NotFound,
    RunBusy,
    RunCancelled,
    RunDeleted,
    RunFailed,
    RunHeld,
    RunNotFound,
    RunRolledBack,
    StaleView,
    StoreLostData,
    UsageError,
)

OK, ERROR, USAGE, HELD, FAILED, BUSY, NOT_FOUND, DAMAGED, CANCELLED = range(9)


INTERRUPTED = 130


MEANINGS = {
    OK: "done, or nothing to do",
    ERROR: "any other error",
    USAGE: "wrong usage",
    HELD: "the run is held, or something needs a person",
    FAILED: "the run failed",
    BUSY: "busy: a live process owns the run (and is notified), or the run changed",
    NOT_FOUND: "no such run, queue, schedule or value",
    DAMAGED: "the store is damaged or lost commits",
    CANCELLED: "the run was cancelled or rolled back",
    INTERRUPTED: "interrupted; the run can continue later",
}
"""The meaning of each exit code. The help and the reference print these texts."""


EXIT_CODES = "\b\nExit codes:\n" + "".join(
    f"  {code:>3}  {meaning}\n" for code, meaning in MEANINGS.items()
)


ERROR_CODES: list[tuple[type[HoldfastError], int]] = [
    (RunHeld, HELD),
    (RunFailed, FAILED),
    (RunBusy, BUSY),
    (StaleView, BUSY),
    (RunNotFound, NOT_FOUND),
    (RunDeleted, NOT_FOUND),
    (NotFound, NOT_FOUND),
    (Corrupt, DAMAGED),
    (StoreLostData, DAMAGED),
    (RunCancelled, CANCELLED),
    (RunRolledBack, CANCELLED),
    (ConfirmationRequired, USAGE),
    (UsageError, USAGE),
]
"""The exit code of each class of error. Every other error is `ERROR`."""


def code_of(error: BaseException) -> int:
    """Return the exit code of an error. A damaged file beside the store does not count as store
    damage."""
    if isinstance(error, Corrupt) and error.file is not None:
        return ERROR
    return next((code for kind, code in ERROR_CODES if isinstance(error, kind)), ERROR)
