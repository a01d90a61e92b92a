"""POST routes: decisions of people. Every route calls an action of `_operator.act` with its actor and the
address that it came from; the checks are those of the command line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

from holdfast._engine.decisions.control import Stopped
from holdfast._engine.journal.lifecycle import CLAIMABLE, Status
from holdfast._engine.journal.step_record import outcome_is_unknown
from holdfast._engine.journal.superseded import superseded_by_resume
from holdfast._engine.scripts.doubt_policies import NOT_DONE, Done, Failed
from holdfast._features.budgets.model import Budget
from holdfast._operator.act import (
    action_result,
    budget_limits,
    cancellation,
    fork as forks,
    message_actions,
    queue_admin,
    run_decisions,
    run_rollback as rollbacks,
    schedule_admin,
)
from holdfast._operator.act.expected_version import require_etag
from holdfast._operator.explain.open_waits import expected
from holdfast._operator.read import queue_views, relatives, run_views
from holdfast._operator.text import visible
from holdfast._operator.web import request_models, response_models
from holdfast._operator.web.access_tokens import Role
from holdfast._operator.web.browser_sessions import LIFE_S, set_cookie
from holdfast._operator.web.gate import unauthorised
from holdfast._operator.web.http_responses import Problem
from holdfast._operator.web.routes import API, Ask, Nothing, Route
from holdfast._stores.contract import Store
from holdfast.errors import ConfirmationRequired, Corrupt, RunHeld, UsageError

WAIT_S = 3.0
"""How long a request waits for the process that has the run; then it says that it was asked."""

logger = logging.getLogger("holdfast.web")


# -- a run -------------------------------------------------------------------------------------


def resume(ask: Ask) -> response_models.Acted:
    """Take up a run that failed or is held."""
    asked: request_models.Resume = ask.body
    try:
        told = run_decisions.resume(
            _store_at_expected_version(ask),
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
    row = run_views.existing_row(store, run_id)
    if row.status is not Status.FAILED:
        return []
    past = run_views.fold(store, row)
    return [record.key for record in superseded_by_resume(past) if outcome_is_unknown(record)]


def pause(ask: Ask) -> response_models.Acted:
    """Hold a run until somebody resumes it."""
    told = cancellation.pause(
        _store_at_expected_version(ask),
        ask.query.id,
        actor=ask.actor,
        reason=ask.body.reason,
        wait_s=WAIT_S,
    )
    return _stopped(told)


def cancel(ask: Ask) -> response_models.Acted:
    """Cancel a run, and its children with it."""
    told = cancellation.cancel(
        _store_at_expected_version(ask),
        ask.query.id,
        actor=ask.actor,
        reason=ask.body.reason,
        wait_s=WAIT_S,
    )
    return _stopped(told)


def settle(ask: Ask) -> response_models.Acted:
    """Settle an effect that is in doubt."""
    asked: request_models.Settle = ask.body
    decision: run_decisions.Decision = Done(asked.result)
    if asked.outcome == "failed":
        decision = Failed(asked.reason)
    elif asked.outcome == "not_done":
        decision = NOT_DONE
        if not asked.confirm:
            run_views.existing_row(_store_at_expected_version(ask), ask.query.id)
            raise ConfirmationRequired(
                ask.query.id,
                "settled as not done, it is executed again",
                [asked.step],
                ['send "confirm": true'],
            )
    return _acted(
        run_decisions.settle(
            _store_at_expected_version(ask), ask.query.id, asked.step, decision, actor=ask.actor
        )
    )


def rollback(ask: Ask) -> response_models.Acted:
    """Undo what a run did, or what came after a step."""
    asked: request_models.Rollback = ask.body
    store = _store_at_expected_version(ask)
    preview = rollbacks.preview_rollback(store, ask.query.id, asked.to)
    if preview.confirm and not asked.confirm:
        stays = [f"{it.step} ({it.means})" for it in preview.effects if it.fate != "undo"]
        raise ConfirmationRequired(
            ask.query.id,
            "what cannot be undone, or might be undone twice, stays as it is",
            stays or [preview.elsewhere],
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


def fork(ask: Ask) -> response_models.Forked:
    """Make a new run of an old one, from before a step."""
    asked: request_models.Fork = ask.body
    made = forks.fork(
        _store_at_expected_version(ask),
        ask.query.id,
        asked.new_run_id,
        before=asked.before,
        input=asked.input,
        actor=ask.actor,
        confirm=asked.confirm,
    )
    did = f"run {made.run_id!r} goes on from run {made.origin!r} before {made.before}"
    return response_models.Forked(
        run_id=made.run_id,
        did=did,
        origin=made.origin,
        before=made.before,
        repeats=made.repeats,
        created=made.created,
        input_checked=None if asked.input is None else False,
    )


def set_budget(ask: Ask) -> response_models.Acted:
    """Set new limits of a run's budget."""
    asked: request_models.SetBudget = ask.body
    to = Budget(usd=asked.usd, tokens=asked.tokens, steps=asked.steps, wall=asked.wall)
    return _acted(
        budget_limits.set_budget(_store_at_expected_version(ask), ask.query.id, to, actor=ask.actor)
    )


