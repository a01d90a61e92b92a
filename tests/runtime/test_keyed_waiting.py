"""A sync tool waits for a person, in a thread that a framework started for an async flow."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from holdfast import effect, flow, testing
from holdfast.adapters import step_key


def test_an_approval_in_a_thread_of_an_async_flow() -> None:
    @effect(name="kw-pay", needs_approval=True)
    def pay(amount: int) -> int:
        return amount

    def tool() -> int:
        with step_key("call_1"):
            return pay(3)

    @flow(name="kw-async")
    async def pays() -> Any:
        return await asyncio.to_thread(tool)

    with testing.store() as store:
        handle = pays.start("r")
        end = time.monotonic() + 20
        while not (questions := store.questions(run_id="r")):
            assert time.monotonic() < end
            store._backend.wait_for_change(0.05)
        store.approve("r", questions[0].name, digest=questions[0].digest, actor="ana")
        assert handle.result(timeout=20) == 3
