"""A support agent: reads a mailbox, lets a model answer each letter with four tools, writes the answers.

    python support_agent_after.py inbox.json

The mailbox is a file with a list of letters: `[{"id": "m-1", "from": "…", "text": "…"}]`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
from openai import APIConnectionError, OpenAI, RateLimitError

import holdfast
from holdfast.integrations.http import DurableTransport

MODEL = "gpt-5-mini"
MAX_TURNS = 12
ATTEMPTS = 4

SYSTEM = """You answer letters to a shop for lamps.
Look at the order before you promise anything. Refund only what was paid, and only once.
When the letter is dealt with, answer with the text of the reply to the customer."""

ORDERS = {
    "1001": {"item": "desk lamp", "paid": 30, "state": "delivered"},
    "1002": {"item": "floor lamp", "paid": 90, "state": "in transit"},
    "1003": {"item": "bulb", "paid": 4, "state": "delivered"},
}
SHELF = {"desk lamp": 7, "floor lamp": 0, "bulb": 250}


# -- the shop ---------------------------------------------------------------------------------------


def lines_of(file: str) -> list[str]:
    """What is in a file by now."""
    path = Path(file)
    return path.read_text().splitlines(keepends=True) if path.exists() else []


def find_order(order: str) -> dict[str, Any]:
    """What was ordered, what was paid, and where it is."""
    if order not in ORDERS:
        raise KeyError(f"there is no order {order}")
    return {"order": order, **ORDERS[order]}


def stock(item: str) -> str:
    """How many of an item are on the shelf."""
    return f"{item}: {SHELF.get(item, 0)} in stock"


@holdfast.effect
def refund(order: str, amount: int) -> str:
    """Pay money back. Whoever calls this twice pays twice."""
    with Path("bank.txt").open("a") as bank:
        bank.write(f"{order} {amount}\n")
    return f"{amount} EUR are on their way"


@refund.on_doubt
def refund_found(order: str, amount: int) -> Any:
    """Asked after a crash in mid-refund: the bank knows."""
    if f"{order} {amount}\n" in lines_of("bank.txt"):
        return holdfast.Done(f"{amount} EUR are on their way")
    return holdfast.NOT_DONE


def note(order: str, text: str) -> str:
    """Leave a note at an order, for the people in the shop."""
    with Path("notes.txt").open("a") as notes:
        notes.write(f"{order}: {text}\n")
    return "noted"


TOOLS = {"find_order": find_order, "stock": stock, "refund": refund, "note": note}


def described(name: str, **parameters: str) -> dict[str, Any]:
    """What the model is told of a tool."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": TOOLS[name].__doc__,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in parameters.items()},
                "required": list(parameters),
                "additionalProperties": False,
            },
        },
    }


TOLD = [
    described("find_order", order="string"),
    described("stock", item="string"),
    described("refund", order="string", amount="integer"),
    described("note", order="string", text="string"),
]


# -- the model --------------------------------------------------------------------------------------


def make_client() -> OpenAI:
    """A client that waits for the model as long as it takes."""
    http = httpx2.Client(transport=DurableTransport(), timeout=httpx2.Timeout(600, connect=10))
    return OpenAI(http_client=http, max_retries=0)


def ask_model(client: OpenAI, messages: list[dict[str, Any]]) -> Any:
    """One turn of the model. A busy provider is asked again."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            reply = client.chat.completions.create(
                model=MODEL,
                messages=messages,  # type: ignore[arg-type]
                tools=TOLD,  # type: ignore[arg-type]
            )
        except (RateLimitError, APIConnectionError) as error:
            if attempt == ATTEMPTS:
                raise
            print(f"  the model is busy ({error}), attempt {attempt}", file=sys.stderr)
            time.sleep(2**attempt)
        else:
            return reply.choices[0].message
    raise AssertionError


def call_tool(call: Any) -> str:
    """One tool call of the model; what goes wrong is told to the model."""
    name, text = call.function.name, call.function.arguments
    try:
        arguments = json.loads(text)
        tool = TOOLS[name]
        result = tool(**arguments) if tool is refund else holdfast.run_step(name, tool, **arguments)
    except (json.JSONDecodeError, KeyError, TypeError, holdfast.errors.StepFailed) as error:
        return f"error: {error!r}"
    return result if isinstance(result, str) else json.dumps(result)


# -- letters ----------------------------------------------------------------------------------------


def answer(client: OpenAI, letter: dict[str, Any]) -> str:
    """Let the model deal with one letter; returns its reply to the customer."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"From {letter['from']}:\n\n{letter['text']}"},
    ]
    for _ in range(MAX_TURNS):
        message = ask_model(client, messages)
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            result = call_tool(call)
            print(f"  {call.function.name}({call.function.arguments}) -> {result}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return "We have passed your letter on to a colleague."


@holdfast.effect
def send(letter: dict[str, Any], text: str) -> None:
    """Put the reply into the outbox."""
    reply = {"to": letter["from"], "about": letter["id"], "text": text}
    with Path("outbox.jsonl").open("a") as outbox:
        outbox.write(json.dumps(reply) + "\n")


@send.on_doubt
def send_found(letter: dict[str, Any], text: str) -> Any:
    """Asked after a crash in mid-sending: the outbox knows."""
    reply = {"to": letter["from"], "about": letter["id"], "text": text}
    if json.dumps(reply) + "\n" in lines_of("outbox.jsonl"):
        return holdfast.Done(None)
    return holdfast.NOT_DONE


def read_inbox(path: Path) -> list[dict[str, Any]]:
    """The letters, oldest first; one without a sender is spam."""
    letters: list[dict[str, Any]] = json.loads(path.read_text())
    return sorted(
        (letter for letter in letters if letter.get("from")),
        key=lambda letter: str(letter.get("at", "")),
    )


def summary(done: list[tuple[dict[str, Any], str]]) -> str:
    """One line per letter."""
    lines = [f"{letter['id']:8} {letter['from']:24} {text[:60]}" for letter, text in done]
    return "\n".join([*lines, f"{len(done)} letters answered"])


def main(path: Path) -> None:
    """Answer all letters in a mailbox."""
    client = make_client()
    done = []
    for letter in read_inbox(path):
        print(f"{letter['id']} from {letter['from']}")
        with holdfast.run(f"letter-{letter['id']}"):
            text = answer(client, letter)
            send(letter, text)
        done.append((letter, text))
    print(summary(done))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "inbox.json"))
