"""Interrupts of a graph as questions to people, and answers as input of the graph.

A person can approve only what was shown. A question has all data for the approval, up to the length
limit of a question. A longer one is recorded in a separate step; the question then states this
first, and only an answer with the digest of that record approves.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
from langgraph.types import Interrupt

from holdfast.errors import Rejected
from holdfast.integrations._tool_questions import SHOWN, TEXT_MAX_CHARS, cut


@dataclass(frozen=True)
class Question:
    """One unanswered interrupt."""

    interrupt: Interrupt
    node: str
    before: int
    """The number of answers that the same task has received. Older versions of LangGraph give all
    interrupts of a task one id."""

    @property
    def key(self) -> str:
        """The key of the question, the same on every resume."""
        return f"{self.interrupt.id}.{self.before}"

    @property
    def name(self) -> str:
        """The name by which people answer: `refund-3f9a12cd`."""
        tools = [str(it["name"]) for it in self.actions]
        what = "-".join(tools) or self.node.partition(".")[0]
        tail = f"-{self.before + 1}" if self.before else ""
        return f"{what[:60]}-{self.interrupt.id[:8]}{tail}"

    # -- text of the question ------------------------------------------------------------------

    @property
    def actions(self) -> list[dict[str, Any]]:
        """The tool calls to review, if LangChain's HumanInTheLoopMiddleware asks: all of a turn, or
        in its mode `per_call` one."""
        value = self.interrupt.value
        if not isinstance(value, dict):
            return []
        return [value] if self._is_one else list(value.get("action_requests") or [])

    @property
    def _is_one(self) -> bool:
        return bool(self.interrupt.value.get("type") == "tool_approval")

    @cached_property
    def whole(self) -> Any:
        """The whole question, as plain data."""
        calls = [{"name": it["name"], "args": it["args"]} for it in self.actions]
        return msgspec.json.decode(_json(calls or self.interrupt.value))

    @cached_property
    def _parts(self) -> list[str]:
        """The whole question, as text for people: the calls one by one, or the value."""
        if self.actions:
            return [f"{it['name']}({_arguments(it['args'])})" for it in self.whole]
        return [self.whole if isinstance(self.whole, str) and self.whole else _json(self.whole)]

    @property
    def is_cut(self) -> bool:
        """Whether it is too long to be shown in full."""
        return len(self._asked + "; ".join(self._parts)) > TEXT_MAX_CHARS

    @property
    def _asked(self) -> str:
        count = len(self.actions)
        return f"May {f'these {count} tools' if count > 1 else 'this tool'} be called? " * bool(
            count
        )

    @property
    def digest(self) -> str:
        """The digest of the whole question."""
        return hashlib.sha256(_json(self.whole).encode()).hexdigest()

    def text(self, run_id: str) -> str:
        """Return the text for people."""
        if not self.is_cut:
            return self._asked + "; ".join(self._parts)
        place = shlex.join(["history", run_id, "--step", f"{SHOWN}:{self.key}", "--json"])
        head = f"{self._asked}CUT, too long to be shown here. All of it: holdfast {place}. "
        if self.actions:
            head += (
                f'To approve all of it, answer {{"sha256":"{self.digest}"}}; to reject, refuse. '
            )
        room = max(0, (TEXT_MAX_CHARS - len(head)) // len(self._parts) - 50)
        return (head + "; ".join(cut(it, room) for it in self._parts))[:TEXT_MAX_CHARS]

    # -- answers -------------------------------------------------------------------------------

    @property
    def type(self) -> Any:
        """The type of the answer: any value; for tool calls, a boolean or LangChain's decisions."""
        count = len(self.actions)
        if not count:
            return None
        either = not self.is_cut and self._allows("approve") and self._allows("reject")
        return answer_type(self._allowed, self.digest if self.is_cut else None, either)

    @property
    def _allowed(self) -> list[Allowed]:
        """The decisions that are allowed for each tool call."""
        configs = self.interrupt.value.get("review_configs") or ()
        found = {it.get("action_name"): it.get("allowed_decisions") for it in configs}
        return [found.get(it["name"]) for it in self.actions]

    def _allows(self, kind: str) -> bool:
        """Return whether all tool calls allow this decision."""
        return all(kinds is None or kind in kinds for kinds in self._allowed)

    def refused_with(self, refused: Rejected) -> Any:
        """Return the graph's input for a rejection: the tool calls are rejected, and the model
        receives the reason. For any other interrupt a rejection is not an answer, and the run fails
        with it."""
        if not self.actions or not self._allows("reject"):
            raise refused
        reason = {"message": refused.reason} if refused.reason else {}
        return self._each({"type": "reject", **reason})

    def resume_with(self, answer: Any) -> Any:
        """Return the graph's input for an answer; for tool calls, LangChain's form of the
        decisions."""
        if not self.actions:
            return answer
        if isinstance(answer, bool):
            answer = self._each({"type": "approve" if answer else "reject"})
        elif "decisions" not in answer and answer["sha256"] == self.digest:
            answer = self._each({"type": "approve"})
        decisions = answer["decisions"]
        return decisions[0] if self._is_one else {"decisions": decisions}

    def _each(self, decision: dict[str, Any]) -> dict[str, Any]:
        """Return the same decision for all tool calls."""
        return {"decisions": [dict(decision) for _ in self.actions]}


