"""Schema migration: the schema is a list of numbered steps, and all missing steps commit together."""

from __future__ import annotations

import os
from functools import cache
from importlib.resources import files
from typing import cast

import apsw

from holdfast._engine.journal.rows import GENESIS
from holdfast._engine.values.digest import seal
from holdfast._stores import named_sql, schema_versions
from holdfast._stores.sqlite.apsw_types import Connection, connect
from holdfast.errors import Corrupt, HoldfastError, StoreUnusable

Q = named_sql.load("sqlite/queries.sql")

APPLICATION_ID = 0x484F4C44
"""The application id in the header of a store's file ("HOLD")."""

TEMPLATE_PAGE = 4096
"""Smaller than for a file on a disk: a copy of the template has half the size."""

Objects = dict[tuple[str, str], str]


@cache
def steps() -> tuple[str, ...]:
    """Return the migrations, in order: schema/0001.sql and so on."""
    folder = files("holdfast._stores.sqlite").joinpath("schema")
    names = sorted(found.name for found in folder.iterdir() if found.name.endswith(".sql"))
    assert names == [f"{number:04}.sql" for number in range(1, len(names) + 1)], names
    return tuple(folder.joinpath(name).read_text("utf-8") for name in names)


def version_of(connection: Connection, path: str) -> int:
    """Return the schema version of a store's file, 0 for an empty one; refuse any other file."""
    application_id = _number(connection, "application_id")
    version = _number(connection, "schema_version")
    if application_id == 0 and version == 0 and not objects(connection):
        return 0
    if application_id != APPLICATION_ID:
        raise StoreUnusable(f"{path} is a database of another program; give another path")
    if version > len(steps()):
        schema_versions.check(version, _works_from(connection, version), len(steps()), path)
    if version < 1:
        raise Corrupt(f"the header of {path}", why=f"it says schema version {version}")
    return version


def check_ours(connection: Connection, path: str) -> int:
    """Return the schema version of a file, before it is changed. A refused file keeps its WAL,
    which the last closing connection would otherwise move into the database."""
    connection.execute(Q["begin_reading"])  # Another process may be creating the tables now.
    try:
        return version_of(connection, path)
    except HoldfastError:
        if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        raise
    finally:
        if connection.in_transaction:
            connection.execute(Q["rollback"])


def _works_from(connection: Connection, version: int) -> int:
    """Return the version that a process must support to work with a newer store; by default the
    store's own version."""
    if ("table", "schema") not in objects(connection):
        return version
    for of_version, works_from, digest in connection.execute(Q["works_from"]).fetchall():
        if of_version == version and digest == seal(GENESIS, (of_version, works_from)):
            return int(works_from)
    return version


def migrate(connection: Connection, version: int) -> None:
    """Apply the missing steps. The caller's transaction makes them atomic."""
    known = len(steps())
    if version >= known:
        return
    for step in steps()[version:]:
        connection.execute(step)
    connection.execute(Q["set_application_id"].format(APPLICATION_ID))
    connection.execute(Q["set_schema_version"].format(known))
    numbers = (known, schema_versions.WORKS_FROM)
    connection.execute(Q["put_works_from"], (*numbers, seal(GENESIS, numbers)))


def check_schema(connection: Connection, path: str) -> None:
    """Compare the definitions of the file's tables with the original ones. For a newer compatible
    version, only check that they exist."""
    found = objects(connection)
    newer = _number(connection, "schema_version") > len(steps())
    for place, text in expected().items():
        kind, name = place
        what = f"the definition of {kind} {name} in {path}"
        if place not in found:
            raise schema_versions.missing(what)
        if found[place] != text and not newer:
            raise Corrupt(what, why=f"it was changed; {schema_versions.WAY_OUT}")


@cache
def expected() -> Objects:
    """Return the schema of a fresh store."""
    connection = connect(":memory:", apsw.SQLITE_OPEN_READWRITE)
    migrate(connection, 0)
    made = objects(connection)
    connection.close()
    return made


@cache
def template() -> bytes:
    """Return an empty database with the tables of a store, in WAL mode, for copying."""
    connection = connect(":memory:", apsw.SQLITE_OPEN_READWRITE)
    connection.execute(Q["page_size"].format(TEMPLATE_PAGE))
    migrate(connection, 0)
    made = bytearray(cast("apsw.Connection", connection).serialize("main"))
    connection.close()
    made[18:20] = b"\x02\x02"  # The header's versions for writing and reading: WAL.
    return bytes(made)


def objects(connection: Connection) -> Objects:
    """Return the definitions of all tables, indexes and views."""
    rows = connection.execute(Q["schema_objects"]).fetchall()
    return {(str(kind), str(name)): f"{table}: {text}" for kind, name, table, text in rows}


def _number(connection: Connection, name: str) -> int:
    (found,) = connection.execute(Q[name]).fetchall()[0]
    assert isinstance(found, int)
    return found
