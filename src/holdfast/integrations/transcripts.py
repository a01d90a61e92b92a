"""Repair a conversation that a crash left half answered, so that a provider accepts it.

For programs that keep the conversation themselves (a file, a table) beside a run that is held or
was cancelled:

    results = results_of(store, "order-42")          # what the run's journal knows
    messages = repair(messages, protocol="openai-chat", results=results)

Afterwards each tool call has one result, where the provider expects it: the one in the
conversation, otherwise the one in `results`, otherwise a note that says "outcome unknown". Results
of no call, and second results, are left out. Everything else is unchanged. An ID that a provider
reuses is counted: `call_0`, `call_0#2` … are its first call, its second … from the beginning of the
conversation, so pass the whole conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import unquote

from holdfast.integrations import _calls
from holdfast.integrations._calls import Protocol, ToolResult, get
from holdfast.types import Entry, Store

__all__ = ["OUTCOME_UNKNOWN", "repair", "results_of"]

OUTCOME_UNKNOWN = "outcome unknown"
"""The beginning of every note that replaces a result."""

_NO_RESULT = f"{OUTCOME_UNKNOWN}: the program stopped before this call had a result"
_BEGUN = f"{OUTCOME_UNKNOWN}: {{name}} was begun, and nothing says whether it happened"

_GATHERED = re.compile(r"(?P<gather>(?:.*/)?gather(?:#\d+)?)\[(?P<branch>\d+)\]")
_OTHERS = {
    ("http", frozenset({"method", "url", "digest"})),
    ("tool_hints", frozenset({"tool"})),
}
"""Steps that are no tool calls, by their names and arguments: requests of the HTTP transport, and
an MCP server's hints about a tool."""

Message = Mapping[str, Any]
Known = Mapping[str, ToolResult | str]


def repair(
    messages: Iterable[Message],
    *,
    protocol: Protocol,
    results: Known | None = None,
) -> list[dict[str, Any]]:
    """Return the conversation with exactly one result for each tool call; changes nothing given.

    `messages` are messages (`openai-chat`, `anthropic`) or items of input (`openai-responses`), as
    plain dicts. `results` has the result of a call under the call's ID; of the second call with
    that ID under `id#2`, and so on.
    """
    known = results or {}
    plain = [dict(message) for message in messages]
    checked = _calls.checked(protocol)
    if checked == "anthropic":
        return _repair_blocks(plain, known)
    return _repair_lines(plain, known, _CHAT if checked == "openai-chat" else _RESPONSES)


# -- results that stand in lines of their own: OpenAI ---------------------------------------------


class _Lines:
    """How a protocol writes calls and results as messages or items."""

    def calls(self, line: Message) -> list[str]:
        raise NotImplementedError

    def answers(self, line: Message) -> str | None:
        """Return the ID of the call that a line is the result of."""
        raise NotImplementedError

    def speaks(self, line: Message) -> bool:
        """Return whether a line is the model's, and so belongs to the turn of the line before
        it."""
        raise NotImplementedError

    def begins(self, line: Message, speaking: bool) -> bool:
        """Return whether no result of the calls before a line may follow it."""
        raise NotImplementedError

    def result(self, call: Message, result: ToolResult) -> dict[str, Any]:
        raise NotImplementedError


class _Chat(_Lines):
    def calls(self, line: Message) -> list[str]:
        if line.get("role") != "assistant":
            return []
        return [str(get(call, "id")) for call in line.get("tool_calls") or ()]

    def answers(self, line: Message) -> str | None:
        return str(line.get("tool_call_id")) if line.get("role") == "tool" else None

    def speaks(self, line: Message) -> bool:
        del line
        return False  # Each message of the assistant is a turn.

    def begins(self, line: Message, speaking: bool) -> bool:
        del line, speaking
        return True

    def result(self, call: Message, result: ToolResult) -> dict[str, Any]:
        del call
        return _calls.chat_result(result)


