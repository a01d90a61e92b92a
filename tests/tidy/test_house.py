"""The numbers of the house do not grow: `make house` prints them, `house.toml` has the bounds."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy import house
from tests.tidy.source import ROOT

ON_BASELINE = sys.version_info[:2] == (3, 11)
"""Calls are counted on one version of Python: others inline comprehensions. So are other modules than
ours: the standard library of another version imports others."""
COUNTED_ON_BASELINE = ("_step", "other_modules")


@pytest.fixture(scope="module")
def measured() -> dict[str, int]:
    """The numbers, taken in a process of their own: observers of other tests would count."""
    command = [sys.executable, "-m", "tests.tidy.house", "--json"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_no_number_of_the_house_grows(measured: dict[str, int]) -> None:
    grown = {
        name: f"{value}, at most {house.bounds()[name]}"
        for name, value in measured.items()
        if value > house.bounds()[name]
        and (ON_BASELINE or not any(part in name for part in COUNTED_ON_BASELINE))
    }
    assert not grown, "make it smaller; raise the bound in house.toml only with a reason"


def test_every_number_has_a_bound(measured: dict[str, int]) -> None:
    assert set(house.bounds()) == set(measured)


def test_import_cycles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert house.cycles(graph) == [{"a", "b", "c"}, {"d", "e"}]
    assert house.cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_shared_base_names_are_found() -> None:
    paths = [Path(name) for name in ("x/clock.py", "y/_clock.py", "y/__init__.py", "z/__init__.py")]
    assert house.shared_base_names(paths) == {"clock": 2}


@pytest.mark.parametrize(
    ("feature", "text", "named"),
    [
        ("forks", "from holdfast._engine.journal import fork_history", True),
        ("forks", "os.register_at_fork(after_in_child=f)", False),
        ("forks", '"""A fork borrows entries."""  # of its fork', False),
        ("forks", 'KIND = "run_forked"', True),
        ("forks", 'raise Error("a fork of it")', False),
        ("children", "import holdfast._operator.cli.child_process", False),
        ("children", "row.open_children()", True),
        ("memory", "class PutMemo: ...", True),
        ("memory", "def put(memos): ...", True),
        ("memory", 'store = open("memory:")', False),
        ("memory", "memorable = MemoryError", False),
        ("budgets", "Flow(budget=Budget())", True),
        ("questions", "def ask(): pass  # a question", False),
    ],
)
def test_what_names_a_feature_is_found(feature: str, text: str, named: bool) -> None:
    assert house.is_named(feature, "_engine/x.py", house.names_in(ast.parse(text))) is named


def test_the_sql_statement_is_no_feature() -> None:
    names = list(house.names_in(ast.parse('execute("rollback")')))
    assert house.is_named("rollback", "_operator/cli/x.py", names)
    assert not house.is_named("rollback", "_stores/sqlite/x.py", names)


def test_other_memories_are_no_feature() -> None:
    names = list(house.names_in(ast.parse("FAILURE_MEMORY_S = 1")))
    assert not house.is_named("memory", "_operator/web/limits.py", names)
    assert house.is_named("memory", "_operator/read/x.py", names)


def test_the_format_and_the_front_may_know_features() -> None:
    for feature in house.FEATURES:
        named, know = house.files_that_name(feature), house.files_that_know(feature)
        assert set(know) < set(named)
        by_design = ("_engine/journal", "_api", "__init__.py")
        assert not [name for name in know if name.startswith(by_design)]
    assert "_engine/journal/entries.py" in house.files_that_name("questions")
    assert "_operator/web/read_routes.py" in house.files_that_know("questions")


def test_a_walk_counts_calls_of_the_package_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast._engine.journal.step_keys import check_name
    from holdfast._engine.values import masks

    monkeypatch.setattr(masks, "registered", [])  # Secrets of other tests would count.
    walk = house.walked(lambda: check_name("step", "search"))
    assert walk.calls[0] == ("_engine/journal/step_keys.py", "check_name")
    assert len(walk.files) == 2
    assert walk.depth == len(walk.calls)  # Each of them calls the next.
    assert house.walked(lambda: Path("x").name.upper()).calls == []


def test_the_walk_of_a_doubt_goes_from_the_call_to_the_held_run() -> None:
    walk = house.doubt_walk()
    names = [name for _, name in walk.calls]
    assert names[0] == "Step.__call__"
    assert names.index("Doubt.note") < names.index("RunHeld.__init__")
    assert sys.getprofile() is None


def test_attributes_of_a_class_are_found() -> None:
    class Two:
        def __init__(self) -> None:
            self.first: int = 1
            self.second = 2

        def change(self) -> None:
            self.first = 3

    assert house.attributes_assigned_by(Two) == {"first", "second"}


@pytest.mark.skipif(not ON_BASELINE, reason="calls are counted on one version of Python")
def test_the_architecture_shows_the_walks() -> None:
    command = [
        sys.executable,
        "-c",
        "import json; from tests.tidy import house; print(json.dumps(house.walk_texts()))",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    written = house.ARCHITECTURE.read_text(encoding="utf-8")
    again = "python -m tests.tidy.house --document"
    assert house.with_walks(written, json.loads(done.stdout)) == written, f"write it again: {again}"


def test_another_walk_would_be_noticed() -> None:
    written = house.ARCHITECTURE.read_text(encoding="utf-8")
    shown = {name: text for _, name, text, _ in house.WALK.findall(written)}
    assert set(shown) == {"live", "replayed", "explain"}
    assert house.with_walks(written, shown) == written
    for name in shown:
        other = shown | {name: "_runtime/other.py  elsewhere\n"}
        assert house.with_walks(written, other) != written
