"""A pytest plugin: the tests of a run have no feature installed (`-p tests.without_features`)."""

import pytest

import holdfast  # noqa: F401 - it installs the features
from holdfast._runtime.feature import installed


def pytest_configure(config: pytest.Config) -> None:
    del config
    installed.install(())
