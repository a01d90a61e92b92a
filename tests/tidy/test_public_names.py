"""The public line: which names there are, and that the two colours of the API keep in step."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, get_overloads

import pytest

import holdfast
from holdfast import aio

PUBLIC = {
    # What users write.
    *("flow", "step", "effect", "plan", "run", "run_step", "open", "resource"),
    # What a decorator takes.
    *("Retry", "Budget", "Queue", "Watchdog", "Approval"),
    # What an effect is given, and what settles a doubt.
    *("Done", "NOT_DONE", "UNKNOWN", "idempotency_key"),
    # Inside a flow: loops, branches, people, signals, time, values.
    *("turns", "each", "gather", "ask", "wait_for_signal", "sleep", "memory", "emit"),
}

# Public modules, and what they export.
MODULES = {
    "aio": {
        *("ask", "depends_on", "each", "gather", "memory", "run", "run_step", "sleep"),
        *("turns", "wait_for_signal"),
    },
    "context": {
        *("current_run", "is_replaying", "now", "rng", "uuid4", "record_usage"),
        *("save_progress", "load_progress", "sql_connection"),
    },
    "versioning": {"patched", "depends_on", "fingerprint", "register_type"},
    "schedules": {"schedule", "SCHEDULED_TIME"},
    "pricing": {"Price", "set_prices"},
    "redaction": {"register_secret", "Secret", "redact", "redact_record"},
    "adapters": {"actions", "as_step", "as_effect", "step_key"},
    "observers": {
        *("Observer", "observe", "on_alert", "Alert", "ObservedRun", "ObservedAttempt"),
        *("ObservedEntry", "InterruptedStep", "PriorExecution"),
    },
    "types": {
        *("Store", "Flow", "AsyncFlow", "Step", "AsyncStep", "Effect", "AsyncEffect"),
        *("Handle", "Memory", "Schedule", "Status", "HeldReason", "Entry", "Finding"),
        *("NotDone", "Unknown", "Failed", "ResumePreview"),
    },
}

# Public packages that are imported by their own names.
PACKAGES = {"integrations", "testing"}

# What waits. All else is one plain function in both colours.
TWINS = sorted(MODULES["aio"])

# Races exist only where there is a loop to run them.
ONLY_AWAITED = {"first", "timeout"}

PAIRS = [
    (holdfast.types.Flow, holdfast.types.AsyncFlow),
    (holdfast.types.Step, holdfast.types.AsyncStep),
    (holdfast.types.Effect, holdfast.types.AsyncEffect),
]


# A length of time, as public signatures name it; one that ends in `_s` is a number of seconds.
TIMES = {
    *("timeout", "key_ttl", "ttl", "delay", "period", "every", "older_than", "newer_than"),
    *("valid_for", "wall", "retention", "trends_retention", "duration", "stuck_after"),
    *("duplicates_within", "expires", "within", "interval"),
}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function, decorator and method, also as each of its overloads."""
    import holdfast.testing

    for module in (holdfast, holdfast.testing, *(getattr(holdfast, name) for name in MODULES)):
        for name in module.__all__:
            if name in MODULES or not callable(thing := getattr(module, name)):
                continue
            where = f"{module.__name__}.{name}"
            yield from ((where, one) for one in (get_overloads(thing) or [thing]))
            for method in public_attributes(thing) if inspect.isclass(thing) else ():
                if inspect.isfunction(function := inspect.getattr_static(thing, method)):
                    found = get_overloads(function) or [function]
                    yield from ((f"{where}.{method}", one) for one in found)


def parameters(function: object) -> list[tuple[str, inspect._ParameterKind]]:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return [(parameter.name, parameter.kind) for parameter in signature.parameters.values()]


