"""Somebody who answers what a run asks, for demonstrations and tests."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import holdfast
from holdfast.errors import AnswerConflict, RunEnded, RunNotFound

ANSWERS = {"wish": "shorter", "keep": "keep"}


def answer(store: holdfast.Store, run_id: str, answers: dict[str, str], *, tell: bool) -> None:
    """Answer what is open now. What was answered meanwhile by another is answered."""
    try:
        asked = store.questions(run_id=run_id)
    except RunNotFound:  # it begins in a moment
        return
    for question in asked:
        with contextlib.suppress(AnswerConflict, RunEnded):
            if question.kind == "approval":
                store.approve(run_id, question.name, digest=question.digest, actor="edna")
                said = "approved"
            else:
                said = answers[question.name]
                store.answer(run_id, question.name, said, actor="edna")
            if tell:
                print(f"  edna is asked {question.name!r}, and says {said!r}")


@contextmanager
def somebody(
    store: holdfast.Store, run_id: str, answers: dict[str, str] = ANSWERS, *, tell: bool = False
) -> Iterator[None]:
    """Have a person beside the run, who is told of changes and answers by herself."""
    over = threading.Event()

    def attend() -> None:
        while not over.is_set():
            answer(store, run_id, answers, tell=tell)
            store.kept.wait_for_change(0.05)

    thread = threading.Thread(target=attend, name="edna")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
