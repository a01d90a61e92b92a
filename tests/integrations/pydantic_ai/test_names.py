"""A version of Pydantic AI that lacks what we stand on is refused when the package is imported."""

import subprocess
import sys
from importlib.metadata import version

import pytest
from pydantic_ai.models import Model

from holdfast.integrations import pydantic_ai

WITHOUT = """
import pydantic_ai.capabilities, pydantic_ai.durable_exec, pydantic_ai.models

*path, last = {name!r}.split(".")
owner = pydantic_ai
for part in path:
    owner = getattr(owner, part)
delattr(owner, last)
try:
    import holdfast.integrations.pydantic_ai
except ImportError as error:
    print(error)
"""

NAMES = [*pydantic_ai._NEEDED, "models.ModelResponsePartsManager"]
if hasattr(Model, "_with_serving_wrapper"):
    NAMES.append(pydantic_ai._SINCE_2_62)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_gone_is_told(name: str) -> None:
    code = WITHOUT.format(name=name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        f"pydantic-ai-slim {version('pydantic-ai-slim')} has no pydantic_ai.{name}" in done.stdout
    )
    assert f"pip install 'pydantic-ai-slim=={pydantic_ai._WORKS}.*'" in done.stdout
