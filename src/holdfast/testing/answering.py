"""People in a test: somebody who answers whatever a run asks, as long as it runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from typing import Any

from holdfast._ops import people
from holdfast._ops.people import QuestionView
from holdfast._store.contract import Store as Kept
from holdfast.errors import AnswerConflict, HoldfastError, RunEnded, RunNotFound

People = Callable[[QuestionView], Any]
"""Is given what a run asks, and returns the answer; of an approval, whether it is given."""

ACTOR = "crash_matrix"
LOOK_S = 0.02


@contextlib.contextmanager
def answering(
    reopen: Callable[[], Kept], run_id: str, answers: People | None
) -> Generator[None, None, None]:
    """Answer the questions of a run while something else executes it."""
    if answers is None:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_answer_all, args=(reopen, run_id, answers, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _answer_all(
    reopen: Callable[[], Kept], run_id: str, answers: People, over: threading.Event
) -> None:
    kept = reopen()
    try:
        while not over.is_set():
            with contextlib.suppress(RunNotFound):
                for question in people.questions(kept, run_id=run_id):
                    _answer(kept, question, answers)
            kept.wait_for_change(LOOK_S)
    except HoldfastError:
        if not over.is_set():
            raise
    finally:
        kept.close()


def _answer(kept: Kept, question: QuestionView, answers: People) -> None:
    value = answers(question)
    with contextlib.suppress(AnswerConflict, RunEnded):
        if question.kind != "approval":
            people.answer(kept, question.run_id, question.name, value, actor=ACTOR)
        elif value:
            people.approve(
                kept, question.run_id, question.name, digest=question.digest, actor=ACTOR
            )
        else:
            people.refuse(kept, question.run_id, question.name, actor=ACTOR)
