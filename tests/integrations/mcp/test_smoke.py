"""The environment has what its extra promises."""

import importlib
from importlib.metadata import version

import pytest

from tests.integrations.environments import packages


@pytest.mark.parametrize("module", ["mcp"])
def test_the_framework_can_be_imported(module):
    assert importlib.import_module(module)


def test_its_packages_are_there():
    print({name: version(name) for name in packages("mcp")})
