"""POST: what people decide. Every route is an action of `_ops`, with its actor."""

from __future__ import annotations

import msgspec

from holdfast._ops.tokens import Role
from holdfast._ops.web.gate import unauthorised
from holdfast._ops.web.routes import Ask, Nothing, Route
from holdfast._ops.web.sessions import LIFE_S, set_cookie


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    """The credential."""

    token: str = ""


class SignedIn(msgspec.Struct):
    """Who is signed in."""

    actor: str
    role: str
    version: int = 1


class Done(msgspec.Struct):
    """That it is done."""

    ok: bool = True
    version: int = 1


def sign_in(ask: Ask) -> SignedIn:
    """Exchange a token for a session."""
    token = ask.site.tokens.verify(ask.body.token)
    if token is None:
        raise unauthorised()
    front = ask.site.front
    secret = ask.site.sessions.begin(token)
    ask.cookies.append(set_cookie(front.cookie, secret, secure=front.secure, life_s=LIFE_S))
    return SignedIn(token.name, token.role)


def sign_out(ask: Ask) -> Done:
    """End the session."""
    if ask.session is not None:
        ask.site.sessions.end(ask.session)
    front = ask.site.front
    ask.cookies.append(set_cookie(front.cookie, "", secure=front.secure, life_s=0))
    return Done()


ROUTES = [
    Route(
        "POST",
        "/api/v1/session",
        None,
        "Exchanges a token for a session.",
        sign_in,
        SignedIn,
        body=SignIn,
        signs_in=True,
    ),
    Route(
        "DELETE", "/api/v1/session", Role.VIEWER, "Ends the session.", sign_out, Done, body=Nothing
    ),
]
