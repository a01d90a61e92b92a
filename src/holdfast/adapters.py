"""What an adapter of a framework needs: unnamed functions as steps, and keys for its calls."""

from __future__ import annotations

from holdfast._api.decorators import as_effect, as_step
from holdfast._runtime.execution.key_override import step_key

__all__ = [
    "as_effect",
    "as_step",
    "step_key",
]
