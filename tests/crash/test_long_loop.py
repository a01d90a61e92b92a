"""An agent of 3,000 turns whose conversation grows by 1 KB per turn: small, readable, quick."""

from __future__ import annotations

import gc
import random
import sqlite3
import string
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import flow, step, turns
from holdfast._engine.values.chunks import Values

TURNS = 3_000
SHORT = 30
MESSAGE_BYTES = 1_000
BYTES_RATIO = 1.6
RESUME_RATIO = 3.0
RESUMES = 10
SAMPLED = [1, 2, 29, 30, 31, 500, 1_500, 2_999]


@dataclass
class Chat:
    messages: list[str]


def message(turn: int) -> str:
    """A kilobyte that does not compress into nothing, and can be made again for comparison."""
    letters = string.ascii_letters + string.digits
    return f"{turn:05} " + "".join(random.Random(turn).choices(letters, k=MESSAGE_BYTES - 6))


@dataclass
class Stops:
    """Where the agent is interrupted, and how long it took to get there."""

    at: int
    begun: float = 0.0
    reached: float = 0.0
    decoding: float = 0.0

    def took_s(self) -> float:
        """Return the time to get there, the decoding of the state aside."""
        return self.reached - self.begun - self.decoding


stops = Stops(at=0)


@step(name="long_loop.think")
def think(messages: list[str]) -> str:
    return message(len(messages))


@flow(name="long_loop.agent")
def agent() -> int:
    for chat in turns(Chat([message(0)]), max_turns=TURNS + 2):
        if len(chat.messages) == stops.at:
            stops.reached = time.perf_counter()
            raise KeyboardInterrupt
        if len(chat.messages) > TURNS:
            return sum(map(len, chat.messages))
        chat.messages.append(think(chat.messages))
    raise AssertionError


def run_until(run_id: str, turn: int) -> float:
    """Run until this turn, and return how long it took to get there."""
    stops.at, stops.decoding = turn, 0.0
    gc.collect()
    gc.disable()  # A collection looks at everything that the test has; that is not resuming.
    try:
        stops.begun = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            agent.run(run_id)
    finally:
        gc.enable()
    return stops.took_s()


@pytest.fixture
def _decoding_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the time that goes into the state itself, which grows with it, whatever one does."""

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any) -> Any:
            begun = time.perf_counter()
            try:
                return work(*args)
            finally:
                stops.decoding += time.perf_counter() - begun

        return measured

    monkeypatch.setattr(Values, "decode", timed(Values.decode))
    monkeypatch.setattr(Values, "digest", timed(Values.digest))


def database_bytes(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    return path.stat().st_size


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_decoding_aside")
def test_three_thousand_turns(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/empty.db", default=False):
        pass
    with holdfast.open(f"sqlite:///{tmp_path}/short.db"):
        run_until("r", SHORT)
        short_s = min(run_until("r", SHORT) for _ in range(RESUMES))

    with holdfast.open(f"sqlite:///{tmp_path}/long.db") as store:
        run_until("r", TURNS)
        long_s = min(run_until("r", TURNS) for _ in range(RESUMES))
        stops.at = -1
        assert agent.run("r") == (TURNS + 1) * MESSAGE_BYTES

        starts = {e.step: e for e in store.history("r") if e.kind == "step_started"}
        assert len(starts) == TURNS
        for turn in SAMPLED:
            assert starts[f"turns[{turn - 1}]/{think.name}"].body["args"] == {
                "messages": [message(i) for i in range(turn)]
            }
        assert not store.verify()

    used = database_bytes(tmp_path / "long.db") - database_bytes(tmp_path / "empty.db")
    content = (TURNS + 1) * MESSAGE_BYTES
    print(f"\nbytes: {used / content:.2f} x the messages; resume: {long_s / short_s:.2f} x")
    assert used <= BYTES_RATIO * content
    assert long_s <= RESUME_RATIO * short_s
