"""Run a script as a user would, and kill it where KILL says: `python -m tests.integrations.killing x.py`."""

import os
import runpy
import sys

import holdfast
from tests.integrations.program import Killer

if __name__ == "__main__":
    kind, _, number = os.environ.get("KILL", "").partition(":")
    if kind:
        holdfast.observers.observe(Killer(kind, int(number)))
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
