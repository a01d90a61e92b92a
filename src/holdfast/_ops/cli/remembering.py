"""Commands about memories: see and set what runs remember beyond their end."""

from __future__ import annotations

import click

from holdfast._ops import memories
from holdfast._ops.cli.acting import duration, parsed
from holdfast._ops.cli.session import BUSY, NOT_FOUND, OK, Session, command
from holdfast._ops.cli.tables import cell, table
from holdfast._ops.text import shown

LIMIT = 100


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    memory = click.Group(
        "memory",
        help="See and set what runs remember beyond their end.\n\n"
        "MEMORY is the name that was given to holdfast.memory(…). Values are plain JSON here; those "
        "of your classes are shown by their names and fields.",
    )
    group.add_command(memory)
    command(memory, "get")(_get)
    command(memory, "set")(_set)
    command(memory, "list")(_list)
    command(memory, "delete")(_delete)


@click.argument("memory")
@click.argument("key")
def _get(session: Session, memory: str, key: str) -> int:
    """Print a value."""
    found = memories.get(session.store(), memory, key)
    if session.as_json:
        session.answer(value=found)
    elif found is None:
        session.note(f"holdfast: memory {memory!r} has no {key!r}")
    else:
        session.say(shown(found.value, 1_000_000))
    return NOT_FOUND if found is None else OK


@click.argument("memory")
@click.argument("key")
@click.argument("value", metavar="JSON")
@click.option(
    "--ttl", metavar="TIME", help='How long it stays, such as "30d", or seconds; default: for good.'
)
@click.option(
    "--if-version", type=int, metavar="N", help="Only if that is its version now (0: none)."
)
def _set(
    session: Session, memory: str, key: str, value: str, ttl: str | None, if_version: int | None
) -> int:
    """Write a value."""
    given = parsed("the value", value)
    written = memories.put(
        session.store(create=True), memory, key, given, duration(ttl), if_version
    )
    if session.as_json:
        session.answer(value=written)
    elif written is None:
        session.note(f"holdfast: {key!r} has another version by now; nothing was written")
    else:
        session.say(f"Written: {key}, version {written.version}.")
    return BUSY if written is None else OK


@click.argument("memory")
@click.argument("prefix", default="")
@click.option("--limit", type=click.IntRange(min=1), default=LIMIT, show_default=True)
def _list(session: Session, memory: str, prefix: str, limit: int) -> None:
    """List values by key; only those whose keys begin with PREFIX."""
    found = memories.listed(session.store(), memory, prefix, limit)
    if session.as_json:
        session.answer(values=found)
        return
    if not found:
        session.say(f"Memory {memory} has no such keys.")
        return
    rows = table("KEY", "VERSION", "WRITTEN BY", "EXPIRES", "VALUE")
    for memo in found:
        expires = "" if memo.expires_at is None else f"{memo.expires_at:%Y-%m-%d %H:%M:%S UTC}"
        rows.add_row(
            cell(memo.key),
            cell(str(memo.version)),
            cell("" if memo.run_id is None else f"run {memo.run_id}"),
            cell(expires),
            cell(shown(memo.value, 60)),
        )
    session.show(rows)


@click.argument("memory")
@click.argument("key")
@click.option("--if-version", type=int, metavar="N", help="Only if that is its version now.")
def _delete(session: Session, memory: str, key: str, if_version: int | None) -> int:
    """Remove a value."""
    removed = memories.remove(session.store(), memory, key, if_version)
    if session.as_json:
        session.answer(removed=removed)
    elif removed:
        session.say(f"Removed: {key}.")
    else:
        session.note(f"holdfast: {key!r} has another version by now; nothing was removed")
    return OK if removed else BUSY
