"""Each action is declared once: every method of `Store` with which somebody decides is an action with a
role, and every action is in the HTTP API and the command line, with the same parameters. (The tools of
the MCP server are compared where its package is installed: `tests/integrations/mcp/test_server.py`.)"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec
import pytest

import holdfast
from holdfast._api.actions import Action, Parameter
from holdfast._operator.cli.main import main
from holdfast._operator.web import app, openapi
from holdfast._operator.web.action_routes import route_of
from holdfast._operator.web.routes import API, Route

ACTIONS = {action.name: action for action in holdfast.adapters.actions()}

NO_ACTIONS = {
    **dict.fromkeys(("get", "runs", "history", "explain", "findings", "questions"), "reads"),
    **dict.fromkeys(("queues", "schedules", "workers", "trends", "verify", "wait"), "reads"),
    **dict.fromkeys(("preview_resume", "preview_rollback", "preview_fork"), "reads"),
    **dict.fromkeys(("handle", "stream", "aio", "url"), "reads"),
    **dict.fromkeys(("worker", "recover", "run_watchdog"), "executes what was decided before"),
    **dict.fromkeys(("default", "close"), "opens and closes"),
    **dict.fromkeys(("backup", "export_run", "import_run"), "files, whose bytes have no actor"),
    "memory": "an object of its own, for programs",
}
"""Public names of `Store` that are no actions, and why."""

ROLES = {"operator", "admin"}

OWN_OPTIONS: dict[tuple[str, str], tuple[str, ...]] = {
    ("settle", "outcome"): ("done", "not_done", "fail"),
    ("settle", "result"): ("done",),
    ("settle", "reason"): ("fail",),
    ("settle", "confirm"): ("not_done",),
    ("resume", "drift"): ("keep", "redo"),
    ("resume_all", "held_reason"): ("failed", "quarantined", "diverged"),
}
"""Parameters that a command asks for in its own way, with its options."""

OTHER_COMMANDS = {("set_queue", "paused"): ("queues pause", "queues resume")}
"""Parameters that are commands of their own."""

COMMANDS = {
    "resume_all": "resume",
    "accept_data_loss": "store accept-data-loss",
    "prune": "store prune",
}


# -- what is wrong, in words ---------------------------------------------------------------------


def undeclared(store: type) -> Iterator[str]:
    """Yield public names of `Store` that are neither an action nor known to be none."""
    for name in dir(store):
        if name.startswith("_") or name in ACTIONS:
            continue
        if name not in NO_ACTIONS:
            yield f"{name}: is it an action?"
        member = inspect.getattr_static(store, name)
        if callable(member) and "actor" in inspect.signature(member).parameters:
            yield f"{name}: takes an actor, and is no action"


def misdeclared(actions: Iterable[Action]) -> Iterator[str]:
    """Yield what a declaration lacks."""
    for action in actions:
        if action.role not in ROLES:
            yield f"{action.name}: no role"
        if not action.help.endswith("."):
            yield f"{action.name}: the first line of the docstring is its help, one sentence"
        if action.only_local:
            continue
        for parameter in action.parameters:
            if not parameter.help:
                yield f"{action.name}: {parameter.name} says nothing of itself"


def missing_in_http(actions: Iterable[Action], described: dict[str, Any]) -> Iterator[str]:
    """Yield actions and parameters that the description of the HTTP API has not, or has otherwise."""
    schemas = described["components"]["schemas"]
    for action in actions:
        operation = described["paths"].get(f"{API}/{action.path}", {}).get("post")
        if operation is None:
            if not action.only_local:
                yield f"{action.name}: no route, and no reason why"
            continue
        body = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        fields = schemas[body.rpartition("/")[2]].get("properties", {})
        query = {it["name"] for it in operation["parameters"] if it["in"] == "query"}
        asked = {it.name for it in action.parameters} - {"run_id" if "id" in query else ""}
        if {*fields} | query - {"id"} != asked:
            yield f"{action.name}: HTTP takes {sorted({*fields} | query)}, and not {sorted(asked)}"
        if operation["x-role"] != action.role:
            yield f"{action.name}: the role {operation['x-role']}"


def missing_in_cli(actions: Iterable[Action], commands: click.Group) -> Iterator[str]:
    """Yield actions and parameters that no command has."""
    for action in actions:
        command = found(commands, COMMANDS.get(action.name, _words(action.name)))
        if command is None:
            yield f"{action.name}: no command"
            continue
        taken = {it.name for it in command.params}
        for parameter in action.parameters:
            place = (action.name, parameter.name)
            others = OTHER_COMMANDS.get(place, ())
            if others and all(found(commands, each) for each in others):
                continue
            if not {*OWN_OPTIONS.get(place, (parameter.name,))} <= taken:
                yield f"{action.name}: its command does not take {parameter.name}"


def _words(name: str) -> str:
    verb, _, thing = name.partition("_")
    return f"{thing}s {verb}" if thing in ("queue", "schedule") else name.replace("_", "-")


def found(group: click.Group, words: str) -> click.Command | None:
    """Return the command of these words."""
    command: click.Command | None = group
    for word in words.split():
        command = command.commands.get(word) if isinstance(command, click.Group) else None
    return command


def described(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the description of these routes, as the server answers it."""
    told: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(openapi.describe(tuple(routes))))
    return told


