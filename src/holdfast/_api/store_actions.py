"""Actions of operators, as methods of an opened store. Each is the declaration of an action, from which
the command, the HTTP route and the MCP tool are made, and is recorded with its actor."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holdfast._api.actions import action, says
from holdfast._engine.journal.fork_history import NOT_GIVEN
from holdfast._engine.scripts.doubt_policies import NOT_DONE, Done, Failed, NotDone
from holdfast._engine.values.durations import Duration
from holdfast._engine.values.masks import masked
from holdfast._engine.values.redactor import Redact
from holdfast._features.budgets.model import Budget
from holdfast._runtime.execution.frames import current_task
from holdfast._runtime.queues import Queue
from holdfast.errors import ConfirmationRequired, UsageError

if TYPE_CHECKING:
    from holdfast._engine.decisions.action_result import Answer
    from holdfast._engine.decisions.control import Stopped
    from holdfast._features.rollback.operator import RollbackPreview
    from holdfast._features.schedules.operator import ScheduleView
    from holdfast._operator.act.fork import Fork, ForkPreview
    from holdfast._operator.act.garbage_collection import Collected
    from holdfast._operator.act.message_actions import Answered, Sent
    from holdfast._operator.act.queue_admin import Resumed
    from holdfast._stores.contract import Store as Kept


# -- what parameters are ------------------------------------------------------------------------


NO_NUL = r"^[^\x00]*$"
"""Not every store can be asked for the character zero."""
Id = Annotated[str, Meta(min_length=1, max_length=1000, pattern=NO_NUL)]
Text = Annotated[str, Meta(max_length=1000, pattern=NO_NUL)]
SignalId = Annotated[str, Meta(min_length=1, max_length=200, pattern=NO_NUL)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
Few = Annotated[int, Meta(ge=1, le=10**9)]
Period = Text | Annotated[float, Meta(ge=0)]
RunId = Annotated[Id, says("The run.")]
LongText = Annotated[str, Meta(max_length=10_000)]
Reason = Annotated[LongText, says("Why, for those who read the journal.", "TEXT")]
Name = Annotated[Text, says("Its name, as `questions` shows it.")]
ExpectedNumber = Annotated[
    Number | None, says("Only if this is the number of the question now.", "NUMBER")
]


class OutcomeForm(msgspec.Struct, kw_only=True):
    """The outcome of an effect in doubt."""

    EXPECTED: ClassVar = "Done(result), NOT_DONE or Failed(reason)"

    outcome: Annotated[
        Literal["done", "not_done", "failed"],
        says(
            "`done`: it happened; `not_done`: it did not, and is executed; `failed`: it is "
            "given up, and the flow gets StepFailed."
        ),
    ]
    result: Annotated[Any, says("With `done`: the result, as JSON.")] = None
    reason: Annotated[LongText, says("With `failed`: why; the flow gets it.")] = ""
    confirm: Annotated[bool, says("Confirm `not_done`, which executes the effect.")] = False

    def value(self, _store: Any, given: Mapping[str, Any]) -> Done[Any] | NotDone | Failed:
        """Return the decision."""
        if self.outcome == "done":
            return Done(self.result)
        if self.outcome == "failed":
            return Failed(self.reason)
        if not self.confirm:
            why = f"settled as not done, this step of run {given['run_id']!r} is executed again"
            raise ConfirmationRequired(given["run_id"], why, [given["step"]], ())
        return NOT_DONE


class BudgetForm(msgspec.Struct, kw_only=True):
    """New limits, as a whole; those that are not given stay."""

    EXPECTED: ClassVar = "a holdfast.Budget(usd=…, …)"

    usd: Annotated[
        Annotated[float, Meta(ge=0, le=1e9)] | None, says("The new limit in dollars.", "DOLLARS")
    ] = None
    tokens: Annotated[Number | None, says("The new limit of tokens.", "NUMBER")] = None
    steps: Annotated[Number | None, says("The new limit of executed attempts.", "NUMBER")] = None
    wall: Annotated[Text | float | None, says("The new limit of time since it began.")] = None

    def value(self, _store: Any, _given: Mapping[str, Any]) -> Budget:
        """Return the new limits."""
        return Budget(usd=self.usd, tokens=self.tokens, steps=self.steps, wall=self.wall)


class QueueForm(msgspec.Struct, kw_only=True):
    """The limits of a queue. A limit that is not given stays; null removes it."""

    EXPECTED: ClassVar = "a holdfast.Queue(name, …)"

    name: Annotated[Id, says("The queue.", "QUEUE")]
    concurrency: Annotated[
        Few | UnsetType | None, says("Runs at work at one time, in all workers.", "N|none")
    ] = UNSET
    concurrency_per_key: Annotated[
        Few | UnsetType | None, says("The same for runs that share a limit key.", "N|none")
    ] = UNSET
    rate: Annotated[Few | UnsetType | None, says("Runs begun in any one `period`.", "N|none")] = (
        UNSET
    )
    rate_per_key: Annotated[
        Few | UnsetType | None, says("The same for runs that share a limit key.", "N|none")
    ] = UNSET
    period: Annotated[Period | UnsetType, says("The period of the rates; 1m at first.")] = UNSET
    paused: Annotated[bool | UnsetType, says("Whether workers take nothing from it.")] = UNSET

    def value(self, store: Any, _given: Mapping[str, Any]) -> Queue:
        """Return the queue with what it allows now, and these changes."""
        from holdfast._operator.read import queue_views

        given = {name: getattr(self, name) for name in self.__struct_fields__}
        now = queue_views.limit_fields(queue_views.limits_of(store._backend, self.name))
        now["period"] = now.pop("period_s")
        return Queue(**now | {name: it for name, it in given.items() if it is not UNSET})


# -- the actions -------------------------------------------------------------------------------


class Acting:
    """The part of `Store` that changes what becomes of runs; with a backend alone, for those who
    execute nothing."""

    def __init__(self, backend: Kept) -> None:
        self._backend = backend

    def _redactor(self) -> Redact | None:
        """Return what redacts new inputs, if this process has it."""
        return None

    def _takes_up(self, _run_id: str) -> bool:
        """Execute a run, if this process has its flow; return whether it did."""
        return False

    # -- what is in doubt ----------------------------------------------------------------------

    @action("operator")
    def settle(
        self,
        run_id: RunId,
        step: Annotated[Text, says("Its step key, as `explain` shows it.")],
        decision: Annotated[Done[Any] | NotDone | Failed, OutcomeForm],
        *,
        actor: str,
        expected_version: str | None = None,
    ) -> Answer:
        """Settle an effect that is in doubt.

        `decision` is Done(result), NOT_DONE or Failed(reason). In a web app `actor` is the user who
        is logged in. With `expected_version`, here and below, the decision is refused (StaleView) if
        the run has another version by now: the `etag` of `store.get(run_id)`.
        """
        from holdfast._operator.act import run_decisions

        return run_decisions.settle(
            self._backend, run_id, step, decision, actor=actor, expected_version=expected_version
        )

    # -- going on and stopping -----------------------------------------------------------------

    @action("operator")
    def resume(
        self,
        run_id: RunId,
        *,
        actor: str | None = None,
        accept_change: Annotated[bool, says("Go on with code that was changed meanwhile.")] = False,
        confirm: Annotated[
            bool,
            says(
                "Confirm what concerns effects: execute again one that may have happened; "
                "with `accept_change`, leave out one that has happened, or execute a new one before it."
            ),
        ] = False,
        drift: Annotated[
            Literal["keep", "redo"] | None,
            says(
                "Held for drift: `keep` the recorded results, or `redo` what the change "
                "concerns, and the rest."
            ),
        ] = None,
        expected_version: str | None = None,
    ) -> Answer:
        """Resume a failed or held run."""
        from holdfast._operator.act import run_decisions

        return run_decisions.resume(
            self._backend,
            run_id,
            actor=actor_or_user(actor),
            accept_change=accept_change,
            confirm=confirm,
            drift=drift,
            expected_version=expected_version,
        )

    @action("operator")
    def resume_all(
        self,
        *,
        queue: Annotated[Text | None, says("Only of this queue.")] = None,
        flow: Annotated[Text | None, says("Only of this flow.")] = None,
        held_reason: Annotated[
            Literal["quarantined", "diverged"] | None,
            says("Those that are held for it, instead of the failed ones."),
        ] = None,
        accept_change: Annotated[
            bool, says("Let diverged runs go on with the changed code.")
        ] = False,
        actor: str | None = None,
    ) -> list[Resumed]:
        """Resume all failed runs, or all that are quarantined or diverged.

        `held_reason="diverged"` is for those of one flow, once its old code is back or the new one
        is repaired: they are replayed once more. Returns the outcome of each; the error of one does
        not stop the others.
        """
        from holdfast._operator.act import queue_admin

        many = queue_admin.Many(queue, held_reason or "failed", flow, accept_change)
        return list(queue_admin.resume_all(self._backend, many, actor_or_user(actor)))

    @action("operator")
    def pause(
        self,
        run_id: RunId,
        *,
        actor: str | None = None,
        reason: Reason = "",
        wait_s: float = 10.0,
        expected_version: str | None = None,
    ) -> Stopped:
        """Hold a run until somebody resumes it.

        What is executing now comes to its end. A process that has the run is waited for, `wait_s`.
        """
        from holdfast._operator.act import cancellation

        _check_loop("pause", run_id, wait_s)
        return cancellation.pause(
            self._backend,
            run_id,
            actor=actor_or_user(actor),
            reason=masked(reason),
            wait_s=wait_s,
            expected_version=expected_version,
        )

    @action("operator")
    def cancel(
        self,
        run_id: RunId,
        *,
        actor: str | None = None,
        reason: Reason = "",
        wait_s: float = 10.0,
        expected_version: str | None = None,
    ) -> Stopped:
        """Cancel a run, and its children with it.

        The answer is the truth: "cancelled", "finished" before, or "pending", with what stands
        against it. A process that has the run is waited for, `wait_s`.
        """
        from holdfast._operator.act import cancellation

        _check_loop("cancel", run_id, wait_s)
        return cancellation.cancel(
            self._backend,
            run_id,
            actor=actor_or_user(actor),
            reason=masked(reason),
            wait_s=wait_s,
            expected_version=expected_version,
        )

    # -- messages ------------------------------------------------------------------------------

    @action("operator", is_message=True)
    def signal(
        self,
        run_id: RunId,
        name: Annotated[Text, says("The name that the run waits for.")],
        value: Annotated[Any, says("What the run receives, as JSON.")] = None,
        *,
        signal_id: Annotated[
            SignalId | None, says("Sent again under this id, it is delivered once.", "ID")
        ] = None,
        actor: str | None = None,
        expected_version: str | None = None,
    ) -> Sent:
        """Send a signal to a run.

        The run takes it with `wait_for_signal(name)`. One that comes early is kept.
        """
        from holdfast._operator.act import message_actions

        return message_actions.signal(
            self._backend,
            run_id,
            name,
            value,
            signal_id=signal_id,
            actor=actor_or_user(actor),
            expected_version=expected_version,
        )

    @action("operator", is_message=True)
    def answer(
        self,
        run_id: RunId,
        name: Name,
        value: Annotated[Any, says("JSON that fits its schema or choices.")],
        *,
        actor: str,
        expected_number: ExpectedNumber = None,
        expected_version: str | None = None,
    ) -> Answered:
        """Answer a question of a run.

        It is kept, if the run has not asked yet. The first answer counts: a second one raises
        AnswerConflict.
        """
        from holdfast._operator.act import message_actions

        return message_actions.answer(
            self._backend,
            run_id,
            name,
            value,
            actor=actor,
            expected_number=expected_number,
            expected_version=expected_version,
        )

    @action("operator", is_message=True)
    def reject(
        self,
        run_id: RunId,
        name: Annotated[Text, says("The name of the question, or the step of the approval.")],
        *,
        reason: Annotated[LongText, says("Why; the flow gets it with Rejected.", "TEXT")] = "",
        actor: str,
        expected_number: ExpectedNumber = None,
        expected_version: str | None = None,
    ) -> Answered:
        """Reject a question or an approval.

        The flow gets Rejected.
        """
        from holdfast._operator.act import message_actions

        return message_actions.reject(
            self._backend,
            run_id,
            name,
            reason=masked(reason),
            actor=actor,
            expected_number=expected_number,
            expected_version=expected_version,
        )

    @action("operator", seen=("digest",), is_message=True)
    def approve(
        self,
        run_id: RunId,
        step: Annotated[Text, says("The step of the approval.")],
        *,
        digest: Annotated[
            Text | None, says("Only if this is the digest of the arguments.", "HEX")
        ] = None,
        actor: str,
        expected_number: ExpectedNumber = None,
        expected_version: str | None = None,
    ) -> Answered:
        """Approve one call of an effect.

        It is approved once, with exactly the arguments that are stored. Raises StaleView if `digest`
        is of other arguments.
        """
        from holdfast._operator.act import message_actions

        return message_actions.approve(
            self._backend,
            run_id,
            step,
            digest=digest,
            actor=actor,
            expected_number=expected_number,
            expected_version=expected_version,
        )

    # -- budgets -------------------------------------------------------------------------------

    @action("operator")
    def set_budget(
        self,
        run_id: RunId,
        budget: Annotated[Budget, BudgetForm],
        *,
        actor: str | None = None,
        expected_version: str | None = None,
    ) -> Answer:
        """Set new limits of a run's budget.

        The budget is that of its root. Limits that `budget` does not give stay. Runs that were held
        for it go on.
        """
        from holdfast._features.budgets.operator import set_budget

        return set_budget(
            self._backend,
            run_id,
            budget,
            actor=actor_or_user(actor),
            expected_version=expected_version,
        )

    # -- going back ----------------------------------------------------------------------------

    @action("operator")
    def rollback(
        self,
        run_id: RunId,
        *,
        actor: str | None = None,
        reason: Reason = "",
        to: Annotated[
            Text | None, says("Only what came after this step, which stays.", "STEP")
        ] = None,
        confirm: Annotated[
            bool,
            says("Confirm that effects which cannot be undone stay as they are."),
        ] = False,
        wait_s: float = 10.0,
        expected_version: str | None = None,
    ) -> Answer:
        """Undo a run's effects, the last one first.

        Performed here if this process has the flow, else by one that has. What has no undo must be
        confirmed, else this raises ConfirmationRequired.
        """
        from holdfast._operator.act import run_rollback

        answer = run_rollback.rollback(
            self._backend,
            run_id,
            actor=actor_or_user(actor),
            reason=masked(reason),
            to=to,
            confirm=confirm,
            wait_s=wait_s,
            expected_version=expected_version,
        )
        if answer.goes_on and self._takes_up(run_id):
            return run_rollback.told_now(self._backend, run_id)
        return answer

    def preview_rollback(self, run_id: str, *, to: str | None = None) -> RollbackPreview:
        """Return the effects that a rollback would undo, in order, and those that it would leave."""
        from holdfast._features.rollback.operator import preview_rollback

        return preview_rollback(self._backend, run_id, to)

    @action("operator")
    def fork(
        self,
        run_id: RunId,
        new_run_id: Annotated[Text, says("The id of the new run.")],
        *,
        before: Annotated[Text, says("The first call that is made anew.", "STEP")],
        input: Annotated[
            Mapping[str, Any] | None, says("An object: these inputs are others.", "JSON")
        ] = None,
        state: Annotated[
            Any, says("The state with which the turn of that step begins.", "JSON")
        ] = NOT_GIVEN,
        results: Annotated[
            Mapping[str, Any] | None,
            says("By step key, what these steps gave instead."),
        ] = None,
        actor: str | None = None,
        confirm: Annotated[bool, says("Confirm that effects may be executed again.")] = False,
        expected_version: str | None = None,
    ) -> Fork:
        """Start a new run from a step of another run.

        Outcomes from before that step come along. Raises ConfirmationRequired if effects would be
        executed again, unless `confirm` says so.
        """
        from holdfast._operator.act import fork

        return fork.fork(
            self._backend,
            run_id,
            new_run_id,
            before=before,
            input=input,
            state=state,
            results=results,
            actor=actor_or_user(actor),
            confirm=confirm,
            redact=self._redactor(),
            expected_version=expected_version,
        )

    def preview_fork(
        self, run_id: str, *, before: str, results: Mapping[str, Any] | None = None
    ) -> ForkPreview:
        """Return the effects that a fork from before the step `before` may execute again; with `results`,
        of a fork that is given these outcomes. Nothing is written."""
        from holdfast._operator.act import fork

        return fork.preview_fork(
            self._backend,
            run_id,
            before=before,
            results=results,
            actor=actor_or_user(None),
        )

    # -- schedules and queues ------------------------------------------------------------------

    @action("operator")
    def pause_schedule(
        self, name: Annotated[Id, says("The schedule.")], *, actor: str | None = None
    ) -> ScheduleView:
        """Pause a schedule: it starts no more runs."""
        from holdfast._features.schedules import operator as schedule_admin

        who = actor_or_user(actor)
        return schedule_admin.set_schedule(self._backend, name, paused=True, actor=who)

    @action("operator")
    def resume_schedule(
        self, name: Annotated[Id, says("The schedule.")], *, actor: str | None = None
    ) -> ScheduleView:
        """Resume a schedule; its catch-up decides about missed times."""
        from holdfast._features.schedules import operator as schedule_admin

        who = actor_or_user(actor)
        return schedule_admin.set_schedule(self._backend, name, paused=False, actor=who)

    @action("admin")
    def pause_queue(
        self, name: Annotated[Id, says("The queue.", "QUEUE")], *, actor: str | None = None
    ) -> None:
        """Pause a queue: workers take no more runs from it."""
        from holdfast._operator.act import queue_admin

        queue_admin.set_paused(self._backend, name, paused=True, actor=actor_or_user(actor))

    @action("admin")
    def resume_queue(
        self, name: Annotated[Id, says("The queue.", "QUEUE")], *, actor: str | None = None
    ) -> None:
        """Resume a queue: workers take runs from it again."""
        from holdfast._operator.act import queue_admin

        queue_admin.set_paused(self._backend, name, paused=False, actor=actor_or_user(actor))

    @action("admin")
    def set_queue(self, queue: Annotated[Queue, QueueForm], *, actor: str | None = None) -> None:
        """Set limits of a queue, for every worker at once.

        From Python, the limits that `queue` does not give are taken away.
        """
        from holdfast._operator.act import queue_admin

        queue_admin.set_limits(self._backend, queue.limits, actor_or_user(actor))

    # -- the store -----------------------------------------------------------------------------

    @action("admin", only_local="it is decided where the files of the store can be looked at")
    def accept_data_loss(self, *, actor: str | None = None) -> str:
        """Accept that the store lost commits.

        Effects are unblocked by it. Returns what was accepted.
        """
        from holdfast._stores import audit_log

        who = actor_or_user(actor)
        accepted = self._backend.accept_data_loss(who)
        audit_log.record(self._backend, who, "store", "accepted", lost=accepted)
        return accepted

    @action("admin", only_local="it takes long, and workers do it by themselves")
    def prune(
        self,
        *,
        older_than: Annotated[
            Duration | None,
            says(
                "How long ago they ended, such as 30d. Without it: as long as their flow keeps them "
                "(`@flow(retention=…)`); flows without a retention keep all."
            ),
        ] = None,
        flow: Annotated[
            Text | None, says("Only runs of this flow, with their children.", "NAME")
        ] = None,
        status: Annotated[
            str | Collection[str] | None,
            says("completed, cancelled, rolled_back (together the default), or failed."),
        ] = None,
        dry_run: Annotated[bool, says("List what would be removed, and remove nothing.")] = False,
        trends_retention: Annotated[
            Duration | None,
            says("How long the measures of `holdfast trends` are kept. Default: 14d."),
        ] = None,
    ) -> Collected:
        """Remove ended runs whose retention is over.

        These are runs that ended longer ago than `older_than`, or than their flow's retention. Failed ones only if `status` names them. Their ids are not given again. Measures (`holdfast
        trends`) are kept for 14 days, or as long as `trends_retention` says.
        """
        from holdfast._operator.act import garbage_collection

        return garbage_collection.collect(
            self._backend,
            older_than=older_than,
            flow=flow,
            status=status,
            dry_run=dry_run,
            trends_retention=trends_retention,
        )


def refuse_in_a_loop(what: str, run_id: str, instead: str) -> None:
    """Raise a UsageError in an event loop, which a blocking call would stop."""
    if current_task() is not None:
        raise UsageError(
            f"{what} of run {run_id!r} blocks, and this is an event loop; write `{instead}`"
        )


def _check_loop(name: str, run_id: str, wait_s: float) -> None:
    """The run may be a task of this very event loop, and would never come to its end."""
    if wait_s != 0:
        instead = f"await asyncio.to_thread(store.{name}, …)`, or `wait_s=0"
        refuse_in_a_loop(f"store.{name}(…)", run_id, instead)


def actor_or_user(actor: str | None) -> str:
    """Return the given actor, or the user of this process."""
    if actor is not None:
        from holdfast._engine.decisions.action_result import check_actor

        check_actor(actor)
        return actor
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid {os.getuid()}"
