"""I16: any change of stored bytes leaves what is read equal, or is reported before use.

Bytes of a small database, of its WAL and of its witness are changed, one at a time, and each time a
store is opened on a fresh set of files. The bytes are shared out in slices, so that they can be
looked at by several workers. The suite changes one byte of 53 (`make sweeps`: of 19), in one of three ways;
HOLDFAST_ALL_FLIPS=1 makes every change of every byte.
"""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast._engine.journal import rows
from holdfast._engine.journal.lifecycle import Status
from holdfast._stores import row_codec
from holdfast.errors import Corrupt
from tests import sweeps
from tests.storage import reference
from tests.storage.reference import NAME, RUNS, files_of, put, silent_changes

CHANGES = (0x01, 0x80, 0xFF)
SLICES = 8
EVERY = 1 if os.environ.get("HOLDFAST_ALL_FLIPS") else sweeps.size(53, 19)


@pytest.fixture(scope="module")
def with_wal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wal")
    reference.build(folder)
    return files_of(folder)


@pytest.fixture(scope="module")
def whole(with_wal, tmp_path_factory):
    """The same store, with everything in the file."""
    folder = tmp_path_factory.mktemp("whole") / "store"
    put(folder, with_wal)
    reference.checkpointed(folder)
    return files_of(folder)


