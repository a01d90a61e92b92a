"""Logs of flows without repetition, with the run and the step, one line per record.

    handler.addFilter(holdfast.observers.logging.RunFilter())
    handler.setFormatter(holdfast.observers.logging.JsonFormatter())

`RunFilter` drops records of replayed flow code, because they were logged before, and adds run and
step to the others. `JsonFormatter` writes a record as one JSON object, `LineFormatter` as one line
of text: with either, no name, payload or model output can begin a line of its own.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import traceback
from typing import Any

from holdfast.context import current_run, is_replaying
from holdfast.redaction import redact, redact_record

FIELDS = ("run_id", "flow", "step", "attempt", "generation")
"""The known facts about a record's run."""
OWN = ("reason", "exception")
"""Further fields of Holdfast's own records."""
PLACES_MAX = 50
TEXT_MAX_CHARS = 16_384
"""The length limit of a message. A longer one is cut and says so."""


class RunFilter(logging.Filter):
    """Drops records that a replay repeats, and adds the run and the step to the others: `run_id`,
    `flow`, `step`, `attempt` and `generation`, for a format such as "%(run_id)s %(step)s
    %(message)s"."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is to be written."""
        ours = record.name.split(".")[0] == "holdfast"
        if is_replaying() and not ours:
            return False
        known: dict[str, Any] = dict.fromkeys(FIELDS, "")
        # The record's own fields win: a worker logs about many runs.
        if getattr(record, "run_id", None) is None:
            known |= run_fields()
        for name, value in known.items():
            if getattr(record, name, None) is None:
                setattr(record, name, value)
        return redact_record(record)


def run_fields() -> dict[str, Any]:
    """Return the facts about the run and the step of this code."""
    run = current_run()
    if run is None:
        return {}
    told = {"run_id": run.run_id, "flow": run.flow, "step": run.step, "generation": run.generation}
    told["attempt"] = run.attempt
    return {name: value for name, value in told.items() if value is not None}


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and run_id, flow, step, attempt and
    generation inside a run. Of an exception it has the type and the stack, not the message, which
    may contain data of the run."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        told: dict[str, Any] = {
            "time": _time(record).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _cut(redact(_message(record))),
        }
        known = {name: getattr(record, name, None) for name in FIELDS}
        if not known["run_id"]:
            known |= run_fields()
        told |= {name: value for name, value in known.items() if value not in (None, "")}
        told |= {name: str(v) for name in OWN if (v := getattr(record, name, None)) is not None}
        told |= _raised(record)
        return json.dumps(told, ensure_ascii=True, default=str)


class LineFormatter(logging.Formatter):
    """One line of text per record. A traceback follows on lines that begin with `  | `."""

    def __init__(self, fmt: str = "%(asctime)s %(levelname)s %(message)s") -> None:
        super().__init__(fmt)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the lines of a traceback."""
        record.message = _cut(redact(_message(record)))
        record.asctime = self.formatTime(record)
        lines = [_inert(redact(self.formatMessage(record)))]
        raised = record.exc_text  # A filter has taken secrets out of it.
        if record.exc_info and not raised:
            raised = self.formatException(record.exc_info)
        for text in (raised, record.stack_info):
            if text:
                lines += [f"  | {_inert(line)}" for line in redact(text).split("\n")]
        return "\n".join(lines)


def _raised(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of the exception of a record, if it has one."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        return {"exception": type(error).__name__, "places": _places(error)}
    if record.exc_text:  # A secret was masked in it; the rest is text.
        return {"exception": getattr(record, "raised", "Exception")}
    return {}


def _inert(text: str) -> str:
    """Return a text with escapes for everything that could end the line, move a cursor or hide."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # Its arguments do not fit its text: use the text alone.
        return str(record.msg)


def _cut(text: str) -> str:
    if len(text) <= TEXT_MAX_CHARS:
        return text
    return f"{text[:TEXT_MAX_CHARS]}… ({len(text) - TEXT_MAX_CHARS:,} more characters)"


def _time(record: logging.LogRecord) -> dt.datetime:
    return dt.datetime.fromtimestamp(record.created, dt.UTC)


def _places(error: BaseException) -> list[str]:
    """Return the stack of an exception, the innermost frame last."""
    frames = traceback.extract_tb(error.__traceback__)[-PLACES_MAX:]
    return [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
