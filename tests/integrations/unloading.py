"""A worker keeps no place for an agent that waits for a person."""

from __future__ import annotations

from typing import Any

from holdfast import testing


def waits_without_a_place(flow: Any, questions: int = 1, answer: Any = True) -> tuple[Any, int]:
    """Run a flow in a worker, answer what it asks once it is unloaded; its result, and how often it
    was unloaded."""
    with testing.store(url="sqlite:") as store, store.worker(flows=[flow]):
        handle = flow.submit("r")
        store.wait_until("r", status="waiting")
        row = store._backend.get("r")
        assert row is not None
        assert (row.owner, row.claims) == (None, 0)
        asked = store.questions(run_id="r")
        assert len(asked) == questions
        for it in asked:
            if it.digest is None:
                store.answer("r", it.name, answer, actor="ana")
            else:
                store.approve("r", it.name, digest=it.digest, actor="ana")
        result = handle.result(timeout=60)
        return result, sum(it.kind == "run_waiting" for it in store.history("r"))
