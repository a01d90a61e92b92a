"""All errors that users can meet, told apart by what the caller does next.

HoldfastError
├── UsageError                 the code is wrong: change it
│   ├── NotFound               no queue or schedule has this name
│   ├── NotSerializable        a value would not survive: change what the step takes or returns
│   └── ClassChanged           a stored value does not fit today's class: register an upgrade
├── StepFailed                 a step gave up: the flow may handle it
├── ChildFailed                a child run failed or was cancelled: the flow may handle it
├── WaitTimedOut               nothing came in time: the flow may handle it
├── Rejected                   a person said no: the flow may handle it
├── Rollback                   raised by a flow: undo what this run did
├── Drifted                    something outside is not as it was recorded: the flow may handle it
├── TurnLimitReached           a loop reached its limit
├── KeyConflict                a business key is taken by a call with other arguments
├── RunError                   one run; carries run_id
│   ├── RunNotFound            no such run
│   ├── RunConflict            this id belongs to a run with another input or flow
│   ├── RunBusy                a live process owns it
│   ├── RunHeld                it waits for a decision; carries reason and actions
│   ├── RunFailed              it failed; run it again to take it up
│   ├── RunCancelled           it was cancelled, and that is final
│   ├── RunRolledBack          what it did was undone, and that is final
│   ├── RunEnded               it has ended: nobody would read a signal or an answer
│   ├── RunDeleted             its journal was removed; the id is not given again
│   ├── AnswerConflict         somebody else has answered
│   ├── ConfirmationRequired   it concerns effects, and nobody said that this is meant
│   ├── LeaseLost              another owner took it over; nothing was written
│   └── StaleView              it changed since it was looked at: look again
└── StoreError                 the store as a whole
    ├── StoreUnusable          it cannot be opened as asked
    ├── StoreTooNew            written by a newer version
    ├── StoreFull              no space left: nothing recorded was lost
    ├── StoreFailed            an I/O error: this handle gives no more acknowledgements
    ├── StoreLostData          acknowledged commits are missing: effects wait for `accept_data_loss`
    └── Corrupt                stored bytes are damaged; says which
"""

from __future__ import annotations

from collections.abc import Sequence


class HoldfastError(Exception):
    """Base of everything that Holdfast raises on purpose."""


class UsageError(HoldfastError):
    """The calling code is wrong; the message says what to write instead."""


class NotFound(UsageError):
    """No queue or schedule has this name."""


class NotSerializable(UsageError):
    """A value would not survive being stored, so it was refused before it counted."""

    def __init__(self, path: str, why: str, *, whose: str = "") -> None:
        super().__init__(f"{whose and whose + ': '}{path}: {why}")
        self.path = path
        self.why = why


class ClassChanged(UsageError):
    """A stored value does not fit the class of its name as it is in this process. Nothing is damaged."""

    def __init__(
        self,
        class_name: str,
        stored: Sequence[str],
        today: Sequence[str] | None,
        why: str,
        *,
        run_id: str | None = None,
    ) -> None:
        where = f"run {run_id!r}: " if run_id is not None else ""
        now = "this process does not know it" if today is None else f"today it has {_listed(today)}"
        super().__init__(
            f"{where}a stored {class_name} does not fit today's class: it was stored with "
            f"{_listed(stored)}; {now} ({why})"
        )
        self.class_name = class_name
        self.stored = tuple(stored)
        """The fields that the stored value has; of an enum, its member."""
        self.today = None if today is None else tuple(today)
        """The fields, or members, that the class has now; None if this process does not know it."""
        self.why = why
        self.run_id = run_id

    def in_run(self, run_id: str) -> ClassChanged:
        """Return the same, naming the run that has the value."""
        return ClassChanged(self.class_name, self.stored, self.today, self.why, run_id=run_id)

    @property
    def remedy(self) -> str:
        """The line of code that makes the stored value readable."""
        if self.today is None:
            return f"import the module that defines it, or: holdfast.versioning.register_type({self.class_name})"
        return f"holdfast.versioning.register_type({self.class_name}, upgrade=…)"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return shown or "no fields"


