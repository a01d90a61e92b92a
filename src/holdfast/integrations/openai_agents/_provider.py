"""Errors and usage of the provider."""

from __future__ import annotations

from typing import Any

import holdfast


class ModelCallFailed(Exception):
    """The provider's stream was cut; equal live and on replay.

    Journals of earlier versions have it in place of each error of the provider's SDK. It has the
    attributes that retry policies read: `status_code` and `code`.
    """

    def __init__(self, kind: str, message: str, status_code: int | None, code: str | None) -> None:
        super().__init__(kind, message, status_code, code)
        self.kind = kind
        self.message = message
        self.status_code = status_code
        self.code = code

    def __str__(self) -> str:
        """Use the message of the provider's SDK."""
        return f"{self.kind}: {self.message}"


def note_usage(model: str | None, usage: Any) -> None:
    """Record the token usage of an answer; some providers do not report it."""
    if usage is not None:
        tokens = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        holdfast.context.record_usage(model=model, **tokens)
