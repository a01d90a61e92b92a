"""A run that needs a business key which is in doubt in another run goes on by itself when that is
settled, whoever settles it. I10."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import UNKNOWN, Done, effect, flow, testing
from holdfast._operator.act import run_decisions
from holdfast._runtime.execution import execute as finishing, inbox
from holdfast.errors import RunHeld
from holdfast.testing import PrivateStore
from tests.runtime.facts import until

sent: Counter[str] = Counter()
asked = threading.Event()
told = threading.Event()
answers: list[Any] = []


@pytest.fixture(autouse=True)
def anew() -> None:
    sent.clear()
    asked.clear()
    told.clear()
    answers[:] = [Done("receipt")]


@effect(name="settled-send", key="receipt:{order}")
def send(order: str) -> str:
    sent[order] += 1
    raise TimeoutError("no answer")


@send.on_doubt
def ask(order: str) -> Any:
    asked.set()
    told.wait(20)
    return answers[0]


@flow(name="settled-close")
def close(order: str) -> str:
    return send(order)


def in_doubt(store: PrivateStore) -> bool:
    key = store._backend.key("settled-send", "receipt:42")
    return key is not None and key.state == "in_doubt"


def waits_on_the_key(store: PrivateStore, run_id: str) -> bool:
    row = store._backend.get(run_id)
    return row is not None and (row.waiting_on or "").startswith("key:settled-send:")


@pytest.mark.parametrize("url", ["memory:", "sqlite:"])
def test_who_needs_a_key_waits_while_its_doubt_is_being_settled(url: str) -> None:
    with testing.store(url=url) as store:
        first = close.start("first", "42")
        assert asked.wait(20)
        until(lambda: in_doubt(store))
        second = close.start("second", "42")
        until(lambda: waits_on_the_key(store, "second"))
        told.set()
        assert first.result(timeout=20) == "receipt"
        assert second.result(timeout=20) == "receipt"
        assert sent == {"42": 1}
        assert "run_held" not in [entry.kind for entry in store.history("second")]


@pytest.mark.parametrize("url", ["memory:", "sqlite:"])
def test_a_run_that_is_held_on_a_key_is_released_when_a_function_settles_it(url: str) -> None:
    told.set()
    answers[:] = [UNKNOWN]
    with testing.store(url=url) as store:
        for run_id in ("first", "second"):
            with pytest.raises(RunHeld):
                close.run(run_id, "42")
        assert waits_on_the_key(store, "second")
        answers[:] = [Done("receipt")]
        assert close.run("first", "42") == "receipt"
        assert store.get("second").status == "queued"
        assert store.recover() == ["second"]
        assert store.get("second").result == "receipt"
        assert sent == {"42": 1}


def test_a_run_that_was_held_after_the_key_was_settled_looks_at_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first run settles its key between the look of the second and its last write."""
    told.set()
    answers[:] = [UNKNOWN]
    with testing.store() as store:
        with pytest.raises(RunHeld):
            close.run("first", "42")
        answers[:] = [Done("receipt")]
        real = finishing.end_write

        def late(execution: Any, end: Any, callback: Any) -> Any:
            if execution.run_id == "second" and end.held:
                with ThreadPoolExecutor(1) as elsewhere:
                    assert elsewhere.submit(close.run, "first", "42").result() == "receipt"
            return real(execution, end, callback)

        monkeypatch.setattr(finishing, "end_write", late)
        with pytest.raises(RunHeld):
            close.run("second", "42")
        assert store.get("second").status == "queued"
        assert close.run("second", "42") == "receipt"


def nothing(*_args: Any) -> list[str]:
    """Stand in for what a process would have done, had it not died."""
    return []


@pytest.mark.parametrize(
    "dies", ["who settles by a function", "who settles as a person", "who waits"]
)
def test_a_release_that_a_death_cut_off_is_made_up_for(
    store: PrivateStore, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    """The key is settled in one commit and the run that waits for it released in the next: whoever
    was to make that died between the two."""
    told.set()
    answers[:] = [UNKNOWN]
    with pytest.raises(RunHeld):
        close.run("first", "42")
    cut_off = {
        "who settles by a function": (inbox, "free_waiting"),
        "who settles as a person": (run_decisions, "_free_waiting"),
        "who waits": (finishing, "free_if_settled"),
    }
    with monkeypatch.context() as patch:
        if dies == "who waits":
            real = finishing.end_write

            def late(execution: Any, end: Any, callback: Any) -> Any:
                if execution.run_id == "second" and end.held:
                    store.settle("first", "settled-send", Done("receipt"), actor="t")
                return real(execution, end, callback)

            patch.setattr(finishing, "end_write", late)
        patch.setattr(*cut_off[dies], nothing)
        with pytest.raises(RunHeld):
            close.run("second", "42")
        if dies == "who settles as a person":
            store.settle("first", "settled-send", Done("receipt"), actor="t")
        elif dies == "who settles by a function":
            answers[:] = [Done("receipt")]
            assert close.run("first", "42") == "receipt"
    assert waits_on_the_key(store, "second")
    assert store.get("second").status == "held"
    with store.worker(flows=[close]):
        assert store.wait_until("second", status="completed").result() == "receipt"
    assert sent == {"42": 1}
    assert store.verify() == []


def test_runs_stay_held_on_a_key_that_is_in_doubt(store: PrivateStore) -> None:
    told.set()
    answers[:] = [UNKNOWN]
    for run_id in ("first", "second"):
        with pytest.raises(RunHeld):
            close.run(run_id, "42")
    before = len(store.history("second"))
    store.recover()
    assert len(store.history("second")) == before