class StepFailed(HoldfastError):
    """A step gave up; looks the same live and replayed."""

    def __init__(
        self,
        step: str,
        type_name: str,
        message: str,
        attempts: int,
        *,
        run_id: str | None = None,
        outcome_unknown: bool = False,
    ) -> None:
        tail = " (its outcome is unknown)" if outcome_unknown else ""
        tries = "attempt" if attempts == 1 else "attempts"
        super().__init__(f"{step} gave up after {attempts} {tries}: {type_name}: {message}{tail}")
        self.step = step
        self.type_name = type_name
        self.message = message
        self.attempts = attempts
        self.run_id = run_id
        self.outcome_unknown = outcome_unknown


class ChildFailed(HoldfastError):
    """A child run failed or was cancelled; looks the same live and replayed."""

    def __init__(self, run_id: str, status: str, type_name: str, message: str) -> None:
        what = f"failed: {type_name}: {message}"
        if status == "cancelled":  # The message says by whom, and why.
            what = message.removeprefix(f"run {run_id!r} ") or "was cancelled"
        super().__init__(f"child run {run_id!r} {what}")
        self.run_id = run_id
        self.status = status
        self.type_name = type_name
        self.message = message


class WaitTimedOut(HoldfastError, TimeoutError):
    """What was waited for did not come in time; looks the same live and replayed."""

    def __init__(self, step: str, what: str) -> None:
        super().__init__(f"{step}: {what} did not come in time")
        self.step = step
        self.what = what


class Rejected(HoldfastError):
    """A person refused what was asked; looks the same live and replayed."""

    def __init__(self, step: str, reason: str, actor: str) -> None:
        super().__init__(f"{step} was refused by {actor}{reason and ': ' + reason}")
        self.step = step
        self.reason = reason
        self.actor = actor


class Rollback(HoldfastError):
    """Raise it in a flow to undo what its run did; the caller of `run` gets `RunRolledBack`."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Drifted(HoldfastError):
    """Something is not as it was when the run recorded it, and the policy is "fail"."""

    def __init__(
        self, message: str, report: object = None, *, step: str = "", was: str = "", now: str = ""
    ) -> None:
        super().__init__(message)
        self.report = report
        self.step = step
        self.was = was
        self.now = now


class TurnLimitReached(HoldfastError):
    """A loop of turns reached its limit without ending."""

    def __init__(self, loop: str, limit: int) -> None:
        super().__init__(
            f"{loop} reached its limit of {limit} turns; raise max_turns= or end the loop"
        )
        self.loop = loop
        self.limit = limit


class KeyConflict(HoldfastError):
    """A business key is taken by a call that differs from this one, or was undone."""

    def __init__(self, effect: str, key: str, why: str, *, other_run: str | None = None) -> None:
        super().__init__(f"key {key!r} of {effect}: {why}")
        self.effect = effect
        self.key = key
        self.why = why
        self.other_run = other_run


class RunError(HoldfastError):
    """Something about one run."""

    def __init__(self, run_id: str, message: str) -> None:
        super().__init__(message)
        self.run_id = run_id


class RunNotFound(RunError):
    """No run has this id."""

    def __init__(self, run_id: str, where: str = "") -> None:
        super().__init__(run_id, f"there is no run {run_id!r}{where and ' in ' + where}")


class RunConflict(RunError):
    """The id belongs to a run with another input or another flow; nothing was changed."""

    def __init__(self, run_id: str, why: str, way: str = "") -> None:
        told = f"run {run_id!r} exists already {why}; nothing was changed"
        super().__init__(run_id, f"{told}{way and '; ' + way}")
        self.why = why


class RunBusy(RunError):
    """A live process owns the run."""

    def __init__(self, run_id: str, owner: str) -> None:
        super().__init__(run_id, f"run {run_id!r} is being executed by {owner}")
        self.owner = owner


class RunHeld(RunError):
    """The run waits for a decision, as one does too that failed where effects would be executed once
    more; or, with `unfit_version`, code of that version does not fit, and gave the run back to those of
    its own version."""

    def __init__(
        self,
        run_id: str,
        reason: str,
        detail: str,
        actions: Sequence[str] = (),
        step: str = "",
        unfit_version: str = "",
        *,
        failed: bool = False,
    ) -> None:
        became = (
            f"failed, and is not taken up again ({reason})" if failed else f"is held ({reason})"
        )
        if unfit_version:
            became = f"does not fit version {unfit_version}, and was released"
        lines = [f"run {run_id!r} {became}: {detail}"]
        lines += [f"  {action}" for action in actions]
        super().__init__(run_id, "\n".join(lines))
        self.reason = reason
        self.detail = detail
        self.actions = tuple(actions)
        self.step = step
        self.unfit_version = unfit_version


class RunFailed(RunError):
    """The run failed; `flow.run` with the same id takes it up again."""

    def __init__(self, run_id: str, type_name: str, message: str) -> None:
        super().__init__(run_id, f"run {run_id!r} failed: {type_name}: {message}")
        self.type_name = type_name
        self.message = message


class RunCancelled(RunError):
    """The run was cancelled; that is final."""

    def __init__(self, run_id: str, actor: str = "", reason: str = "") -> None:
        by = f" by {actor}" if actor else ""
        super().__init__(run_id, f"run {run_id!r} was cancelled{by}{reason and ': ' + reason}")
        self.actor = actor
        self.reason = reason


class RunRolledBack(RunError):
    """What the run did was undone; that is final."""

    def __init__(self, run_id: str, reason: str = "") -> None:
        super().__init__(run_id, f"run {run_id!r} was rolled back{reason and ': ' + reason}")
        self.reason = reason


class RunEnded(RunError):
    """The run has ended (or failed): a message to it would never be read, a wait for it never end."""

    def __init__(self, run_id: str, status: str, what: str, why: str = "") -> None:
        why = why or f"nobody would read {what}"
        super().__init__(run_id, f"run {run_id!r} is {status}: {why}")
        self.status = status
        self.what = what


class RunDeleted(RunError):
    """The run was removed; its id is kept, so that it is not born again."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            run_id, f"run {run_id!r} was deleted; its id is not given again: choose another"
        )


