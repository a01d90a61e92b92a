"""What keeps old runs going when code, types or facts outside change."""

from __future__ import annotations

from holdfast._api.recorded_context import patched
from holdfast._features.drift.dependencies import depends_on
from holdfast._runtime.execution.fingerprints import fingerprint
from holdfast._runtime.registry import register_type

__all__ = [
    "depends_on",
    "fingerprint",
    "patched",
    "register_type",
]
