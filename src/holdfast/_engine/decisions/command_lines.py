"""Command lines for people: they can be pasted into a shell, whatever stands in the arguments."""

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
"""How many values a command begins with at least, where it is not one."""


def another_id(run_id: str) -> str:
    """Return the advice for a run id that is taken."""
    return f"choose another run id, or look at this run: {command('show', run_id)}"


def command(name: str, *arguments: str, values: int | None = None) -> str:
    """Return a `holdfast` command line; values come first (`values` of them, if it is more than this
    command begins with), options behind them. A value that looks like an option stands behind `--`,
    and the options before it."""
    ends = _VALUES.get(name, 1) if values is None else values
    while ends < len(arguments) and not arguments[ends].startswith("--"):
        ends += 1
    if any(value.startswith("-") for value in arguments[:ends]):
        arguments = (*arguments[ends:], "--", *arguments[:ends])
    import shlex  # Only to say what can be done.

    return " ".join(["holdfast", name, *map(shlex.quote, arguments)])
