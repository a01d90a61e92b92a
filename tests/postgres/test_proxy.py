"""What stands between client and server in other tests does what it says."""

from __future__ import annotations

import select

import psycopg
import pytest

from tests.crash.harness import wait_for
from tests.postgres.pooler import Pooler
from tests.postgres.proxy import TO_CLIENT, TO_SERVER, Proxy
from tests.postgres.server import Server

INSERT = "INSERT INTO kept VALUES (%s)"


@pytest.fixture
def kept(postgres_server: Server, postgres_database: str) -> str:
    postgres_server.execute("CREATE TABLE kept (a int PRIMARY KEY)", postgres_database)
    return postgres_database


def unprepared(url: str) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True, prepare_threshold=None)


def there(server: Server, database: str, value: int) -> bool:
    return bool(server.execute(f"SELECT 1 FROM kept WHERE a = {value}", database))


def insert_cut(proxy: Proxy, database: str, way: str, after: int, value: int) -> tuple[bool, bool]:
    """Insert a row through a connection that is cut; returns whether it was, and who knows."""
    with unprepared(proxy.url(database)) as client:
        cut = proxy.cut(way, after)
        try:
            client.execute(INSERT, (value,))
        except psycopg.OperationalError:
            return cut.fired, False
        finally:
            proxy.mend()
        return cut.fired, True


def test_every_byte_is_where_a_connection_can_end(postgres_server: Server, kept: str) -> None:
    with Proxy(postgres_server.port) as proxy:
        with unprepared(proxy.url(kept)) as client:
            sizes = proxy.measure(lambda: client.execute(INSERT, (-1,)))
        value, seen = 0, set()
        for way in (TO_SERVER, TO_CLIENT):
            for after in range(sizes[way]):
                fired, told = insert_cut(proxy, kept, way, after, value)
                postgres_server.cut_off(kept)
                assert fired, (way, after)
                assert way == TO_SERVER or there(postgres_server, kept, value), (way, after)
                seen.add((way, there(postgres_server, kept, value), told))
                value += 1
            assert insert_cut(proxy, kept, way, sizes[way] + 1, value) == (False, True)
            value += 1
        # Of a request that was cut nothing happened; of an answer that was cut everything.
        assert (TO_SERVER, False, False) in seen
        assert (TO_CLIENT, True, False) in seen
        assert (TO_SERVER, True, False) not in seen
        assert all(happened for _, happened, told in seen if told)


def test_what_was_cut_off_can_come_late(postgres_server: Server, kept: str) -> None:
    with Proxy(postgres_server.port) as proxy:
        with psycopg.connect(proxy.url(kept), autocommit=True) as client:
            cut = proxy.cut(TO_SERVER, 10, late=True)
            with pytest.raises(psycopg.OperationalError):
                client.execute(INSERT, (1,))
        assert not there(postgres_server, kept, 1)
        cut.deliver()
        wait_for(lambda: there(postgres_server, kept, 1), "it happened after all")


def test_nobody_gets_through_until_it_is_mended(postgres_server: Server, kept: str) -> None:
    with Proxy(postgres_server.port) as proxy:
        url = proxy.url(kept)
        with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url) as other:
            proxy.cut(TO_CLIENT, 0, alone=False)
            for client in (one, other):
                with pytest.raises(psycopg.OperationalError):
                    client.execute("SELECT 1")
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(url)
            proxy.mend()
            psycopg.connect(url).close()


def test_a_stalled_connection_says_nothing_and_goes_on(postgres_server: Server, kept: str) -> None:
    with Proxy(postgres_server.port) as proxy:
        with psycopg.connect(proxy.url(kept), autocommit=True) as client:
            proxy.stall()
            client.pgconn.send_query(b"SELECT 1")
            assert not select.select([client.pgconn.socket], [], [], 0.05)[0]
            assert client.pgconn.status == psycopg.pq.ConnStatus.OK
            proxy.mend()
            while client.pgconn.is_busy():
                client.pgconn.consume_input()
            result = client.pgconn.get_result()
            assert result is not None
            assert result.get_value(0, 0) == b"1"
            assert client.pgconn.get_result() is None


def test_notifications_can_be_lost(postgres_server: Server, kept: str) -> None:
    with Proxy(postgres_server.port) as proxy:
        proxy.drops_notifications = True
        with psycopg.connect(proxy.url(kept), autocommit=True) as client:
            client.execute("LISTEN news")
            client.execute("NOTIFY news, 'one'")
            assert proxy.dropped == 1
            assert list(client.notifies(timeout=0.01)) == []
            assert client.execute("SELECT 2").fetchone() == (2,)


# -- the pooler --------------------------------------------------------------------------------


def test_a_pooler_gives_each_transaction_another_session(
    postgres_server: Server, kept: str
) -> None:
    with Pooler(postgres_server.port) as pooler:
        with unprepared(pooler.url(kept)) as client:
            pid = "SELECT pg_backend_pid()"
            pids = [client.execute(pid).fetchone() for _ in range(6)]
            assert len(set(pids)) == pooler.sessions
            assert all(one != other for one, other in zip(pids, pids[1:], strict=False))
            with client.transaction():
                inside = [client.execute(pid).fetchone() for _ in range(6)]
            assert len(set(inside)) == 1
            assert pooler.switches


def test_what_is_left_in_a_session_is_lost_behind_a_pooler(
    postgres_server: Server, kept: str
) -> None:
    with Pooler(postgres_server.port) as pooler:
        with psycopg.connect(pooler.url(kept), autocommit=True) as client:
            client.execute("PREPARE one AS SELECT 1")
            with pytest.raises(psycopg.errors.InvalidSqlStatementName):
                client.execute("EXECUTE one")
            client.execute("SET application_name = 'mine'")
            assert client.execute("SHOW application_name").fetchone() == ("",)
            client.execute("LISTEN news")
            client.execute("NOTIFY news")
            client.execute("SELECT 1")
            assert list(client.notifies(timeout=0.01)) == []


def test_a_pooler_rolls_back_for_a_client_that_is_gone(postgres_server: Server, kept: str) -> None:
    with Pooler(postgres_server.port, sessions=1) as pooler:
        client = psycopg.connect(pooler.url(kept))
        client.execute(INSERT, (1,))
        client.pgconn.finish()
        with psycopg.connect(pooler.url(kept), autocommit=True) as other:
            assert other.execute("SELECT count(*) FROM kept").fetchone() == (0,)
        client.close()


def test_a_pooler_refuses_what_it_would_have_to_keep(postgres_server: Server, kept: str) -> None:
    with Pooler(postgres_server.port) as pooler:
        with pytest.raises(psycopg.OperationalError, match="unsupported startup parameter"):
            psycopg.connect(pooler.url(kept), options="-c statement_timeout=5s")
