"""The environment has what its extra promises."""

import importlib
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.integrations.environments import named, packages


@pytest.mark.parametrize("module", ["openai.lib.responses_tool_runner"])
def test_the_framework_can_be_imported(module):
    assert importlib.import_module(module)


def test_its_packages_are_those_of_its_edge():
    assert named(Path(sys.prefix).name).versions() == {
        name: version(name) for name in packages("openai")
    }
