"""`holdfast.redaction.register_secret`: a text that must not be stored, logged or shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._engine.values.masks import masked
from holdfast._engine.values.secrets import Secret, registered

if TYPE_CHECKING:
    import logging


def register_secret(name: str, text: str) -> Secret:
    """Register a text that must not be stored, logged or shown, when the process starts.

    Wherever a run of this process would write it, `[secret NAME]` is written. Pass what is returned
    to steps in place of the text: only its name is stored, and `.reveal()` gives the text. The same
    name again replaces it (a key that was renewed); the old text stays masked.
    """
    import logging

    made = registered(name, text)
    logging.getLogger("holdfast").addFilter(redact_record)  # The same one again changes nothing.
    return made


def redact_record(record: logging.LogRecord) -> bool:
    """Take every secret out of a log record and its traceback; a filter that lets all pass."""
    import logging

    try:
        text = record.getMessage()
    except Exception:
        return True  # Its arguments do not fit its text: the handler will say so.
    hidden = masked(text)
    if hidden != text:
        record.msg, record.args = hidden, ()
    if record.exc_info and not record.exc_text:
        whole = logging.Formatter().formatException(record.exc_info)
        if masked(whole) != whole:
            record.exc_text = masked(whole)
            record.raised = type(record.exc_info[1]).__name__
            record.exc_info = None
    return True
