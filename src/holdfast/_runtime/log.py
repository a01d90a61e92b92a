"""Log lines of the runtime. `logging` is loaded with the first line.

A line about a run has its id, flow and generation as fields of the record too (`extra=`), and the step
if it is about one, for structured logs; it has no values of runs and no texts of their errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._engine.journal.rows import RunRow
from holdfast._engine.journal.step_keys import check_label
from holdfast._engine.values.masks import masked
from holdfast._engine.values.secrets import Secret, registered

if TYPE_CHECKING:
    import logging


def debug(text: str, *args: object, about: RunRow | None = None, **fields: object) -> None:
    """Log a line for debugging."""
    import logging

    logging.getLogger("holdfast").debug(text, *args, extra=_fields(about, fields))


def info(text: str, *args: object, about: RunRow | None = None, **fields: object) -> None:
    """Log what is going on."""
    import logging

    logging.getLogger("holdfast").info(text, *args, extra=_fields(about, fields))


def warning(text: str, *args: object, about: RunRow | None = None, **fields: object) -> None:
    """Log something that an operator should know."""
    import logging

    logging.getLogger("holdfast").warning(text, *args, extra=_fields(about, fields))


def failure(
    text: str,
    *args: object,
    error: BaseException,
    about: RunRow | None = None,
    **fields: object,
) -> None:
    """Log a failure, with its traceback."""
    import logging

    extra = _fields(about, fields)
    logging.getLogger("holdfast").error(text, *args, exc_info=error, extra=extra)


def _fields(about: RunRow | None, fields: dict[str, object]) -> dict[str, Any]:
    """Return the fields of a record: of the run that it is about, and others."""
    told: dict[str, Any] = {}
    if about is not None:
        told = {"run_id": about.run_id, "flow": about.flow, "generation": about.generation}
    return told | fields


# -- secrets -----------------------------------------------------------------------------------


def register_secret(name: str, text: str) -> Secret:
    """Register a text that must not be stored, logged or shown, when the process starts.

    Wherever a run of this process would write it, `[secret NAME]` is written. Pass what is returned
    to steps in place of the text: only its name is stored, and `.reveal()` gives the text. The same
    name again replaces it (a key that was renewed); the old text stays masked.
    """
    import logging

    made = registered(check_label("the name of a secret", name), text)
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
