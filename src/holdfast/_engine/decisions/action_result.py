"""The result of an action, and the checks that all actions share."""

from __future__ import annotations

import msgspec

from holdfast._engine.values.durations import is_seconds
from holdfast.errors import ConfirmationRequired, UsageError

TRIES = 5
"""How often a decision is tried again on a run that changed meanwhile, before it is refused."""


ACTOR_MAX_CHARS = 200


class Answer(msgspec.Struct, frozen=True):
    """The result of a decision, and what happens next."""

    run_id: str
    flow: str
    status: str
    did: str
    recorded: bool
    """False: the decision is in the inbox of the run's owner, or there was nothing to do."""
    goes_on: bool
    """Whether the run waits for a process that has its flow."""
    freed: tuple[str, ...] = ()
    """Other runs that waited for this."""
    effects: tuple[str, ...] = ()
    """Recorded effects that the actor should know of."""


def check_actor(actor: object) -> None:
    """Refuse a decision without an actor, and a name that cannot be stored."""
    if (
        not isinstance(actor, str)
        or not actor.strip()
        or len(actor) > ACTOR_MAX_CHARS
        or not _is_unicode(actor)
    ):
        raise UsageError(
            f"`actor` names who decides, in 1 to {ACTOR_MAX_CHARS} characters, not {actor!r:.80}"
        )


def confirmed_by(error: ConfirmationRequired, *ways: str) -> ConfirmationRequired:
    """Return the same error with the ways in which the users of a front confirm."""
    return ConfirmationRequired(error.run_id, error.what, error.effects, ways)


def check_wait(action: str, wait_s: object) -> None:
    """Refuse a waiting time that is not a number of seconds."""
    if not is_seconds(wait_s):
        raise UsageError(f"{action}(wait_s={wait_s!r:.80}): wait_s is seconds, 0 or more")


def _is_unicode(text: str) -> bool:
    """Return whether a string has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
