"""A new store that several processes open at once: none of them takes it for one that lost commits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast._stores.sqlite.witness_file import Witness
from tests.contract.store_contract import new_run

PLACES = 6
"""More than there are looks at the witness while a new store is opened."""


class Meanwhile:
    """Lets another process make the store and commit, before or after the n-th look at the witness."""

    def __init__(self, patch: pytest.MonkeyPatch, path: Path, at: int) -> None:
        self.places = 0
        self.acted = False
        self._path = path
        self._at = at
        self._busy = False
        patch.setattr(Witness, "read", self._reading(Witness.read))

    def _reading(self, real: Callable[[Witness], Any]) -> Callable[[Witness], Any]:
        def read(witness: Witness) -> Any:
            self._place()
            slot = real(witness)
            self._place()
            return slot

        return read

    def _place(self) -> None:
        if self._busy:
            return
        self.places += 1
        if self.places == self._at and self._can_write():
            self._busy = self.acted = True
            other = SqliteStore(str(self._path))
            other.start(new_run("theirs"), other.register_owner())
            other.close()
            self._busy = False

    def _can_write(self) -> bool:
        """Say whether nobody is inside a transaction: else the other process would wait."""
        connection = apsw.Connection(str(self._path))
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        else:
            connection.execute("ROLLBACK")
            return True
        finally:
            connection.close()


@pytest.mark.parametrize("at", range(1, PLACES + 1))
def test_a_store_that_another_process_makes_meanwhile_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    path = tmp_path / "a.db"
    Meanwhile(monkeypatch, path, at)
    store = SqliteStore(str(path))
    assert store.regression() is None
    store.start(new_run("ours"), store.register_owner())
    store.close()
    again = SqliteStore(str(path))
    assert again.verify() == []
    again.close()


def test_there_are_places_between_which_another_process_can_act(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acted = []
    for at in range(1, PLACES + 1):
        with monkeypatch.context() as patch:
            meanwhile = Meanwhile(patch, tmp_path / f"{at}.db", at)
            SqliteStore(str(tmp_path / f"{at}.db")).close()
            acted.append(meanwhile.acted)
    assert sum(acted) >= 2, "before and after the first look"


def test_a_missing_witness_is_still_a_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(str(path))
    store.start(new_run("r"), store.register_owner())
    store.close()
    Path(f"{path}-witness").unlink()
    again = SqliteStore(str(path))
    assert "missing or damaged" in str(again.regression())
    again.close()
