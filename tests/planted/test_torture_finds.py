"""Each scene of `make torture` notices the bug that it is about, planted in its processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast._stores.sql.database import Snapshot
from holdfast._stores.sqlite.sqlite_database import Database
from tests.torture import plants, scenes

SEEDS = range(1, 41)
"""Some bugs show only when a process is late, or is killed at the right moment."""
pytestmark = pytest.mark.timeout(400)
PATIENCE_S = 15.0

CASES = [
    ("control", "stops_come_after_the_release", "claimed 3 times, and not done"),
    ("signals", "signals_are_not_taken", "signals came as"),
    ("signals", "signals_are_overlooked", "never came: "),
    ("clocks", "the_clock_stands_still", "never came: a sleep that ends"),
    ("forks", "views_are_compared_before_the_write", "the run changed, and there are forks of it"),
    ("forks", "forks_are_compared_afterwards", "the run changed, and there are forks of it"),
    ("loops", "by_number", "loops that changed places"),
]


def found(scene: str, said: str, folder: Path, plant: str = "") -> bool:
    """Play rounds until one has a violation of this sort."""
    for seed in SEEDS:
        (place := folder / str(seed)).mkdir()
        stage = scenes.play_one(scenes.SCENES[scene], place, seed, plant=plant)
        if any(said in violation for violation in stage.violations):
            return True
    return False


def test_each_plant_has_a_case() -> None:
    assert {plant for _, plant, _ in CASES} == set(plants.PLANTS)


@pytest.mark.sweep(whole=True)
@pytest.mark.parametrize(("scene", "plant", "said"), CASES, ids=[case[1] for case in CASES])
def test_a_planted_bug_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scene: str, plant: str, said: str
) -> None:
    monkeypatch.setattr(scenes, "PATIENCE_S", PATIENCE_S)
    assert found(scene, said, tmp_path, plant), f"{plants.PLANTS[plant].__doc__} Nobody noticed."


def test_checks_that_see_more_than_one_state_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others commit while the store is verified is taken for damage."""

    def snapshot(database: Database, work: Any, progress: Any) -> Any:
        def read(name: str, values: Any = ()) -> Any:
            return database.read(name, values)

        return work(Snapshot(read, lambda name: iter(read(name)), progress, lambda _state: ()))

    monkeypatch.setattr(Database, "snapshot", snapshot)
    assert found("signals", "beside the runs, verify: ", tmp_path)


@pytest.mark.parametrize("scene", list(scenes.SCENES))
def test_without_a_planted_bug_nothing_is_found(tmp_path: Path, scene: str) -> None:
    stage = scenes.play_one(scenes.SCENES[scene], tmp_path, SEEDS[0])
    assert not stage.violations
    assert stage.did
