"""Memory: small durable values with versions, shared between runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._features.memory.model import Recall
from holdfast._runtime.feature import Feature

if TYPE_CHECKING:
    from holdfast._runtime.execution.execution import Execution


def _recall(execution: Execution, request: Recall) -> Any:
    from holdfast._features.memory.reads import recalled

    return recalled(execution, request)


FEATURE = Feature(name="memory", performers={Recall: _recall})
