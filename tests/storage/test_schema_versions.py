"""Which process may work with which store: versions of the schema, and what came later."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import apsw
import msgspec
import pytest

from holdfast._engine.journal.rows import GENESIS
from holdfast._engine.values.digest import seal
from holdfast._stores import schema_versions
from holdfast._stores.sqlite import migrations
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import Corrupt, StoreTooNew
from tests.contract.ground import new_run
from tests.tidy.source import ROOT

STEP = "ALTER TABLE runs ADD COLUMN colour TEXT; CREATE TABLE colours (colour TEXT)"


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Become the code after today's, which says from which version on its stores work."""
    today = migrations.steps()

    def become(works_from: int) -> None:
        monkeypatch.setattr(migrations, "steps", lambda: (*today, STEP))
        monkeypatch.setattr(schema_versions, "WORKS_FROM", works_from)
        migrations.expected.cache_clear()

    yield become
    monkeypatch.undo()
    migrations.expected.cache_clear()


def of_later(path: str, later, works_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a store of the next version behind, and be today's code again."""
    later(works_from)
    store = SqliteStore(path)
    store.start(new_run("later"), None)
    store.close()
    monkeypatch.undo()
    migrations.expected.cache_clear()


@pytest.mark.parametrize(
    ("version", "works_from", "known", "fits"),
    [
        *((2, 2, 2, True), (2, 1, 3, True), (1, 1, 3, True), (3, 2, 2, True), (9, 1, 2, True)),
        *((3, 3, 2, False), (4, 3, 2, False)),
    ],
)
def test_the_rule(version, works_from, known, fits):
    if fits:
        schema_versions.check(version, works_from, known, "here")
    else:
        with pytest.raises(StoreTooNew, match=f"here has schema version {version}.*upgrade"):
            schema_versions.check(version, works_from, known, "here")


def test_89_a_newer_store_that_works_with_us_is_worked_with(tmp_path, later, monkeypatch):
    path = str(tmp_path / "a.db")
    of_later(path, later, len(migrations.steps()), monkeypatch)
    for _ in range(2):
        store = SqliteStore(path)
        store.start(new_run("ours"), None)
        assert {row.run_id for row in store.claimable(store.now_us(), 9)} == {"later", "ours"}
        assert store.verify() == []
        store.close()
    raw = apsw.Connection(path)
    assert raw.execute("PRAGMA user_version").fetchall() == [(len(migrations.steps()) + 1,)]
    assert raw.execute("SELECT count(*) FROM runs WHERE colour IS NULL").fetchall() == [(2,)]
    raw.close()


def test_90_a_newer_store_that_has_left_us_behind_is_refused(tmp_path, later, monkeypatch):
    path = str(tmp_path / "a.db")
    of_later(path, later, len(migrations.steps()) + 1, monkeypatch)
    with pytest.raises(StoreTooNew, match="upgrade"):
        SqliteStore(path)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE schema SET works_from = 0",
        "UPDATE schema SET version = 1",
        "DELETE FROM schema",
        "DROP TABLE schema",
        "PRAGMA user_version = 77",
    ],
)
def test_what_is_not_sure_is_refused(tmp_path, later, monkeypatch, damage):
    path = str(tmp_path / "a.db")
    of_later(path, later, len(migrations.steps()), monkeypatch)
    raw = apsw.Connection(path)
    raw.execute(damage)
    raw.close()
    with pytest.raises(StoreTooNew):
        SqliteStore(path)


def test_a_table_that_is_not_there_is_noticed_in_a_newer_store_too(tmp_path, later, monkeypatch):
    path = str(tmp_path / "a.db")
    of_later(path, later, len(migrations.steps()), monkeypatch)
    raw = apsw.Connection(path)
    raw.execute("DROP INDEX runs_by_hash")
    raw.close()
    with pytest.raises(Corrupt, match="runs_by_hash"):
        SqliteStore(path)


def test_a_column_that_is_not_used_is_no_part_of_the_digest(tmp_path):
    """So that a process of the version before can read and write the row."""
    store = SqliteStore(str(tmp_path / "a.db"))
    row = store.start(new_run("r"), None).row
    used = row.__struct_fields__.index("updated_us") + 1
    assert row.digest == seal(GENESIS, msgspec.structs.astuple(row)[:used])
    store.close()


DIGESTS = {
    "_stores/sqlite/schema/0001.sql": "518f3a54119359d4",
    "_stores/postgres/schema/0001.sql": "837ef41bfe08d7fe",
}


def test_a_migration_that_stores_have_taken_is_not_changed():
    """A store that took it before would be called damaged: add another step instead."""
    root = ROOT / "src" / "holdfast"
    found = {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in root.glob("_stores/**/schema/*.sql")
    }
    assert found == DIGESTS
