"""What people do on their first day: each mistake is noticed, and nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import NOT_DONE, Done, effect, flow, step
from holdfast.errors import (
    NotSerializable,
    RunConflict,
    RunFailed,
    RunHeld,
    StoreLostData,
    UsageError,
)


def test_a_forgotten_await_is_a_failure_that_names_the_effect(holdfast_store):
    paid: list[int] = []

    @effect
    async def pays(cents: int) -> None:
        paid.append(cents)

    @flow
    async def work() -> str:
        forgotten = pays(5)
        forgotten.close()
        return "ok"

    with pytest.raises(RunFailed, match="pays was called and never awaited"):
        asyncio.run(work.run("r"))
    assert paid == []


@pytest.mark.parametrize("option", ["on_doubt", "key", "not_done_on", "key_ttl", "undo"])
def test_an_option_of_effects_on_a_step_is_refused(option):
    with pytest.raises(UsageError, match=f"@effect\\({option}="):
        step(**{option: "ask"})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retries": 3}, "no option retries="),
        ({"timeout": "3"}, "seconds, a timedelta"),
        ({"raises": ("ValueError",)}, "a tuple of exception classes"),
    ],
)
def test_a_wrong_option_is_told_in_our_words(options: dict[str, Any], said: str):
    with pytest.raises(UsageError, match=said):
        step(**options)(lambda: None)


def test_one_exception_class_needs_no_tuple(holdfast_store):
    @step(raises=KeyError)  # type: ignore[call-overload]
    def fails() -> None:
        raise KeyError("gone")

    @flow
    def work() -> str:
        try:
            fails()
        except KeyError as error:
            return str(error.args[0])
        return ""

    assert work.run("r") == "gone"


def test_what_happened_cannot_be_settled_as_not_done(holdfast_store):
    done: list[int] = []

    @effect
    def sends() -> Any:
        done.append(1)
        return lambda: None

    @flow
    def work() -> Any:
        return sends()

    with pytest.raises(RunHeld) as held:
        work.run("r")
    assert not any("--not-done" in action for action in held.value.actions)
    with pytest.raises(UsageError, match="happened; only its result"):
        holdfast_store.settle("r", sends.name, NOT_DONE, actor="ops")
    holdfast_store.settle("r", sends.name, Done("sent"), actor="ops")
    assert work.run("r") == "sent"
    assert done == [1]


def test_what_an_on_doubt_function_must_return_is_said(holdfast_store):
    @effect
    def sends() -> None:
        raise OSError("cut")

    @sends.on_doubt
    def found() -> bool:
        return True

    @flow
    def work() -> None:
        sends()

    with pytest.raises(RunHeld, match=r"on_doubt returned True, which is not Done\(result\)"):
        work.run("r")


def test_waiting_for_a_key_is_one_entry(holdfast_store):
    inside, free = threading.Event(), threading.Event()

    @effect(key="one")
    def sends() -> str:
        inside.set()
        assert free.wait(10)
        return "sent"

    @flow
    def work() -> str:
        return sends()

    first = work.start("first")
    assert inside.wait(10)
    second = work.start("second")
    holdfast_store.wait_until("second", status="waiting")
    looks = threading.Event()
    assert not looks.wait(0.3)  # Several looks at the key go by.
    free.set()
    assert (first.result(10), second.result(10)) == ("sent", "sent")
    kinds = [str(entry.kind) for entry in holdfast_store.history("second")]
    assert kinds.count("run_waiting") == 1
    assert kinds[-2:] == ["skipped_duplicate", "run_completed"]


def test_a_refused_argument_is_named_by_run_step_and_path_and_another_is_to_be_passed(
    holdfast_store,
):
    @step(name="fm-takes")
    def takes(x: Any) -> None: ...

    with pytest.raises(NotSerializable) as refused, holdfast.run("b"):
        takes({"a": object()})
    assert str(refused.value).startswith(
        "run 'b': fm-takes: argument['x']['a']: an object cannot be stored; pass plain data"
    )


def test_a_refused_input_is_named_by_run_flow_and_path(holdfast_store):
    @flow(name="fm-input")
    def work(x: Any) -> None: ...

    why = r"run 'r' of fm-input: input\['x'\]\[0\]: an object cannot be stored; pass plain data"
    with pytest.raises(NotSerializable, match=why):
        work.run("r", [object()])
    assert holdfast_store.runs() == []
    work.run("r", [])
    with pytest.raises(NotSerializable, match=why):
        work.run("r", [object()])


def test_a_refused_result_is_to_be_returned_otherwise(holdfast_store):
    @step(name="fm-result")
    def gives() -> Any:
        return object()

    @flow
    def work() -> Any:
        return gives()

    with pytest.raises(RunFailed, match="fm-result gave up.*result: .*; return plain data"):
        work.run("r")


def test_a_run_id_that_is_taken_says_what_to_do(holdfast_store):
    @flow(name="fm-one")
    def one(x: int) -> int:
        return x

    @flow(name="fm-two")
    def two(x: int) -> int:
        return x

    one.run("r", 1)
    way = "; choose another run id, or look at this run: holdfast show r"
    for work, x in ((one, 2), (two, 1)):
        with pytest.raises(RunConflict, match="^run 'r' exists already") as conflict:
            work.run("r", x)
        assert str(conflict.value).endswith(way)


LOST = """
import os, signal
from holdfast import effect, flow
@effect
def sends(): return 1
@flow
def work():
    sends()
    os.kill(os.getpid(), signal.SIGKILL)
work.run("r")
"""


@pytest.mark.parametrize("lost", ["-wal", "all of it"])
def test_an_empty_database_beside_its_witness_is_not_a_new_store(tmp_path: Path, lost: str):
    script = tmp_path / "work.py"
    script.write_text(LOST)
    url = f"sqlite:///{tmp_path}/store.db"
    environ = {**os.environ, "HOLDFAST_URL": url}
    subprocess.run([sys.executable, str(script)], env=environ, check=False, timeout=60)
    if lost == "-wal":
        (tmp_path / "store.db-wal").unlink()
        (tmp_path / "store.db-shm").unlink(missing_ok=True)
    else:
        for path in tmp_path.glob("store.db*"):
            if path.name in {"store.db", "store.db-wal", "store.db-shm"}:
                path.unlink()
    with pytest.raises(StoreLostData, match="knows of"):
        holdfast.open(url, default=False)
