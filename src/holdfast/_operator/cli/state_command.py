"""The command `state`: snapshots of a run's loops, and the differences between two."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from rich.text import Text

from holdfast._engine.text import ago, brief_json, visible
from holdfast._operator.cli.session import Session, command
from holdfast._operator.cli.tables import cell
from holdfast._operator.read import snapshots
from holdfast._operator.read.snapshots import Comparison, Difference, SnapshotView, StateView
from holdfast.errors import UsageError

LISTED = 200
_MARKS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "state", pages=True)(_state)


@click.argument("run_id")
@click.option("--at", "seq", type=int, metavar="SEQ", help="The last state saved up to this entry.")
@click.option("--list", "listed", is_flag=True, help="List the snapshots instead.")
@click.option(
    "--between",
    type=(int, int),
    metavar="SEQ SEQ",
    help="Compare the states at two entries.",
)
@click.option(
    "--loop", "path", metavar="KEY", help="Only this loop: turns, turns#2, turns[3]/turns."
)
def _state(
    session: Session,
    run_id: str,
    seq: int | None,
    listed: bool,
    between: tuple[int, int] | None,
    path: str | None,
) -> None:
    """Show a saved state of a run's loop: the newest, or an older one.

    A loop over turns(…) saves its state at the end of each turn. `holdfast state RUN_ID --list`
    lists the snapshots.
    """
    if sum((seq is not None, listed, between is not None)) > 1:
        raise UsageError("give only one of --at, --list and --between")
    store = session.store()
    if listed:
        found = snapshots.snapshots(store, run_id)
        chosen = [it for it in found if path in (None, it.path)]
        if session.as_json:
            session.answer(run_id=run_id, snapshots=chosen)
        else:
            _print_list(session, chosen, store.now_us())
    elif between is not None:
        compared = snapshots.compared(store, run_id, *between, path=path)
        if session.as_json:
            session.answer(run_id=run_id, comparison=compared)
        else:
            _print_changes(session, compared, store.now_us())
    else:
        state = snapshots.state(store, run_id, seq, path=path)
        if session.as_json:
            session.answer(run_id=run_id, state=state)
        else:
            _print_state(session, state, store.now_us())


def _print_list(session: Session, found: list[SnapshotView], now_us: int) -> None:
    if not found:
        session.say("No snapshots: only loops over turns(…) save a state, at the end of each turn.")
        return
    rows = [
        [
            cell(str(it.seq)),
            cell(it.path),
            cell(str(it.turn)),
            cell(f"{it.bytes:,}"),
            cell(ago(_us(it), now_us)),
            cell(_notes(it), "dim"),
        ]
        for it in found[-LISTED:]
    ]
    session.show_rows(("SEQ", "LOOP", "TURN", "BYTES", "SAVED", ""), rows, ("BYTES",))
    if len(found) > LISTED:
        session.say(f"The last {LISTED} of {len(found):,}; all with --json.", "dim")


def _notes(it: SnapshotView) -> str:
    notes = [f"generation {it.generation}"] if it.generation > 1 else []
    notes += ["superseded"] if it.superseded else []
    notes += ["borrowed"] if it.borrowed else []
    return ", ".join(notes)


def _print_state(session: Session, state: StateView, now_us: int) -> None:
    session.say(_head(state, now_us), "bold")
    text = msgspec.json.format(msgspec.json.encode(state.state), indent=2).decode()
    session.out.print(Text(visible(text, lines=True)), soft_wrap=True)  # To be copied.


def _head(it: StateView | SnapshotView, now_us: int) -> str:
    return (
        f"{it.path}: the state that turn {it.turn} begins with, entry {it.seq}, "
        f"saved {ago(_us(it), now_us)}"
    )


def _us(it: StateView | SnapshotView) -> int:
    return round(it.at.timestamp() * 1e6)


def _print_changes(session: Session, compared: Comparison, now_us: int) -> None:
    session.say(f"from  {_head(compared.before, now_us)}", "bold")
    session.say(f"to    {_head(compared.after, now_us)}", "bold")
    if not compared.differences:
        session.say("Nothing changed.")
    for change in compared.differences:
        session.out.print(_line(change), soft_wrap=True)
    if compared.cut:
        session.say(f"Only the first {len(compared.differences):,}; there are more.", "dim")


def _line(change: Difference) -> Text:
    mark, style = _MARKS[change.kind]
    line = Text(f"{mark} {visible(change.path or '(all of it)')}: ", style)
    values: list[Any] = [] if change.kind == "added" else [change.before]
    values += [] if change.kind == "removed" else [change.after]
    line.append(" → ".join(brief_json(value) for value in values), "default")
    return line
