"""Questions to people: typed, found by name, answered once, whatever happens to the process."""

from __future__ import annotations

import dataclasses
import enum
import functools
import threading
from typing import Any

import pydantic
import pytest

from holdfast import aio, ask, each, flow, testing, turns
from holdfast._engine.scripts.inbox_messages import answer_id, next_number
from holdfast.errors import AnswerConflict, Rejected, RunEnded, RunFailed, UsageError, WaitTimedOut
from holdfast.testing import FakeClock, PrivateStore
from tests.runtime.facts import is_free, until


class Color(enum.Enum):
    """What may be chosen."""

    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Plan:
    """What may be asked for."""

    days: int
    title: str = ""


@flow(name="ask-how-many")
def how_many() -> int:
    return ask("How many?", name="count", type=int, to="ana")


@flow(name="ask-ahow-many")
async def ahow_many() -> int:
    return await aio.ask("How many?", name="count", type=int, to="ana")


@flow(name="ask-typed")
def typed() -> list[Any]:
    return [
        ask("Color?", name="color", type=Color),
        ask("Plan?", name="plan", type=Plan),
        ask("Size?", name="size", choices=["s", "m"]),
        ask("Second color?", name="second", choices=[Color.RED, Color.BLUE]),
        ask("Anything?", name="any"),
    ]


class Model(pydantic.BaseModel):
    """What checks more than a schema says."""

    days: int

    @pydantic.field_validator("days")
    @classmethod
    def _some(cls, days: int) -> int:
        if not days:
            raise ValueError("none at all")
        return days


@flow(name="ask-model")
def modelled() -> int:
    return ask("Model?", name="model", type=Model).days


@flow(name="ask-again")
def again() -> list[Any]:
    said: list[Any] = []
    for _ in range(3):
        try:
            said.append(ask("Well?", name="well", timeout="1h"))
        except WaitTimedOut as error:
            said.append(error.what)
    return said


@flow(name="ask-default")
def with_default() -> list[Any]:
    return [ask("Well?", name="well", type=bool, timeout=5, default=None), ask("So?", name="so")]


@flow(name="ask-refusable")
def refusable() -> str:
    try:
        return ask("Go on?", name="go")
    except Rejected as error:
        return f"{error.actor}: {error.reason}"


@flow(name="ask-fails")
def fails_when_refused() -> str:
    return ask("Go on?", name="go")


@flow(name="ask-turns")
def in_turns() -> list[Any]:
    nothing: dict[str, list[Any]] = {"got": []}
    for state in turns(nothing, max_turns=9):
        state["got"].append(ask("Next?", name="next"))
        if state["got"][-1] == "end":
            return state["got"]
    raise AssertionError


@flow(name="ask-each")
def in_branches() -> list[Any]:
    return each(lambda n: ask(f"{n}?", name=f"q{n}", type=int), [1, 2, 3])


refused = threading.Event()


def ask_by_one_name(number: int) -> Any:
    try:
        return ask(f"{number}?", name="q")
    except UsageError:
        refused.set()
        raise


@flow(name="ask-same-name")
def same_name_twice() -> list[Any]:
    return each(ask_by_one_name, [1, 2])


@pytest.mark.parametrize("flow", [how_many, ahow_many], ids=["sync", "async"])
def test_a_person_answers(store: PrivateStore, flow: Any) -> None:
    handle = flow.start("r")
    store.wait_until("r", waiting="answer:count")

    [asked] = store.questions(to="ana")
    assert (asked.run_id, asked.name, asked.text, asked.number) == ("r", "count", "How many?", 1)
    assert store.questions(to="bob") == []
    with pytest.raises(UsageError, match="'count': it is string .*, not integer"):
        store.answer("r", "count", "three", actor="ana")
    store.answer("r", "count", 3, actor="ana")

    assert handle.result(timeout=20) == 3
    assert store.questions() == []
    [answered] = [entry for entry in store.history("r") if entry.kind == "question_answered"]
    assert (answered.body["actor"], answered.body["value"]) == ("ana", 3)
    with pytest.raises(AnswerConflict, match="by ana"):
        store.answer("r", "count", 4, actor="ana")
    with pytest.raises(RunEnded):
        store.answer("r", "never asked", 4, actor="ana")


def test_the_first_answer_counts_also_when_the_run_has_taken_it(store: PrivateStore) -> None:
    typed.start("r")
    store.wait_until("r", waiting="answer:color")
    store.answer("r", "color", "red", actor="ana")
    with pytest.raises(
        AnswerConflict, match="'color' of run 'r' was answered already by ana"
    ) as no:
        store.answer("r", "color", "blue", actor="bob")
    assert no.value.actor == "ana"
    store.wait_until("r", done="ask:color")
    with pytest.raises(AnswerConflict):
        store.reject("r", "color", actor="bob")


def test_an_answer_may_come_before_the_question(store: PrivateStore) -> None:
    how_many.submit("r")
    assert store.answer("r", "count", 5, actor="ana").early
    with pytest.raises(AnswerConflict):
        store.answer("r", "count", 6, actor="bob")

    assert how_many.run("r") == 5


