"""What a person sees with nothing but a SQL tool."""

import sqlite3

import pytest

from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Write
from holdfast._stores.contract import NewRun
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.contract.store_contract import started

AT_US = 1_700_000_000_250_000


@pytest.fixture
def look(tmp_path):
    """Write a small run; give a way to ask the file with Python's own SQLite."""
    store = SqliteStore(str(tmp_path / "a.db"))
    new = NewRun("r", "f", "1", bytes(16), [started(AT_US)], [(1, b'"a long text"')])
    lease = store.start(new, store.register_owner()).lease
    assert lease is not None

    def write(kind, body=b"{}", name="s", attempt=1, started_us=None, at_us=AT_US):
        draft = Draft(kind, at_us, name, attempt, 0, bytes(16), started_us, body)
        store.append([Write(lease, [draft])])

    write(
        Kind.STEP_FAILED,
        b'{"args":{"plain":[1]},"error":{"type":"OSError","message":"no net"},"final":false}',
        started_us=AT_US - 5_000,
    )
    write(
        Kind.STEP_COMPLETED,
        b'{"args":{"plain":[1]},"result":{"chunk":1}}',
        attempt=2,
        started_us=AT_US,
        at_us=AT_US + 1_000_000,
    )
    write(Kind.STEP_STARTED, b'{"effect":true,"args":{"list":1}}', name="pay")
    write(Kind.STATE_SAVED, b'{"turn":1,"state":{"plain":{"n":1}}}', name="turns")
    store.close()
    raw = sqlite3.connect(tmp_path / "a.db")

    def ask(query):
        return raw.execute(query).fetchall()

    yield ask
    raw.close()


def test_the_log_has_a_line_for_every_entry(look):
    lines = look(
        "SELECT seq, kind, step, attempt, input, output, error FROM log WHERE run_id = 'r'"
    )
    assert lines == [
        (1, "run_started", None, 0, "[]", None, None),
        (2, "run_claimed", None, 0, None, None, None),
        (3, "step_started", "s", 1, "[1]", None, None),
        (4, "step_failed", "s", 1, None, None, "OSError: no net"),
        (5, "step_started", "s", 2, "[1]", None, None),
        (6, "step_completed", "s", 2, None, '"a long text"', None),
        (7, "step_started", "pay", 1, '"a long text"', None, None),
        (8, "state_saved", "turns", 1, None, '{"n":1}', None),
    ]
    assert look("SELECT at FROM log LIMIT 1") == [("2023-11-14T22:13:20.250Z",)]


def test_steps_say_where_each_is(look):
    found = look("SELECT step, status, attempts, retry_count, ended_at, last_error FROM steps")
    assert found == [
        ("s", "completed", 2, 1, "2023-11-14T22:13:21.250Z", "OSError: no net"),
        ("pay", "running", 1, 0, None, None),
    ]


def test_state_says_where_each_run_is(look):
    found = look("SELECT run_id, status, current_step, last_snapshot, updated_at FROM state")
    assert found == [("r", "running", "turns", '{"n":1}', "2023-11-14T22:13:21.250Z")]
