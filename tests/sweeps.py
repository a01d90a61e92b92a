"""Sweeps: tests that try many cases of one thing. Each test run tries a share of them, `make sweeps` all.

A test with a share has the mark `sweep`, and takes its sizes from `size(share, whole)`. A test that says
`@pytest.mark.sweep(whole=True)` has no share that would show anything new: it is part of `make sweeps`
only.
"""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

WHOLE = os.environ.get("HOLDFAST_SWEEPS") == "whole"
"""Whether all cases are tried."""


def size(share: T, whole: T) -> T:
    """Return how much of a sweep is tried in this test run."""
    return whole if WHOLE else share
