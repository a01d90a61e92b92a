"""Build command lines that a person can paste into a shell, whatever the arguments contain."""

from __future__ import annotations

_VALUES = {
    "settle": 2,
    "fork": 2,
    "run": 2,
    "answer": 2,
    "approve": 2,
    "reject": 2,
    "signal": 2,
    "runs": 0,
    "questions": 0,
}
"""The least number of values of a command, where it is not one."""


def another_id(run_id: str) -> str:
    """Return the advice for a run id that is taken."""
    return f"choose another run id, or look at this run: {command('show', run_id)}"


def command(name: str, *arguments: str, values: int | None = None) -> str:
    """Return a `holdfast` command line: values first (`values` of them, if the command takes more
    than its minimum), options after them. A value that looks like an option follows `--`, with the
    options before it."""
    ends = _VALUES.get(name, 1) if values is None else values
    while ends < len(arguments) and not arguments[ends].startswith("--"):
        ends += 1
    if any(value.startswith("-") for value in arguments[:ends]):
        arguments = (*arguments[ends:], "--", *arguments[:ends])
    import shlex  # Only to say what can be done.

    return " ".join(["holdfast", name, *map(shlex.quote, arguments)])
