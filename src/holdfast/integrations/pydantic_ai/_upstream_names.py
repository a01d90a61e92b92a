"""What we stand on in Pydantic AI without a promise of it; looked at when this package is imported.

Streams are shown while they are recorded, and toolsets are recorded that come late; that needs a few
names that are private there. A version that has one of them no longer is refused at once: else it would
fail in the middle of a run.
"""

from __future__ import annotations

from importlib.metadata import version
from operator import attrgetter

import pydantic_ai.capabilities
import pydantic_ai.durable_exec
import pydantic_ai.models

_WORKS = "2.66"
"""A version that is known to have them all."""

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


def check() -> None:
    """Raise an ImportError that says which name is missing, and which version has it."""
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
