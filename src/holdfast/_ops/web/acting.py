"""POST: what people decide. Every route is an action of `_ops`, with its actor and the address that
it came from; the checks of the action are the checks of the command line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

from holdfast._core.budgets import Budget
from holdfast._core.control import Stopped
from holdfast._core.effects import NOT_DONE, Done, Failed
from holdfast._core.lifecycle import CLAIMABLE, Status
from holdfast._core.resume import outcome_is_unknown
from holdfast._core.superseding import superseded_by_resume
from holdfast._ops import (
    actions,
    budgets,
    control,
    fork as forks,
    four_eyes,
    inspect,
    people,
    queues,
    rollback as rollbacks,
    schedules,
    signals,
)
from holdfast._ops.expected import expected
from holdfast._ops.seen import as_seen
from holdfast._ops.text import visible
from holdfast._ops.tokens import Role
from holdfast._ops.web import replies, requests
from holdfast._ops.web.answers import Problem
from holdfast._ops.web.routes import API, Ask, Route
from holdfast._store.contract import Store
from holdfast.errors import ConfirmationRequired, Corrupt, RunHeld, UsageError

WAIT_S = 3.0
"""How long a request waits for the process that has the run; then it says that it was asked."""

logger = logging.getLogger("holdfast.web")


# -- a run -------------------------------------------------------------------------------------


def resume(ask: Ask) -> replies.Acted:
    """Take up a run that failed or is held."""
    asked: requests.Resume = ask.body
    try:
        told = actions.resume(
            _seen(ask),
            ask.query.id,
            actor=ask.actor,
            accept_change=asked.accept_change,
            confirm=asked.confirm,
            drift=asked.drift,
        )
    except RunHeld as held:
        effects = [] if asked.confirm else _unknown(ask.store, ask.query.id)
        if effects:
            raise ConfirmationRequired(
                ask.query.id, "these may have happened, and are executed again", effects, ()
            ) from held
        raise
    return _acted(told)


def _unknown(store: Store, run_id: str) -> list[str]:
    """Return the effects of a failed run that may have happened and that a resume would repeat."""
    row = inspect.found(store, run_id)
    if row.status is not Status.FAILED:
        return []
    past = inspect.fold(store, row)
    return [record.key for record in superseded_by_resume(past) if outcome_is_unknown(record)]


def pause(ask: Ask) -> replies.Acted:
    """Hold a run until somebody resumes it."""
    told = control.pause(
        _seen(ask), ask.query.id, actor=ask.actor, reason=ask.body.reason, wait_s=WAIT_S
    )
    return _stopped(told)


def cancel(ask: Ask) -> replies.Acted:
    """Cancel a run, and its children with it."""
    told = control.cancel(
        _seen(ask), ask.query.id, actor=ask.actor, reason=ask.body.reason, wait_s=WAIT_S
    )
    return _stopped(told)


def settle(ask: Ask) -> replies.Acted:
    """Settle an effect that is in doubt."""
    asked: requests.Settle = ask.body
    decision: actions.Decision = Done(asked.result)
    if asked.as_ == "fail":
        decision = Failed(asked.reason)
    elif asked.as_ == "not_done":
        decision = NOT_DONE
        if not asked.confirm:
            inspect.found(_seen(ask), ask.query.id)
            raise ConfirmationRequired(
                ask.query.id,
                "settled as not done, it is executed again",
                [asked.step],
                ['send "confirm": true'],
            )
    return _acted(actions.settle(_seen(ask), ask.query.id, asked.step, decision, actor=ask.actor))


def rollback(ask: Ask) -> replies.Acted:
    """Undo what a run did, or what came after a step."""
    asked: requests.Rollback = ask.body
    store = _seen(ask)
    plan = rollbacks.plan(store, ask.query.id, asked.to)
    if plan.confirm and not asked.confirm:
        stays = [f"{it.step} ({it.means})" for it in plan.effects if it.fate != "undo"]
        raise ConfirmationRequired(
            ask.query.id,
            "what cannot be undone, or might be undone twice, stays as it is",
            stays or [plan.elsewhere],
            ['send "confirm": true'],
        )
    told = rollbacks.rollback(
        store,
        ask.query.id,
        actor=ask.actor,
        reason=asked.reason,
        to=asked.to,
        confirm=asked.confirm,
        wait_s=WAIT_S,
    )
    return _acted(told)


def fork(ask: Ask) -> replies.Forked:
    """Make a new run of an old one, from before a step."""
    asked: requests.Fork = ask.body
    made = forks.fork(
        _seen(ask),
        ask.query.id,
        asked.new_run_id,
        before=asked.before,
        input=asked.input,
        actor=ask.actor,
        confirm=asked.confirm,
    )
    did = f"run {made.run_id!r} goes on from run {made.origin!r} before {made.before}"
    return replies.Forked(
        run_id=made.run_id,
        did=did,
        origin=made.origin,
        before=made.before,
        repeats=made.repeats,
        created=made.created,
        input_checked=None if asked.input is None else False,
    )


def raise_budget(ask: Ask) -> replies.Acted:
    """Set new limits of a run's budget."""
    asked: requests.RaiseBudget = ask.body
    to = Budget(usd=asked.usd, tokens=asked.tokens, steps=asked.steps, wall=asked.wall)
    return _acted(budgets.raise_budget(_seen(ask), ask.query.id, to, actor=ask.actor))


