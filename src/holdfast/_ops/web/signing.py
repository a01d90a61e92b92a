"""Signing in and out: a token becomes a session, for a browser."""

from __future__ import annotations

from holdfast._ops.tokens import Role
from holdfast._ops.web import replies, requests
from holdfast._ops.web.gate import unauthorised
from holdfast._ops.web.routes import API, Ask, Nothing, Route
from holdfast._ops.web.sessions import LIFE_S, set_cookie


def sign_in(ask: Ask) -> replies.SignedIn:
    """Exchange a token for a session."""
    token = ask.site.tokens.verify(ask.body.token)
    if token is None:
        raise unauthorised()
    front = ask.site.front
    secret, csrf = ask.site.sessions.begin(token)
    ask.cookies.append(set_cookie(front.cookie, secret, secure=front.secure, life_s=LIFE_S))
    return replies.SignedIn(actor=token.name, role=token.role, csrf=csrf)


def sign_out(ask: Ask) -> replies.SignedOut:
    """End the session."""
    if ask.session is not None:
        ask.site.sessions.end(ask.session)
    front = ask.site.front
    ask.cookies.append(set_cookie(front.cookie, "", secure=front.secure, life_s=0))
    return replies.SignedOut()


ROUTES = [
    Route(
        "POST",
        f"{API}/session",
        None,
        "Exchanges a token for a session.",
        sign_in,
        replies.SignedIn,
        body=requests.SignIn,
        signs_in=True,
    ),
    Route(
        "DELETE",
        f"{API}/session",
        Role.VIEWER,
        "Ends the session.",
        sign_out,
        replies.SignedOut,
        body=Nothing,
    ),
]
