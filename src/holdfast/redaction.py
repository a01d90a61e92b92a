"""Keep secrets out of everything that Holdfast stores, logs and shows."""

from __future__ import annotations

from holdfast._engine.values.masks import masked as redact
from holdfast._engine.values.secrets import Secret
from holdfast._runtime.log import redact_record, register_secret

__all__ = [
    "Secret",
    "redact",
    "redact_record",
    "register_secret",
]
