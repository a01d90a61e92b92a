"""A web app that starts reports, streams their progress, and survives a redeploy.

    pip install -e '.[postgres]' fastapi uvicorn
    HOLDFAST_URL=postgresql://… uvicorn app:app --timeout-graceful-shutdown 5

Start as many of these processes as you like on one store: each has a worker inside. A run is
committed before its POST is answered, so an answer of 202 is a promise that holds whatever happens
to this process. On SIGTERM the process takes no more runs, ends or gives back those at work, and the
others go on with them; after a `kill -9` they do so by themselves. A browser that loses its stream
connects again by itself, to whichever process, and goes on after the last event it saw.

(Streams can last as long as runs do. `--timeout-graceful-shutdown` keeps them from holding up the
end of the process.)
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import holdfast
from holdfast import errors, flow, step

SOURCES = 5


async def ask_a_model(topic: str, source: int) -> str:
    """Stands for a call that takes long and costs money."""
    await asyncio.sleep(0.2)
    return f"what source {source} says about {topic}"


@step
async def read(topic: str, source: int) -> str:
    return await ask_a_model(topic, source)


@flow
async def report(topic: str) -> str:
    notes: list[str] = []
    for source in range(1, SOURCES + 1):
        notes.append(await read(topic, source))
        holdfast.emit({"read": source, "of": SOURCES})
    return "\n".join(notes)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    url = os.environ.get("HOLDFAST_URL", "sqlite:///reports.db")
    with holdfast.open(url) as store:
        app.state.store = store
        async with store.worker(flows=[report], concurrency=50, drain_s=20):
            yield


app = FastAPI(lifespan=lifespan)


class NewReport(BaseModel):
    topic: str


@app.post("/reports/{run_id}", status_code=202)
async def start(run_id: str, wanted: NewReport) -> dict[str, str]:
    """Start a report. Posting it again is the same report; so a client that got no answer may."""
    try:
        await report.aio.submit(run_id, wanted.topic)
    except errors.RunConflict as error:
        raise HTTPException(409, str(error)) from error
    except errors.UsageError as error:
        raise HTTPException(422, str(error)) from error
    return {"run_id": run_id, "events": f"/runs/{run_id}/events"}


@app.get("/runs/{run_id}")
def look(run_id: str) -> dict[str, Any]:
    """Say how far a report is, and what came out."""
    try:
        run = app.state.store.get(run_id)
    except errors.RunNotFound as error:
        raise HTTPException(404, str(error)) from error
    return {"status": run.status, "steps": run.totals.steps, "result": run.result}


@app.get("/runs/{run_id}/events")
async def events(
    run_id: str,
    after: int = 0,
    last_event_id: Annotated[int | None, Header()] = None,
) -> StreamingResponse:
    """Stream progress as server-sent events; a browser says by itself which one it saw last."""
    try:
        await asyncio.to_thread(app.state.store.get, run_id)
    except errors.RunNotFound as error:
        raise HTTPException(404, f"there is no run {run_id}") from error
    told = _told(run_id, last_event_id if last_event_id is not None else after)
    return StreamingResponse(told, media_type="text/event-stream")


async def _told(run_id: str, after: int) -> AsyncIterator[str]:
    async for emitted in app.state.store.handle(run_id).aio.stream(after):
        yield f"id: {emitted.seq}\nevent: progress\ndata: {json.dumps(emitted.value)}\n\n"
    run = await asyncio.to_thread(app.state.store.get, run_id)
    yield f"event: end\ndata: {json.dumps({'status': run.status})}\n\n"
