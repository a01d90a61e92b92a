"""The world changes at every look, and the run dies at every write; in a whole sweep twice."""

from __future__ import annotations

import itertools

import pytest

from holdfast import aio, effect, flow, step, testing
from holdfast.versioning import depends_on
from tests import sweeps

_looks = itertools.count()


def something_new() -> int:
    return next(_looks)


@step
def matrix_read() -> int:
    return 1


@step
def matrix_add(number: int) -> int:
    return number + 1


@effect(on_doubt="retry")
def matrix_send(number: int) -> int:
    return number


@flow
def matrix_redo() -> int:
    depends_on("world", something_new, on_change="redo")
    return matrix_add(matrix_read())


@flow
def matrix_go_on() -> int:
    depends_on("world", something_new, on_change="keep")
    return matrix_send(matrix_add(matrix_read()))


@flow
async def matrix_awaited() -> int:
    await aio.depends_on("world", something_new, on_change="redo")
    return await matrix_add.aio(await matrix_read.aio())


@pytest.mark.sweep
@pytest.mark.parametrize("watcher", [matrix_redo, matrix_go_on, matrix_awaited])
def test_a_changing_world_and_a_death_at_every_write(watcher):
    report = testing.crash_matrix(watcher, crashes=sweeps.size(1, 2))
    assert report.points
    assert all(point.completed for point in report.points)
