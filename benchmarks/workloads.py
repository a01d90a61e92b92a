"""What is measured: the cases, their sizes, and the data that every subject handles.

Only the standard library is imported here, because the workers of the peers
load this module inside environments that hold nothing of ours.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Literal

Message = dict[str, str]
Store = Literal["sqlite", "postgresql"]
Method = Literal["timed", "stored", "killed", "imported", "idle", "latency", "fleet"]
Phase = Literal["measure", "empty", "until_killed", "resume", "fresh", "submit", "work"]

PAYLOAD_BYTES = 200
MESSAGE_BYTES = 1024


def payload(number: int) -> dict[str, object]:
    """What a step returns in W1, W2 and W4: about 200 bytes as JSON."""
    return {"number": number, "text": _text(number, PAYLOAD_BYTES - 30)}


def message(number: int) -> Message:
    """One message of a conversation: exactly 1 KB as compact JSON.

    Its text is pseudo-random, so that no subject gains by compressing it.
    """
    empty: Message = {"role": "assistant", "content": ""}
    return empty | {"content": _text(number, MESSAGE_BYTES - len(as_json(empty)))}


def as_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _text(number: int, length: int) -> str:
    noise = hashlib.shake_128(number.to_bytes(8, "big")).digest(length)
    return base64.b64encode(noise)[:length].decode()


@dataclass(frozen=True, slots=True)
class Request:
    """What a worker is asked to do, handed over as JSON on its command line.

    `url` is that of a database of its own; "" where the store is a file in `directory`.
    """

    task: str
    directory: str
    steps: int
    url: str = ""
    runs: int = 1
    warm_up: int = 0
    window: int = 0
    kill_at: int = 0
    pause_s: float = 0.0
    phase: Phase = "measure"
    mode: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is measured, under a key that the results go by.

    `task` is what the worker performs; several cases may share it, with
    other sizes or another `method` of measuring. `workers` is the number of
    processes, `pause_s` what each step sleeps, `seconds` how long one looks. `repeats_at_most` bounds the
    cases whose numbers hardly vary or whose preparation is long, and
    `peer_repeats_at_most` the same for the peers; 0 leaves them out.
    """

    key: str
    task: str
    method: Method
    steps: int
    runs: int = 1
    warm_up: int = 0
    window: int = 0
    workers: int = 1
    pause_s: float = 0.0
    seconds: float = 0.0
    repeats_at_most: int = 1_000
    peer_repeats_at_most: int = 3

    @property
    def workload(self) -> str:
        return self.key.split("/", 1)[0]

    @property
    def kill_at(self) -> int:
        return self.steps * 9 // 10


def full_size() -> list[Case]:
    return [
        *_w1(steps=1_000, warm_up=20),
        *_w2(runs=200, steps=20, warm_up=20),
        *_w3(short=300, long=3_000, window=50, warm_up=20),
        Case("w4/killed", "w4", "killed", steps=5_000, repeats_at_most=3),
        Case("w5/import", "w5", "imported", steps=0),
        *_w6(seconds=20, runs=100),
        *_w7(runs=400, steps=20, workers=(1, 2, 4)),
    ]


def smoke_size() -> list[Case]:
    """Just enough to prove that each workload works; its ratios mean nothing."""
    cases = [
        *_w1(steps=10, warm_up=2),
        *_w2(runs=4, steps=3, warm_up=2),
        *_w3(short=8, long=16, window=3, warm_up=2),
        Case("w4/killed", "w4", "killed", steps=20),
        Case("w5/import", "w5", "imported", steps=0),
        *_w6(seconds=0.2, runs=3),
        *_w7(runs=6, steps=3, workers=(2,)),
    ]
    again = ("stored-long", "w7/waiting")  # The same task as another case, at another size.
    return [
        replace(case, repeats_at_most=1)
        for case in cases
        if not any(it in case.key for it in again)
    ]


def _w1(steps: int, warm_up: int) -> list[Case]:
    return [
        Case(task, task, "timed", steps, warm_up=warm_up)
        for task in ("w1/steps", "w1/effects", "w1/grouped")
    ]


def _w2(runs: int, steps: int, warm_up: int) -> list[Case]:
    return [
        Case(task, task, "timed", steps, runs, warm_up)
        for task in ("w2/shared", "w2/one-insert", "w2/connections", "w2/async", "w2/threads")
    ]


def _w3(short: int, long: int, window: int, warm_up: int) -> list[Case]:
    """Bytes are exact, so once is enough, and without a warm-up that would count.

    Growth of the step time is noisy, so it is repeated, after a warm-up
    without which the first steps would look slow and the growth small.
    """
    cases = []
    for task in ("w3/new", "w3/whole", "w3/state"):
        cases += [
            Case(f"{task}/stored-short", task, "stored", short, repeats_at_most=1),
            Case(
                f"{task}/stored-long",
                task,
                "stored",
                long,
                repeats_at_most=1,
                peer_repeats_at_most=0,
            ),
            Case(f"{task}/growth", task, "timed", short, warm_up=warm_up, window=window),
        ]
    return cases


def _w6(seconds: float, runs: int) -> list[Case]:
    return [
        Case(
            "w6/idle",
            "w6",
            "idle",
            steps=0,
            seconds=seconds,
            repeats_at_most=3,
            peer_repeats_at_most=1,
        ),
        Case("w6/latency", "w6", "latency", 1, runs, repeats_at_most=3, peer_repeats_at_most=1),
    ]


def _w7(runs: int, steps: int, workers: tuple[int, ...]) -> list[Case]:
    """Steps that do nothing, and steps that wait 5 ms as if for a fast answer."""
    return [
        Case(
            f"w7/{name}-{number}",
            "w7",
            "fleet",
            steps,
            runs,
            workers=number,
            pause_s=pause_s,
            repeats_at_most=3,
            peer_repeats_at_most=1,
        )
        for name, pause_s in (("busy", 0.0), ("waiting", 0.005))
        for number in workers
    ]
