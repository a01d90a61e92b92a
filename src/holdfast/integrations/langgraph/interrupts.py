"""Interrupts of a graph as questions to people, and answers as what the graph goes on with.

Nobody approves what was not shown. A question has all that is to be approved, up to the length that a
question may have. What is longer is recorded in a step of its own; the question then says so first,
and only who names the digest of that record approves.
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

    # -- what is shown -------------------------------------------------------------------------

    @property
    def actions(self) -> list[dict[str, Any]]:
        """The tool calls that are to be reviewed, if LangChain's HumanInTheLoopMiddleware asks: all
        of a turn, or in its mode `per_call` one."""
        value = self.interrupt.value
        if not isinstance(value, dict):
            return []
        return [value] if self._is_one else list(value.get("action_requests") or [])

    @property
    def _is_one(self) -> bool:
        return bool(self.interrupt.value.get("type") == "tool_approval")

    @cached_property
    def whole(self) -> Any:
        """All that is asked, as plain data."""
        calls = [{"name": it["name"], "args": it["args"]} for it in self.actions]
        return msgspec.json.decode(_json(calls or self.interrupt.value))

    @cached_property
    def _parts(self) -> list[str]:
        """All that is asked, as people read it: the calls one by one, or the value."""
        if self.actions:
            return [f"{it['name']}({_arguments(it['args'])})" for it in self.whole]
        return [self.whole if isinstance(self.whole, str) and self.whole else _json(self.whole)]

    @property
    def is_cut(self) -> bool:
        """Whether it is too long to be shown as a whole."""
        return len(self._asked + "; ".join(self._parts)) > TEXT_MAX_CHARS

    @property
    def _asked(self) -> str:
        count = len(self.actions)
        return f"May {f'these {count} tools' if count > 1 else 'this tool'} be called? " * bool(
            count
        )

    @property
    def digest(self) -> str:
        """What tells all that is asked from anything else."""
        return hashlib.sha256(_json(self.whole).encode()).hexdigest()

    def text(self, run_id: str) -> str:
        """Return what people read."""
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

    # -- what may be answered ------------------------------------------------------------------

    @property
    def type(self) -> Any:
        """What an answer must be: anything; or of tool calls, a yes or no or LangChain's decisions."""
        count = len(self.actions)
        if not count:
            return None
        either = not self.is_cut and self._allows("approve") and self._allows("reject")
        return answer_type(self._allowed, self.digest if self.is_cut else None, either)

    @property
    def _allowed(self) -> list[Allowed]:
        """What may be decided on each of the tool calls."""
        configs = self.interrupt.value.get("review_configs") or ()
        found = {it.get("action_name"): it.get("allowed_decisions") for it in configs}
        return [found.get(it["name"]) for it in self.actions]

    def _allows(self, kind: str) -> bool:
        """Whether all of the tool calls may be decided so."""
        return all(kinds is None or kind in kinds for kinds in self._allowed)

    def refused_with(self, refused: Rejected) -> Any:
        """Return what the graph gets if a person refuses: the tool calls are rejected, and the model
        receives the reason. To any other interrupt a refusal is no answer, and the run fails with it."""
        if not self.actions or not self._allows("reject"):
            raise refused
        reason = {"message": refused.reason} if refused.reason else {}
        return self._each({"type": "reject", **reason})

    def resume_with(self, answer: Any) -> Any:
        """Return what the graph gets: the answer; one to tool calls as LangChain spells it."""
        if not self.actions:
            return answer
        if isinstance(answer, bool):
            answer = self._each({"type": "approve" if answer else "reject"})
        elif "decisions" not in answer and answer["sha256"] == self.digest:
            answer = self._each({"type": "approve"})
        decisions = answer["decisions"]
        return decisions[0] if self._is_one else {"decisions": decisions}

    def _each(self, decision: dict[str, Any]) -> dict[str, Any]:
        """The same decision on all of the tool calls."""
        return {"decisions": [dict(decision) for _ in self.actions]}


def _arguments(args: dict[str, Any]) -> str:
    """Arguments as a call has them. A model makes up their names too: one that is no name is quoted,
    so that it cannot look like the end of the call."""
    names = {name: name if name.isidentifier() else _json(name) for name in args}
    return ", ".join(f"{names[name]}={_json(value)}" for name, value in args.items())


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


# -- decisions on tool calls -------------------------------------------------------------------
# What people may decide on tool calls that LangChain shows for review.
#
# LangChain raises for a decision that it does not know, and the answer is recorded by then. So an answer
# is checked when it is given, by a JSON schema, and once more by the run. A valid one is handed on as it
# is, with all of its fields.


TEXT = {"type": "string"}
ACTION = {
    "type": "object",
    "properties": {"name": TEXT, "args": {"type": "object"}},
    "required": ["name", "args"],
}
NEEDED = {"edit": "edited_action", "respond": "message"}
"""The field that a kind of decision cannot be without."""
Allowed = Sequence[str] | None
"""The kinds of decisions that a tool call may get; None if nobody has said."""


def answer_type(allowed: Sequence[Allowed], digest: str | None, either: bool) -> Any:
    """Return what `ask` checks an answer by: one decision for each call, in their order.

    With a digest, that must stand beside them, and alone it approves. With `either`, so do true and
    false.
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
    # Of several, people see why their answer is not the first.
    return {"anyOf": [whole, {"type": "boolean"}]} if either else whole


def _check(value: Any, allowed: Sequence[Allowed], digest: str | None) -> None:
    if not isinstance(value, dict):
        raise TypeError("the answer is no object with decisions")
    if digest and value.get("sha256") != digest:
        raise ValueError("sha256 is not the digest of what is asked")
    if digest and "decisions" not in value:
        return
    decisions = value.get("decisions")
    if not isinstance(decisions, list) or len(decisions) != len(allowed):
        raise ValueError(f"decisions is no list of {len(allowed)}")
    for at, (decision, kinds) in enumerate(zip(decisions, allowed, strict=True)):
        _check_one(decision, kinds, f"decisions[{at}]")


def _check_one(decision: Any, kinds: Allowed, place: str) -> None:
    if not isinstance(decision, dict):
        raise TypeError(f"{place} is no object")
    if kinds is None:
        return
    kind = decision.get("type")
    if kind not in kinds:
        raise ValueError(f"{place}.type is {kind!r}, not one of {', '.join(map(repr, kinds))}")
    needed = NEEDED.get(str(kind))
    if needed is not None and needed not in decision:
        raise ValueError(f"{place} is of type {kind!r}, and has no field {needed!r}")
    action = decision.get("edited_action", {"name": "", "args": {}})
    whole = isinstance(action, dict) and isinstance(action.get("name"), str)
    if not whole or not isinstance(action.get("args"), dict):
        raise ValueError(f"{place}.edited_action needs a name (a string) and args")
    if not isinstance(decision.get("message", ""), str):
        raise TypeError(f"{place}.message is no text")
