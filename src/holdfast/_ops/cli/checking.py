"""The command `preflight`: what a run would find if it went on now. Nothing is taken up or written."""

from __future__ import annotations

import click
import msgspec

from holdfast._core.comparing import ResumePreview
from holdfast._core.drift import Change
from holdfast._ops import preflight
from holdfast._ops.cli.child import module_named
from holdfast._ops.cli.session import Session, command
from holdfast._ops.inspect import found


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "preflight", pages=True)(_preflight)


@click.argument("run_id")
@click.option(
    "--app",
    metavar="MODULE",
    help="The module (or file) with the flow: its code, versions and watched facts are compared.",
)
def _preflight(session: Session, run_id: str, app: str | None) -> None:
    """Say what has changed since a run stopped, without resuming it.

    How long the gap is, which code, versions, watched facts and results are not as they were, what
    will be executed again, and what is in doubt. With --app the flow is replayed on its record, as far
    as it goes, to look at what it watches; no step is executed.
    """
    store = session.store()
    row = found(store, run_id)
    if app is None:
        told = preflight.report(store, row, preflight.replayed_history(store, row), None)
    else:
        told = _with_code(session, run_id, app)
    if session.as_json:
        session.answer(preflight=msgspec.to_builtins(told))
        return
    session.say(_shown(told))


def _with_code(session: Session, run_id: str, app: str) -> ResumePreview:
    import holdfast

    module_named(app)
    with holdfast.open(session.url, namespace=session.namespace, default=False) as opened:
        return opened.preview_resume(run_id)


def _shown(told: ResumePreview) -> str:
    lines = [str(told)]
    lines += [_effects(change) for change in told.changes if change.effects]
    return "\n".join(lines)


def _effects(change: Change) -> str:
    return (
        f"Doing it again from {change.steps[0]} on would execute {', '.join(change.effects)} again."
    )
