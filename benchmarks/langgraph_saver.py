"""What a checkpoint costs: `aput` of a growing conversation, beside LangGraph's own SQLite saver.

    python -m benchmarks.langgraph_saver [--turns 200] [--folder /var/tmp]

Needs langgraph-checkpoint-sqlite beside holdfast[langgraph]. Both write the same checkpoints, in
turns, to files in the same folder. Medians of the first and the last quarter, in ms.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
import uuid
from typing import Any

TEXT = "A model says about as much as this, more or less, before it goes on. " * 14


def checkpoint(number: int, messages: list[Any]) -> dict[str, Any]:
    from langgraph.checkpoint.base.id import uuid6

    return {
        "v": 4,
        "id": str(uuid6(clock_seq=number)),
        "ts": "2026-01-01T00:00:00.000000+00:00",
        "channel_values": {"messages": messages, "turn": number},
        "channel_versions": {"messages": number, "turn": number},
        "versions_seen": {"model": {"messages": number - 1}},
        "updated_channels": ["messages", "turn"],
    }


async def timed(saver: Any, at: Any, given: Any, number: int) -> tuple[Any, float]:
    said = {"source": "loop", "step": number, "parents": {}}
    began = time.perf_counter()
    after = await saver.aput(at, given, said, given["channel_versions"])
    return after, 1000 * (time.perf_counter() - began)


async def measure(folder: str, turns: int) -> dict[str, list[float]]:
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    from holdfast.integrations.langgraph import HoldfastSaver

    times: dict[str, list[float]] = {"holdfast": [], "langgraph": []}
    messages: list[Any] = []
    async with AsyncSqliteSaver.from_conn_string(f"{folder}/theirs.db") as theirs:
        with HoldfastSaver(f"sqlite:///{folder}/ours.db") as ours:
            savers = {"holdfast": ours, "langgraph": theirs}
            begin = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
            at: dict[str, Any] = dict.fromkeys(savers, begin)
            for number in range(1, turns + 1):
                messages = [*messages, AIMessage(f"{number} {TEXT}", id=str(uuid.uuid4()))]
                given = checkpoint(number, messages)
                for name, saver in savers.items():
                    at[name], taken = await timed(saver, at[name], given, number)
                    times[name].append(taken)
    return times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--folder")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        times = asyncio.run(measure(folder, asked.turns))
    part = max(1, asked.turns // 4)
    for words, cut in (("first", slice(None, part)), ("last", slice(-part, None))):
        ours, theirs = (statistics.median(times[name][cut]) for name in ("holdfast", "langgraph"))
        print(f"{words} quarter: {ours:.2f} ms, theirs {theirs:.2f} ms, ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
