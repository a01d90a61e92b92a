"""The script of an effect in the store's own database, driven by hand."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast._engine.journal.changes import ClaimKey, SetKey
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.rows import KeyState
from holdfast._engine.scripts.requests import (
    Append,
    Chance,
    CopyResult,
    FindKey,
    Now,
    Sleep,
    Spec,
    StepCall,
    Transact,
    Transacted,
    Wrote,
)
from holdfast._engine.scripts.retry import Retry
from holdfast._engine.scripts.step_script import step_script
from holdfast._engine.scripts.stops import Unwind
from holdfast.errors import KeyConflict, NotSerializable, RunHeld, StepFailed, UsageError

DIGEST = b"d" * 16


def call_of(key: str | None = None, *, after_data_loss: bool = False, **spec: Any) -> StepCall:
    return StepCall(
        Spec("book", effect=True, transaction=True, **spec),
        "book",
        1,
        DIGEST,
        key or "hf_1",
        key,
        after_data_loss=after_data_loss,
    )


class Hand:
    """Answers everything, and keeps what was written."""

    def __init__(self, *transacted: Transacted) -> None:
        self.transacted = list(transacted)
        self.asked: list[Transact] = []
        self.wrote: list[Append] = []
        self.slept: list[int] = []
        self.stranded = False
        self.now_us = 0

    def drive(self, call: StepCall, history: History | None = None) -> Any:
        script = step_script(call, history or History("r"), lambda node: node)
        answer: Any = None
        try:
            while True:
                answer = self._answer(script.send(answer))
        except StopIteration as stop:
            return stop.value

    def _answer(self, request: Any) -> Any:
        if isinstance(request, Now):
            self.now_us += 1
            return self.now_us
        if isinstance(request, Chance):
            return 0.5
        if isinstance(request, Transact):
            self.asked.append(request)
            return self.transacted.pop(0)
        if isinstance(request, Append):
            self.wrote.append(request)
            values = request.notes[-1].values
            return Wrote(next(iter(values.values()), None))
        if isinstance(request, Sleep):
            self.slept.append(request.until_us)
            return None
        if isinstance(request, FindKey):
            return self.stranded
        assert isinstance(request, CopyResult)
        return "of the other"

    def kinds(self) -> list[list[Kind]]:
        return [[note.kind for note in append.notes] for append in self.wrote]


def taken(state: str, digest: bytes = DIGEST) -> Transacted:
    key = KeyState("n", "book", "k", state, 2, "other", "book", 1, digest, 7, 0)
    return Transacted(taken=key)


def test_one_request_and_nothing_before_it() -> None:
    hand = Hand(Transacted("booked"))

    assert hand.drive(call_of()) == "booked"

    assert hand.wrote == []
    started, completed = hand.asked[0].notes
    assert started.facts == {"effect": True, "transaction": True, "key": "hf_1"}
    assert (completed.kind, completed.ends_attempt) == (Kind.STEP_COMPLETED, True)


def test_a_lost_tail_took_its_writes_along_so_there_is_no_doubt() -> None:
    assert Hand(Transacted("booked")).drive(call_of(after_data_loss=True)) == "booked"


def test_an_error_is_a_failure_with_its_start() -> None:
    hand = Hand(Transacted(error=ValueError("no")))

    with pytest.raises(StepFailed) as failed:
        hand.drive(call_of())

    assert not failed.value.outcome_unknown
    assert hand.kinds() == [[Kind.STEP_STARTED, Kind.STEP_FAILED]]
    assert not hand.wrote[0].changes


def test_one_that_ended_its_transaction_by_itself_is_in_doubt_and_never_tried_again() -> None:
    hand = Hand(Transacted(error=UsageError("by itself"), in_doubt=True))

    with pytest.raises(Unwind) as stopped:
        hand.drive(call_of("k", retry=Retry(attempts=9)))

    held = stopped.value.error
    assert isinstance(held, RunHeld)
    assert (held.reason, held.step) == ("in_doubt", "book")
    assert hand.kinds() == [[Kind.STEP_STARTED, Kind.STEP_IN_DOUBT]]
    [append] = hand.wrote
    claim, key = append.changes
    assert isinstance(claim, ClaimKey)
    assert isinstance(key, SetKey)
    assert key.state == "in_doubt"


def test_it_is_tried_again_by_its_policy() -> None:
    hand = Hand(Transacted(error=ValueError("no")), Transacted("booked"))
    call = call_of(retry=Retry(attempts=2))

    assert hand.drive(call) == "booked"

    assert call.attempt.number == 2
    assert hand.kinds() == [[Kind.STEP_STARTED, Kind.STEP_FAILED]]
    assert len(hand.slept) == 1


def test_a_value_that_cannot_be_stored_is_not_tried_again() -> None:
    hand = Hand(Transacted(error=NotSerializable("result", "no"), refused=True))

    with pytest.raises(StepFailed):
        hand.drive(call_of(retry=Retry(attempts=5)))


def test_a_key_is_claimed_and_completed_with_the_outcome() -> None:
    hand = Hand(Transacted("booked"))
    hand.drive(call_of("k"))

    claim, (change,) = hand.asked[0].claim, hand.asked[0].keys
    assert claim is not None
    assert (claim.key, change.key, change.state, change.result) == ("k", "k", "completed", True)


def test_a_key_that_another_run_has() -> None:
    done = Hand(taken("completed"))
    assert done.drive(call_of("k")) == "of the other"
    assert done.kinds() == [[Kind.SKIPPED_DUPLICATE]]

    free = Hand(taken("in_progress"), Transacted("booked"))
    assert free.drive(call_of("k")) == "booked"

    for stopped in (Hand(taken("in_doubt")), Hand(taken("in_progress"))):
        stopped.stranded = True
        with pytest.raises(Unwind) as unwind:
            stopped.drive(call_of("k"))
        assert isinstance(unwind.value.error, RunHeld)

    with pytest.raises(KeyConflict):
        Hand(taken("completed", b"e" * 16)).drive(call_of("k"))


def begun(*bodies: tuple[Kind, bytes]) -> History:
    history = History("r")
    history.add(Entry(1, Kind.RUN_STARTED, 0, None, 0, None, None, None, b"{}", b""))
    for seq, (kind, body) in enumerate(bodies, 2):
        history.add(Entry(seq, kind, seq, "book", 1, 1, DIGEST, None, body, b""))
    return history


INTENT = (Kind.STEP_STARTED, b'{"effect":true,"transaction":true,"key":"hf_0"}')


def test_a_retry_that_a_crash_cut_short_waits_for_its_time() -> None:
    failed = b'{"error":{"type":"E","message":""},"final":false,"retry_at_us":99}'
    hand = Hand(Transacted("booked"))

    assert hand.drive(call_of(), begun(INTENT, (Kind.STEP_FAILED, failed))) == "booked"
    assert hand.slept == [99]


def test_an_interrupted_one_is_simply_executed() -> None:
    cancelled = (Kind.STEP_CANCELLED, b'{"why":"interrupted","rolled_back":true}')
    history = begun(INTENT, cancelled)

    assert Hand(Transacted("booked")).drive(call_of(), history) == "booked"
    assert history.records["book"].transaction
    assert history.records["book"].shown_key() == "hf_0"


def test_what_was_begun_as_another_kind_of_effect_is_in_doubt() -> None:
    with pytest.raises(Unwind) as unwind:
        Hand().drive(call_of(), begun((Kind.STEP_STARTED, b'{"effect":true,"key":"hf_0"}')))
    assert isinstance(unwind.value.error, RunHeld)


def test_a_step_that_showed_no_key() -> None:
    plain = begun((Kind.STEP_STARTED, b'{"args":{"key":"x"}}'))
    assert plain.records["book"].shown_key() is None
    assert not plain.records["book"].transaction
