"""Tests of one framework in its environment, and at the newest edge the types of its module."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.integrations.environments import ROOT, Environment

HERE = Path(__file__).resolve().parent
MODULES = ROOT / "src" / "holdfast" / "integrations"


@dataclass(frozen=True)
class Tested:
    """How the tests of one environment ended."""

    environment: Environment
    passed: int
    failed: int
    skipped: int
    well: bool
    """Nothing failed, pytest says so too, and there was something to fail."""
    seconds: float
    output: str
    """What pytest and mypy said, if it was not shown while they ran."""


def run_tests(environment: Environment, pytest_args: Sequence[str], *, live: bool) -> Tested:
    """Run the tests of an environment that is there. `live` shows them while they run."""
    began = time.monotonic()
    results = environment.folder / "results.xml"
    results.unlink(missing_ok=True)
    code, output = _do(_pytest(environment, results, pytest_args), live=live)
    passed, failed, skipped = counted(results)
    well = code == 0 and failed == 0 and passed > 0
    if not passed and not failed:
        output += f"{environment.name}: no test ran\n"
    if environment.edge == "newest" and (paths := modules_of(environment.framework)):
        code, said = _do(_mypy(environment, paths), live=live)
        output += said
        well = well and code == 0
    seconds = time.monotonic() - began
    return Tested(environment, passed, failed, skipped, well, seconds, output)


def counted(results: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped, as the report of pytest has them."""
    if not results.exists():
        return 0, 0, 0
    suites = list(ET.parse(results).getroot().iter("testsuite"))
    total, failures, errors, skipped = (
        sum(int(suite.get(key, "0")) for suite in suites)
        for key in ("tests", "failures", "errors", "skipped")
    )
    return total - failures - errors - skipped, failures + errors, skipped


def modules_of(framework: str) -> list[Path]:
    """The modules of an integration: one file or one folder of its name."""
    return [path for path in (MODULES / f"{framework}.py", MODULES / framework) if path.exists()]


def folders_of(framework: str) -> list[str]:
    """The tests of an integration. The agent that needs none is tested beside the smallest."""
    names = [framework, "plain"] if framework == "http" else [framework]
    return [str(HERE / name) for name in names]


def _pytest(environment: Environment, results: Path, args: Sequence[str]) -> list[str]:
    # With paths of the caller, only those; else the folder of the framework.
    chosen = [] if any(_is_path(arg) for arg in args) else folders_of(environment.framework)
    return [
        *(str(environment.python), "-m", "pytest", f"--junitxml={results}"),
        # A framework's own tests may need it; ours have event loops of their own.
        *("-p", "no:asyncio", "-o", f"cache_dir={environment.folder / 'pytest_cache'}"),
        *chosen,
        *args,
    ]


def _is_path(arg: str) -> bool:
    return not arg.startswith("-") and (ROOT / arg.partition("::")[0]).exists()


def _mypy(environment: Environment, paths: Sequence[Path]) -> list[str]:
    return [
        *(sys.executable, "-m", "mypy", "--config-file", str(HERE / "mypy.ini")),
        *("--python-executable", str(environment.python)),
        *("--cache-dir", str(environment.folder / "mypy_cache")),
        *map(str, paths),
    ]


def _do(command: Sequence[str], *, live: bool) -> tuple[int, str]:
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    if live:
        return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode, ""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=env,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout
