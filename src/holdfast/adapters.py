"""What an adapter of a framework needs: unnamed functions as steps, keys for its calls, and the
declarations of what people decide."""

from __future__ import annotations

from holdfast._api.actions import actions
from holdfast._api.decorators import as_effect, as_step
from holdfast._runtime.execution.key_override import step_key

__all__ = [
    "actions",
    "as_effect",
    "as_step",
    "step_key",
]
