"""The tests of the SDK itself are run at the newest edge, which has its sources."""

import sys
from pathlib import Path

import pytest
from agents import set_tracing_disabled

import holdfast
from holdfast.integrations.openai_agents import install_durable_runner
from tests.integrations.environments import SOURCES
from tests.integrations.openai_agents.made import Loop

collect_ignore = [] if (Path(sys.prefix) / SOURCES).exists() else ["test_upstream.py"]


@pytest.fixture(autouse=True)
def _durable():
    """Nothing is sent to the provider of traces; each test begins with the plain runner."""
    set_tracing_disabled(disabled=True)
    install_durable_runner()


@pytest.fixture
def store(tmp_path):
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


@pytest.fixture
def go():
    loop = Loop()
    yield loop
    loop.close()
