"""An agent of 3,000 turns whose conversation grows by 1 KB per turn: small, readable, quick."""

from __future__ import annotations

import random
import sqlite3
import string
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast import flow, step, turns

TURNS = 3_000
SHORT = 30
MESSAGE_BYTES = 1_000
BYTES_RATIO = 1.6
RESUME_RATIO = 3.0
RESUMES = 5
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
    """Where the agent is interrupted, and when it got there."""

    at: int
    reached: float = 0.0


stops = Stops(at=0)


@step
def think(messages: list[str]) -> str:
    if len(messages) == stops.at:
        stops.reached = time.perf_counter()
        raise KeyboardInterrupt
    return message(len(messages))


@flow
def agent() -> int:
    for chat in turns(Chat([message(0)]), limit=TURNS + 2):
        if len(chat.messages) > TURNS:
            return sum(map(len, chat.messages))
        chat.messages.append(think(chat.messages))
    raise AssertionError


def run_until(run_id: str, turn: int) -> float:
    """Run until the step of this turn, and return how long it took to get there."""
    stops.at = turn
    begun = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        agent.run(run_id)
    return stops.reached - begun


def database_bytes(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    return path.stat().st_size


def decode_s(turn: int) -> float:
    """How long it takes to decode a conversation of this length at all."""
    raw = msgspec.json.encode([message(i) for i in range(turn)])
    begun = time.perf_counter()
    msgspec.json.decode(raw)
    return time.perf_counter() - begun


@pytest.mark.timeout(300)
def test_three_thousand_turns(tmp_path: Path) -> None:
    path = tmp_path / "long.db"
    with holdfast.open(f"sqlite:///{tmp_path}/empty.db", default=False):
        pass
    with holdfast.open(f"sqlite:///{path}") as store:
        run_until("short", SHORT)
        short_s = min(run_until("short", SHORT) for _ in range(RESUMES))
    only_short = database_bytes(path)

    with holdfast.open(f"sqlite:///{path}") as store:
        run_until("r", TURNS)
        long_s = min(run_until("r", TURNS) for _ in range(RESUMES)) - decode_s(TURNS)
        stops.at = -1
        assert agent.run("r") == (TURNS + 1) * MESSAGE_BYTES

        starts = {e.step: e for e in store.history("r") if e.kind == "step_started"}
        for turn in SAMPLED:
            (shown,) = starts[f"turns[{turn - 1}]/think"].body["args"].values()
            assert shown == [message(i) for i in range(turn)]
        assert not list(store.verify())

    used = database_bytes(path) - only_short
    content = (TURNS + 1) * MESSAGE_BYTES
    print(f"\nbytes: {used / content:.2f} x the messages; resume: {long_s / short_s:.2f} x")
    assert database_bytes(tmp_path / "empty.db") <= only_short
    assert used <= BYTES_RATIO * content
    assert long_s <= RESUME_RATIO * short_s
