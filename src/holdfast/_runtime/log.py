"""What the runtime says in the log. `logging` is loaded when there is something to say.

A line about a run has its id, flow and generation as fields of the record too (`extra=`), and the step
if it is about one, for those who keep logs as data; values of runs and texts of their errors are no part of it.
"""

from __future__ import annotations

from typing import Any

from holdfast._engine.journal.rows import RunRow


def debug(text: str, *args: object, about: RunRow | None = None, **fields: object) -> None:
    """Say what only those want to know who look for something."""
    import logging

    logging.getLogger("holdfast").debug(text, *args, extra=_fields(about, fields))


def info(text: str, *args: object, about: RunRow | None = None, **fields: object) -> None:
    """Say what is going on, to whoever wants to know."""
    import logging

    logging.getLogger("holdfast").info(text, *args, extra=_fields(about, fields))


def warning(text: str, *args: object, about: RunRow | None = None, **fields: object) -> None:
    """Say something that an operator should know of."""
    import logging

    logging.getLogger("holdfast").warning(text, *args, extra=_fields(about, fields))


def failure(
    text: str,
    *args: object,
    error: BaseException,
    about: RunRow | None = None,
    **fields: object,
) -> None:
    """Say that something failed, with its traceback."""
    import logging

    extra = _fields(about, fields)
    logging.getLogger("holdfast").error(text, *args, exc_info=error, extra=extra)


def _fields(about: RunRow | None, fields: dict[str, object]) -> dict[str, Any]:
    """Return the fields of a record: of the run that it is about, and others."""
    told: dict[str, Any] = {}
    if about is not None:
        told = {"run_id": about.run_id, "flow": about.flow, "generation": about.generation}
    return told | fields
