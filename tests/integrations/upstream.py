"""A framework's own tests, run against us: from its source distribution, at the newest edge.

`upstream_differences.toml` beside a framework's tests lists the ones that fail and why, and nothing
else may fail; an entry that fails no more is an error. A test that fails unexpectedly is run again, up
to three times: one that then passes depends on time, which is a matter of the framework's suite and of
the machine. It is named in the log.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integrations.environments import ROOT, SOURCES

log = logging.getLogger(__name__)
AGAIN = 3


@dataclass
class Outcome:
    """The calls of ours that the tests made, which tests passed and failed, and what was printed."""

    calls: Counter[str] = field(default_factory=Counter)
    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    printed: str = ""


def differences(folder: Path) -> dict[str, Any]:
    """Return what is listed beside a framework's tests."""
    return tomllib.loads((folder / "upstream_differences.toml").read_text())


def listed(entries: list[dict[str, Any]], kind: str) -> set[str]:
    """Return the tests that are listed as failing ("differs"), or as not run ("unstable")."""
    return {name for it in entries if it["kind"] == kind for name in it["tests"]}


def source_of(package: str) -> Path:
    """Return the unpacked source distribution of a package."""
    pattern = f"{package.replace('-', '_')}-[0-9]*"
    (source,) = (Path(sys.prefix) / SOURCES).glob(pattern)
    return source


def run(suite: Path, folder: Path, chosen: list[str], **env: str) -> Outcome:
    """Run tests of a suite, in a folder of its own for what they write."""
    folder.mkdir()
    calls, results = folder / "calls", folder / "results.xml"
    calls.mkdir()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "2", "--tb=short"),
            *("-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={results}"),
            *(f"--basetemp={folder / 'files'}", *chosen),
        ],
        cwd=suite,
        env={
            **{name: value for name, value in os.environ.items() if "PYTEST" not in name},
            "CALLS": str(calls),
            **env,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert results.exists(), done.stdout + done.stderr
    outcome = Outcome(printed=done.stdout)
    for case in ET.parse(results).getroot().iter("testcase"):
        ill = case.find("failure") is not None or case.find("error") is not None
        (outcome.failed if ill else outcome.passed).add(_name(case))
    for path in calls.glob("*.json"):
        outcome.calls.update(json.loads(path.read_text()))
    return outcome


def _name(case: ET.Element) -> str:
    """Return the name by which pytest selects a test, without its parameters."""
    within = str(case.get("classname")).rpartition(".")[2]
    classes = [within] if within.startswith("Test") else []
    return "::".join([str(case.get("file")), *classes, str(case.get("name")).partition("[")[0]])


def check(
    suite: Path, folder: Path, chosen: list[str], entries: list[dict[str, Any]], **env: str
) -> Outcome:
    """Run the chosen files; fail unless exactly the tests fail that are listed."""
    options = [word for word in chosen if word.startswith("-")]
    not_run = [f"--deselect={name}" for name in sorted(listed(entries, "unstable"))]
    outcome = run(suite, folder / "first", [*not_run, *chosen], **env)
    differing = listed(entries, "differs")
    unexpected = sorted(outcome.failed - differing)
    printed = outcome.printed
    for number in range(AGAIN):
        if unexpected:
            again = run(suite, folder / f"again-{number}", [*options, *unexpected], **env)
            for name in sorted(set(unexpected) - again.failed):
                log.warning("failed, and passed when it was run again: %s", name)
            unexpected = sorted(set(unexpected) & again.failed)
            printed = again.printed
    assert not unexpected, f"{unexpected}\n{printed[-20000:]}"
    assert sorted(differing - outcome.failed) == [], (
        "these fail no more, or are gone: strike them out"
    )
    return outcome


def check_page(page: str, entries: list[dict[str, Any]]) -> None:
    """Fail unless each difference stands on the page, with its reason."""
    text = (ROOT / "docs" / "integrations" / page).read_text()
    for it in entries:
        assert it["kind"] in ("differs", "unstable")
        assert it["tests"], it["reason"]
        assert it["kind"] == "unstable" or f"* {it['reason']}" in text
