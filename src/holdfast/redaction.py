"""Keep secrets out of everything that Holdfast stores, logs and shows."""

from __future__ import annotations

from holdfast._api.secret_registration import redact_record, register_secret
from holdfast._engine.values.masks import masked as redact
from holdfast._engine.values.secrets import Secret

__all__ = [
    "Secret",
    "redact",
    "redact_record",
    "register_secret",
]
