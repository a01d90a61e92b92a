"""People in a test: somebody who answers whatever a run asks, as long as it runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from typing import Any

from holdfast._stores.contract import Store as Kept
from holdfast.errors import AnswerConflict, HoldfastError, RunEnded, RunNotFound
from holdfast.testing.clock import FakeClock
from holdfast.testing.doors import Store
from holdfast.testing.lives import process

People = Callable[[Any], Any]
"""Is given what a run asks, as `store.questions()` has it, and returns the answer; of an approval,
whether it is given."""

ACTOR = "crash_matrix"
LOOK_S = 0.02


@contextlib.contextmanager
def answering(
    reopen: Callable[[], Kept], clock: FakeClock, run_id: str, people: People | None
) -> Generator[None, None, None]:
    """Answer the questions of a run while something else executes it."""
    if people is None:
        yield
        return
    over = threading.Event()

    def answer_all() -> None:
        with process(reopen(), clock) as store, contextlib.suppress(HoldfastError):
            while not over.is_set():
                _look(store, run_id, people)
                store.kept.wait_for_change(LOOK_S)

    thread = threading.Thread(target=answer_all, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _look(store: Store, run_id: str, people: People) -> None:
    with contextlib.suppress(AnswerConflict, RunEnded, RunNotFound):
        for question in store.questions(run_id=run_id):
            value = people(question)
            if question.kind != "approval":
                store.answer(run_id, question.name, value, actor=ACTOR)
            elif value:
                store.approve(run_id, question.name, digest=question.digest, actor=ACTOR)
            else:
                store.reject(run_id, question.name, actor=ACTOR)
