"""Lives of the example `examples/research`: `python research.py`, one line of JSON for each.

It forks a process for each life, so that Python is started once. A life that is to die is killed by
itself, with SIGKILL: `before` or `after` the commit that writes the entry of a number, or when the
`outcome` of a step is about to be written.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from typing import Any

import holdfast
from examples.research.clients import World
from examples.research.desk import research
from examples.research.person import ANSWERS, somebody
from holdfast._stores.postgres.postgres_store import PostgresStore
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import RunRolledBack
from tests.crash.research import GUIDE, REPORT, TOPIC

STARTED = 2
"""What the first commit of a run writes: that it was started, and claimed."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_before_outcome(kind: Any, step: str) -> None:
    """Have a store's class kill this process when the outcome of a step is about to be written."""
    append = kind.append

    def appended(self: Any, writes: Any) -> Any:
        drafts = [draft for write in writes for draft in write.drafts]
        if any(draft.kind == "step_completed" and draft.step == step for draft in drafts):
            die()
        return append(self, writes)

    kind.append = appended


def die_at(kind: Any, entry: int, when: str) -> None:
    """Have a store's class kill this process round the commit that writes this entry."""
    append, start_all = kind.append, kind.start_all

    def appended(self: Any, writes: Any) -> Any:
        reached = max((w.lease.row.last_seq for w in writes if w.drafts), default=0)
        if when == "before" and reached >= entry - 1:
            die()
        outcomes = append(self, writes)
        reached = max((w.lease.row.last_seq for w in writes if w.drafts), default=0)
        if when == "after" and reached >= entry:
            die()
        return outcomes

    def started(self: Any, news: Any) -> Any:
        if when == "before" and entry <= STARTED:
            die()
        result = start_all(self, news)
        if when == "after" and entry <= STARTED:
            die()
        return result

    kind.append, kind.start_all = appended, started


def live(told: dict[str, Any]) -> None:
    """Execute the run until its end, or die on the way."""
    for kind in (SqliteStore, PostgresStore):
        if told["when"] == "outcome":
            die_before_outcome(kind, told["entry"])
        elif told["entry"]:
            die_at(kind, told["entry"], told["when"])
    if told["blind"]:
        World.published = lambda self, report_id: None  # type: ignore[method-assign]
    answers = ANSWERS | ({"keep": "withdraw"} if told["withdrawn"] else {})
    with holdfast.open(told["url"]) as store, somebody(store, REPORT, answers):
        try:
            research.run(REPORT, REPORT, TOPIC, GUIDE)
        except RunRolledBack:
            assert told["withdrawn"]


def main() -> None:
    gc.collect()
    gc.freeze()  # What a child does not look at stays shared.
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                live(json.loads(line))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