# -- nothing is -----------------------------------------------------------------------------------


def test_who_decides_with_a_store_uses_an_action() -> None:
    assert not list(undeclared(holdfast.types.Store))
    assert not NO_ACTIONS.keys() - {*dir(holdfast.types.Store)}, "names that are gone"


def test_every_declaration_is_whole() -> None:
    assert not list(misdeclared(ACTIONS.values()))


def test_every_action_is_a_route_with_its_parameters() -> None:
    assert not list(missing_in_http(ACTIONS.values(), described(app.routes())))


def test_every_action_is_a_command_with_its_parameters() -> None:
    assert not list(missing_in_cli(ACTIONS.values(), main))


# -- and what would be, is found ------------------------------------------------------------------


class Careless(holdfast.types.Store):
    """A store with a decision that nobody declared."""

    def annul(self, run_id: str, *, actor: str) -> None:
        """Annul a run."""


def annul(self: object, run_id: str, why: str = "", *, actor: str) -> None:
    """Annul a run."""


PLANTED = Action("annul", "operator", annul)


def test_a_decision_that_is_not_declared_is_found() -> None:
    assert list(undeclared(Careless)) == [
        "annul: is it an action?",
        "annul: takes an actor, and is no action",
    ]


@pytest.mark.parametrize(
    ("planted", "wrong"),
    [
        (PLANTED, "annul: why says nothing of itself"),
        (Action("annul", "nobody", annul), "annul: no role"),  # type: ignore[arg-type]
    ],
)
def test_a_declaration_that_is_not_whole_is_found(planted: Action, wrong: str) -> None:
    assert wrong in list(misdeclared([planted]))


def test_an_action_that_is_in_no_front_is_found() -> None:
    assert list(missing_in_http([PLANTED], described(app.routes()))) == [
        "annul: no route, and no reason why"
    ]
    assert list(missing_in_cli([PLANTED], main)) == ["annul: no command"]


def test_a_parameter_that_a_front_has_under_another_name_is_found() -> None:
    pause = ACTIONS["pause"]
    renamed = msgspec.defstruct("Pause", [("why", str, "")])
    told = described([msgspec.structs.replace(route_of(pause), body=renamed)])
    assert list(missing_in_http([pause], told)) == [
        "pause: HTTP takes ['id', 'why'], and not ['reason']"
    ]
    bare = click.Group("holdfast", [click.Command("pause", params=[click.Argument(["run_id"])])])
    assert list(missing_in_cli([pause], bare)) == ["pause: its command does not take reason"]


def test_what_says_what_was_seen_is_required_from_afar() -> None:
    approve = ACTIONS["approve"]
    here = {it.name: it for it in approve.parameters}
    there = {it.name: it for it in approve.remote_parameters}
    assert not here["digest"].is_required
    assert there["digest"].is_required
    assert there["digest"].help == here["digest"].help
    assert isinstance(there["step"], Parameter)