class _Responses(_Lines):
    _KINDS = ("function_call", "custom_tool_call")
    """Calls that a text can answer. Others (`computer_call` …) are left unchanged."""

    def calls(self, line: Message) -> list[str]:
        return [str(line.get("call_id"))] if line.get("type") in self._KINDS else []

    def answers(self, line: Message) -> str | None:
        kind = str(line.get("type"))
        known = kind.removesuffix("_output") in self._KINDS and kind.endswith("_output")
        return str(line.get("call_id")) if known else None

    def speaks(self, line: Message) -> bool:
        kind = str(line.get("type") or "message")
        if kind == "message":
            return line.get("role") == "assistant"
        return kind == "reasoning" or kind.endswith("_call")

    def begins(self, line: Message, speaking: bool) -> bool:
        return self.speaks(line) and not speaking  # The user's text may come before the results.

    def result(self, call: Message, result: ToolResult) -> dict[str, Any]:
        return {**_calls.responses_result(result), "type": f"{call['type']}_output"}


_CHAT = _Chat()
_RESPONSES = _Responses()


def _repair_lines(lines: list[dict[str, Any]], known: Known, form: _Lines) -> list[dict[str, Any]]:
    turns = Turns()
    kept: list[tuple[dict[str, Any], Turn | None]] = []  # And the turn that ends before it.
    speaking = False
    for line in lines:
        answered = form.answers(line)
        if answered is not None:
            speaking = False
            if turns.take(answered, line):
                kept.append((line, None))
            continue
        goes_on = speaking and form.speaks(line)
        kept.append((line, None if goes_on else turns.last))
        if form.begins(line, speaking):
            turns.begin()
        turns.add(form.calls(line), line)
        speaking = form.speaks(line)

    def owed(turn: Turn) -> list[dict[str, Any]]:
        return [
            call.result or form.result(call.asked, _instead(call, known))
            for call in turn.misplaced()
        ]

    mended: list[dict[str, Any]] = []
    for line, ended in kept:
        mended += [*(owed(ended) if ended is not None else ()), line]
    return mended + owed(turns.last)


# -- results that stand as blocks in the user's next message: Anthropic ---------------------------


def _repair_blocks(messages: list[dict[str, Any]], known: Known) -> list[dict[str, Any]]:
    turns = Turns()
    kept: list[tuple[dict[str, Any], list[dict[str, Any]], Turn]] = []
    for message in messages:
        ended = turns.last
        if message.get("role") != "user":
            turns.begin()
            turns.add(_uses(message), message)
            kept.append((message, [], ended))
            continue
        kept.append((message, [it for id_, it in _results(message) if turns.take(id_, it)], ended))
        turns.begin()  # Results are in the next message, and in no later one.

    def owed(turn: Turn) -> list[dict[str, Any]]:
        return [
            call.result or _calls.messages_result(_instead(call, known))
            for call in turn.misplaced()
        ]

    mended: list[dict[str, Any]] = []
    for message, there, ended in kept:
        if message.get("role") == "user":
            mended += _joined(message, [*there, *owed(ended)])
        else:
            mended += [*_alone(owed(ended)), message]
    return mended + _alone(owed(turns.last))


