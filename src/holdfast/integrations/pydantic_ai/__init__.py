"""Agents of Pydantic AI as durable runs: `Agent(…, capabilities=[Durable()])`.

Inside a run every request to the model is a step named `model`, and every tool call is a step with
the tool's name and the call's id as key: `lookup_order:call_17`. A tool whose function is a step or
an effect already keeps its own policy. Outside a run nothing changes.

It is built on `pydantic_ai.durable_exec`, Pydantic AI's interface for durable execution engines.
"""

from __future__ import annotations

from importlib.metadata import version
from operator import attrgetter

from holdfast.integrations._needs import needs

needs("pydantic-ai-slim", extra="pydantic-ai")

import pydantic_ai.capabilities  # noqa: E402 - `needs` comes first: it names the package to install
import pydantic_ai.durable_exec  # noqa: E402
import pydantic_ai.models  # noqa: E402

_WORKS = "2.66"
"""A version that has all of these names."""

_NEEDED = [
    "durable_exec.BaseDurabilityCapability._build_dynamic_toolset",
    "durable_exec.BaseDurabilityCapability._build_function_toolset",
    "durable_exec.BaseDurabilityCapability._effective_event_stream_handler",
    "durable_exec.BaseDurabilityCapability._wrap_leaf_toolset",
    "models.ModelResponsePartsManager.apply_event",
    "models.StreamedResponse._event_iterator",
    "models.StreamedResponse._finished",
    "models.StreamedResponse._get_event_iterator",
    "models.StreamedResponse._parts_manager",
]
_SINCE_2_62 = "models.Model._with_serving_wrapper"


def _check_upstream_names() -> None:
    """Raise an ImportError that names a missing name, and a version that has it."""
    # Live streams and the recording of toolsets that are added later need private names. Without
    # this check a run would fail in the middle.
    wraps = hasattr(pydantic_ai.capabilities.AbstractCapability, "get_wrapper_model")
    for name in [*_NEEDED, _SINCE_2_62] if wraps else _NEEDED:
        try:
            attrgetter(name)(pydantic_ai)
        except AttributeError:
            raise ImportError(
                f"pydantic-ai-slim {version('pydantic-ai-slim')} has no pydantic_ai.{name} any more, "
                "which holdfast.integrations.pydantic_ai needs; install a version that has it (pip "
                f"install 'pydantic-ai-slim=={_WORKS}.*'), or a newer Holdfast",
                name="pydantic_ai",
            ) from None


_check_upstream_names()

from holdfast.integrations.pydantic_ai._durable import Durable  # noqa: E402 - it needs those names

__all__ = ["Durable"]
