"""Commands about memories: list, read and set values that outlive their run."""

from __future__ import annotations

from typing import Any

import click

from holdfast._engine.text import brief_json
from holdfast._features.memory import operator as memory_admin
from holdfast._operator.cli.decision_commands import parsed
from holdfast._operator.cli.exit_codes import BUSY, NOT_FOUND, OK
from holdfast._operator.cli.session import DurationType, Session, command, subgroup
from holdfast._operator.cli.tables import cell, table

LIMIT = 100


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    memory = subgroup(
        "memory",
        "List, read and change values in the memory of runs.\n\n"
        "MEMORY is the name given to holdfast.memory(…). Values are plain JSON here; objects "
        "of your classes are shown as class names and fields.",
        lists=True,
    )
    command(memory, "list", pages=True)(_list)
    command(memory, "get")(_get)
    command(memory, "set")(_set)
    command(memory, "delete")(_delete)
    group.add_command(memory)


@click.argument("memory")
@click.argument("key")
def _get(session: Session, memory: str, key: str) -> int:
    """Print a value."""
    found = memory_admin.get(session.store(), memory, key)
    if found is None:
        return _refused(session, NOT_FOUND, f"memory {memory!r} has no {key!r}", value=None)
    if session.as_json:
        session.answer(value=found)
    else:
        session.say(brief_json(found.value, 1_000_000))
    return OK


def _refused(session: Session, code: int, why: str, **answer: Any) -> int:
    """Report why a command ends with this exit code, and return the code."""
    if session.as_json:
        session.answer(**answer, error={"message": why}, exit_code=code)
    else:
        session.note(f"holdfast: {why}")
    return code


@click.argument("memory")
@click.argument("key")
@click.argument("value", metavar="JSON")
@click.option("--ttl", type=DurationType(), help="How long the value is kept. Default: no limit.")
@click.option(
    "--if-version", type=int, metavar="N", help="Only if this is the current version (0: no value)."
)
def _set(
    session: Session, memory: str, key: str, value: str, ttl: float | None, if_version: int | None
) -> int:
    """Write a value."""
    given = parsed("the value", value)
    written = memory_admin.put(session.store(create=True), memory, key, given, ttl, if_version)
    if written is None:
        why = f"the version of {key!r} has changed; nothing was written"
        return _refused(session, BUSY, why, value=None)
    if session.as_json:
        session.answer(value=written)
    else:
        session.say(f"Written: {key}, version {written.version}.")
    return OK


@click.argument("memory", required=False)
@click.argument("prefix", default="")
@click.option("--limit", type=click.IntRange(min=1), default=LIMIT, show_default=True)
def _list(session: Session, memory: str | None, prefix: str, limit: int) -> None:
    """List the memories, or the values of one by key.

    With PREFIX, only values whose keys begin with it.
    """
    if memory is None:
        _list_memories(session)
        return
    found = memory_admin.list_values(session.store(), memory, prefix, limit)
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
            cell(brief_json(memo.value, 60)),
        )
    session.show(rows)


def _list_memories(session: Session) -> None:
    names = memory_admin.memories(session.store())
    if session.as_json:
        session.answer(memories=names)
        return
    for name in names:
        session.say(name)
    if not names:
        session.say("No memory has a value.")


@click.argument("memory")
@click.argument("key")
@click.option("--if-version", type=int, metavar="N", help="Only if this is the current version.")
def _delete(session: Session, memory: str, key: str, if_version: int | None) -> int:
    """Remove a value."""
    store = session.store()
    removed = memory_admin.remove(store, memory, key, if_version)
    if not removed and memory_admin.get(store, memory, key) is None:
        return _refused(session, NOT_FOUND, f"memory {memory!r} has no {key!r}", removed=False)
    if not removed:
        why = f"the version of {key!r} has changed; nothing was removed"
        return _refused(session, BUSY, why, removed=False)
    if session.as_json:
        session.answer(removed=True)
    else:
        session.say(f"Removed: {key}.")
    return OK
