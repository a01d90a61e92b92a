"""Which attempt of a step executes, for bodies of steps that fail at first."""

from holdfast.context import current_run


def attempt() -> int:
    """Return the number of the attempt that executes here, from 1 on."""
    run = current_run()
    assert run is not None
    assert run.attempt is not None
    return run.attempt