def public_attributes(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def plain_twin(name: str) -> object:
    return getattr(holdfast, name, None) or getattr(holdfast.versioning, name)


def test_the_public_names_are_these():
    assert len(PUBLIC) == 25
    # `from holdfast import *` leaves the built-in function alone.
    assert set(holdfast.__all__) == (PUBLIC - {"open"}) | set(MODULES) | {"errors"}
    assert len(holdfast.__all__) == len(set(holdfast.__all__))


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_public_module_exports_these(name):
    module = getattr(holdfast, name)
    assert set(module.__all__) == MODULES[name]
    assert len(module.__all__) == len(set(module.__all__))
    assert {one for one in module.__all__ if not hasattr(module, one)} == set()


def test_the_observers_load_no_framework():
    script = (
        "import sys, holdfast.observers\n"
        "print(*{name.partition('.')[0] for name in sys.modules} & {'opentelemetry'})"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert done.stdout.strip() == b""


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_is_there(name):
    assert getattr(holdfast, name, None) is not None


def test_nothing_else_is_in_reach():
    in_reach = {name for name in vars(holdfast) if not name.startswith(("_", "@py"))}
    of_the_language = {"annotations", "TYPE_CHECKING"}
    assert in_reach - PACKAGES - of_the_language <= PUBLIC | set(MODULES) | {"errors"}


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
    assert getattr(aio, name) is not plain_twin(name)


@pytest.mark.parametrize("name", sorted(set(aio.__all__) - ONLY_AWAITED))
def test_what_is_awaited_has_a_plain_twin(name):
    awaited, plain = getattr(aio, name), plain_twin(name)
    if name not in TWINS:
        assert awaited is plain
    assert [key for key, _ in parameters(awaited)][1:] == [key for key, _ in parameters(plain)][1:]
    assert [kind for _, kind in parameters(awaited)] == [kind for _, kind in parameters(plain)]


@pytest.mark.parametrize(("plain", "awaited"), PAIRS)
def test_both_colours_offer_the_same(plain, awaited):
    assert public_attributes(plain) - {"aio"} == public_attributes(awaited) - {"aio"}


def test_a_length_of_time_is_a_duration():
    """Seconds, a timedelta or "2h", wherever a public function takes a time."""
    seen: set[str] = set()
    wrong: set[str] = set()
    for where, function in public_functions():
        try:
            signature = inspect.signature(function)
        except ValueError:  # A built-in class.
            continue
        for name, parameter in signature.parameters.items():
            annotation = str(parameter.annotation)
            timed = name in TIMES and "bool" not in annotation
            if timed or "timedelta" in annotation:
                seen.add(name)
                if "Duration" not in annotation and "float | str | datetime" not in annotation:
                    wrong.add(f"{where}({name}: {annotation})")
    assert not wrong
    assert seen >= {"timeout", "key_ttl", "delay", "period", "every", "older_than", "valid_for"}


# What the runtime uses of users' objects: private, so that no editor offers it.
PRIVATE = {
    "Store": {"kept", "engine", "backend"},
    "Flow": {"execute", "engine", "request", "request_for", "arguments_of", "function", "drift"},
    "Handle": {"look", "works_in_thread", "outcome"},
}


def test_an_editor_offers_nothing_of_the_runtime(holdfast_store):
    @holdfast.flow(name="offered")
    def offered() -> int:
        return 1

    offered.run("offered-1")
    objects = {
        "Store": holdfast_store,
        "Flow": offered,
        "Handle": holdfast_store.handle("offered-1"),
    }
    for kind, thing in objects.items():
        assert not {name for name in dir(thing) if not name.startswith("_")} & PRIVATE[kind]
        assert public_attributes(getattr(holdfast.types, kind))


DECISIONS = {
    "settle": "Answer",
    "resume": "Answer",
    "rollback": "Answer",
    "set_budget": "Answer",
    "cancel": "Stopped",
    "pause": "Stopped",
    "answer": "Answered",
    "approve": "Answered",
    "reject": "Answered",
    "signal": "Sent",
    "fork": "Fork",
}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_returns_a_documented_struct(name):
    import msgspec

    from holdfast._engine.decisions.action_result import Answer
    from holdfast._engine.decisions.control import Stopped
    from holdfast._operator.act.fork import Fork
    from holdfast._operator.act.message_actions import Answered, Sent

    kinds = {kind.__name__: kind for kind in (Answer, Stopped, Answered, Sent, Fork)}
    returned = inspect.signature(getattr(holdfast.types.Store, name)).return_annotation
    assert returned == DECISIONS[name]
    kind = kinds[returned]
    assert kind.__struct_config__.frozen
    assert kind.__doc__
    assert not {it.name for it in msgspec.structs.fields(kind) if "Any" in str(it.type)}


@pytest.mark.parametrize("name", ["settle", "approve", "reject", "answer"])
def test_who_decides_is_always_named(name):
    actor = inspect.signature(getattr(holdfast.types.Store, name)).parameters["actor"]
    assert actor.kind is inspect.Parameter.KEYWORD_ONLY
    assert actor.default is inspect.Parameter.empty
    assert actor.annotation == "str"
