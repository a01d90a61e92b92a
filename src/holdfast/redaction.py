"""Keep secrets out of everything that Holdfast stores, logs and shows."""

from __future__ import annotations

from holdfast._core.masks import masked as redact
from holdfast._core.secrets import Secret
from holdfast._runtime.secrets import redact_record, register_secret

__all__ = [
    "Secret",
    "redact",
    "redact_record",
    "register_secret",
]
