"""Whoever looks at a program that waits for a person is told so, once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import holdfast
from holdfast import ask, flow, sleep, testing


@flow(name="at-asks")
def asks() -> str:
    return str(ask("Sure?", name="sure"))


@flow(name="at-sleeps")
def sleeps() -> None:
    sleep(1.5)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it.getMessage() for it in caplog.records if "waits for a person" in it.getMessage()]


def test_a_run_that_waits_in_the_process_says_how_to_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    with testing.store() as store:
        handle = asks.start("r 1")
        store.wait_until("r 1", waiting="answer:sure")
        store.answer("r 1", "sure", "yes", actor="ana")
        assert handle.result(timeout=20) == "yes"
        assert asks.run("r 1") == "yes"
    assert told(caplog) == [
        "run r 1 of at-asks waits for a person; see: store.questions(run_id='r 1')"
    ]


def test_the_command_names_the_store(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    url = f"sqlite:///{tmp_path}/a store.db"
    with holdfast.open(url, namespace="acme", default=False) as store:
        handle = asks.with_options(store=store).start("r 1")
        store.wait("r 1", until="waiting", timeout=30)
        store.answer("r 1", "sure", "yes", actor="ana")
        assert handle.result(timeout=20) == "yes"
    see = f"holdfast questions --run 'r 1' --url '{url}' --namespace acme"
    assert told(caplog) == [f"run r 1 of at-asks waits for a person; see: {see}"]


def test_workers_and_those_who_sleep_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    with testing.store(url="sqlite:") as store, store.worker(flows=[asks]):
        handle = asks.submit("r")
        store.wait_until("r", status="waiting")
        store.answer("r", "sure", "yes", actor="ana")
        assert handle.result(timeout=20) == "yes"
        sleeps.run("s")
    assert told(caplog) == []
