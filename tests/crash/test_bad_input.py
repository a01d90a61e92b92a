"""Bad input gets a clear error, and nothing recorded is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Done, effect, flow, step
from holdfast.errors import RunConflict, RunFailed, RunHeld, RunNotFound, UsageError
from tests.crash.harness import kinds

HUGE = 100 * 1024 * 1024

calls: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _count_anew() -> Iterator[None]:
    calls.clear()
    yield
    calls.clear()


@step(name="bad_input.before")
def before() -> str:
    calls["before"] += 1
    return "before"


@flow(name="bad_input.simple")
def simple(topic: str = "refunds", *, limit: int = 3) -> str:
    return f"{before()} {topic} {limit}"


# --- values -----------------------------------------------------------------------------------


class Handle:
    """Something that cannot be kept: a client, a socket, a lock."""


REFUSED: dict[str, tuple[Any, str]] = {
    "an object": (Handle(), "Handle"),
    "an object deep inside": ({"rows": [1, {"client": Handle()}]}, "rows"),
    "a function": (lambda: None, "function"),
    "a generator": ((i for i in range(3)), "generator"),
}


def refused(run: Any) -> str:
    """Return the text of the refusal, whether it came as itself or as the run's failure."""
    with pytest.raises((UsageError, RunFailed)) as error:
        run()
    return str(error.value)


@pytest.mark.parametrize("name", REFUSED)
def test_a_result_that_does_not_survive(store: holdfast.types.Store, name: str) -> None:
    value, named = REFUSED[name]
    good = False

    @step
    def returns_it() -> Any:
        calls["returns_it"] += 1
        return "good" if good else value

    @flow
    def work() -> list[Any]:
        return [before(), returns_it()]

    assert named in refused(lambda: work.run("r"))
    recorded = [e.step for e in store.history("r") if e.kind == "step_completed"]
    assert recorded == [before.name]
    good = True
    assert work.run("r") == ["before", "good"]
    assert calls == {"before": 1, "returns_it": 2}


def test_a_result_of_an_effect_that_does_not_survive(store: holdfast.types.Store) -> None:
    """It is done, and its value is lost: held whatever its policy, until it is settled."""

    @effect(on_doubt="retry")
    def returns_it() -> Any:
        calls["returns_it"] += 1
        return Handle()

    @flow
    def work() -> list[Any]:
        return [before(), returns_it()]

    with pytest.raises(RunHeld) as held:
        work.run("r")
    assert held.value.reason == "in_doubt"
    with pytest.raises(RunHeld):
        work.run("r")
    store.settle("r", returns_it.name, Done("the value, found elsewhere"), actor="ops")
    assert work.run("r") == ["before", "the value, found elsewhere"]
    assert calls == {"before": 1, "returns_it": 1}


def test_a_result_of_100_mb(store: holdfast.types.Store) -> None:
    @step
    def returns_it() -> bytes:
        return bytes(HUGE)

    @flow
    def work() -> int:
        before()
        return len(returns_it())

    text = refused(lambda: work.run("r"))
    assert "MB" in text or "MiB" in text or "bytes" in text
    assert store.get("r").status == "failed"
    assert "step_completed" in kinds(store.history("r"))


def test_an_input_that_does_not_survive(store: holdfast.types.Store) -> None:
    with pytest.raises(UsageError, match="Handle"):
        simple.run("r", Handle())  # type: ignore[arg-type]
    with pytest.raises(RunNotFound):
        store.get("r")


def test_arguments_that_do_not_fit(store: holdfast.types.Store) -> None:
    with pytest.raises((TypeError, UsageError), match="colour"):
        simple.run("r", colour="red")  # type: ignore[call-arg]
    with pytest.raises(RunNotFound):
        store.get("r")


# --- run ids ----------------------------------------------------------------------------------

ODD_IDS = {
    "an int": 42,
    "None": None,
    "bytes": b"r",
    "a list": ["r"],
    "empty": "",
    "blank": "  ",
    "NUL": "a\0b",
    "a newline": "a\nb",
    "an escape sequence": "\x1b[31mred",
    "a lone surrogate": "a\ud800",
    "right to left override": "a\u202eb",
    "1 MB": "x" * 2**20,
    "the separator of child runs": "parent::child",
}


@pytest.mark.parametrize("name", ODD_IDS)
def test_an_odd_run_id_is_refused_at_the_door(store: holdfast.types.Store, name: str) -> None:
    with pytest.raises(UsageError) as error:
        simple.run(ODD_IDS[name])  # type: ignore[arg-type]
    assert len(str(error.value)) < 1000
    assert "\x1b" not in str(error.value)
    assert list(store.runs()) == []
    assert calls == {}


def test_a_missing_run_id(store: holdfast.types.Store) -> None:
    with pytest.raises((UsageError, TypeError)):
        simple.run()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "run_id", ["../../etc/passwd", "a b", "naïve", "订单-42", "x" * 200, "'; --"]
)
def test_unusual_run_ids_that_are_fine(store: holdfast.types.Store, run_id: str) -> None:
    assert simple.run(run_id) == "before refunds 3"
    assert [run.run_id for run in store.runs()] == [run_id]
    assert store.get(run_id).result == "before refunds 3"


# --- the same id again ------------------------------------------------------------------------


def test_same_input_however_it_is_written(store: holdfast.types.Store) -> None:
    expected = simple.run("r", "refunds", limit=3)
    assert simple.run("r") == simple.run("r", topic="refunds") == expected
    assert calls == {"before": 1}


def test_other_input_is_a_conflict(store: holdfast.types.Store) -> None:
    simple.run("r")
    history = store.history("r")
    with pytest.raises(RunConflict) as conflict:
        simple.run("r", "invoices")
    assert conflict.value.run_id == "r"
    assert len(store.history("r")) == len(history)
    assert store.get("r").result == "before refunds 3"


def test_another_flow_is_a_conflict(store: holdfast.types.Store) -> None:
    @flow
    def another(topic: str = "refunds", *, limit: int = 3) -> str:
        return "another"

    simple.run("r")
    with pytest.raises(RunConflict):
        another.run("r")


def test_no_such_run(store: holdfast.types.Store) -> None:
    for look in (store.get, store.history, store.explain):
        with pytest.raises(RunNotFound, match="nobody"):
            look("nobody")


def test_settling_what_is_not_in_doubt(store: holdfast.types.Store) -> None:
    simple.run("r")
    before_it = len(store.history("r"))
    for step_key in (before.name, "no such step"):
        with pytest.raises(holdfast.errors.HoldfastError):
            store.settle("r", step_key, Done("x"), actor="ops")
    assert len(store.history("r")) == before_it
