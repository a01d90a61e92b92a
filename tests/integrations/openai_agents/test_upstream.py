"""The OpenAI Agents SDK's own tests, with all that they do with its runner in durable runs.

They come from the source distribution of the newest release. Of its tests of the runner, of sessions
and of MCP servers: all files that call the runner or make a session. `upstream_differences.toml` lists
what differs; the reasons stand in docs/integrations/openai_agents.md.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.integrations import upstream
from tests.integrations.environments import ROOT

HERE = Path(__file__).parent
LISTED = upstream.differences(HERE)
FOLDERS = ("tests", "tests/memory", "tests/deferred_session_writes", "tests/mcp")
CALLS = re.compile(r"Runner\.(run|run_sync|run_streamed)\b|SQLiteSession\b")
COUNTED = (
    "DurableModel.get_response",
    "DurableModel.stream_response",
    "Tools.invoke",
    "DurableSession.add_items",
    "DurableSession.get_items",
)
PLUGIN = "holdfast_upstream"


def unpacked(folder: Path) -> Path:
    """A copy of the suite with our plugin, and without the package itself, which is installed."""
    source, suite = upstream.source_of("openai-agents"), folder / "suite"
    shutil.copytree(source / "tests", suite / "tests")
    shutil.copy(source / "pyproject.toml", suite)
    shutil.copy(HERE / "upstream_plugin.py", suite / f"{PLUGIN}.py")
    return suite


def chosen(suite: Path) -> list[str]:
    left_out = {name for it in LISTED["left_out"] for name in it["files"]}
    files = [it for folder in FOLDERS for it in sorted((suite / folder).glob("test_*.py"))]
    using = [it for it in files if CALLS.search(it.read_text())]
    names = [it.relative_to(suite).as_posix() for it in using]
    return [name for name in names if name not in left_out]


@pytest.mark.timeout(1800)
def test_the_suite_of_the_sdk_fails_only_where_we_say_so(tmp_path: Path) -> None:
    suite = unpacked(tmp_path)
    outcome = upstream.check(suite, tmp_path, [f"-p{PLUGIN}", *chosen(suite)], LISTED["difference"])
    assert len(outcome.passed) > 1000
    for call in COUNTED:
        assert outcome.calls[call] > 100, call


def test_the_differences_are_told_to_users() -> None:
    upstream.check_page("openai_agents.md", LISTED["difference"])
    page = (ROOT / "docs" / "integrations" / "openai_agents.md").read_text()
    for it in LISTED["left_out"]:
        assert it["files"], it["reason"]
        assert it["reason"] in page