def test_types_choices_and_what_does_not_fit(store: PrivateStore) -> None:
    typed.submit("r")
    store.answer("r", "plan", {"days": "many"}, actor="early bird")
    handle = typed.start("r")
    store.wait_until("r", waiting="answer:color")
    with pytest.raises(UsageError, match="not one of 'blue', 'red'"):
        store.answer("r", "color", "green", actor="ana")
    store.answer("r", "color", Color.RED, actor="ana")
    store.wait_until("r", waiting="answer:plan")
    until(lambda: [it.number for it in store.questions()] == [2])
    with pytest.raises(AnswerConflict):
        store.answer("r", "plan", {"days": 3}, expected_number=1, actor="ana")
    store.answer("r", "plan", {"days": 3}, expected_number=2, actor="ana")
    store.wait_until("r", waiting="answer:size")
    with pytest.raises(UsageError, match="'l' is none of 's', 'm'"):
        store.answer("r", "size", "l", actor="ana")
    store.answer("r", "size", "m", actor="ana")
    store.wait_until("r", waiting="answer:second")
    store.answer("r", "second", "blue", actor="ana")
    store.wait_until("r", waiting="answer:any")
    store.answer("r", "any", Plan(1, "x"), actor="ana")

    assert handle.result(timeout=20) == [Color.RED, Plan(3), "m", Color.BLUE, Plan(1, "x")]
    statuses = [(it.name, it.status) for it in store.get("r").signals]
    assert statuses[0] == ("plan", "refused")
    assert {status for _, status in statuses[1:]} == {"received"}


@pytest.mark.parametrize("url", ["memory:", "sqlite:"])
def test_after_a_time_out_asking_again_goes_on_with_the_same_question(url: str) -> None:
    with testing.store(clock=FakeClock(), url=url) as store:
        handle = again.start("r")
        store.wait_until("r", waiting="answer")
        store.clock.advance(3601)
        store.wait_until("r", done="ask:well", waiting=True)
        [asked] = store.questions()
        assert (asked.number, asked.step) == (1, "ask:well#2")
        store.answer("r", "well", "yes", actor="ana")
        store.wait_until("r", done="ask:well#2", waiting=True)
        store.clock.advance(3601)

        what = "an answer to question 'well'"
        assert handle.result(timeout=20) == [what, "yes", what]
        assert store.questions() == []


def test_a_pydantic_model_checks_its_answer_itself(store: PrivateStore) -> None:
    handle = modelled.start("r")
    until(lambda: store.questions())
    with pytest.raises(UsageError, match=r"it\.days is string"):
        store.answer("r", "model", {"days": "many"}, actor="ana")
    store.answer("r", "model", {"days": 0}, actor="ana")
    until(lambda: [it.number for it in store.questions()] == [2])
    store.answer("r", "model", {"days": 3}, actor="ana")

    assert handle.result(timeout=20) == 3


def test_a_type_that_checks_data_and_no_json_checks_its_answer(store: PrivateStore) -> None:
    """As the types that adapters make: a schema and `model_validate`, and nothing else of pydantic."""

    class Yes:
        @staticmethod
        def model_json_schema() -> dict[str, Any]:
            return {"type": "boolean"}

        @staticmethod
        def model_validate(value: Any) -> Any:
            if value is not True:
                raise ValueError("not yes")
            return value

    @flow
    def work() -> Any:
        return ask("Yes?", name="yes", type=Yes)

    store.answer(work.submit("r").run_id, "yes", True, actor="ana")
    assert work.run("r") is True


def test_an_answer_between_two_asks_is_taken_at_once() -> None:
    with testing.store(clock=FakeClock()) as store:
        handle = with_default.start("r")
        store.wait_until("r", waiting="answer:well")
        store.clock.advance(5)
        store.wait_until("r", done="ask:well", waiting="answer:so")
        assert {it.name for it in store.questions()} == {"well", "so"}
        store.answer("r", "well", True, actor="ana")
        store.answer("r", "so", "late", actor="ana")
        assert handle.result(timeout=20) == [None, "late"]
        assert [(it.name, it.status) for it in store.get("r").signals] == [
            ("well", "expired"),
            ("so", "received"),
        ]


def test_a_refusal_is_recorded(store: PrivateStore) -> None:
    handle = refusable.start("r")
    store.wait_until("r", waiting="answer")
    store.reject("r", "go", reason="too early", actor="ana")

    assert handle.result(timeout=20) == "ana: too early"
    until(lambda: not store._engine.executing())
    assert refusable.run("r") == "ana: too early"
    assert store.get("r").steps[0].error is not None


def test_a_failed_run_asks_again_when_it_is_taken_up(store: PrivateStore) -> None:
    handle = fails_when_refused.start("r")
    store.wait_until("r", waiting="answer")
    store.reject("r", "go", reason="no", actor="ana")
    with pytest.raises(RunFailed, match="refused by ana: no"):
        handle.result(timeout=20)
    assert "ask:go was refused by ana: no." in str(store.explain("r"))
    with pytest.raises(AnswerConflict, match="by ana"):
        store.answer("r", "go", "yes", actor="ana")

    until(lambda: not store._engine.executing())
    handle = fails_when_refused.start("r")
    store.wait_until("r", status="waiting")
    assert [it.number for it in store.questions()] == [2]
    store.answer("r", "go", "yes", actor="ana")
    assert handle.result(timeout=20) == "yes"


