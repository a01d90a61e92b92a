"""Row 42: a pooler in transaction mode between every process and the server.

Whatever a session would have to keep is lost: nothing is in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from holdfast import flow, gather, step, turns
from tests.contract.test_postgres import TestPostgres as OnPostgres
from tests.postgres.pooler import Pooler
from tests.postgres.server import Server

SESSIONS = 3


@pytest.fixture
def pooler(postgres_server: Server) -> Iterator[Pooler]:
    with Pooler(postgres_server.port, SESSIONS) as pooler:
        yield pooler


@pytest.mark.sweep(whole=True)
class TestPooled(OnPostgres):
    """The whole contract, through the pooler."""

    @pytest.fixture(autouse=True)
    def _database(self, postgres_server: Server, postgres_store_url: str, pooler: Pooler) -> None:
        self.server = postgres_server
        self.url = pooler.url(postgres_store_url.rpartition("/")[2])
        self.pooler = pooler

    def cut_connections(self, database: str) -> None:
        super().cut_connections(database)
        self.pooler.cut_all()  # It went down with the primary.


@step
def double_it(number: int) -> int:
    return 2 * number


@flow
def doubling(rounds: int) -> int:
    for total in turns([0], max_turns=rounds + 1):
        if len(total) > rounds:
            left, right = gather(lambda: double_it(total[-1]), lambda: double_it(1))
            return left + right
        total.append(double_it(len(total)))
    raise AssertionError


def test_row_42_runs_go_through_a_pooler(pooler: Pooler, postgres_database: str) -> None:
    with holdfast.open(pooler.url(postgres_database)) as store, store.worker(flows=[doubling]):
        handles = [doubling.submit(f"r{number}", 5) for number in range(10)]
        assert [handle.result(timeout=30) for handle in handles] == [22] * 10
        assert not store.verify()
    assert pooler.switches > 20
