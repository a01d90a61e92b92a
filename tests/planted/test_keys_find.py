"""A claim that stops a run and says nothing of what the dead left open is noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast._engine.decisions import control
from tests.ops import test_keys_of_the_dead as keys

ROOT = Path(__file__).parents[2]


def died_with_a_charge(path: Path) -> None:
    code = (
        "import os\nfrom holdfast._stores.sqlite.sqlite_store import SqliteStore\n"
        f"from tests.ops.journals import Journal\nstore = SqliteStore({str(path)!r})\n"
        f"{keys.CHARGE}\nos._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 9


def nothing(*_: Any) -> tuple[list[Any], list[Any]]:
    return [], []


@pytest.mark.parametrize("kind", [control.PAUSE, control.CANCEL])
def test_it_is_found(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "doubts_of_former_owners", nothing)
    died_with_a_charge(tmp_path / "runs.db")
    reason = "paused" if kind == control.PAUSE else "in_doubt"
    with (
        holdfast.open(f"sqlite:///{tmp_path}/runs.db", default=False) as store,
        pytest.raises(AssertionError, match="0 == 1"),
    ):
        keys.test_the_next_claim_says_what_is_in_doubt(store, kind, reason)