def signal(ask: Ask) -> replies.Acted:
    """Send a signal to a run."""
    asked: requests.Signal = ask.body
    store = _seen(ask)
    row = inspect.found(store, ask.query.id)
    awaits = row.status in CLAIMABLE and _awaits(store, row.run_id, asked.name)
    sent = signals.signal(
        store,
        ask.query.id,
        asked.name,
        asked.value,
        signal_id=asked.signal_id,
        actor=ask.actor,
    )
    did = f"signal {sent.name!r} is sent to run {sent.run_id!r}"
    if not sent.new:
        did = f"signal {sent.id!r} was sent to run {sent.run_id!r} before, and is not sent again"
    return replies.Acted(
        run_id=sent.run_id,
        status=str(row.status),
        did=did,
        recorded=sent.new,
        goes_on=awaits and (sent.new or signals.is_kept(store, row, asked.name)),
    )


def _awaits(store: Store, run_id: str, name: str) -> bool:
    """Say whether a run waits for a signal of this name; of a damaged one that is not known."""
    try:
        return ("signal", name) in expected(store, run_id)
    except Corrupt:
        return False


# -- what a run asks ---------------------------------------------------------------------------


def answer(ask: Ask) -> replies.Acted:
    """Answer a question of a run."""
    asked: requests.Answer = ask.body
    return _answered(ask, people.answer, asked.answer)


def refuse(ask: Ask) -> replies.Acted:
    """Refuse what a run asks."""
    asked: requests.Refuse = ask.body
    return _answered(ask, people.refuse, reason=asked.reason)


def approve(ask: Ask) -> replies.Acted:
    """Approve one call of an effect, with exactly the arguments that were shown."""
    asked: requests.Approve = ask.body
    if ask.site.four_eyes is not None:
        _check_four_eyes(ask, ask.site.four_eyes)
    return _answered(ask, people.approve, digest=asked.digest)


def _check_four_eyes(ask: Ask, tag: str) -> None:
    """Refuse an approval by whoever started or forked the run, or one that it came from; and if it is
    not known who started it."""
    row = inspect.found(ask.store, ask.query.id)
    starters = four_eyes.starters(ask.store, row, tag)
    if not starters:
        why = f"this run does not say who started it (tag {tag!r}), so nobody can be the second"
        raise Problem(403, "FourEyes", why)
    if ask.visitor.token.name in starters | four_eyes.forkers(ask.store, row):
        why = "who started or forked a run, or one that it came from, does not approve what it asks"
        raise Problem(403, "FourEyes", why)


# -- what holds for many runs ------------------------------------------------------------------


def queue(ask: Ask) -> replies.QueueTold:
    """Change what a queue allows."""
    asked: requests.QueueLimits = ask.body
    name = ask.query.name
    changes: dict[str, Any] = {
        field: value
        for field in ("concurrency", "per_key", "rate", "per_key_rate", "paused")
        if (value := getattr(asked, field)) is not UNSET
    }
    if asked.per_s is not UNSET:
        changes["period_us"] = max(1, int(asked.per_s * 1_000_000))
    limits = queues.limits_of(ask.store, name)
    if changes:
        queues.set_limits(ask.store, msgspec.structs.replace(limits, **changes), ask.actor)
    logger.info("queue %s: %s, by %s", visible(name), changes, ask.actor)
    found = [it for it in queues.queues(ask.store) if it.name == name]
    if not found:
        raise UsageError(f"there is no queue {name!r}")
    return replies.QueueTold(queue=found[0])


