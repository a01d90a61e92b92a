"""Arguments of actions are checked by their declaration: from Python, on the command line and over HTTP
by the same limits, each front in its own spelling."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import holdfast
from holdfast._api.actions import actions, declared
from holdfast._operator.cli.main import main
from holdfast._operator.web import routes
from holdfast._operator.web.action_routes import route_of
from holdfast._operator.web.http_responses import Problem
from holdfast._stores.contract import Store
from holdfast.errors import ConfirmationRequired, UsageError
from holdfast.redaction import register_secret
from tests.ops.journals import Journal

SETTLED = "Done(result), NOT_DONE or Failed(reason)"

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("cancel", {"run_id": None}, "store.cancel(run_id=None): expected `str`"),
    ("cancel", {"run_id": ""}, "store.cancel(run_id=''): expected `str` of length >= 1"),
    ("cancel", {"run_id": "a\0"}, "run_id='a\\x00'): expected `str` matching regex"),
    ("cancel", {"run_id": b"r"}, "store.cancel(run_id=b'r'): expected `str`"),
    ("cancel", {"expected_version": 5}, "expected_version=5): expected `str | None`"),
    ("pause", {"reason": 5}, "store.pause(reason=5): expected `str`"),
    ("pause", {"reason": None}, "store.pause(reason=None): expected `str`"),
    ("pause", {"reason": "x" * 10_001}, "expected `str` of length <= 10000"),
    ("rollback", {"confirm": "no"}, "store.rollback(confirm='no'): expected `bool`"),
    ("rollback", {"confirm": 1}, "store.rollback(confirm=1): expected `bool`"),
    ("rollback", {"to": 3}, "store.rollback(to=3): expected `str | None`"),
    ("resume", {"drift": "other"}, "store.resume(drift='other'): expected 'keep' or 'redo'"),
    ("resume_all", {"held_reason": "failed"}, "expected 'quarantined' or 'diverged'"),
    ("answer", {"expected_number": True}, "(expected_number=True): expected `int | None`"),
    ("answer", {"expected_number": -1}, "(expected_number=-1): expected `int` >= 0"),
    ("fork", {"input": [1]}, "store.fork(input=[1]): expected `dict | None`"),
    ("fork", {"input": {1: 2}}, "store.fork(input={1: 2}): expected `str`"),
    ("settle", {"decision": 5}, f"store.settle(decision=5): expected {SETTLED}"),
    ("settle", {"decision": holdfast.Done}, f"expected {SETTLED}"),
    ("set_budget", {"budget": 5}, "(budget=5): expected a holdfast.Budget(usd=…, …)"),
    ("set_queue", {"queue": "mail"}, "(queue='mail'): expected a holdfast.Queue(name, …)"),
    ("prune", {"dry_run": "no"}, "store.prune(dry_run='no'): expected `bool`"),
    ("prune", {"status": 5}, "store.prune(status=5): expected `str | list | None`"),
]

FITTING: dict[str, Any] = {
    "run_id": "r",
    "name": "q",
    "step": "s",
    "new_run_id": "n",
    "before": "s",
    "value": 1,
    "decision": holdfast.NOT_DONE,
    "budget": holdfast.Budget(steps=1),
    "queue": holdfast.Queue("mail"),
    "actor": "kim",
}


def call(store: holdfast.types.Store, name: str, given: dict[str, Any]) -> Any:
    """Call an action with these arguments, and with fitting ones where it needs more."""
    method = getattr(store, name)
    parameters = inspect.signature(method).parameters.values()
    needed = {it.name: FITTING[it.name] for it in parameters if it.default is it.empty}
    return method(**needed | given)


@pytest.fixture
def opened() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:", default=False) as store:
        yield store


@pytest.mark.parametrize(("name", "given", "said"), WRONG)
def test_an_argument_that_does_not_fit_is_refused_by_its_name(opened, name, given, said):
    with pytest.raises(UsageError) as refused:
        call(opened, name, given)
    assert said in str(refused.value)


@pytest.mark.parametrize("action", actions(), ids=lambda it: it.name)
def test_every_action_checks_every_parameter(opened, action):
    """An object of a class of its own fits no parameter but one that takes any value."""
    for parameter in inspect.signature(action.method).parameters.values():
        if parameter.name in ("self", "value", "state"):
            continue
        with pytest.raises(UsageError, match=parameter.name):
            call(opened, action.name, {parameter.name: object()})


def test_positional_arguments_are_checked_too(opened):
    with pytest.raises(UsageError, match=r"store.cancel\(run_id=5\)"):
        opened.cancel(5)
    with pytest.raises(TypeError, match="run_id"):
        opened.cancel()
    with pytest.raises(TypeError, match="why"):
        opened.cancel("r", why="enough")


def test_a_subclass_of_a_type_fits(opened):
    """Such as a member of an enum; and a whole number where seconds are expected."""
    held = holdfast.types.HeldReason.QUARANTINED
    assert opened.resume_all(held_reason=held) == []
    assert opened.prune(status={"failed"}).removed == []


@holdfast.flow
def checked_flow() -> None: ...


def test_a_handle_checks_as_the_store_does(opened):
    handle: Any = checked_flow.with_options(store=opened).submit("r")
    with pytest.raises(UsageError, match="reason=5"):
        handle.cancel(reason=5)
    refused = handle.aio.cancel(reason=5)
    with pytest.raises(UsageError, match="reason=5"):
        asyncio.run(refused)


def test_a_refused_value_does_not_show_a_secret(opened):
    register_secret("token", "hunter2-hunter2")
    with pytest.raises(UsageError) as refused:
        opened.pause("r", reason=["hunter2-hunter2"])
    assert "hunter2" not in str(refused.value)


# -- the same limits on the command line and over HTTP ------------------------------------------

LIMITS: list[tuple[str, str, Any, str, list[str]]] = [
    ("set_budget", "tokens", 2**53 + 1, "--tokens", ["set-budget", "r"]),
    ("set_budget", "steps", -1, "--steps", ["set-budget", "r"]),
    ("set_budget", "usd", -0.5, "--usd", ["set-budget", "r"]),
    ("set_budget", "usd", 2e9, "--usd", ["set-budget", "r"]),
    ("answer", "expected_number", -1, "--expected-number", ["answer", "r", "q", "1"]),
    ("answer", "expected_number", 2**53 + 1, "--expected-number", ["answer", "r", "q", "1"]),
    ("set_queue", "concurrency", 0, "--concurrency", ["queues", "set", "mail"]),
    ("set_queue", "rate", 10**9 + 1, "--rate", ["queues", "set", "mail"]),
    ("pause", "reason", "x" * 10_001, "--reason", ["pause", "r"]),
    ("signal", "signal_id", "x" * 1001, "--signal-id", ["signal", "r", "go"]),
    ("settle", "reason", "x" * 10_001, "--fail", ["settle", "r", "s"]),
]


@pytest.mark.parametrize(("name", "parameter", "value", "option", "words"), LIMITS)
def test_limits_are_those_of_http(sqlite: Store, url, name, parameter, value, option, words):
    Journal(sqlite, "r").step("s")
    route = route_of(declared(name))
    with pytest.raises(Problem) as problem:
        routes.body_of(route, msgspec.json.encode({parameter: value}))
    over_http, _, path = problem.value.message.removeprefix("the body is invalid: ").partition(
        " - at "
    )
    assert path == f"`$.{parameter}`"

    words = ["--url", url, *words, f"{option}={value}"]
    told = CliRunner().invoke(main, words, catch_exceptions=False)
    assert told.exit_code == 2
    said = told.stderr.removeprefix("holdfast: ").partition(", not ")[0]
    assert said == f"{option}: {over_http[:1].lower()}{over_http[1:]}"


def test_an_argument_of_a_command_is_named_as_its_usage_names_it(sqlite: Store, url):
    told = CliRunner().invoke(main, ["--url", url, "cancel", "x" * 1001])
    assert told.exit_code == 2
    assert "RUN_ID: expected `str` of length <= 1000" in told.stderr


# -- each front names parameters in its own spelling ---------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["resume", "r", "--keep"], "--keep is for a run that is held for drift"),
        (["resume", "r", "--redo"], "--redo is for a run that is held for drift"),
        (["pause", "r", "--actor", ""], "--actor names who decides"),
        (["store", "prune", "--status", "running", "--yes"], "--status 'running': only runs"),
        (["fork", "r", "n", "--before", "s", "--input", '{"size": 1}'], "has no 'size'"),
        (["fork", "r", "n", "--before", "s", "--state", "1"], "--state is for a loop of turns"),
    ],
)
def test_a_command_names_its_options(sqlite: Store, url, words, said):
    Journal(sqlite, "r").step("s").failed("s")
    told = CliRunner().invoke(main, ["--url", url, *words])
    assert told.exit_code == 2
    assert said in told.stderr
    assert "`" not in told.stderr.replace("`holdfast", "")


def test_a_command_confirms_with_an_option_and_python_with_an_argument(sqlite: Store, url):
    Journal(sqlite, "r").effect("charge").completed()
    told = CliRunner().invoke(main, ["--url", url, "rollback", "r", "--yes"])
    assert told.exit_code == 2
    assert "rollback r --confirm" in told.stderr
    assert "store.rollback" not in told.stderr
    with holdfast.open(url, default=False) as store, pytest.raises(ConfirmationRequired) as refused:
        store.rollback("r")
    assert "store.rollback('r', confirm=True)" in str(refused.value)
