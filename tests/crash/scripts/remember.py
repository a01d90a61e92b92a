"""What a run remembers, written in steps and in the flow: `python remember.py RUN_ID`.

It can die inside each body, and before and after each commit: `before append 2`, `after append 2`.
`CRASH_PLANT=apart` writes the memories of a step at once, and not with its outcome.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import holdfast
from holdfast import Retry, effect, flow, step
from holdfast._engine.journal.rows import Memo, Write
from holdfast._stores.contract import Store
from tests.crash import probe

PLANTED = os.environ.get("CRASH_PLANT") == "apart"


def note(run: str, key: str) -> None:
    if PLANTED:
        kept[0].put_memo(Memo(run, key, b"1"))
    else:
        holdfast.memory(run).set(key, 1)
    probe.point(f"inside {key}")


@step
def remember_step(run: str) -> str:
    probe.executed("step", run)
    note(run, "step")
    return "step"


@effect(on_doubt="retry", retry=Retry(attempts=9, initial_wait_s=0.001))
def remember_effect(run: str) -> str:
    probe.executed("effect", run)
    note(run, "effect")
    return "effect"


@effect(transaction=True)
def remember_transaction(run: str) -> str:
    note(run, "transaction")
    return "transaction"


@flow
def remember(run: str) -> list[Any]:
    mine = holdfast.memory(run)
    done: list[Any] = [remember_step(run), remember_effect(run)]
    mine.set("flow", 1)
    done.append(mine.set("once", 1, if_version=0))
    done.append(mine.set("once", 2, if_version=0))
    done.append(remember_transaction(run))
    return [*done, mine.version("flow"), mine.version("once")]


kept: list[Store] = []


def dying(store: Store) -> None:
    """Die before or after a commit, by its number."""
    append, count = store.append, [0]

    def counted(writes: Sequence[Write]) -> Any:
        count[0] += 1
        number = count[0]
        probe.point(f"before append {number}")
        outcomes = append(writes)
        probe.point(f"after append {number}")
        return outcomes

    store.append = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    with probe.open_store() as store:
        kept.append(store._backend)
        dying(store._backend)
        run_id = sys.argv[1]
        probe.end(lambda: remember.run(run_id, run_id))
