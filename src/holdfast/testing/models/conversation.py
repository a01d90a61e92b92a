"""The common rules of all protocols: which tool calls a conversation has, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field


class RefusedError(Exception):
    """A provider would reject this request."""

    def __init__(self, message: str, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code


@dataclass
class ModelTurn:
    """One turn of the model: the ids of its tool calls, and of the results that follow it."""

    calls: list[str] = field(default_factory=list[str])
    results: list[str] = field(default_factory=list[str])

    def copy(self) -> ModelTurn:
        """Add a turn."""
        return ModelTurn(list(self.calls), list(self.results))


def take_result(turns: list[ModelTurn], call_id: str) -> None:
    """Note a result for the last turn. One without a call, or a second one, is refused."""
    if not turns or call_id not in turns[-1].calls:
        raise RefusedError(f"the result for {call_id!r} answers no tool call of the turn before it")
    if call_id in turns[-1].results:
        raise RefusedError(f"the tool call {call_id!r} has more than one result")
    turns[-1].results.append(call_id)


def check_answered(turns: list[ModelTurn]) -> None:
    """Refuse a conversation in which the last turn has a call without a result."""
    if not turns:
        return
    missing = [call for call in turns[-1].calls if call not in turns[-1].results]
    if missing:
        raise RefusedError(f"tool calls without a result: {', '.join(missing)}")


def check_ids(turns: list[ModelTurn]) -> None:
    """Refuse a conversation in which two tool calls have the same id."""
    seen: set[str] = set()
    for turn in turns:
        for call in turn.calls:
            if call in seen:
                raise RefusedError(f"two tool calls have the id {call!r}")
            seen.add(call)


def required(body: dict[str, object], *names: str) -> None:
    """Refuse a body that lacks a field."""
    for name in names:
        if body.get(name) in (None, "", []):
            raise RefusedError(f"{name}: this field is required")
