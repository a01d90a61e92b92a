"""The cluster that other tests stand on loses what it says, and nothing else."""

from __future__ import annotations

import psycopg
import pytest

from tests.postgres.cluster import Cluster

INSERT = "INSERT INTO kept VALUES (%s)"


def insert(cluster: Cluster, value: int) -> None:
    with psycopg.connect(cluster.url(), autocommit=True) as client:
        client.execute(INSERT, (value,))


def kept(cluster: Cluster) -> list[int]:
    with psycopg.connect(cluster.url()) as client:
        return [value for (value,) in client.execute("SELECT a FROM kept ORDER BY a")]


def test_an_asynchronous_replica_that_was_held_back_has_lost_the_tail() -> None:
    with Cluster(synchronous=False) as cluster:
        cluster.primary.execute("CREATE TABLE kept (a int)")
        insert(cluster, 1)
        cluster.hold_back()
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            cluster.replica.execute("INSERT INTO kept VALUES (1)")
        insert(cluster, 2)
        assert kept(cluster) == [1, 2]
        cluster.fail_over()
        assert kept(cluster) == [1]
