"""The flow: outline, search, write in a loop, ask, publish what was approved, keep or withdraw."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast
from holdfast import (
    NOT_DONE,
    Approval,
    Budget,
    Done,
    Retry,
    ask,
    each,
    effect,
    flow,
    idempotency_key,
    memory,
    resource,
    step,
    turns,
)
from holdfast.context import record_usage
from holdfast.errors import Rollback
from holdfast.pricing import Price
from holdfast.versioning import depends_on, fingerprint

from .clients import MODEL, Message, World, connect

PROMPT = "You write reports for a research desk. Follow the style guide."
WISHES = ["as it is", "shorter", "longer"]
TURNS_MAX = 10

holdfast.pricing.set_prices({"local-writer-*": Price(input_mtok=0.50, output_mtok=2.00)})


@dataclass
class Writing:
    """What a loop of turns keeps: the conversation."""

    messages: list[Message] = field(default_factory=list)


@dataclass
class Published:
    report_id: str
    url: str
    text: str


@step(
    retry=Retry(attempts=3),
    reserve_usd=0.01,
    versions={"model": MODEL, "prompt": fingerprint(PROMPT)},
)
def think(messages: list[Message], world: World = resource(connect)) -> Message:
    """Call the model. What it costs is set aside before, and settled by the tokens it took."""
    reply = world.chat(messages)
    record_usage(
        model=MODEL,
        prompt=PROMPT,
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
    )
    return reply.message


@step
def read_guide(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


@step(retry=Retry(attempts=3))
def search(query: str, world: World = resource(connect)) -> list[str]:
    return world.search(query)


@step(retry=Retry(attempts=2, initial_wait_s=0.02), fallback=[])
def search_archive(topic: str, world: World = resource(connect)) -> list[str]:
    """The archive is often out of order. The report goes on without it, shown as degraded."""
    return world.search(f"archive: {topic}")


@effect(key="report:{report_id}", needs_approval=Approval(to="editor", valid_for="7d"))
def publish(report_id: str, text: str, world: World = resource(connect)) -> Published:
    return Published(report_id, world.publish(report_id, text, idempotency_key()), text)


@publish.on_doubt
def find(report_id: str, text: str, world: World = resource(connect)) -> Any:
    """Ask the publisher whether it is there: a crash came between the request and the record."""
    url = world.published(report_id)
    return NOT_DONE if url is None else Done(Published(report_id, url, text))


@publish.undo(on_doubt="retry", retry=Retry(attempts=5))
def unpublish(
    published: Published, report_id: str, text: str, world: World = resource(connect)
) -> None:
    world.unpublish(report_id)


@step
def file_away(published: Published) -> None:
    """Remember the report for later ones. Written with the outcome of this step, or not at all."""
    memory("reports").set(published.report_id, {"url": published.url})


@flow(budget=Budget(usd=1, steps=200), on_drift={"model": "hold"})
def research(report_id: str, topic: str, style_guide: str) -> Published:
    depends_on("style guide", Path(style_guide))
    guide = Message("system", f"{PROMPT}\n\n{read_guide(style_guide)}")
    earlier = ", ".join(entry.key for entry in memory("reports").items()) or "none"

    outline = think([guide, Message("user", f"Earlier: {earlier}"), _user(f"Outline: {topic}")])
    found = each(search, outline.content.splitlines(), max_concurrency=3)
    notes = [note for notes in [*found, search_archive(topic)] for note in notes]

    draft = write(guide, notes)
    wish = ask(
        f"The draft:\n\n{draft[-1].content}\n\nHow shall it be?", name="wish", choices=WISHES
    )
    if wish != "as it is":
        draft.append(think([*draft, _user(f"Make it {wish}.")]))

    published = publish(report_id, draft[-1].content)
    if ask(f"It is out: {published.url}", name="keep", choices=["keep", "withdraw"]) == "withdraw":
        raise Rollback("withdrawn by the editor")
    file_away(published)
    return published


def write(guide: Message, notes: list[str]) -> list[Message]:
    """Let the model look things up until it has written; killed, it goes on at the last turn."""
    start = Writing([guide, _user("Write a report.\n" + "\n".join(notes))])
    for writing in turns(start, max_turns=TURNS_MAX):
        reply = think(writing.messages)
        if not reply.tool_calls:
            return [*writing.messages, reply]
        writing.messages.append(reply)
        for call in reply.tool_calls:
            answer = "; ".join(search(call.query))
            writing.messages.append(Message("tool", answer, tool_call_id=call.id))
    raise AssertionError  # at the limit, turns raises TurnLimitReached


def _user(text: str) -> Message:
    return Message("user", text)
