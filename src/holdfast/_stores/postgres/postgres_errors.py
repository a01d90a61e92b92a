"""Errors of the server and of the network: which may be retried, and the errors of Holdfast for the
others."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolTimeout, TooManyRequests

from holdfast._stores.addresses import full, without_secrets
from holdfast._stores.postgres.connection_settings import Place
from holdfast.errors import HoldfastError, StoreFailed, StoreUnusable

_NEVER = (
    pg.InvalidAuthorizationSpecification,
    pg.InvalidPassword,
    pg.InvalidCatalogName,
    pg.InsufficientPrivilege,
    pg.DiskFull,
    pg.OutOfMemory,
)
_AGAIN = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    pg.DeadlockDetected,
    pg.SerializationFailure,
    pg.ReadOnlySqlTransaction,
    pg.IdleInTransactionSessionTimeout,
    pg.LockNotAvailable,
    pg.QueryCanceled,
    PoolTimeout,
    TooManyRequests,
)


class LinkLost(psycopg.OperationalError):
    """The connection broke before the commit of the transaction, so it was rolled back."""


_ENDED_BY_SERVER = (
    LinkLost,
    pg.DeadlockDetected,
    pg.SerializationFailure,
    pg.AdminShutdown,
    pg.CrashShutdown,
    pg.CannotConnectNow,
)


def may_be_tried_again(error: BaseException) -> bool:
    """Return whether the same transaction may succeed at the next try."""
    return isinstance(error, _AGAIN) and not isinstance(error, _NEVER)


def passes(error: BaseException | None) -> bool:
    """Return whether the server or the network ended a transaction without effect, so that it may
    succeed when repeated. The cause of another exception is checked too."""
    while error is not None:
        if isinstance(error, _ENDED_BY_SERVER):
            return may_be_tried_again(error)
        error = error.__cause__
    return False


def translated(error: BaseException, shown: str) -> HoldfastError:
    """Return the error of Holdfast for an error of the driver."""
    told = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, pg.DiskFull):
        return full(shown)
    if isinstance(error, pg.InvalidAuthorizationSpecification | pg.InvalidPassword):
        return StoreUnusable(f"{shown} does not let us in: {told}")
    if isinstance(error, pg.InvalidCatalogName):
        return StoreUnusable(f"{shown}: {told}; create it: createdb NAME")
    if isinstance(error, pg.InsufficientPrivilege):
        return StoreUnusable(
            f"{shown}: {told}; the role needs CREATE on the database once (for the schema "
            "`holdfast`), then the rights of its owner on that schema"
        )
    failed = StoreFailed(
        f"{shown} cannot be reached, or a commit was not confirmed: {told}; what was acknowledged "
        "stands, and what was not is looked up when it is taken up again"
    )
    failed.unreachable = True
    return failed


def not_opened(error: BaseException, place: Place) -> StoreUnusable:
    """Return the error for a failed first connection, with its remedy.

    The driver has only a text for it. A refusal by a server contains FATAL in every language.
    """
    told = without_secrets(" ".join(str(error).split()), place.url)
    if isinstance(error, psycopg.ProgrammingError):
        return StoreUnusable(
            f"{place.shown} is not an address that the driver understands: {told}; in a user and a "
            "password, what is not a letter or a digit is written as %XX"
        )
    if "FATAL" not in told and "password" not in told:
        help_ = "; is the server running, and is the address right?"
    elif "password" in told or "authentication" in told:
        help_ = (
            "; give the right user and password in the URL (HOLDFAST_URL keeps it out of the list "
            "of processes), in PGPASSWORD, or in ~/.pgpass"
        )
    elif "database" in told and "does not exist" in told:
        help_ = "; create it: createdb NAME"
    else:
        help_ = ""
    return StoreUnusable(f"{place.shown} cannot be opened: {told}{help_}")
