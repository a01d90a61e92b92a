"""What people decide, as methods of an opened store. Each is an entry with its actor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from holdfast._api import handle
from holdfast._engine.journal.fork_history import NOT_GIVEN
from holdfast._engine.scripts.doubt_policies import Done, Failed, NotDone
from holdfast._engine.values.masks import masked
from holdfast._features.budgets.model import Budget
from holdfast._runtime.execution.frames import current_task
from holdfast._runtime.queues import Queue
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._engine.decisions.control import Stopped
    from holdfast._operator.act.action_result import Answer
    from holdfast._operator.act.fork import Fork, ForkPreview
    from holdfast._operator.act.message_actions import Answered, Sent
    from holdfast._operator.act.queue_admin import Resumed
    from holdfast._operator.act.run_rollback import RollbackPreview
    from holdfast._operator.act.schedule_admin import ScheduleView
    from holdfast._runtime.engine import Engine
    from holdfast._stores.contract import Store as Kept


class Acting:
    """The part of `Store` that changes what becomes of runs."""

    if TYPE_CHECKING:
        _backend: Kept
        _engine: Engine

    def settle(
        self,
        run_id: str,
        step: str,
        decision: Done[Any] | NotDone | Failed,
        *,
        actor: str,
    ) -> Answer:
        """Settle an effect in doubt: Done(value), NOT_DONE or Failed(reason), as `actor` decides. In a web
        app that is the user who is logged in."""
        from holdfast._operator.act import run_decisions

        return run_decisions.settle(self._backend, run_id, step, decision, actor=actor)

    def signal(
        self,
        run_id: str,
        name: str,
        value: Any = None,
        *,
        signal_id: str | None = None,
        actor: str | None = None,
    ) -> Sent:
        """Send a signal to a run, which takes it with `wait_for_signal(name)`; kept if it comes early. One with
        a `signal_id` that was sent before is acknowledged, and not delivered again."""
        from holdfast._operator.act import message_actions

        return message_actions.signal(
            self._backend, run_id, name, value, signal_id=signal_id, actor=actor_or_user(actor)
        )

    def cancel(
        self, run_id: str, *, actor: str | None = None, reason: str = "", wait_s: float = 10.0
    ) -> Stopped:
        """Cancel a run and its children. The answer is the truth: "cancelled", "finished" before, or
        "pending", with what stands against it. A process that has the run is waited for a while."""
        _refuse_in_a_loop("cancel", run_id, wait_s)
        return _cancel(self._backend, run_id, actor, masked(reason), wait_s)

    def pause(
        self, run_id: str, *, actor: str | None = None, reason: str = "", wait_s: float = 10.0
    ) -> Stopped:
        """Hold a run until somebody resumes it; what is executing now comes to its end."""
        from holdfast._operator.act import cancellation

        _refuse_in_a_loop("pause", run_id, wait_s)
        who = actor_or_user(actor)
        return cancellation.pause(
            self._backend, run_id, actor=who, reason=masked(reason), wait_s=wait_s
        )

    def answer(
        self,
        run_id: str,
        name: str,
        value: Any,
        *,
        actor: str,
        expected_number: int | None = None,
    ) -> Answered:
        """Answer a question of a run; kept, if the run has not asked yet. The first answer counts: a
        second one raises AnswerConflict. `expected_number` is that of the question that was seen."""
        from holdfast._operator.act import message_actions

        return message_actions.answer(
            self._backend, run_id, name, value, actor=actor, expected_number=expected_number
        )

    def reject(
        self,
        run_id: str,
        name: str,
        *,
        reason: str = "",
        actor: str,
        expected_number: int | None = None,
    ) -> Answered:
        """Refuse what a run asks, by the name of the question or the step of an approval: the flow
        gets `Rejected`."""
        from holdfast._operator.act import message_actions

        return message_actions.reject(
            self._backend,
            run_id,
            name,
            reason=masked(reason),
            actor=actor,
            expected_number=expected_number,
        )

    def approve(self, run_id: str, step: str, *, digest: str | None = None, actor: str) -> Answered:
        """Approve one call of an effect with the arguments that are stored now: once. With `digest`,
        only if they are the ones that were shown, else StaleView."""
        from holdfast._operator.act import message_actions

        return message_actions.approve(self._backend, run_id, step, digest=digest, actor=actor)

    def resume(
        self,
        run_id: str,
        *,
        actor: str | None = None,
        accept_change: bool = False,
        confirm: bool = False,
        drift: Literal["keep", "redo"] | None = None,
    ) -> Answer:
        """Record the decision to take a failed or held run up again. `drift` says how one goes on
        that is held for what changed outside: with what is recorded, or by doing it again."""
        from holdfast._operator.act import run_decisions

        return run_decisions.resume(
            self._backend,
            run_id,
            actor=actor_or_user(actor),
            accept_change=accept_change,
            confirm=confirm,
            drift=drift,
        )

    def fork(
        self,
        run_id: str,
        new_run_id: str,
        *,
        before: str,
        input: Mapping[str, Any] | None = None,
        state: Any = NOT_GIVEN,
        results: Mapping[str, Any] | None = None,
        actor: str | None = None,
        confirm: bool = False,
    ) -> Fork:
        """Make a new run of an old one, which goes on from before the step `before`.

        Outcomes from before that step come along. `input` changes parts of the input, `results`
        outcomes by step key, `state` the state with which the turn begins that `before` is in.
        Raises ConfirmationRequired if effects would be executed again, unless `confirm` says so.
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
            redact=self._engine.redact,
        )

    def preview_fork(
        self, run_id: str, *, before: str, results: Mapping[str, Any] | None = None
    ) -> ForkPreview:
        """Say which effects a fork from before the step `before` may execute again; with `results`,
        of a fork that is given these outcomes. Nothing is written."""
        from holdfast._operator.act import fork

        return fork.preview_fork(
            self._backend,
            run_id,
            "preview",
            before=before,
            results=results,
            actor=actor_or_user(None),
        )

    def rollback(
        self,
        run_id: str,
        *,
        actor: str | None = None,
        reason: str = "",
        to: str | None = None,
        confirm: bool = False,
    ) -> Answer:
        """Undo what a run did: all of it, or what came after the step `to`. Performed here if this
        process has the flow, else by one that has. What has no undo must be confirmed."""
        from holdfast._operator.act import run_rollback
        from holdfast._runtime.worker.recovery_pass import take_up

        answer = run_rollback.rollback(
            self._backend,
            run_id,
            actor=actor_or_user(actor),
            reason=masked(reason),
            to=to,
            confirm=confirm,
        )
        if answer.goes_on and take_up(self._engine, run_id):
            return run_rollback.told_now(self._backend, run_id)
        return answer

    def preview_rollback(self, run_id: str, *, to: str | None = None) -> RollbackPreview:
        """Say what a rollback would undo, in which order, and what it would leave as it is."""
        from holdfast._operator.act import run_rollback

        return run_rollback.preview_rollback(self._backend, run_id, to)

    def resume_all(
        self,
        *,
        queue: str | None = None,
        flow: str | None = None,
        held_reason: Literal["quarantined", "diverged"] | None = None,
        accept_change: bool = False,
        actor: str | None = None,
    ) -> list[Resumed]:
        """Resume all failed runs of a queue or a flow, or of all; with `held_reason`, the runs that
        are held for it instead.

        `held_reason="diverged"` is for those of one flow, once its old code is back or the new one
        is repaired: they are replayed once more. `accept_change=True` goes on with the changed code.
        Returns the outcome of each; the error of one does not stop the others.
        """
        from holdfast._operator.act import queue_admin

        many = queue_admin.Many(queue, held_reason or "failed", flow, accept_change)
        return list(queue_admin.resume_all(self._backend, many, actor_or_user(actor)))

    def set_budget(self, run_id: str, budget: Budget, *, actor: str | None = None) -> Answer:
        """Set new limits of the budget that a run spends from, which is that of its root; limits
        that `budget` does not give stay. Runs that were held for it go on."""
        from holdfast._operator.act import budget_limits

        return budget_limits.set_budget(self._backend, run_id, budget, actor=actor_or_user(actor))

    def pause_schedule(self, name: str, *, actor: str | None = None) -> ScheduleView:
        """Pause a schedule: it starts no runs until it is resumed."""
        from holdfast._operator.act import schedule_admin

        return schedule_admin.set_schedule(
            self._backend, name, paused=True, actor=actor_or_user(actor)
        )

    def resume_schedule(self, name: str, *, actor: str | None = None) -> ScheduleView:
        """Resume a paused schedule; its `catch_up` says which of the missed runs are started."""
        from holdfast._operator.act import schedule_admin

        return schedule_admin.set_schedule(
            self._backend, name, paused=False, actor=actor_or_user(actor)
        )

    def pause_queue(self, name: str, *, actor: str | None = None) -> None:
        """Pause a queue: workers take no runs of it until it is resumed. Its limits stay."""
        from holdfast._operator.act import queue_admin

        queue_admin.set_paused(self._backend, name, paused=True, actor=actor_or_user(actor))

    def resume_queue(self, name: str, *, actor: str | None = None) -> None:
        """Resume a paused queue, with the limits that it had."""
        from holdfast._operator.act import queue_admin

        queue_admin.set_paused(self._backend, name, paused=False, actor=actor_or_user(actor))

    def set_queue(self, queue: Queue, *, actor: str | None = None) -> None:
        """Set the limits of a queue; they hold at once, for every worker of this store."""
        if not isinstance(queue, Queue):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"store.set_queue({queue!r}): a holdfast.Queue")
        from holdfast._operator.act import queue_admin

        queue_admin.set_limits(self._backend, queue.limits, actor_or_user(actor))


def _cancel(kept: Kept, run_id: str, actor: str | None, reason: str, wait_s: float) -> Stopped:
    from holdfast._operator.act import cancellation

    who = actor_or_user(actor)
    return cancellation.cancel(kept, run_id, actor=who, reason=reason, wait_s=wait_s)


handle.canceller[:] = [_cancel]


def _refuse_in_a_loop(name: str, run_id: str, wait_s: float) -> None:
    """The run may be a task of this very event loop, and would never come to its end."""
    if wait_s > 0 and current_task() is not None:
        raise UsageError(
            f"store.{name}({run_id!r}) waits for the process that has the run, and this is an event "
            f"loop; write `await asyncio.to_thread(store.{name}, …)`, or give wait_s=0"
        )


def actor_or_user(actor: str | None) -> str:
    """Return who decides: the one who is named, or the user of this process."""
    if actor is not None:
        from holdfast._operator.act.action_result import check_actor

        check_actor(actor)
        return actor
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