def _arguments(args: dict[str, Any]) -> str:
    """Format arguments as in a call. Their names come from the model too: a name that is not an
    identifier is quoted, so that it cannot look like the end of the call."""
    names = {name: name if name.isidentifier() else _json(name) for name in args}
    return ", ".join(f"{names[name]}={_json(value)}" for name, value in args.items())


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


# -- decisions on tool calls -------------------------------------------------------------------
# The decisions of people on tool calls that LangChain shows for review.
#
# LangChain raises for an unknown decision, when the answer is already recorded. So an answer is
# checked against a JSON schema when it is given, and again by the run. A valid answer is passed on
# unchanged, with all its fields.


TEXT = {"type": "string"}
ACTION = {
    "type": "object",
    "properties": {"name": TEXT, "args": {"type": "object"}},
    "required": ["name", "args"],
}
NEEDED = {"edit": "edited_action", "respond": "message"}
"""The required field of each kind of decision."""
Allowed = Sequence[str] | None
"""The allowed kinds of decisions for a tool call; None if they are not declared."""


def answer_type(allowed: Sequence[Allowed], digest: str | None, either: bool) -> Any:
    """Return the answer type for `ask`: one decision for each call, in order.

    With a digest, the answer must contain it, and the digest alone approves. With `either`, true
    and false are valid answers too.
    """

    class Decisions:
        @staticmethod
        def model_json_schema() -> dict[str, Any]:
            return _schema(allowed, digest, either)

        @staticmethod
        def model_validate(value: Any) -> Any:
            if not (either and isinstance(value, bool)):
                _check(value, allowed, digest)
            return value

    return Decisions


def _schema(allowed: Sequence[Allowed], digest: str | None, either: bool) -> dict[str, Any]:
    one: dict[str, Any] = {"type": "object", "properties": {}}
    if all(it is not None for it in allowed):
        kinds = list(dict.fromkeys(kind for it in allowed for kind in it or ()))
        fields = {"type": {"enum": kinds}, "edited_action": ACTION, "message": TEXT}
        one = {"type": "object", "properties": fields, "required": ["type"]}
    many = {"type": "array", "items": one, "minItems": len(allowed), "maxItems": len(allowed)}
    both: dict[str, Any] = {"decisions": many}
    if digest:
        both = {"sha256": {"enum": [digest]}, **both}
    needed = "sha256" if digest else "decisions"
    whole = {"type": "object", "properties": both, "required": [needed]}
    # With several alternatives, the error explains why the answer is not the first.
    return {"anyOf": [whole, {"type": "boolean"}]} if either else whole


def _check(value: Any, allowed: Sequence[Allowed], digest: str | None) -> None:
    if not isinstance(value, dict):
        raise TypeError("the answer is not an object with decisions")
    if digest and value.get("sha256") != digest:
        raise ValueError("sha256 is not the digest of the question")
    if digest and "decisions" not in value:
        return
    decisions = value.get("decisions")
    if not isinstance(decisions, list) or len(decisions) != len(allowed):
        raise ValueError(f"decisions is not a list of {len(allowed)}")
    for at, (decision, kinds) in enumerate(zip(decisions, allowed, strict=True)):
        _check_one(decision, kinds, f"decisions[{at}]")


def _check_one(decision: Any, kinds: Allowed, place: str) -> None:
    if not isinstance(decision, dict):
        raise TypeError(f"{place} is not an object")
    if kinds is None:
        return
    kind = decision.get("type")
    if kind not in kinds:
        raise ValueError(f"{place}.type is {kind!r}, not one of {', '.join(map(repr, kinds))}")
    needed = NEEDED.get(str(kind))
    if needed is not None and needed not in decision:
        raise ValueError(f"{place} is of type {kind!r} and lacks the field {needed!r}")
    action = decision.get("edited_action", {"name": "", "args": {}})
    whole = isinstance(action, dict) and isinstance(action.get("name"), str)
    if not whole or not isinstance(action.get("args"), dict):
        raise ValueError(f"{place}.edited_action needs a name (a string) and args")
    if not isinstance(decision.get("message", ""), str):
        raise TypeError(f"{place}.message is not a string")