@pytest.fixture(scope="module")
def expected(whole, tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected") / "store"
    put(folder, whole)
    store = reference.open_at(folder)
    assert store.regression() is None
    assert store.verify() == []
    answers = reference.read_all(store)
    store.close()
    return answers


@pytest.fixture(autouse=True)
def _quiet():
    """A thousand damaged stores have a lot to say."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def changes_at(at: int) -> tuple[int, ...]:
    return CHANGES if os.environ.get("HOLDFAST_ALL_FLIPS") else (CHANGES[at % len(CHANGES)],)


def places_of(part: int, size: int) -> range:
    """The bytes of one slice; each slice leaves out others."""
    return range(part * EVERY + part % EVERY, size, SLICES * EVERY)


def flipped(files: dict[str, bytes], name: str, at: int, change: int) -> dict[str, bytes]:
    content = bytearray(files[name])
    content[at] ^= change
    return {**files, name: bytes(content)}


def silent_flips(folder, files, name, places, expected) -> list[str]:
    """Change bytes one at a time; return the changes that went unnoticed."""
    silent = []
    for at in places:
        for change in changes_at(at):
            place = folder / "flipped"
            put(place, flipped(files, name, at, change))
            found = silent_changes(place, expected)
            shutil.rmtree(place)
            silent += [f"{name}[{at}] ^ {change:#x}: {what}" for what in found]
    return silent


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(SLICES))
def test_25_26_no_changed_byte_of_the_database_is_silent(part, whole, expected, tmp_path):
    places = places_of(part, len(whole[NAME]))
    assert silent_flips(tmp_path, whole, NAME, places, expected) == []


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(SLICES))
def test_27_no_changed_byte_of_the_wal_is_silent(part, with_wal, expected, tmp_path):
    name = f"{NAME}-wal"
    places = places_of(part, len(with_wal[name]))
    assert silent_flips(tmp_path, with_wal, name, places, expected) == []


@pytest.mark.sweep
def test_27_no_changed_byte_of_the_witness_is_silent(whole, expected, tmp_path):
    name = f"{NAME}-witness"
    places = range(len(whole[name]))
    assert silent_flips(tmp_path, whole, name, places, expected) == []


def test_27_every_truncated_wal_is_noticed(with_wal, expected, tmp_path):
    """At every frame, one byte before and after it, and at many lengths between."""
    name = f"{NAME}-wal"
    wal = with_wal[name]
    frame = reference.PAGE_SIZE + 24
    ends = {32 + frame * number + by for number in range(len(wal) // frame) for by in (-1, 0, 1)}
    lengths = sorted({0, 1, 31, *range(0, len(wal), 97), *ends})
    for length in lengths:
        if length >= len(wal):
            continue
        place = tmp_path / "truncated"
        put(place, {**with_wal, name: wal[:length]})
        store = reference.open_at(place)
        assert "acknowledged commits are missing" in str(store.regression()), length
        store.close()
        shutil.rmtree(place)


@pytest.mark.parametrize("suffix", ["-wal", "-witness"])
def test_28_a_missing_companion_is_noticed(suffix, with_wal, tmp_path):
    put(tmp_path / "store", {n: c for n, c in with_wal.items() if n != f"{NAME}{suffix}"})
    store = reference.open_at(tmp_path / "store")
    assert store.regression()
    store.close()


def test_28_an_old_copy_that_is_put_back_is_noticed(whole, tmp_path):
    """Every commit of a longer life is put back once; the witness remembers the last."""
    place = tmp_path / "store"
    put(place, whole)
    copies = [whole[NAME]]
    for number in range(10):
        store = reference.open_at(place)
        reference.add_run(store, store.register_owner(), 10 + number, f"later-{number}")
        store.close()
        copies.append((place / NAME).read_bytes())
    for copy in copies[:-1]:
        (place / NAME).write_bytes(copy)
        store = reference.open_at(place)
        assert "acknowledged commits are missing" in str(store.regression())
        store.close()
    (place / NAME).write_bytes(copies[-1])
    store = reference.open_at(place)
    assert store.regression() is None
    store.close()


def test_25_damage_to_one_run_is_named_and_leaves_the_others_readable(whole, tmp_path):
    body = whole[NAME].index(b'{"args":[]}')
    put(tmp_path / "store", flipped(whole, NAME, body + 3, 0x01))
    store = reference.open_at(tmp_path / "store")
    damaged = []
    for run_id in RUNS:
        row = store.get(run_id)
        assert row is not None
        try:
            store.load(row)
        except Corrupt as error:
            damaged.append((run_id, error.run_id, error.what))
    ((run_id, named, what),) = damaged
    assert (run_id, what) == (named, "entry 1")
    assert [found.run_id for found in store.verify()] == [run_id]
    store.close()


def test_planted_without_digests_the_same_test_finds_silent_changes(
    whole, expected, tmp_path, monkeypatch
):
    """A test that cannot fail proves nothing: with the checks off, changes are silent."""
    body = whole[NAME].index(b'{"args":[]}')
    places = range(body, body + 11)
    assert silent_flips(tmp_path, whole, NAME, places, expected) == []

    class Agreeable(bytes):
        """A digest that is equal to any other."""

        __slots__ = ()
        __hash__ = bytes.__hash__

        def __eq__(self, other):
            return True

        def __ne__(self, other):
            return False

    monkeypatch.setattr(row_codec, "entry_digest", lambda *parts: Agreeable())
    assert silent_flips(tmp_path, whole, NAME, places, expected) != []


def test_the_digest_covers_every_column():
    """What a new column needs: a store that does not seal it would not notice its change."""
    fields = rows.RunRow.__struct_fields__
    values: dict[str, Any] = dict.fromkeys(fields, 0)
    values |= {"status": Status.QUEUED, "digest": b""}
    before = rows.RunRow(**values).expected_digest()
    for name in fields[:-1]:
        other: dict[str, Any] = {name: Status.HELD if name == "status" else 1}
        assert rows.RunRow(**(values | other)).expected_digest() != before, name


@pytest.mark.parametrize("at", [20, 100, 3000, 9000])
def test_a_changed_byte_is_noticed_in_a_fresh_process_too(at, whole, expected, tmp_path):
    put(tmp_path / "store", flipped(whole, NAME, at, 0xFF))
    code = (
        "import pathlib, sys; from tests.storage import reference\n"
        "store = reference.open_at(pathlib.Path(sys.argv[1]))\n"
        "print(store.regression(), store.verify())\n"
    )
    here = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=False,
        cwd=here,
    )
    noticed = "Finding" in done.stdout or "holdfast.errors" in done.stderr
    assert noticed or silent_changes(tmp_path / "store", expected) == []
    assert done.returncode == 0 or "holdfast.errors" in done.stderr
