"""Effects in the store's own database, performed: the body, its writes and the outcome, at once.

The store gives the body a connection inside a transaction of its own, and commits what the body
did there together with the entries that say so. This goes round the committer, so the writes of
the same run that are queued are committed first, and those that come meanwhile (of other branches,
of the heartbeat) are kept back until it is through. Other runs are not concerned by that.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._engine.journal.changes import ClaimKey, KeyTaken
from holdfast._engine.journal.rows import Change, KeyState, Write
from holdfast._engine.scripts.requests import Append, Called, Transact, Transacted
from holdfast._engine.scripts.stops import Unwind
from holdfast._runtime.execution import attempt
from holdfast._runtime.interrupt_shield import Shield
from holdfast._stores.contract import Broken, Committed, EndedByItself, Fenced, Outcome
from holdfast.errors import LeaseLost, NotSerializable, UsageError

if TYPE_CHECKING:
    from holdfast._runtime.execution.execution import Execution


_open: ContextVar[Any] = ContextVar("holdfast_transaction", default=None)
"""The connection of the transaction that is under way in this thread."""


def sql_connection() -> Any:
    """Inside an effect with `transaction=True`: a connection of the store's own database.

    What is written with it commits together with the outcome of the effect, or not at all. Do not
    commit or roll back yourself. SQLite: `execute(sql, parameters)`; PostgreSQL: a psycopg
    connection.
    """
    found = _open.get()
    if found is None:
        raise UsageError(
            "holdfast.context.sql_connection() is called inside an effect that is declared with "
            "@effect(transaction=True), in the thread in which it was called"
        )
    return found


def transact(
    execution: Execution, body: attempt.Body, request: Transact, shield: Shield | None = None
) -> Transacted:
    """Call the body of an effect and commit what it did together with its outcome."""
    with execution.recorder.transactions:
        execution.check()
        last = execution.recorder.park()
        try:
            if last is not None:
                execution.engine.committer.pass_through(last)
                execution.check()
            return _transact(execution, request, _Work(execution, body, request, shield))
        finally:
            execution.recorder.unpark()


def _transact(execution: Execution, request: Transact, work: _Work) -> Transacted:
    kept = execution.engine.backend
    taken = _taken_key(execution, request.claim)
    if taken is not None:
        return Transacted(taken=taken)
    try:
        outcome = kept.append_within(execution.lease, work)
    except _RolledBack:
        work.undo()
        # The body may have run into rows of the call that got the key meanwhile.
        taken = _taken_key(execution, request.claim)
        return work.failure() if taken is None else Transacted(taken=taken)
    except EndedByItself as error:
        work.undo()
        return Transacted(error=error, in_doubt=True)
    except BaseException:
        work.undo()
        raise
    return _settled(execution, work, outcome)


def _settled(execution: Execution, work: _Work, outcome: Outcome) -> Transacted:
    if isinstance(outcome, Committed):
        execution.recorder.open_calls.pop(work.call.key, None)
        work.tell()
        return Transacted(work.copy)
    work.undo()
    if isinstance(outcome, Fenced):
        raise execution.stop(Unwind(LeaseLost(execution.run_id)))
    if isinstance(outcome, Broken):
        raise outcome.error
    assert isinstance(outcome, KeyTaken)
    return Transacted(taken=outcome.key)


def _taken_key(execution: Execution, claim: ClaimKey | None) -> KeyState | None:
    """Return the business key if another call has it: then the body is not called at all."""
    if claim is None:
        return None
    found = execution.engine.backend.key(claim.effect, claim.key)
    if found is None or claim.is_free(found, execution.lease.row):
        return None
    return found


class _RolledBack(Exception):
    """The body failed, or its result cannot be stored: the store forgets what was done."""


class _Work:
    """The work inside the store's transaction."""

    def __init__(
        self, execution: Execution, body: attempt.Body, request: Transact, shield: Shield | None
    ) -> None:
        self.call = body.call
        self.copy: Any = None
        self._execution = execution
        self._body = body
        self._request = request
        self._shield = shield
        self._error: BaseException | None = None
        self._refused = False
        self._write: Write | None = None

    def __call__(self, connection: Any) -> Write:
        """Call the body, and return the write that says what came of it. A store that found a
        deadlock between two transactions calls it again."""
        self.undo()
        called = self._called(connection)
        if called.error is not None:
            self._error = called.error
            raise _RolledBack from called.error  # The store sees whether it was its own doing.
        try:
            return self._prepared(called.value)
        except NotSerializable as refused:
            self._error, self._refused = refused, True
            raise _RolledBack from None

    def _called(self, connection: Any) -> Called:
        token = _open.set(connection)
        try:
            if self._shield is not None:
                self._shield.lower()
            return attempt.call_blocking(self._execution, self._body, "body")
        finally:
            if self._shield is not None:
                self._shield.raise_again()
            _open.reset(token)

    def _prepared(self, value: Any) -> Write:
        request, execution = self._request, self._execution
        *before, last = request.notes
        last = msgspec.structs.replace(last, values={"result": value})
        changes: list[Change] = [*request.keys]
        if request.claim is not None:
            changes.append(request.claim)
        append = Append(self.call, [*before, last], changes)
        with execution.lock:
            self._write, self.copy = execution.recorder.prepared(append)
            self._write.chunks = execution.values.take_fresh()
            self._write.mask_secrets()
        return self._write

    def undo(self) -> None:
        """Take back what was foreseen: nothing has happened."""
        self.call.attempt.noted = False
        if self._write is not None:
            self._execution.recorder.withdraw(self._write, self.call)
            self._write = None

    def tell(self) -> None:
        """It is committed: notify observers."""
        if self._write is not None:
            self._execution.engine.wrote(self._write)

    def failure(self) -> Transacted:
        """Return why it was rolled back."""
        return Transacted(error=self._error, refused=self._refused)