def schedule(ask: Ask) -> replies.ScheduleTold:
    """Pause a schedule, or let it go on."""
    paused: bool = ask.body.paused
    found = schedules.set_schedule(ask.store, ask.query.name, paused=paused, actor=ask.actor)
    logger.info("schedule %s: paused=%s, by %s", visible(found.name), paused, ask.actor)
    return replies.ScheduleTold(schedule=found)


# -- pieces ------------------------------------------------------------------------------------


def _seen(ask: Ask) -> Store:
    return as_seen(ask.store, ask.query.id, ask.seen)


def _acted(told: actions.Answer) -> replies.Acted:
    return replies.Acted(
        run_id=told.run_id,
        status=told.status,
        did=told.did,
        recorded=told.recorded,
        goes_on=told.goes_on,
        freed=told.freed,
        effects=told.effects,
    )


def _stopped(told: Stopped) -> replies.Acted:
    did = f"run {told.run_id!r} is {told.outcome}"
    if told.outcome == "pending":
        did = f"run {told.run_id!r} is asked to stop"
    elif told.outcome == "finished":
        did = f"nothing was changed on run {told.run_id!r}"
    return replies.Acted(
        run_id=told.run_id,
        status=str(told.status),
        did=f"{did}: {told.detail}" if told.detail else did,
        recorded=told.outcome in ("cancelled", "paused"),
        children=told.children,
    )


def _answered(
    ask: Ask, decide: Callable[..., people.Answered], *said: Any, **more: Any
) -> replies.Acted:
    """Decide what a run asks by this name and number, and tell what came of it."""
    asked: requests.Answer | requests.Refuse | requests.Approve = ask.body
    told = decide(
        *(_seen(ask), ask.query.id, asked.name, *said),
        **more,
        actor=ask.actor,
        number=asked.number,
    )
    row = inspect.found(ask.store, told.run_id)
    return replies.Acted(
        run_id=told.run_id,
        status=str(row.status),
        did=told.did,
        goes_on=told.held is None and not told.early,
    )


ACTIONS: list[tuple[str, str, Any, Any, Any, bool]] = [
    ("resume", "Takes a run up again.", resume, replies.Acted, requests.Resume, True),
    ("pause", "Holds a run.", pause, replies.Acted, requests.Reasoned, True),
    ("cancel", "Cancels a run.", cancel, replies.Acted, requests.Reasoned, True),
    ("settle", "Settles an effect in doubt.", settle, replies.Acted, requests.Settle, True),
    ("rollback", "Undoes what a run did.", rollback, replies.Acted, requests.Rollback, True),
    ("fork", "Makes a new run of an old one.", fork, replies.Forked, requests.Fork, True),
    ("raise-budget", "Sets new limits.", raise_budget, replies.Acted, requests.RaiseBudget, True),
    ("signal", "Sends a signal.", signal, replies.Acted, requests.Signal, False),
    ("answer", "Answers a question.", answer, replies.Acted, requests.Answer, False),
    ("refuse", "Refuses what is asked.", refuse, replies.Acted, requests.Refuse, False),
    ("approve", "Approves a call by its digest.", approve, replies.Acted, requests.Approve, False),
]
_OTHERS = [
    Route(
        "POST",
        f"{API}/queue",
        Role.ADMIN,
        "Changes what a queue allows.",
        queue,
        replies.QueueTold,
        requests.NameQuery,
        requests.QueueLimits,
    ),
    Route(
        "POST",
        f"{API}/schedule",
        Role.OPERATOR,
        "Pauses a schedule, or lets it go on.",
        schedule,
        replies.ScheduleTold,
        requests.NameQuery,
        requests.Pause,
    ),
]
ROUTES: list[Route] = _OTHERS + [
    Route(
        "POST",
        f"{API}/run/{name}",
        Role.OPERATOR,
        summary,
        perform,
        told,
        requests.RunQuery,
        body,
        sees=sees,
    )
    for name, summary, perform, told, body, sees in ACTIONS
]
