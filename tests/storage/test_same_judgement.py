"""Rows and tables that somebody deletes or changes by hand: both databases say the same of it, at the
same moment."""

from __future__ import annotations

import abc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from click.testing import CliRunner

import holdfast
from holdfast import Budget, flow, step, testing
from holdfast._operator.cli.main import main
from holdfast._stores.contract import ScheduleRow
from holdfast.errors import Corrupt

RUNS = ("first", "second", "third")


@step(name="sj-search")
def search(topic: str) -> str:
    return topic.upper()


@flow(name="sj-plain", budget=Budget(steps=9))
def plain(topic: str) -> str:
    return search(topic)


@flow(name="sj-asking", budget=Budget(steps=9))
def asking(topic: str) -> str:
    found = search(topic)
    first = holdfast.ask("ok?", name="ok")
    return f"{found} {first} {holdfast.ask('more?', name='more')}"


class Place(abc.ABC):
    """Where a store is kept, and how somebody changes its tables behind its back."""

    def __init__(self, url: str) -> None:
        self.url = url

    @abc.abstractmethod
    def execute(self, text: str) -> None:
        """Execute a statement; `{}` stands before the names of tables."""

    def open(self) -> testing.PrivateStore:
        return holdfast.open(self.url, default=False)  # type: ignore[return-value]


class File(Place):
    def execute(self, text: str) -> None:
        connection = apsw.Connection(self.url.removeprefix("sqlite:///"))
        connection.execute("PRAGMA writable_schema=ON; " + text.format(""))
        connection.close()


class Server(Place):
    def execute(self, text: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(text.format("holdfast.").encode())


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        made: Place = File(f"sqlite:///{tmp_path}/runs.db")
    else:
        made = Server(request.getfixturevalue("postgres_url"))
    with made.open() as opened:
        for run_id in RUNS:
            plain.with_options(store=opened).run(run_id, "tea")
    return made


def command(place: Place, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, [*words, "--url", place.url, "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, str(json.loads(result.stdout).get("error", {}).get("message"))


OPENING: dict[str, tuple[str, str]] = {
    "the row of the store deleted": ("DELETE FROM {}store", "the row of the store is damaged"),
    "another store id": (
        "UPDATE {}store SET store_id = 'another'",
        "the row of the store is damaged",
    ),
    "a table dropped": ("DROP TABLE {}memos", "the definition of .* memos.* in .* is damaged"),
    "the table of versions dropped": (
        "DROP TABLE {}schema",
        "the definition of table schema in .* is damaged",
    ),
}


@pytest.mark.parametrize("name", OPENING)
def test_a_store_that_is_not_whole_is_not_opened(place: Place, name: str) -> None:
    text, says = OPENING[name]
    place.execute(text)
    with pytest.raises(Corrupt, match=says) as damage, place.open():
        pass
    assert "backup" in str(damage.value)
    for words in (["runs"], ["explain", "first"], ["store", "verify"], ["cancel", "first"]):
        code, told = command(place, *words)
        assert (code, told) == (7, str(damage.value))


@pytest.mark.parametrize("name", [*OPENING][:2])
def test_an_open_handle_says_so_too(place: Place, name: str) -> None:
    with place.open() as opened:
        backend = opened._backend
        place.execute(OPENING[name][0])
        assert "the row of the store" in {found.what for found in opened.verify()}
        with pytest.raises(Corrupt, match="the row of the store is damaged"):
            backend.pulse(backend.register_owner(), "{}")


RUN_ROWS: dict[str, str] = {
    "deleted": "DELETE FROM {}runs WHERE run_id = 'second'",
    "marked as deleted": "UPDATE {}runs SET deleted_us = 5 WHERE run_id = 'second'",
    "another id": "UPDATE {}runs SET run_id = 'other' WHERE run_id = 'second'",
}


@pytest.mark.parametrize("name", RUN_ROWS)
def test_a_row_of_a_run_that_was_changed_by_hand(place: Place, name: str) -> None:
    """It is found by `verify`; and it is damage, never another state of the run."""
    place.execute(RUN_ROWS[name])
    with place.open() as opened:
        backend = opened._backend
        found = opened.verify()
        assert found
        code, _ = command(place, "store", "verify")
        assert code == 7
        assert said(lambda: backend.get("first")) == "first"
        assert said(lambda: backend.get("second")) == SECOND[name]


SECOND = {"deleted": None, "marked as deleted": "Corrupt", "another id": "Corrupt"}
"""By change, what the store says of that run. A row that is gone is missed by `verify` alone."""


def said(ask: Callable[[], Any]) -> str | None:
    try:
        row = ask()
    except Corrupt:
        return "Corrupt"
    return None if row is None else row.run_id


SIDE_ROWS: dict[str, tuple[str, str]] = {
    "a message that was taken": ("DELETE FROM {}inbox", "message 'answer:ok:1'"),
    "an open question": ("DELETE FROM {}questions", "question 'more'"),
    "an account": ("DELETE FROM {}accounts", "its account"),
}


@pytest.mark.parametrize("name", SIDE_ROWS)
def test_a_deleted_row_beside_a_journal_is_found(place: Place, name: str) -> None:
    text, what = SIDE_ROWS[name]
    with place.open() as opened:
        asking.with_options(store=opened).submit("asks", "tea")
        opened.recover()
        opened.answer("asks", "ok", "yes", actor="ann")
        opened.recover()
        assert [it.name for it in opened.questions()] == ["more"]
        assert opened.verify() == []
        place.execute(text)
        found = {(it.run_id, it.what) for it in opened.verify()}
        assert ("asks", what) in found
        assert {what for _, what in found} == {what}
        assert {it.what for it in opened.verify(["asks"])} == {what}


def test_a_damaged_schedule_keeps_no_other_from_being_written(place: Place) -> None:
    with place.open() as opened:
        backend = opened._backend
        for name in ("a", "b"):
            assert backend.put_schedule(ScheduleRow(name, "sj-plain", "{}", 5), None)
        place.execute("UPDATE {}schedules SET cursor_us = 7 WHERE name = 'a'")
        assert backend.put_schedule(ScheduleRow("b", "sj-plain", "{}", 6), 5)
        with pytest.raises(Corrupt, match="schedule 'a'"):
            backend.put_schedule(ScheduleRow("a", "sj-plain", "{}", 8), 7)
