"""POST routes: decisions of people. Each route is generated from the declaration of an action. It
calls the method with the actor and the client address; the method makes the same checks as on the
command line."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast._api.actions import Action, Parameter, actions
from holdfast._api.store_actions import Acting
from holdfast._engine.decisions.action_result import Answer, confirmed_by
from holdfast._engine.decisions.control import Stopped
from holdfast._engine.journal.lifecycle import CLAIMABLE, Status
from holdfast._engine.journal.step_record import outcome_is_unknown
from holdfast._engine.journal.superseded import superseded_by_resume
from holdfast._engine.text import visible
from holdfast._features.schedules.operator import ScheduleView
from holdfast._operator.act import message_actions
from holdfast._operator.act.fork import Fork
from holdfast._operator.act.queue_admin import Resumed
from holdfast._operator.explain.open_waits import expected
from holdfast._operator.read import queue_views, relatives, run_views
from holdfast._operator.web import request_models, response_models
from holdfast._operator.web.access_tokens import Role
from holdfast._operator.web.browser_sessions import LIFE_S, set_cookie
from holdfast._operator.web.gate import unauthorised
from holdfast._operator.web.http_responses import Problem
from holdfast._operator.web.routes import API, Ask, Nothing, Route
from holdfast._stores.contract import Store
from holdfast._stores.lookups import existing_row
from holdfast.errors import ConfirmationRequired, Corrupt, RunHeld

WAIT_S = 3.0
"""How long a request waits for the process that owns the run; then it answers that the decision is
pending."""

logger = logging.getLogger("holdfast.web")

Decide = Callable[[], Any]


# -- a route for each action -------------------------------------------------------------------


def route_of(action: Action) -> Route:
    """Return the route of an action."""
    subject = action.subject
    query: type[msgspec.Struct] = Nothing
    if subject is not None:
        query = request_models.RunQuery if subject.name == "run_id" else request_models.NameQuery
    return Route(
        "POST",
        f"{API}/{action.path}",
        Role.named(action.role),
        action.help,
        functools.partial(_perform, action),
        _ANSWERS.get(action.name, response_models.Acted),
        query,
        body_of(action),
        sees=action.takes("expected_version") and not action.is_message,
    )


def body_of(action: Action) -> type[msgspec.Struct]:
    """Return the request model of an action: its parameters without the subject."""
    asked = action.remote_parameters[action.subject is not None :]
    if not asked:
        return Nothing
    return action.struct(asked, (request_models.Asked,))


def _perform(action: Action, ask: Ask) -> Any:
    given: dict[str, Any] = {} if action.subject is None else _subject(action.subject, ask)
    given |= {it: getattr(ask.body, it) for it in ask.body.__struct_fields__}

    def decide() -> Any:
        return action.perform(
            Acting(ask.store), given, actor=ask.actor, wait_s=WAIT_S, expected_version=ask.etag
        )

    own = _OWN.get(action.name)
    try:
        told = decide() if own is None else own(ask, decide)
    except ConfirmationRequired as error:
        raise confirmed_by(error, 'send "confirm": true') from error
    if ask.query is not None and action.subject is not None and action.subject.name == "name":
        logger.info("%s %s, by %s", action.name, visible(ask.query.name), ask.actor)
    return _response_of(told, ask)


def _subject(subject: Parameter, ask: Ask) -> dict[str, Any]:
    return {subject.name: ask.query.id if subject.name == "run_id" else ask.query.name}


# -- additions to some actions -----------------------------------------------------------------


def _resume(ask: Ask, decide: Decide) -> Any:
    """Resume a run; ask for confirmation if it would repeat effects."""
    try:
        return decide()
    except RunHeld as held:
        effects = [] if ask.body.confirm else _unknown(ask.store, ask.query.id)
        if effects:
            raise ConfirmationRequired(
                ask.query.id,
                "these effects may have happened and would be executed again",
                effects,
                (),
            ) from held
        raise


def _unknown(store: Store, run_id: str) -> list[str]:
    """Return the effects of a failed run that may have happened and that a resume would repeat."""
    row = existing_row(store, run_id)
    if row.status is not Status.FAILED:
        return []
    past = run_views.fold(store, row)
    return [record.key for record in superseded_by_resume(past) if outcome_is_unknown(record)]


def _signal(ask: Ask, decide: Decide) -> response_models.Acted:
    """Send a signal, and report whether the run continues with it."""
    name, row = ask.body.name, existing_row(ask.store, ask.query.id)
    awaits = row.status in CLAIMABLE and _awaits(ask.store, row.run_id, name)
    sent: message_actions.Sent = decide()
    did = f"signal {name!r} is sent to run {sent.run_id!r}"
    if not sent.new:
        did = f"signal {sent.id!r} was sent to run {sent.run_id!r} before, and is not sent again"
    return response_models.Acted(
        run_id=sent.run_id,
        status=str(row.status),
        did=did,
        recorded=sent.new,
        goes_on=awaits and (sent.new or message_actions.is_kept(ask.store, row, name)),
    )


def _awaits(store: Store, run_id: str, name: str) -> bool:
    """Return whether a run waits for a signal of this name; False for a damaged run."""
    try:
        return ("signal", name) in expected(store, run_id)
    except Corrupt:
        return False


def _approve(ask: Ask, decide: Decide) -> Any:
    """Refuse an approval by the actor who started or forked the run or one of its origins, and if
    that actor is unknown."""
    tag = ask.site.four_eyes
    if tag is None:
        return decide()
    row = existing_row(ask.store, ask.query.id)
    starters = relatives.starters(ask.store, row, tag)
    if not starters:
        why = f"the run has no tag {tag!r} that names who started it, so nobody may approve"
        raise Problem(403, "FourEyes", why)
    if ask.visitor.token.name in starters | relatives.forkers(ask.store, row):
        why = "the person who started or forked this run, or one of its origins, may not approve"
        raise Problem(403, "FourEyes", why)
    return decide()


_OWN: dict[str, Callable[[Ask, Decide], Any]] = {
    "resume": _resume,
    "signal": _signal,
    "approve": _approve,
}
_ANSWERS: dict[str, Any] = {
    "fork": response_models.Forked,
    "resume_all": response_models.ResumedAll,
    "pause_queue": response_models.QueueTold,
    "resume_queue": response_models.QueueTold,
    "set_queue": response_models.QueueTold,
    "pause_schedule": response_models.ScheduleTold,
    "resume_schedule": response_models.ScheduleTold,
}


# -- answers -----------------------------------------------------------------------------------


def _response_of(told: Any, ask: Ask) -> Any:
    """Return the answer that reports what a decision did."""
    match told:
        case Answer():
            return msgspec.convert(told, response_models.Acted, from_attributes=True)
        case Stopped():
            return _stopped(told)
        case message_actions.Answered():
            row = existing_row(ask.store, told.run_id)
            goes_on = told.held is None and not told.early
            return response_models.Acted(
                run_id=told.run_id, status=str(row.status), did=told.did, goes_on=goes_on
            )
        case Fork():
            return _forked(told, ask)
        case ScheduleView():
            return response_models.ScheduleTold(schedule=told)
        case None:
            return response_models.QueueTold(queue=queue_views.view(ask.store, ask.query.name))
        case [*each] if all(isinstance(it, Resumed) for it in each):
            return response_models.ResumedAll(resumed=each)
        case _:
            return told


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


def _forked(made: Fork, ask: Ask) -> response_models.Forked:
    return response_models.Forked(
        run_id=made.run_id,
        did=f"run {made.run_id!r} continues from run {made.origin!r} before {made.before}",
        origin=made.origin,
        before=made.before,
        repeats=made.repeats,
        created=made.created,
        input_checked=None if ask.body.input is None else False,
    )


ROUTES: list[Route] = [route_of(action) for action in actions() if not action.only_local]


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
