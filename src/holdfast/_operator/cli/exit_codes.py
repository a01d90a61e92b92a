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
    HELD: "the run is held, or something wants a person",
    FAILED: "the run failed",
    BUSY: "busy: a live process has the run (it is asked), or it changed meanwhile",
    NOT_FOUND: "no such run, queue, schedule or value",
    DAMAGED: "the store is damaged or lost commits",
    CANCELLED: "the run was cancelled or rolled back",
    INTERRUPTED: "interrupted; the run can go on later",
}
"""By exit code, what it says. The help and the reference print these words."""


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
"""By kind of error, the exit code that tells it. Every other error is `ERROR`."""


def code_of(error: BaseException) -> int:
    """Return the exit code that tells an error. A damaged file beside the store is no damage of it."""
    if isinstance(error, Corrupt) and error.file is not None:
        return ERROR
    return next((code for kind, code in ERROR_CODES if isinstance(error, kind)), ERROR)