class AnswerConflict(RunError):
    """The question was answered before; the first answer counts."""

    def __init__(self, run_id: str, name: str, actor: str) -> None:
        super().__init__(run_id, f"{name} of run {run_id!r} was answered already by {actor}")
        self.name = name
        self.actor = actor


class ConfirmationRequired(RunError):
    """What was asked for concerns effects, and nobody has said that this is meant."""

    def __init__(self, run_id: str, what: str, effects: Sequence[str], ways: Sequence[str]) -> None:
        lines = [f"{what}:", *(f"  {effect}" for effect in effects)]
        lines += ["nothing was changed; if this is meant:", *(f"  {way}" for way in ways)]
        super().__init__(run_id, "\n".join(lines))
        self.what = what
        self.effects = tuple(effects)
        self.ways = tuple(ways)


class LeaseLost(RunError):
    """Another owner has the run now; what this process tried to write was refused."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            run_id, f"run {run_id!r} was taken over by another owner; nothing more is written here"
        )


class StaleView(RunError):
    """The run changed since it was looked at."""

    def __init__(self, run_id: str, why: str = "") -> None:
        super().__init__(
            run_id, why or f"run {run_id!r} changed meanwhile; look again, then decide"
        )


class StoreError(HoldfastError):
    """Something about the store as a whole."""

    unreachable = False
    """Whether only the way to it is broken: the same call may go through in a moment."""


class StoreUnusable(StoreError):
    """The store cannot be opened or used as asked; the message says why."""


class StoreTooNew(StoreError):
    """The store was written by a newer version of Holdfast."""


class StoreFull(StoreError):
    """No space left. Nothing recorded was lost."""


class StoreFailed(StoreError):
    """An I/O error: this handle acknowledges nothing any more; open the store again."""


class StoreLostData(StoreError):
    """The store lost acknowledged commits (an old copy, a lost tail): effects are blocked."""


class Corrupt(StoreError):
    """Stored bytes are damaged: of the store, or of an exported `file`."""

    def __init__(
        self, what: str, *, run_id: str | None = None, why: str = "", file: str | None = None
    ) -> None:
        where = f"run {run_id!r}: " if run_id is not None else ""
        place = "" if file is None else f". The damage is in the file {file}, and not in the store"
        super().__init__(f"{where}{what} is damaged{why and ': ' + why}{place}")
        self.what = what
        self.run_id = run_id
        self.why = why
        self.file = file
