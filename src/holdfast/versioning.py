"""What keeps old runs going when code, types or facts outside change."""

from __future__ import annotations

from holdfast._runtime.fingerprints import fingerprint
from holdfast._runtime.registry import register_type
from holdfast._runtime.versions import patched
from holdfast._runtime.watching import depends_on

__all__ = [
    "depends_on",
    "fingerprint",
    "patched",
    "register_type",
]
