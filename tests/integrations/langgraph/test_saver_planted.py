"""Planted bugs in the saver, each of which must be noticed by a test that holds without it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.integrations.langgraph import removal
from holdfast.integrations.langgraph.blobs import Packer, _bare
from holdfast.integrations.langgraph.shelf import Shelf
from tests.integrations.langgraph import test_saver_packing, test_saver_removal


def ids_of_short_messages_are_lost(patch: pytest.MonkeyPatch) -> None:
    """A message that is short enough to stand in its node is stored without its id."""
    stored = Packer._message

    def message(self: Packer, given: Any) -> Any:
        node = stored(self, given)
        return node if isinstance(node, str) else self._dumped(_bare(given))

    patch.setattr(Packer, "_message", message)


def rows_are_removed_unseen(patch: pytest.MonkeyPatch) -> None:
    """A row is removed as it is now, and not only as it was listed."""

    def taken(shelf: Shelf, rows: list[Any], held: dict[str, int]) -> bool:
        return bool(shelf.memory.update({}, delete=[row.key for row in rows], if_version=held))

    removed_part = removal._removed_part

    def part(shelf: Shelf, place: Any, there: Any, gone: Any, held: dict[str, int]) -> bool:
        unseen = SimpleNamespace(memory=Unseen(shelf.memory, held))
        return removed_part(unseen, place, there, gone, held)  # type: ignore[arg-type]

    patch.setattr(removal, "_deleted", taken)
    patch.setattr(removal, "_removed_part", part)


class Unseen:
    """A memory whose updates look only at what is held."""

    def __init__(self, memory: Any, held: dict[str, int]) -> None:
        self._memory, self._held = memory, held

    def update(self, values: Any, *, delete: Any, if_version: Any) -> bool:
        return bool(self._memory.update(values, delete=delete, if_version=self._held))


def test_lost_ids_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    find = test_saver_packing.test_a_message_of_any_length_comes_back_with_its_id
    find("human")
    ids_of_short_messages_are_lost(monkeypatch)
    with pytest.raises(AssertionError):
        find("human")
    find("without an id")


@pytest.mark.parametrize("name", ["delete_thread", "delete_for_runs", "prune", "prune, delete"])
def test_rows_that_are_removed_unseen_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[[str], None] = (
        test_saver_removal.test_a_thread_goes_on_at_each_access_of_a_removal
    )
    find(name)
    rows_are_removed_unseen(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017, PT011 - however it is noticed
        find(name)
