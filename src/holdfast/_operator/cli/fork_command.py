"""The command `fork`: start a new run from a step of an existing one."""

from __future__ import annotations

from typing import Any, cast

import click
import msgspec

from holdfast._api.actions import declared
from holdfast._engine.journal.fork_history import NOT_GIVEN
from holdfast._engine.text import count
from holdfast._operator.act import fork
from holdfast._operator.cli.child_process import module_named, typed_arguments
from holdfast._operator.cli.decision_commands import OBJECT, parsed, run_line
from holdfast._operator.cli.session import Session, command, spelled_as_options, takes
from holdfast._runtime import registry
from holdfast._stores.lookups import existing_row
from holdfast.errors import UsageError


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "fork", acts=True)(_fork)


@takes("fork", but=("results",))
@click.option(
    "--app",
    metavar="MODULE",
    help="The module or file of the flow: --input is checked against its annotations.",
)
@click.option(
    "--result", "results", metavar="STEP=JSON", multiple=True, help="Use this result for the step."
)
@click.option(
    "--dry-run", is_flag=True, help="List the effects that the fork may repeat; fork nothing."
)
def _fork(
    session: Session, app: str | None, results: tuple[str, ...], dry_run: bool, **asked: Any
) -> int | None:
    """STEP is a step key that `holdfast show RUN_ID` shows, or a turn such as turns[11]. The new
    run keeps the outcomes recorded before it and does not execute those steps again. Effects that
    the new run may execute again are listed, and must be confirmed. Values are plain JSON. For an
    object of your own class, use Python: store.fork(…), or --input with --app.
    """
    store, run_id, state = session.store(), asked["run_id"], asked["state"]
    given = _object(asked["input"])
    checked = None if given is None else False
    flow = _flow(app, existing_row(store, run_id).flow)
    if given is not None and flow is not None:
        given, checked = typed_arguments(flow, given), True
    replaced = dict(_result(text) for text in results)
    with spelled_as_options(declared("fork"), {"results": "--result"}) as words:
        declared("fork").check({**asked, "input": given, "results": replaced}, words.__getitem__)
        # The plan that is shown is the one that is written, so the method is not called.
        planned = fork.plan_fork(
            store,
            run_id,
            asked["new_run_id"],
            before=asked["before"],
            input=given,
            state=NOT_GIVEN if state is None else parsed("--state", state),
            results=replaced,
            actor=asked["actor"],
        )
    if dry_run:
        _tell_planned(session, planned)
        return None
    if planned.repeats and not asked["confirm"] and not _confirmed(session, planned):
        return None
    made = msgspec.structs.replace(fork.make(store, planned), input_checked=checked)
    _tell(session, made)
    return None


def _flow(app: str | None, name: str) -> Any:
    """Return the flow of the run, if --app names its module."""
    if app is not None:
        module_named(app)
    flow = registry.flows.get(name)
    if flow is None and app is not None:
        raise UsageError(f"--app {app}: it has no flow {name!r}, which is the flow of the run")
    return flow


def _tell_planned(session: Session, planned: fork.Plan) -> None:
    """Print which outcomes a fork would borrow and which effects it may repeat."""
    preview = fork.preview(planned)
    if session.as_json:
        session.answer(preview=msgspec.to_builtins(preview), fork=None, next=[])
        return
    session.say(
        f"Run {planned.new.run_id!r} would go on from run {preview.origin!r} before {preview.before}."
    )
    if preview.differences:
        session.say(f"It would be given otherwise: {', '.join(preview.differences)}.")
    if not preview.effects:
        session.say("It would repeat no effect.")
        return
    session.say("It may execute these again, under keys of its own (--confirm):")
    for effect in preview.effects:
        session.say(f"  {effect.step} ({effect.what})")


def _confirmed(session: Session, planned: fork.Plan) -> bool:
    asked = fork.not_confirmed(planned)
    if not session.as_json:
        session.say("The new run may execute these again, under keys of its own:")
        for effect in asked.effects:
            session.say(f"  {effect}")
    return session.confirmed("Is this meant?", "--confirm", refusal=asked)


def _object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    value = parsed("--input", text, like=OBJECT)
    if not isinstance(value, dict):
        raise UsageError("--input must be a JSON object of arguments by name")
    return cast("dict[str, Any]", value)


def _result(text: str) -> tuple[str, Any]:
    step, equals, value = text.partition("=")
    if not equals or not step:
        raise UsageError(f"--result must be STEP=JSON, not {text!r}")
    return step, parsed("--result", value)


def _tell(session: Session, made: fork.Fork) -> None:
    go_on = run_line(session, made.run_id)
    if session.as_json:
        session.answer(fork=msgspec.to_builtins(made), next=[] if go_on is None else [go_on])
        return
    if not made.created:
        session.say(f"run {made.run_id!r} is this fork already.")
    lent = [count(made.borrowed, "recorded outcome")] if made.borrowed else []
    lent += [f"the state of {turn}" for turn in made.states]
    session.say(
        f"run {made.run_id!r} goes on from run {made.origin!r} before {made.before}"
        f"{', with ' if lent else ''}{' and '.join(lent)}."
    )
    if made.differences:
        session.say(f"It was given otherwise: {', '.join(made.differences)}.")
    if made.input_checked is False:
        session.say(
            "Its input was not checked, because the flow is not loaded. If the input does not "
            "fit, the run fails. To check it, give --app.",
            "yellow",
        )
    if go_on is None:
        session.say("It is a block of a script: run that script with this run id.")
        return
    session.say("A worker with its flow executes it. If none is running:")
    session.say(f"  {go_on}")
