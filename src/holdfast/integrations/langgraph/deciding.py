"""What people may decide on tool calls that LangChain shows for review.

LangChain raises for a decision that it does not know, and the answer is recorded by then. So an answer
is checked when it is given, by a JSON schema, and once more by the run. A valid one is handed on as it
is, with all of its fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    # Of several, people are told why their answer is not the first.
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
