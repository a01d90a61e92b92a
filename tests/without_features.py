"""The tests of the core, with no feature registered: `make test-core`.

The core executes, records and resumes runs, with effects, waits, children, forks, queues and versions; a
feature adds to it and never holds it up. So what is listed here passes in full with an empty tuple of
features. The files beside them test features, or ask people and spend budgets on the way.
"""

import sys

import pytest

from tests.tidy.source import ROOT

CORE = (
    "async_branches",
    "blocks",
    "branch_marks",
    "branches",
    "cancel_races",
    "children",
    "closing",
    "committer",
    "control",
    "cut_short",
    "divergence",
    "failed_runs",
    "forks_at_random",
    "functions",
    "heartbeat",
    "lesson",
    "loops",
    "outcomes",
    "queues",
    "recorded",
    "recorded_errors",
    "renamed_effects",
    "retries",
    "settled_keys",
    "settled_values",
    "signals",
    "sleeping",
    "suspects",
    "transactions",
    "versions",
    "worker",
)


def pytest_configure(config: pytest.Config) -> None:
    """Remove the features, in this process and in each worker of pytest."""
    del config
    import holdfast  # noqa: F401 - it installs the features
    from holdfast._runtime.feature import installed

    installed.install(())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Check that no test brought them back."""
    del config
    from holdfast._runtime.feature import installed

    assert installed.features == ()


if __name__ == "__main__":
    files = [f"tests/runtime/test_{name}.py" for name in CORE]
    arguments = ["-p", "tests.without_features", "-q", "tests/core", *files, *sys.argv[1:]]
    sys.exit(pytest.main([str(ROOT / it) if it.startswith("tests/") else it for it in arguments]))
