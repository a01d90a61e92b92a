"""What comes from the provider beside answers: errors, and what was used."""

from __future__ import annotations

from typing import Any

import holdfast


class ModelCallFailed(Exception):
    """A stream of the provider was cut; looks the same live and replayed.

    Journals of earlier versions have it in the place of each error of the provider's SDK. It says
    what policies for retries ask for: `status_code` and `code`.
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
    """Count the tokens of an answer; some providers do not tell."""
    if usage is not None:
        tokens = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        holdfast.context.record_usage(model=model, **tokens)
