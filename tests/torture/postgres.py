"""The same for PostgreSQL: every byte at which a connection can be cut, crashes of the server under
load, and failovers that lose the tail. Each returns the violations it found."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast._engine.journal.rows import Write
from holdfast._stores.contract import Committed
from holdfast._stores.locate import open_store
from tests.contract.store_contract import new_run, step
from tests.crash.harness import payment_server, wait_for
from tests.postgres.cluster import Cluster
from tests.postgres.exchanges import EXCHANGES, Bench, play
from tests.postgres.fleet import Fleet
from tests.postgres.proxy import TO_CLIENT, TO_SERVER, Proxy
from tests.postgres.server import Server
from tests.postgres.test_failover import notices
from tests.postgres.test_restarts import crash_under_load

LEASE_S = 2.0
WORKERS = 8


@contextmanager
def bench() -> Iterator[Bench]:
    """A server, a store behind a proxy, and one that sees the truth."""
    with Server() as server, Proxy(server.port) as proxy:
        server.execute("CREATE TABLE public.paid (run_id text)")
        truth = open_store(server.url())
        store = open_store(proxy.url(), lease_s=LEASE_S)
        try:
            yield Bench(store, truth, proxy)
        finally:
            proxy.mend()
            store.close()
            truth.close()


def cut_everywhere() -> list[str]:
    """Cut every exchange after every byte of both directions."""
    wrong: list[str] = []
    with bench() as at:
        for name in EXCHANGES:
            for way in (TO_SERVER, TO_CLIENT):
                after, fired = 0, True
                while fired:
                    try:
                        fired = play(at, name, way, after)
                    except Exception as error:
                        at.proxy.mend()
                        wrong.append(f"{name}, {way}, byte {after}: {error!r}")
                    after += 1
                print(f"{name}, {way}: {after} cuts, {len(wrong)} violations", flush=True)
        wrong += [f"verify: {finding}" for finding in at.truth.verify()]
    return wrong


def crash_server(restarts: int, seed: int) -> list[str]:
    """Crash the server this often while workers are at work."""
    with tempfile.TemporaryDirectory() as folder, payment_server() as payments, Server() as server:
        url = server.database("runs")
        fleet = Fleet(Path(folder), env={"CRASH_PAYMENTS": payments.url}, elsewhere=url)
        try:
            names = crash_under_load(
                server, fleet, runs=10 * restarts, workers=WORKERS, restarts=restarts, seed=seed
            )
            return fleet.violations(names, payments)
        finally:
            fleet.close()


def lose_tails(promotions: int, seed: int) -> list[str]:
    """Promote a replica that is behind, this often: it is noticed each time."""
    rng = random.Random(seed)
    return [line for number in range(promotions) for line in _lose_tail(number, rng)]


def _lose_tail(number: int, rng: random.Random) -> list[str]:
    with Cluster(synchronous=False) as cluster:
        store = open_store(cluster.url(), lease_s=LEASE_S)
        owner = store.register_owner()
        lease = store.start(new_run("r"), owner).lease
        assert lease is not None
        for _ in range(rng.randrange(5)):
            store.append([Write(lease, [step()])])
        cluster.hold_back()
        for _ in range(rng.randrange(1, 5)):
            assert isinstance(store.append([Write(lease, [step()])])[0], Committed)
        cluster.fail_over()
        try:
            wait_for(lambda: notices(store, owner), "it is noticed")
            row = store.get("r")
            held = row is not None and row.held_reason == "corrupt"
            return [] if held else [f"promotion {number}: the run is not held: {row}"]
        except AssertionError as error:
            return [f"promotion {number}: {error}"]
        finally:
            store.close()