def _alone(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": results}] if results else []


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    return cast("list[dict[str, Any]]", content) if isinstance(content, list) else []


def _uses(message: Message) -> list[str]:
    if message.get("role") != "assistant":
        return []
    return [str(get(it, "id")) for it in _blocks(message) if get(it, "type") == "tool_use"]


def _results(message: Message) -> list[tuple[str, dict[str, Any]]]:
    return [
        (str(block.get("tool_use_id")), block)
        for block in _blocks(message)
        if block.get("type") == "tool_result"
    ]


def _joined(message: dict[str, Any], results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results first, then the user's text; a message with results of no call alone is left out."""
    blocks, text = _blocks(message), message.get("content")
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    if not results and len(rest) == len(blocks):
        return [message]
    if not results and not rest:
        return []
    said = [{"type": "text", "text": text}] if isinstance(text, str) and text else rest
    return [{**message, "content": [*results, *said]}]


def _instead(call: Called, known: Known) -> ToolResult:
    given = known.get(named(call.id, call.number))
    if isinstance(given, str):
        return ToolResult(call.id, given)
    if given is None or given.id != call.id:  # An ID may look like the second call of another.
        return ToolResult(call.id, _NO_RESULT, is_error=True)
    return given


# -- what a run knows -----------------------------------------------------------------------------


def results_of(store: Store, run_id: str) -> dict[str, ToolResult]:
    """Return the results of tool calls that a run has recorded, under the calls' IDs.

    Of calls with one ID the first has it, and then `id#2`, `id#3` …, turn by turn. A call that
    began and has no outcome is there with a note that says so.
    """
    told: dict[str, ToolResult] = {}
    others: set[str] = set()
    for entry in store.history(run_id):
        step = entry.step or ""
        name, _, quoted = step.rpartition("/")[2].partition(":")
        call_id = unquote(quoted.partition("#")[0])
        if _is_other(name, entry):
            others.add(step)
        result = _result_in(entry, name, call_id) if call_id and step not in others else None
        if result is not None:
            told[step] = result
    results: dict[str, ToolResult] = {}
    seen: dict[str, int] = {}
    for step in _as_called(told):
        call_id = told[step].id
        seen[call_id] = seen.get(call_id, 0) + 1
        results[named(call_id, seen[call_id])] = told[step]
    return results


def _is_other(name: str, entry: Entry) -> bool:
    """Return whether an entry begins what adapters of ours record beside tool calls."""
    args = entry.body.get("args")
    if not isinstance(args, Mapping):
        return False
    return (name.partition(".")[0], frozenset(cast("Mapping[str, Any]", args))) in _OTHERS


def _as_called(steps: Iterable[str]) -> list[str]:
    """Return steps in the order of their calls: parallel calls may have ended in any order."""
    turns: dict[str, list[tuple[int, str]]] = {}
    for step in steps:
        side = _GATHERED.fullmatch(step.rpartition("/")[0])
        turn, place = (side["gather"], int(side["branch"])) if side else (step, 0)
        turns.setdefault(turn, []).append((place, step))
    return [step for turn in turns.values() for _, step in sorted(turn)]


def _result_in(entry: Entry, name: str, call_id: str) -> ToolResult | None:
    """Return what an entry says of a tool call; a later entry of the call says it better."""
    body = entry.body
    if "result" in body:
        return ToolResult(call_id, _calls.text_of(body["result"]))
    if body.get("outcome") == "not_done":
        return ToolResult(call_id, f"not done: {name} was not carried out", is_error=True)
    if entry.kind in ("step_failed", "step_settled"):
        error, unknown = body["error"], body.get("unknown") or body.get("outcome") == "failed"
        tail = " (its outcome is unknown)" if unknown else ""
        return ToolResult(call_id, f"{error['type']}: {error['message']}{tail}", is_error=True)
    if entry.kind in ("step_started", "step_in_doubt"):
        return ToolResult(call_id, _BEGUN.format(name=name), is_error=True)
    return None


# -- turns of a conversation -------------------------------------------------------------------
# The turns of a conversation: which result belongs to which call, and whether it stands where it must.
#
# A result belongs to the last turn before it that has a call of its id. Of several calls of one id in that
# turn the first that has none yet gets it.


class Called:
    """One call: its ID, its number among calls of that ID, its line, and its result."""

    def __init__(self, call_id: str, number: int, asked: dict[str, Any]) -> None:
        self.id, self.number, self.asked = call_id, number, asked
        self.result: dict[str, Any] | None = None
        self.in_place = False


class Turn:
    """The calls that a model made at once."""

    def __init__(self) -> None:
        self.calls: list[Called] = []

    def misplaced(self) -> list[Called]:
        """Return the calls without a result in the right place. They are returned once."""
        found = [call for call in self.calls if not call.in_place]
        for call in found:
            call.in_place = True
        return found


class Turns:
    """All turns of a conversation, as it is read."""

    def __init__(self) -> None:
        self.last = Turn()
        self._calling: dict[str, Turn] = {}
        self._seen: dict[str, int] = {}

    def begin(self) -> None:
        """Results from now on are in the wrong place for the turn before."""
        self.last = Turn()

    def add(self, call_ids: Iterable[str], asked: dict[str, Any]) -> None:
        """Add the calls of a line to the last turn."""
        for call_id in call_ids:
            self._seen[call_id] = self._seen.get(call_id, 0) + 1
            self._calling[call_id] = self.last
            self.last.calls.append(Called(call_id, self._seen[call_id], asked))

    def take(self, call_id: str, result: dict[str, Any]) -> bool:
        """Give a result to its call, if one waits for it; returns whether it can stay in its
        place."""
        turn = self._calling.get(call_id)
        for call in turn.calls if turn else ():
            if call.id == call_id and call.result is None:
                call.result, call.in_place = result, turn is self.last
                return call.in_place
        return False


def named(call_id: str, number: int) -> str:
    """Return the identity of a call: `id`, `id#2` …"""
    return call_id if number == 1 else f"{call_id}#{number}"
