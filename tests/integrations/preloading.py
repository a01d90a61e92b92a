"""Loads a program into the process that lives are forked from. What it wants of its surroundings may
not be there yet; then as much of it is loaded as can be."""

import contextlib
import importlib
import os

with contextlib.suppress(Exception):
    importlib.import_module(os.environ["PRELOADED"])
