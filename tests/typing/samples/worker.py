"""Workers and queues, as users write them."""

from __future__ import annotations

import datetime as dt
from typing import assert_type

import holdfast
from holdfast.types import Handle
from holdfast import Queue, flow


@flow(queue=Queue("mail", concurrency=5, period=dt.timedelta(minutes=1)))
def send(customer: str) -> int:
    return len(customer)


@flow(queue="reports", version="2")
async def report(topic: str) -> str:
    return topic


async def app(store: holdfast.types.Store) -> float:
    async with store.worker(flows=[send, report], concurrency=50, drain_s=20) as worker:
        later = report.with_options(priority=3, delay=dt.timedelta(hours=1), limit_key="kim")
        assert_type(await later.aio.submit("r", "x"), Handle[str])
        assert_type(send.with_options(queue="other", delay=1.5).submit("m", "kim"), Handle[int])
        send.with_options(priority="high")  # error
        return worker.saturation


def look(store: holdfast.types.Store) -> list[str]:
    with store.worker(queues=["mail"], name="w") as worker:
        assert_type(worker.taken, int)
    store.set_queue(Queue("mail", rate=10))
    store.set_queue("mail")  # error
    Queue("mail", 5)  # error
    failed = [one.run_id for one in store.resume_all(queue="mail") if one.error]
    return failed + [queue.name for queue in store.queues() if queue.ready]
