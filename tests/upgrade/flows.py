"""The flows whose runs are in the stored files. They must stay as they are, or a resume diverges."""

from __future__ import annotations

import os
from typing import Any

from holdfast import effect, flow, step, turns

charges: list[str] = []


@step
def load(number: int) -> list[str]:
    return [f"line {number}: " + "x" * 400 for number in range(number)]


@step
def count(lines: list[str]) -> int:
    if os.environ.get("HOLDFAST_TEST_STOPS"):
        raise KeyboardInterrupt
    return len(lines)


@effect(key="order:{order}")
def charge(order: str, amount: int) -> str:
    charges.append(order)
    if os.environ.get("HOLDFAST_TEST_DOUBTS"):
        raise ConnectionError("no answer")
    return f"receipt {order} {amount}"


@flow
def order(name: str, number: int) -> str:
    lines = load(number)
    receipt = charge(name, number)
    return f"{receipt}: {count(lines)}"


@flow
def talk(limit: int) -> int:
    first: dict[str, Any] = {"total": 0, "said": [""]}
    for state in turns(first, max_turns=limit + 1):
        state["total"] += count(["word"])
        state["said"].append("w" * 300)
        if state["total"] == limit:
            return limit
    raise AssertionError
