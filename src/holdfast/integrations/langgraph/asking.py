"""Interrupts of a graph as questions to people, and answers as what the graph goes on with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
from langgraph.types import Interrupt

from holdfast.errors import Refused

ACTIONS = "action_requests"
"""What the value of an interrupt has, if LangChain's HumanInTheLoopMiddleware made it."""
TEXT_MAX_CHARS = 20_000


class Decisions(TypedDict):
    """What LangChain's middleware goes on with: a decision for each tool call, in their order."""

    decisions: list[dict[str, Any]]


@dataclass(frozen=True)
class Question:
    """One interrupt that nobody has answered yet."""

    interrupt: Interrupt
    node: str
    before: int
    """How many answers the same task has had. Older versions of LangGraph give all interrupts of a
    task one id."""

    @property
    def key(self) -> str:
        """What the question is known by, on every resume."""
        return f"{self.interrupt.id}.{self.before}"

    @property
    def name(self) -> str:
        """What people answer to: `refund-3f9a12cd`."""
        tools = [str(it["name"]) for it in self.actions]
        what = "-".join(tools) or self.node.partition(".")[0]
        tail = f"-{self.before + 1}" if self.before else ""
        return f"{what[:60]}-{self.interrupt.id[:8]}{tail}"

    @property
    def text(self) -> str:
        """The value of the interrupt as people read it."""
        value = self.interrupt.value
        if self.actions:
            calls = [f"{it['name']}({_arguments(it['args'])})" for it in self.actions]
            return f"May these tools be called? {'; '.join(calls)}"[:TEXT_MAX_CHARS]
        if isinstance(value, str) and value:
            return value[:TEXT_MAX_CHARS]
        return msgspec.json.encode(value, enc_hook=str).decode()[:TEXT_MAX_CHARS]

    @property
    def actions(self) -> list[dict[str, Any]]:
        """The tool calls that are to be reviewed, if that is what is asked."""
        value = self.interrupt.value
        return list(value.get(ACTIONS) or []) if isinstance(value, dict) else []

    @property
    def type(self) -> Any:
        """What an answer must be: anything, or a yes or no to tool calls, or LangChain's decisions."""
        return bool | Decisions if self.actions else None

    def refused_with(self, refused: Refused) -> Any:
        """Return what the graph gets if a person refuses: the tool calls are rejected, and the model
        is told why. To any other interrupt a refusal is no answer, and the run fails with it."""
        if not self.actions:
            raise refused
        reason = {"message": refused.reason} if refused.reason else {}
        return {"decisions": [{"type": "reject", **reason} for _ in self.actions]}

    def resume_with(self, answer: Any) -> Any:
        """Return what the graph gets: the answer; a yes or no to tool calls as LangChain spells it."""
        if not self.actions or not isinstance(answer, bool):
            return answer
        decision = {"type": "approve" if answer else "reject"}
        return {"decisions": [dict(decision) for _ in self.actions]}


def _arguments(args: dict[str, Any]) -> str:
    return ", ".join(
        f"{name}={msgspec.json.encode(value, enc_hook=str).decode()}"
        for name, value in args.items()
    )
