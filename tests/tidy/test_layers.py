"""Imports point down only, and the core does nothing but decide. The rules are in pyproject.toml."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.tidy.house import import_graph
from tests.tidy.source import PACKAGE, ROOT

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Checks the package `holdfast` in the folder by the rules of this repository."""
    config = ROOT / "pyproject.toml"
    return subprocess.run(
        [sys.executable, "-c", LINT, "--config", str(config), "--no-cache"],
        cwd=folder,
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_package_keeps_its_layers():
    done = lint_imports(PACKAGE.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_exception_is_left_over():
    """Only the top package and the command line may import what stands above them or beside them,
    and each exception is of use."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    floors = next(rules for rules in contracts["contracts"] if rules["id"] == "floors")
    may_import = ("holdfast -> ", "holdfast._operator.cli.** -> ")
    assert [] == [rule for rule in floors["ignore_imports"] if not rule.startswith(may_import)]
    graph = import_graph()
    named = [rule.split(" -> ") for rule in floors["ignore_imports"] if "*" not in rule]
    assert [] == [f"{a} -> {b}" for a, b in named if b not in graph.get(a, ())]
    engine = next(rules for rules in contracts["contracts"] if rules["id"] == "engine")
    assert "ignore_imports" not in engine


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """The package with every module that it has, and some that the rules speak of, all empty."""
    for path in PACKAGE.rglob("*.py"):
        twin = tmp_path / path.relative_to(PACKAGE.parent)
        twin.parent.mkdir(parents=True, exist_ok=True)
        twin.write_text("")
    for module in ("_operator/cli/main.py", "testing/__init__.py", "testing/kit.py"):
        twin = tmp_path / "holdfast" / module
        twin.parent.mkdir(parents=True, exist_ok=True)
        twin.write_text("")
    (tmp_path / "holdfast" / "__init__.py").write_text(
        "import holdfast._runtime, holdfast._operator\n"
    )
    return tmp_path


def test_an_empty_package_keeps_its_layers(skeleton: Path):
    done = lint_imports(skeleton)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("_stores/__init__.py", "import apsw, threading, holdfast._engine"),
        ("_runtime/__init__.py", "import asyncio, time, holdfast._stores, holdfast.errors"),
        ("_operator/act/run_decisions.py", "import holdfast._stores, holdfast._engine"),
        ("_operator/cli/main.py", "import holdfast"),
        ("testing/kit.py", "import holdfast, holdfast._engine, holdfast._stores.contract"),
        ("integrations/__init__.py", "from holdfast import errors, flow"),
    ],
)
def test_a_good_import_is_left_alone(skeleton: Path, module: str, line: str):
    (skeleton / "holdfast" / module).write_text(f"{line}\n")
    done = lint_imports(skeleton)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_circle_of_lazy_imports_is_found(skeleton: Path):
    cli = skeleton / "holdfast" / "_operator" / "cli"
    (cli / "session.py").write_text("def f():\n    from holdfast._operator.cli import tables\n")
    (cli / "tables.py").write_text(
        "from typing import TYPE_CHECKING\n\n"
        "if TYPE_CHECKING:\n    from holdfast._operator.cli import session\n"
    )
    done = lint_imports(skeleton)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "in no circle" in done.stdout


def test_a_circle_of_features_is_found(skeleton: Path):
    features = skeleton / "holdfast" / "_features"
    (features / "alerts" / "runtime.py").write_text("import holdfast._features.watchdog.model\n")
    (features / "watchdog" / "watchdog_loop.py").write_text(
        "def f():\n    import holdfast._features.alerts.runtime\n"
    )
    done = lint_imports(skeleton)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "in no circle" in done.stdout


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("errors.py", "import holdfast._engine"),
        ("_engine/__init__.py", "import holdfast._stores"),
        ("_engine/__init__.py", "import time"),
        ("_engine/__init__.py", "def f():\n    from threading import Lock"),
        ("_engine/__init__.py", "import apsw"),
        ("_engine/journal/rows.py", "import holdfast._engine.scripts.requests"),
        ("_engine/values/codec.py", "import holdfast._engine.journal.rows"),
        ("_engine/clock.py", "import holdfast.errors"),
        ("_stores/__init__.py", "import holdfast._runtime"),
        ("_stores/__init__.py", "from holdfast import flow"),
        ("_runtime/__init__.py", "import holdfast.testing"),
        ("integrations/__init__.py", "import holdfast._engine"),
        ("observers/__init__.py", "import holdfast._runtime"),
        ("_operator/act/run_decisions.py", "import holdfast._runtime"),
        ("_operator/act/run_decisions.py", "import holdfast"),
        ("_operator/explain/doubts.py", "import holdfast._runtime"),
        ("_operator/read/run_views.py", "import holdfast._operator.explain.doubts"),
        ("_operator/act/fork.py", "def f():\n    from holdfast._operator.cli import session"),
        ("_operator/room.py", "import holdfast._stores"),
        ("testing/kit.py", "import holdfast._runtime"),
        ("testing/kit.py", "import holdfast._stores"),
    ],
)
def test_a_broken_rule_is_found(skeleton: Path, module: str, line: str):
    (skeleton / "holdfast" / module).write_text(f"{line}\n")
    done = lint_imports(skeleton)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout
