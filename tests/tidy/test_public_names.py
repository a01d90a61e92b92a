"""The public line: which names there are, and that the two colours of the API keep in step."""

import inspect

import pytest

import holdfast
from holdfast import aio

PUBLIC = {
    # What users write.
    *("flow", "step", "effect", "plan", "use", "register", "Retry", "Queue"),
    # Runs at certain times.
    *("schedule", "Schedule", "TICK"),
    # Inside a flow.
    *("turns", "gather", "each", "now", "rng", "new_id", "call", "run", "replaying", "patched"),
    # What a flow raises to have undone what its run did.
    *("Rollback",),
    # Inside a flow: time, signals, people.
    *("sleep", "wait", "ask", "Approve"),
    # Inside a step.
    *("idempotency_key", "attempt", "usage", "progress", "last_progress", "emit", "connection"),
    # What may change while nobody is at work.
    *("watch", "file", "fingerprint", "Preflight"),
    # What a run may spend.
    *("Budget", "Price", "prices"),
    # What the watchdog looks for, and what it finds.
    *("Watch", "Finding"),
    # What adapters of frameworks are made of.
    *("keyed", "recorded"),
    # What settles a doubt.
    *("Done", "NOT_DONE", "UNKNOWN", "Fail", "NotDone", "Unknown"),
    # Where runs are kept, and how they are seen.
    *("open", "Store", "Handle", "Entry", "current_run", "stream", "Status"),
    # Who is told of what happens.
    *("observe", "Observer", "ObservedRun", "ObservedAttempt", "ObservedEntry"),
    *("ObservedPast", "ObservedCut"),
    # Who is told when a run needs a person.
    *("alert", "Alert"),
    # What must not be seen.
    *("secret", "Secret", "masked", "mask_record"),
    # What outlives runs.
    *("memory", "Memory"),
    # What the decorators give.
    *("Flow", "Step", "Effect", "AsyncFlow", "AsyncStep", "AsyncEffect"),
    # Modules.
    *("aio", "errors"),
    *("adapters", "context", "observers", "pricing", "redaction", "schedules", "types"),
    "versioning",
}

# Public packages that `import holdfast` does not load.
PACKAGES = {"integrations", "testing"}

# What waits. All else is one plain function in both colours.
TWINS = [
    "ask",
    "call",
    "each",
    "gather",
    "memory",
    "run",
    "sleep",
    "stream",
    "turns",
    "wait",
    "watch",
]

# Races exist only where there is a loop to run them.
ONLY_AWAITED = {"first", "timeout"}

PAIRS = [
    (holdfast.types.Flow, holdfast.types.AsyncFlow),
    (holdfast.types.Step, holdfast.types.AsyncStep),
    (holdfast.types.Effect, holdfast.types.AsyncEffect),
]


def parameters(function: object) -> list[tuple[str, inspect._ParameterKind]]:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return [(parameter.name, parameter.kind) for parameter in signature.parameters.values()]


def public_attributes(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_public_names_are_these():
    # `from holdfast import *` leaves the built-in function alone.
    assert set(holdfast.__all__) == PUBLIC - {"open"}
    assert len(holdfast.__all__) == len(set(holdfast.__all__))


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_is_there(name):
    assert getattr(holdfast, name, None) is not None


def test_nothing_else_is_in_reach():
    in_reach = {name for name in vars(holdfast) if not name.startswith(("_", "@py"))}
    of_the_language = {"annotations", "TYPE_CHECKING"}
    assert in_reach - PACKAGES - of_the_language <= PUBLIC


def test_every_error_is_ours():
    errors = {
        name: value
        for name, value in vars(holdfast.errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
    }
    assert errors
    foreign = {
        name
        for name, error in errors.items()
        if not issubclass(error, holdfast.errors.HoldfastError)
    }
    assert not foreign


@pytest.mark.parametrize("name", TWINS)
def test_what_waits_has_an_awaited_twin(name):
    assert name in aio.__all__
    assert getattr(aio, name) is not getattr(holdfast, name)


@pytest.mark.parametrize("name", sorted(set(aio.__all__) - ONLY_AWAITED))
def test_what_is_awaited_has_a_plain_twin(name):
    awaited, plain = getattr(aio, name), getattr(holdfast, name)
    if name not in TWINS:
        assert awaited is plain
    assert [key for key, _ in parameters(awaited)][1:] == [key for key, _ in parameters(plain)][1:]
    assert [kind for _, kind in parameters(awaited)] == [kind for _, kind in parameters(plain)]


@pytest.mark.parametrize(("plain", "awaited"), PAIRS)
def test_both_colours_offer_the_same(plain, awaited):
    assert public_attributes(plain) - {"aio"} == public_attributes(awaited) - {"aio"}
