"""Somebody who answers what a run asks, for demonstrations and tests."""

from __future__ import annotations

import _thread
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import holdfast
from holdfast.errors import AnswerConflict, RunEnded, RunNotFound

ANSWERS = {"wish": "shorter", "keep": "keep"}


def answer(
    store: holdfast.types.Store, run_id: str, answers: dict[str, str], *, tell: bool
) -> None:
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
    store: holdfast.types.Store,
    run_id: str,
    answers: dict[str, str] = ANSWERS,
    *,
    tell: bool = False,
) -> Iterator[None]:
    """Have a person beside the run, who is told of changes and answers by herself."""
    over = threading.Event()
    failed: list[Exception] = []

    def attend() -> None:
        try:
            while not over.is_set():
                answer(store, run_id, answers, tell=tell)
                over.wait(0.05)
        except Exception as error:
            failed.append(error)
            _thread.interrupt_main()  # nobody is left to answer: stop, rather than wait for ever

    thread = threading.Thread(target=attend, name="edna")
    try:
        thread.start()
        yield
    except KeyboardInterrupt:
        if failed:
            raise failed[0] from None
        raise
    finally:
        over.set()
        thread.join()
