"""Who is measured: each subject is a worker process of its own."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.environments import python_of
from benchmarks.workloads import Store

PEER_TASKS = frozenset({"w1/steps", "w2/async", "w2/threads", "w4", "w5"})


@dataclass(frozen=True, slots=True)
class Subject:
    """`imports` and `distributions` are what W5 looks at; `environment` is a peer's."""

    name: str
    module: str
    tasks: frozenset[str]
    imports: str
    distributions: tuple[str, ...]
    settings: str
    mode: str = ""
    environment: str = ""
    store: Store = "sqlite"

    @property
    def is_peer(self) -> bool:
        return bool(self.environment)

    @property
    def python(self) -> Path:
        if self.is_peer:
            return python_of(self.environment)
        return Path(sys.executable)


FLOOR = Subject(
    name="floor",
    module="benchmarks.floor",
    tasks=PEER_TASKS | {"w2/shared", "w3/new"},
    imports="import apsw",
    distributions=("apsw",),
    settings="bare inserts through apsw; WAL, synchronous=FULL; a commit per step; "
    "in W2 one for what the runs handed over",
)
HOLDFAST = Subject(
    name="holdfast",
    module="benchmarks.subject_holdfast",
    tasks=PEER_TASKS | {"w1/effects", "w1/grouped", "w3/new", "w3/whole", "w3/state", "w6", "w7"},
    imports="from holdfast import effect, flow, step, turns",
    distributions=("holdfast",),
    settings="as installed; WAL, synchronous=FULL",
)
DBOS = Subject(
    name="dbos",
    module="benchmarks.peers.dbos_worker",
    tasks=PEER_TASKS | {"w3/new", "w3/whole", "w3/state", "w6"},
    imports="from dbos import DBOS",
    distributions=("dbos",),
    settings="the file put into WAL mode, which is faster than its default; "
    "synchronous=FULL; logs and telemetry off",
    environment="dbos",
)
DBOS_DEFAULT = Subject(
    name="dbos-default",
    module=DBOS.module,
    tasks=frozenset({"w1/steps"}),
    imports=DBOS.imports,
    distributions=DBOS.distributions,
    settings="the same in the rollback mode that it comes with",
    mode="rollback",
    environment="dbos",
)
LANGGRAPH_SYNC = Subject(
    name="langgraph-sync",
    module="benchmarks.peers.langgraph_worker",
    tasks=PEER_TASKS | {"w3/state"},
    imports="from langgraph.graph import StateGraph; "
    "from langgraph.checkpoint.sqlite import SqliteSaver",
    distributions=("langgraph", "langgraph-checkpoint-sqlite"),
    settings='SqliteSaver/AsyncSqliteSaver, durability="sync": saved before the next '
    "step; WAL, synchronous=FULL; tracing off",
    mode="sync",
    environment="langgraph",
)
LANGGRAPH_DEFAULT = Subject(
    name="langgraph-default",
    module=LANGGRAPH_SYNC.module,
    tasks=frozenset({"w1/steps", "w2/async", "w2/threads", "w4"}),
    imports=LANGGRAPH_SYNC.imports,
    distributions=LANGGRAPH_SYNC.distributions,
    settings='the same with durability="async", its default: saved in the background, '
    "so a crash loses finished steps; not the same promise",
    mode="async",
    environment="langgraph",
)
LANGGRAPH_DELTA = Subject(
    name="langgraph-delta",
    module=LANGGRAPH_SYNC.module,
    tasks=frozenset({"w3/state"}),
    imports=LANGGRAPH_SYNC.imports,
    distributions=LANGGRAPH_SYNC.distributions,
    settings='durability="sync" with the conversation in the beta DeltaChannel',
    mode="delta",
    environment="langgraph",
)

FLOOR_PG = Subject(
    name="floor-pg",
    module="benchmarks.floor_postgres",
    tasks=FLOOR.tasks | {"w2/one-insert", "w2/connections"},
    imports="import psycopg",
    distributions=("psycopg",),
    settings="bare inserts through psycopg; autocommit, synchronous_commit=on; a commit per step; "
    "in W2 one for what the runs handed over",
    store="postgresql",
)
HOLDFAST_PG = replace(
    HOLDFAST,
    name="holdfast-pg",
    tasks=HOLDFAST.tasks - {"w5"},
    settings="as installed with the extra `postgres`; synchronous_commit=on",
    store="postgresql",
)
DBOS_PG = replace(
    DBOS,
    name="dbos-pg",
    tasks=DBOS.tasks - {"w5"},
    settings="as it comes, logs and telemetry off; its queue asks once per second",
    store="postgresql",
)
ABSURD_PG = Subject(
    name="absurd-pg",
    module="benchmarks.peers.absurd_worker",
    tasks=PEER_TASKS | {"w3/new", "w3/state", "w6"},
    imports="from absurd_sdk import Absurd",
    distributions=("absurd-sdk",),
    settings="W2 in threads is eight workers with a connection each, W2 async one worker; in W4 "
    "a claim runs out after 1 s instead of 120; in W6 a worker takes eight runs at a time",
    environment="absurd",
    store="postgresql",
)
LANGGRAPH_PG = replace(
    LANGGRAPH_SYNC,
    name="langgraph-pg",
    tasks=LANGGRAPH_SYNC.tasks - {"w5"},
    settings='PostgresSaver/AsyncPostgresSaver, durability="sync"; one connection, in W2 eight',
    store="postgresql",
)

OURS = (FLOOR, HOLDFAST, FLOOR_PG, HOLDFAST_PG)
PEERS = (
    DBOS,
    DBOS_DEFAULT,
    LANGGRAPH_SYNC,
    LANGGRAPH_DEFAULT,
    LANGGRAPH_DELTA,
    DBOS_PG,
    ABSURD_PG,
    LANGGRAPH_PG,
)
