"""Open a store on a server: check the server, and create or migrate the schema."""

from __future__ import annotations

import re
import uuid
from functools import cache
from importlib.resources import files

import msgspec

from holdfast._engine.journal.rows import GENESIS
from holdfast._engine.values.digest import seal
from holdfast._stores import schema_versions
from holdfast._stores.addresses import NoStore
from holdfast._stores.lookups import Fetch
from holdfast._stores.postgres.server_connection import Link
from holdfast.errors import Corrupt, StoreUnusable

OLDEST_SERVER = 13_00_00
_TABLE = re.compile(r"CREATE TABLE holdfast\.(\w+)")
_DIVIDED = re.compile(
    r"CREATE TABLE ([\w.]+) \(([^;]*?)\); -- divided by run number$", re.MULTILINE
)


class StoreRow(msgspec.Struct):
    """The one row about the store as a whole."""

    store_id: str
    incarnation: int
    accepted_through: int
    lost: str | None
    server_us: int
    """The start time of the server: another time means another server, or the same one after a
    crash."""
    born_as: str | None
    """The id with which the store was made, from its first incarnation."""


@cache
def steps() -> tuple[str, ...]:
    """Return the migrations, in order: schema/0001.sql and so on."""
    folder = files("holdfast._stores.postgres").joinpath("schema")
    names = sorted(found.name for found in folder.iterdir() if found.name.endswith(".sql"))
    assert names == [f"{number:04}.sql" for number in range(1, len(names) + 1)], names
    return tuple(folder.joinpath(name).read_text("utf-8") for name in names)


def known() -> int:
    """Return the newest version that this release supports."""
    return len(steps())


def partitioned(step: str, count: int) -> str:
    """Return a migration with the marked tables partitioned by run number."""
    tables = _DIVIDED.findall(step)
    made = _DIVIDED.sub(r"CREATE TABLE \1 (\2) PARTITION BY HASH (run_no);", step)
    parts = [
        f"CREATE TABLE {name}_{at} PARTITION OF {name} "
        f"FOR VALUES WITH (MODULUS {count}, REMAINDER {at});"
        for name, _ in tables
        for at in range(count)
    ]
    return "\n".join([made, *parts])


def open_store(link: Link, shown: str, partitions: int = 0, *, create: bool = True) -> StoreRow:
    """Check the server, bring the schema up to date, and return the store's row."""
    has_schema = check_server(link, shown)
    version = _version(link, shown, has_schema=has_schema)
    if not has_schema and not create:
        raise NoStore(shown)
    if version < known():
        with link.writing():
            link.fetch("lock_schema")
            ((has_schema, *_),) = link.fetch("has_schema")
            version = _version(link, shown, has_schema=has_schema)
            for step in steps()[version:]:
                link.execute((partitioned(step, partitions) if partitions else step).encode())
            if version < known():
                link.change("set_schema_version", (known(), schema_versions.WORKS_FROM))
            if not version:
                store_id = uuid.uuid4().hex
                link.change("add_store", (store_id,))
                born = (1, 0, "", store_id)
                link.change("add_incarnation", (*born, seal(GENESIS, born)))
    return store_row(link.fetch)


def is_standby(link: Link) -> bool:
    """Return whether the server does not accept writes yet."""
    return bool(link.fetch("has_schema")[0][1])


def check_server(link: Link, shown: str) -> bool:
    """Refuse a server that cannot keep the guarantees; return whether the schema exists."""
    ((has_schema, is_standby, fsync, version, encoding),) = link.fetch("has_schema")
    if isinstance(encoding, bytes):  # The driver returns text of an unknown encoding as bytes.
        encoding = encoding.decode()
    if encoding != "UTF8":
        raise StoreUnusable(
            f"{shown} has the encoding {encoding}; create a database with UTF8: "
            "createdb --encoding=UTF8 --template=template0 NAME"
        )
    if is_standby:
        raise StoreUnusable(
            f"{shown} is a standby: it cannot be written to, and what it shows may be old; give the "
            "address of the primary, or several: postgresql://a,b/name?target_session_attrs=read-write"
        )
    if fsync != "on":
        raise StoreUnusable(
            f"{shown} runs with fsync={fsync}: a crash of its machine loses what was acknowledged; "
            "set fsync=on and restart it"
        )
    if version < OLDEST_SERVER:
        raise StoreUnusable(f"{shown} is PostgreSQL {version // 10_000}; 13 or later is needed")
    return bool(has_schema)


def _version(link: Link, shown: str, *, has_schema: bool) -> int:
    """Return the version of a schema whose tables are all there, or 0 if none of them is."""
    there = {name.decode() if isinstance(name, bytes) else name for (name,) in link.fetch("tables")}
    if not has_schema and there.isdisjoint(_tables(known())):
        return 0
    found = link.fetch("schema_version") if has_schema else []
    version, works_from = found[0] if found else (known(), 0)
    schema_versions.check(version, works_from, known(), shown)
    for name in _tables(version):
        if name not in there:
            raise schema_versions.missing(f"the definition of table {name} in {shown}")
    if not found:
        raise schema_versions.missing(f"the version of the schema in {shown}")
    return int(version)


@cache
def _tables(version: int) -> tuple[str, ...]:
    """Return the names of the tables that a schema of this version has."""
    return tuple(_TABLE.findall("".join(steps()[:version])))


def store_row(fetch: Fetch) -> StoreRow:
    """Return the row of the store. It has no digest, since the server changes it; but its id is kept
    twice, the second time in the row of its first incarnation."""
    found = fetch("store_row", ())
    if not found:
        raise schema_versions.missing("the row of the store")
    row = StoreRow(*found[0])
    if row.born_as not in (None, row.store_id):
        why = f"its id is not {row.born_as}, with which it was made"
        raise Corrupt("the row of the store", why=f"{why}; {schema_versions.WAY_OUT}")
    return row
