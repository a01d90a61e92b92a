"""An agent of twenty turns, and a fork of it: made, and executed, by processes that may die.

python forking.py go RUN_ID
python forking.py fork RUN_ID NEW_RUN_ID STEP
python forking.py back RUN_ID STEP
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import holdfast
from holdfast import effect, flow, step, turns
from tests.crash import probe

TURNS = 20


def here() -> str:
    run = holdfast.context.current_run()
    assert run is not None
    return run.run_id


@step(name="forking.think")
def think(messages: list[str]) -> str:
    number = len(messages)
    probe.point(f"{here()} before {number}")
    probe.executed(f"think-{number}", here())
    probe.point(f"{here()} in {number}")
    return f"thought {number} " + "m" * 700


@effect(name="forking.tell", on_doubt="retry")
def tell(number: int) -> str:
    probe.executed("tell", here(), holdfast.idempotency_key())
    probe.point(f"{here()} in tell")
    return f"told {number}"


@effect(name="forking.publish", key="publish:{number}", on_doubt="retry")
def publish(number: int) -> str:
    probe.executed("publish", here())
    return f"published {number}"


@flow(name="forking.agent")
def agent(number: int) -> list[str]:
    last = ""
    for messages in turns(["begin"]):
        last = think(messages)
        messages.append(last)
        probe.point(f"{here()} end of {len(messages) - 1}")
        if len(messages) > TURNS:
            break
    return [last[:10], tell(number), publish(number)]


def fork(run_id: str, new_run_id: str, before: str) -> object:
    """Fork a run; the process may die just before and just after the commit."""
    with probe.open_store() as store:
        probe.point("before the fork")
        made = store.fork(run_id, new_run_id, before=before, confirm=True, actor="ann")
        probe.point("after the fork")
        return {"created": made.created, "repeats": made.repeats}


def back(run_id: str, to: str) -> object:
    """Roll a run back to a step, and let it go on; the process may die in between."""
    with probe.open_store() as store:
        answer = store.rollback(run_id, to=to, confirm=True, actor="ann")
        probe.point("rolled back")
        store.resume(run_id, actor="ann")
        return answer.status


def go(run_id: str) -> object:
    with probe.open_store():
        return agent.run(run_id, 7)


WAYS: dict[str, Callable[..., object]] = {"fork": fork, "back": back, "go": go}

if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    probe.end(lambda: WAYS[what](*arguments))
