"""What the runtime says in the log. `logging` is loaded when there is something to say."""

from __future__ import annotations


def debug(text: str, *args: object) -> None:
    """Say what only those want to know who look for something."""
    import logging

    logging.getLogger("holdfast").debug(text, *args)


def info(text: str, *args: object) -> None:
    """Say what is going on, to whoever wants to know."""
    import logging

    logging.getLogger("holdfast").info(text, *args)


def warning(text: str, *args: object) -> None:
    """Say something that an operator should know of."""
    import logging

    logging.getLogger("holdfast").warning(text, *args)


def failure(text: str, *args: object, error: BaseException) -> None:
    """Say that something failed, with its traceback."""
    import logging

    logging.getLogger("holdfast").error(text, *args, exc_info=error)
