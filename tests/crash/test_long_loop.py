"""An agent of 3,000 turns whose conversation grows by 1 KB per turn: small, readable, quick."""

from __future__ import annotations

import random
import sqlite3
import string
import sys
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
RESUME_RATIO = 1.5
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
    """Where the agent is interrupted, and how many calls, of C functions too, were made until then.
    Calls do not depend on what else the machine does."""

    at: int
    calls: int = 0
    decoding: int = 0
    """How many calls that handle the state itself are under way: what they call is not counted."""

    def count(self, _frame: object, event: str, _argument: object) -> None:
        """Count, as a profiler."""
        self.calls += event in ("call", "c_call") and not self.decoding


stops = Stops(at=0)


@step(name="long_loop.think")
def think(messages: list[str]) -> str:
    return message(len(messages))


@flow(name="long_loop.agent")
def agent() -> int:
    for chat in turns(Chat([message(0)]), max_turns=TURNS + 2):
        if len(chat.messages) == stops.at:
            sys.setprofile(None)
            raise KeyboardInterrupt
        if len(chat.messages) > TURNS:
            return sum(map(len, chat.messages))
        chat.messages.append(think(chat.messages))
    raise AssertionError


def run_until(run_id: str, turn: int) -> None:
    """Run until this turn."""
    stops.at = turn
    with pytest.raises(KeyboardInterrupt):
        agent.run(run_id)


def calls_until(run_id: str, turn: int) -> int:
    """Run until this turn, and return how many calls it took to get there."""
    stops.calls = 0
    sys.setprofile(stops.count)
    try:
        run_until(run_id, turn)
    finally:
        sys.setprofile(None)
    return stops.calls


@pytest.fixture
def _decoding_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what goes into the state itself, which grows with it, whatever one does."""

    def aside(work: Callable[..., Any]) -> Callable[..., Any]:
        def uncounted(*args: Any) -> Any:
            stops.decoding += 1
            try:
                return work(*args)
            finally:
                stops.decoding -= 1

        return uncounted

    monkeypatch.setattr(Values, "decode", aside(Values.decode))
    monkeypatch.setattr(Values, "digest", aside(Values.digest))


def database_bytes(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    return path.stat().st_size


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("_decoding_aside")
def test_three_thousand_turns(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:///{tmp_path}/empty.db", default=False):
        pass
    with holdfast.open(f"sqlite:///{tmp_path}/short.db"):
        run_until("r", SHORT)
        short = calls_until("r", SHORT)

    with holdfast.open(f"sqlite:///{tmp_path}/long.db") as store:
        run_until("r", TURNS)
        long = calls_until("r", TURNS)
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
    print(f"\nbytes: {used / content:.2f} x the messages; resume: {long} calls, {short} when short")
    assert used <= BYTES_RATIO * content
    assert long <= RESUME_RATIO * short
