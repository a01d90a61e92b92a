"""Traces of this process, kept in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.observers.memory import Telling


@pytest.fixture
def telling() -> Iterator[Telling]:
    with Telling() as told:
        yield told