def test_in_turns_it_is_one_question_after_another(store: PrivateStore) -> None:
    def asks(number: int) -> bool:
        return [it.number for it in store.questions()] == [number]

    handle = in_turns.start("r")
    for number, word in enumerate(["a", "b", "end"], 1):
        until(functools.partial(asks, number))
        store.answer("r", "next", word, actor="ana")

    assert handle.result(timeout=20) == ["a", "b", "end"]


def test_branches_ask_at_one_time(store: PrivateStore) -> None:
    handle = in_branches.start("r")
    until(lambda: len(store.questions()) == 3)
    for n in (3, 1, 2):
        store.answer("r", f"q{n}", n * 10, actor="ana")

    assert handle.result(timeout=20) == [10, 20, 30]


def test_two_lines_cannot_ask_by_one_name(store: PrivateStore) -> None:
    refused.clear()
    handle = same_name_twice.start("r")
    until(lambda: store.questions() and refused.is_set())
    store.answer("r", "q", 1, actor="ana")
    with pytest.raises(RunFailed, match="asking 'q' already.*name= of its own"):
        handle.result(timeout=20)


def test_a_worker_unloads_a_run_that_asks(store: PrivateStore) -> None:
    how_many.submit("r")
    with store.worker(flows=[how_many], concurrency=1):
        until(lambda: (row := store._backend.get("r")) and row.waiting_on and row.owner is None)
        store.answer("r", "count", 8, actor="ana")
        assert store.handle("r").result(timeout=20) == 8
    assert not store.verify()


def test_a_cancelled_run_stops_asking(store: PrivateStore) -> None:
    how_many.submit("r")
    with store.worker(flows=[how_many], concurrency=1):
        until(lambda: store.questions() and is_free(store))
        store.cancel("r", actor="ana")
        store.wait_until("r", status="cancelled")
    assert store.questions() == []
    assert store._backend.questions() == []
    with pytest.raises(RunEnded, match="cancelled"):
        store.answer("r", "count", 3, actor="ana")


def test_what_is_asked_wrongly(store: PrivateStore) -> None:
    def failing(**options: Any) -> str:
        with pytest.raises(RunFailed) as failed:
            _wrong.run(f"r{len(store.runs())}", options)
        return failed.value.message

    assert "name of a question" in failing(name="")
    assert "those of approvals" in failing(name="approve:x")
    assert "values to choose from" in failing(name="x", choices="yes")
    assert "seconds, a timedelta" in failing(name="x", timeout="soon")


def test_choices_of_the_type_that_is_asked_for(store: PrivateStore) -> None:
    handle = _choosing.start("r")
    for name, value in (("color", "blue"), ("plan", {"days": 2, "title": ""})):
        store.answer("r", name, value, actor="ana")
    assert handle.result(timeout=20) == [Color.BLUE, Plan(2)]
    with pytest.raises(RunFailed, match="'a' is no int"):
        _misfitting.run("w")


@flow(name="ask-choosing")
def _choosing() -> list[Any]:
    return [
        ask("?", name="color", type=Color, choices=[Color.RED, Color.BLUE]),
        ask("?", name="plan", type=Plan, choices=[Plan(1), Plan(2)]),
    ]


@flow(name="ask-misfitting")
def _misfitting() -> Any:
    choices: list[Any] = [1, "a"]
    return ask("?", name="x", type=int, choices=choices)


@flow(name="ask-wrong")
def _wrong(options: dict[str, Any]) -> Any:
    return ask("?", **options)


def test_a_question_reads_none_of_the_other_messages(
    store: PrivateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asks(number: int) -> bool:
        return [it.number for it in store.questions()] == [number]

    looked: list[str] = []
    one_of = store._backend.message

    def one_message(run_no: int, message_id: str) -> Any:
        looked.append(message_id)
        return one_of(run_no, message_id)

    monkeypatch.setattr(store._backend, "message", one_message)
    here, all_of, read = threading.current_thread(), store._backend.messages, []

    def all_messages(run_no: int) -> Any:
        if threading.current_thread() is not here:  # The run, and not whoever answers it.
            read.append(run_no)
        return all_of(run_no)

    monkeypatch.setattr(store._backend, "messages", all_messages)
    handle = in_turns.start("r")
    for number in range(1, 9):
        until(functools.partial(asks, number))
        looked.clear()
        store.answer("r", "next", "on" if number < 8 else "end", actor="ana")
    assert len(handle.result(timeout=20)) == 8
    assert len(looked) <= 2 * len(bin(8))
    assert read == []


@pytest.mark.parametrize("taken", [0, 1, 2, 3, 4, 5, 8, 17, 1000])
def test_the_next_number_is_behind_the_answers_that_were_taken(taken: int) -> None:
    numbers = {answer_id("q:1", number) for number in range(1, taken + 1)}
    assert next_number(numbers.__contains__, "q:1") == taken + 1
