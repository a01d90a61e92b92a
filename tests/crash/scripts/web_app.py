"""The example web app, with its model replaced by one that writes every call to a ledger outside."""

from __future__ import annotations

import asyncio
import json
import os

from examples.web_app import app as example
from tests.crash import probe


async def counted(topic: str, source: int) -> str:
    line = json.dumps([topic, source, os.getpid()])
    probe._append(os.environ["CRASH_LEDGER"], line + "\n")
    await asyncio.sleep(0.02)
    if topic == "watched" and source == 3:
        await asyncio.to_thread(probe.wait, "let go")
    return f"{topic} {source} {os.getpid()}"


example.ask_a_model = counted
app = example.app
