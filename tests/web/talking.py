"""Flows for the pages of runs: an agent that talks, text that means harm, and many steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import holdfast
from holdfast import Retry, flow, step, turns, wait_for_signal
from holdfast.context import record_usage
from tests.web.flows import mark, wait_for_mark

HARM = (
    "<script>window.harmed = 1</script>",
    '<img src="x" onerror="window.harmed = 1">',
    '"><svg onload="window.harmed = 1">',
    "javascript:window.harmed=1",
    "</title></style></textarea><iframe srcdoc='<script>parent.harmed=1</script>'>",
    "{{ 7 * 7 }} ${window.harmed = 1} `${window.harmed = 1}`",
    "&lt;b&gt; &#60;b&#62; %3Cscript%3E",
    "'; DROP TABLE runs; --",
)
"""What somebody may write who wants a page to do something."""
HIDDEN = "approve \u202egnp.exe\u202c \u200bnothing\x1b[31m red\x07 \u2066end\u2069 \ufeff\u2028"
"""Characters that are not seen, and change what is."""


@dataclass
class Talk:
    """The state of the agent."""

    messages: list[dict[str, Any]]
    plan: str


@step(name="talk-think", retry=Retry(attempts=3, initial_wait_s=0.01))
def think(messages: list[dict[str, Any]], turn: int) -> dict[str, Any]:
    record_usage(model="test-writer", input_tokens=900, output_tokens=150, cost_usd=0.0121)
    run = holdfast.context.current_run()
    if turn == 1 and run and run.attempt == 1:
        raise TimeoutError("the model did not answer")
    if turn == 3:
        return {"role": "assistant", "content": [{"type": "text", "text": "It is **done**."}]}
    call = {"name": "look_up", "arguments": f'{{"order": 1042, "turn": {turn}}}'}
    called = {"id": f"call_{turn}", "type": "function", "function": call}
    return {"role": "assistant", "content": "I look it up.", "tool_calls": [called]}


@step(name="talk-tool")
def tool(turn: int) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{turn}", "content": '{"state": "broken"}'}


@flow(name="talk-agent")
def agent(task: str) -> str:
    """Four turns of an agent, with a tool, a retry and a plan that grows by lines."""
    first = Talk([{"role": "user", "content": task}], "first line\n")
    for turn, talk in enumerate(turns(first, max_turns=10)):
        reply = think(talk.messages, turn)
        talk.messages.append(reply)
        if "tool_calls" not in reply:
            return "It is **done**."
        talk.messages.append(tool(turn))
        talk.plan += f"line of turn {turn}\n"
    raise AssertionError


@step(name="talk-count")
def count(number: int) -> int:
    return number


@flow(name="talk-many")
def many(steps: int) -> int:
    """Many steps."""
    return sum(count(number) for number in range(steps))


@step(name="talk-large")
def large(size: int) -> dict[str, Any]:
    return {"text": "x" * size + "the end", "list": list(range(250)), "constructor": {"type": "b"}}


@flow(name="talk-large-flow")
def large_value(size: int) -> dict[str, Any]:
    """A large result."""
    return large(size)


@step(name="talk-slow")
def slow(name: str, number: int) -> int:
    """Goes on when the test says so."""
    mark(f"at-{name}-{number}").touch()
    wait_for_mark(f"past-{name}-{number}")
    return number


@flow(name="talk-then-waits")
def then_waits(steps: int) -> None:
    """Many steps, then it waits: the journal is longer than the screen."""
    for number in range(steps):
        count(number)
    wait_for_signal("go")


@flow(name="talk-watched")
def watched(name: str) -> int:
    """Four steps, each of which waits for its word."""
    return sum(slow(name, number) for number in range(4))


@step(name=f"talk {HARM[1]}"[:190].replace("/", "∕").replace(":", "："))
def harmful(texts: dict[str, str]) -> dict[str, Any]:
    return {**texts, "messages": [{"role": text, "content": text} for text in texts.values()]}


@step(name="talk-harmful-model")
def harmful_model(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": said} for said in (*HARM, HIDDEN)]


@step(name="talk-harmful-error")
def harmful_error(text: str) -> None:
    raise RuntimeError("\n".join((*HARM, HIDDEN)))


@flow(name="talk <img src=x onerror=window.harmed=1>")
def harm(texts: dict[str, str]) -> None:
    """Everything that it says means harm."""
    for talk in turns(Talk([], "<b>bold</b>"), max_turns=3):
        talk.messages += harmful_model(texts["0"])
        talk.plan += "".join(HARM)
        harmful(texts)
        if len(talk.messages) > len(HARM) + 1:
            harmful_error(texts["1"])