def signal(ask: Ask) -> response_models.Acted:
    """Send a signal to a run."""
    asked: request_models.Signal = ask.body
    store = _store_at_expected_version(ask)
    row = run_views.existing_row(store, ask.query.id)
    awaits = row.status in CLAIMABLE and _awaits(store, row.run_id, asked.name)
    sent = message_actions.signal(
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
    return response_models.Acted(
        run_id=sent.run_id,
        status=str(row.status),
        did=did,
        recorded=sent.new,
        goes_on=awaits and (sent.new or message_actions.is_kept(store, row, asked.name)),
    )


def _awaits(store: Store, run_id: str, name: str) -> bool:
    """Return whether a run waits for a signal of this name; of a damaged one that is not known."""
    try:
        return ("signal", name) in expected(store, run_id)
    except Corrupt:
        return False


# -- what a run asks ---------------------------------------------------------------------------


def answer(ask: Ask) -> response_models.Acted:
    """Answer a question of a run."""
    asked: request_models.Answer = ask.body
    return _answered(ask, message_actions.answer, asked.answer)


def reject(ask: Ask) -> response_models.Acted:
    """Reject what a run asks."""
    asked: request_models.Reject = ask.body
    return _answered(ask, message_actions.reject, reason=asked.reason)


def approve(ask: Ask) -> response_models.Acted:
    """Approve one call of an effect, with exactly the arguments that were shown."""
    asked: request_models.Approve = ask.body
    if ask.site.four_eyes is not None:
        _check_four_eyes(ask, ask.site.four_eyes)
    return _answered(ask, message_actions.approve, digest=asked.digest)


def _check_four_eyes(ask: Ask, tag: str) -> None:
    """Refuse an approval by whoever started or forked the run, or one that it came from; and if it is
    not known who started it."""
    row = run_views.existing_row(ask.store, ask.query.id)
    starters = relatives.starters(ask.store, row, tag)
    if not starters:
        why = f"this run does not say who started it (tag {tag!r}), so nobody can be the second"
        raise Problem(403, "FourEyes", why)
    if ask.visitor.token.name in starters | relatives.forkers(ask.store, row):
        why = "who started or forked a run, or one that it came from, does not approve what it asks"
        raise Problem(403, "FourEyes", why)


# -- what holds for many runs ------------------------------------------------------------------


def queue(ask: Ask) -> response_models.QueueTold:
    """Change what a queue allows."""
    asked: request_models.QueueLimits = ask.body
    name = ask.query.name
    changes: dict[str, Any] = {
        field: value
        for name, field in (
            ("concurrency", "concurrency"),
            ("concurrency_per_key", "per_key"),
            ("rate", "rate"),
            ("rate_per_key", "per_key_rate"),
            ("paused", "paused"),
        )
        if (value := getattr(asked, name)) is not UNSET
    }
    if asked.period_s is not UNSET:
        changes["period_us"] = max(1, int(asked.period_s * 1_000_000))
    limits = queue_views.limits_of(ask.store, name)
    if changes:
        queue_admin.set_limits(ask.store, msgspec.structs.replace(limits, **changes), ask.actor)
    logger.info("queue %s: %s, by %s", visible(name), changes, ask.actor)
    found = [it for it in queue_views.queues(ask.store) if it.name == name]
    if not found:
        raise UsageError(f"there is no queue {name!r}")
    return response_models.QueueTold(queue=found[0])


def schedule(ask: Ask) -> response_models.ScheduleTold:
    """Pause a schedule, or let it go on."""
    paused: bool = ask.body.paused
    found = schedule_admin.set_schedule(ask.store, ask.query.name, paused=paused, actor=ask.actor)
    logger.info("schedule %s: paused=%s, by %s", visible(found.name), paused, ask.actor)
    return response_models.ScheduleTold(schedule=found)


# -- pieces ------------------------------------------------------------------------------------


def _store_at_expected_version(ask: Ask) -> Store:
    return require_etag(ask.store, ask.query.id, ask.etag)


def _acted(told: action_result.Answer) -> response_models.Acted:
    return response_models.Acted(
        run_id=told.run_id,
        status=told.status,
        did=told.did,
        recorded=told.recorded,
        goes_on=told.goes_on,
        freed=told.freed,
        effects=told.effects,
    )


def _stopped(told: Stopped) -> response_models.Acted:
    did = f"run {told.run_id!r} is {told.outcome}"
    if told.outcome == "pending":
        did = f"run {told.run_id!r} is asked to stop"
    elif told.outcome == "finished":
        did = f"nothing was changed on run {told.run_id!r}"
    return response_models.Acted(
        run_id=told.run_id,
        status=str(told.status),
        did=f"{did}: {told.detail}" if told.detail else did,
        recorded=told.outcome in ("cancelled", "paused"),
        children=told.children,
    )


def _answered(
    ask: Ask, decide: Callable[..., message_actions.Answered], *said: Any, **more: Any
) -> response_models.Acted:
    """Decide what a run asks by this name and number, and tell what came of it."""
    asked: request_models.Answer | request_models.Reject | request_models.Approve = ask.body
    told = decide(
        *(_store_at_expected_version(ask), ask.query.id, asked.name, *said),
        **more,
        actor=ask.actor,
        expected_number=asked.expected_number,
    )
    row = run_views.existing_row(ask.store, told.run_id)
    return response_models.Acted(
        run_id=told.run_id,
        status=str(row.status),
        did=told.did,
        goes_on=told.held is None and not told.early,
    )


ACTIONS: list[tuple[str, str, Any, Any, Any, bool]] = [
    ("resume", "Takes a run up again.", resume, response_models.Acted, request_models.Resume, True),
    ("pause", "Holds a run.", pause, response_models.Acted, request_models.Reasoned, True),
    ("cancel", "Cancels a run.", cancel, response_models.Acted, request_models.Reasoned, True),
    (
        "settle",
        "Settles an effect in doubt.",
        settle,
        response_models.Acted,
        request_models.Settle,
        True,
    ),
    (
        "rollback",
        "Undoes what a run did.",
        rollback,
        response_models.Acted,
        request_models.Rollback,
        True,
    ),
    (
        "fork",
        "Makes a new run of an old one.",
        fork,
        response_models.Forked,
        request_models.Fork,
        True,
    ),
    (
        "set-budget",
        "Sets new limits.",
        set_budget,
        response_models.Acted,
        request_models.SetBudget,
        True,
    ),
    ("signal", "Sends a signal.", signal, response_models.Acted, request_models.Signal, False),
    ("answer", "Answers a question.", answer, response_models.Acted, request_models.Answer, False),
    (
        "reject",
        "Rejects what is asked.",
        reject,
        response_models.Acted,
        request_models.Reject,
        False,
    ),
    (
        "approve",
        "Approves a call by its digest.",
        approve,
        response_models.Acted,
        request_models.Approve,
        False,
    ),
]
_OTHERS = [
    Route(
        "POST",
        f"{API}/queue",
        Role.ADMIN,
        "Changes what a queue allows.",
        queue,
        response_models.QueueTold,
        request_models.NameQuery,
        request_models.QueueLimits,
    ),
    Route(
        "POST",
        f"{API}/schedule",
        Role.OPERATOR,
        "Pauses a schedule, or lets it go on.",
        schedule,
        response_models.ScheduleTold,
        request_models.NameQuery,
        request_models.Pause,
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
        request_models.RunQuery,
        body,
        sees=sees,
    )
    for name, summary, perform, told, body, sees in ACTIONS
]


# -- signing in and out -------------------------------------------------------------------------


def sign_in(ask: Ask) -> response_models.SignedIn:
    """Exchange a token for a session."""
    token = ask.site.tokens.verify(ask.body.token)
    if token is None:
        raise unauthorised()
    front = ask.site.front
    secret, csrf = ask.site.sessions.begin(token)
    ask.cookies.append(set_cookie(front.cookie, secret, secure=front.secure, life_s=LIFE_S))
    return response_models.SignedIn(actor=token.name, role=token.role, csrf=csrf)


def sign_out(ask: Ask) -> response_models.SignedOut:
    """End the session."""
    if ask.session is not None:
        ask.site.sessions.end(ask.session)
    front = ask.site.front
    ask.cookies.append(set_cookie(front.cookie, "", secure=front.secure, life_s=0))
    return response_models.SignedOut()


SIGN_IN_ROUTES = [
    Route(
        "POST",
        f"{API}/session",
        None,
        "Exchanges a token for a session.",
        sign_in,
        response_models.SignedIn,
        body=request_models.SignIn,
        signs_in=True,
    ),
    Route(
        "DELETE",
        f"{API}/session",
        Role.VIEWER,
        "Ends the session.",
        sign_out,
        response_models.SignedOut,
        body=Nothing,
    ),
]
