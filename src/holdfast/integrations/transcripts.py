"""Mend a conversation that a crash has left half answered, so that a provider takes it.

For who keeps the conversation himself (a file, a table) beside a run that is held or was cancelled:

    results = results_of(store, "order-42")          # what the run's journal knows
    messages = repair(messages, protocol="openai-chat", results=results)

Afterwards each tool call has one result, where the provider wants it: the one in the conversation,
else the one in `results`, else a note that says "outcome unknown". Results of no call, and second
results, are left out. An id that a provider uses again is counted: `call_0`, `call_0#2` … are its first
call, its second … from the beginning of the conversation, which is therefore given whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

from holdfast import Entry, Store
from holdfast.integrations import _calls
from holdfast.integrations._calls import Protocol, Result, get

__all__ = ["UNKNOWN", "repair", "results_of"]

UNKNOWN = "outcome unknown"
"""How every note begins that stands in the place of a result."""

_NO_RESULT = f"{UNKNOWN}: the program stopped before this call had a result"
_BEGUN = f"{UNKNOWN}: {{name}} was begun, and nothing says whether it happened"

_GATHERED = re.compile(r"(?P<gather>(?:.*/)?gather(?:#\d+)?)\[(?P<branch>\d+)\]")
_REQUEST = re.compile(r"http:[A-Z]+ .*")
"""What the HTTP transport records: no tool call."""

Message = Mapping[str, Any]
Known = Mapping[str, Result | str]


def repair(
    messages: Iterable[Message],
    *,
    protocol: Protocol,
    results: Known | None = None,
) -> list[dict[str, Any]]:
    """Return the conversation with exactly one result for each tool call; changes nothing given.

    `messages` are messages (`openai-chat`, `anthropic`) or items of input (`openai-responses`), as
    plain dicts. `results` has the result of a call under the id of the call; of the second call with
    that id under `id#2`, and so on.
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
        """The id of the call that a line is the result of."""
        raise NotImplementedError

    def speaks(self, line: Message) -> bool:
        """Whether a line is the model's, and so belongs to the turn with the line before it."""
        raise NotImplementedError

    def result(self, call: Message, result: Result) -> dict[str, Any]:
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

    def result(self, call: Message, result: Result) -> dict[str, Any]:
        del call
        return _calls.chat_result(result)


class _Responses(_Lines):
    _KINDS = ("function_call", "custom_tool_call")
    """Calls that a text can answer. Others (`computer_call` …) are left as they are."""

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

    def result(self, call: Message, result: Result) -> dict[str, Any]:
        return {**_calls.responses_result(result), "type": f"{call['type']}_output"}


_CHAT = _Chat()
_RESPONSES = _Responses()


def _repair_lines(lines: list[dict[str, Any]], known: Known, form: _Lines) -> list[dict[str, Any]]:
    found = _found([(form.calls(line), _one(form.answers(line), line)) for line in lines])
    numbers = _numbered([form.calls(line) for line in lines])
    mended: list[dict[str, Any]] = []
    open_calls: list[tuple[int, str]] = []  # Of the turn that is being read.

    def close() -> None:
        for place, call_id in open_calls:
            there, number = found.get((place, call_id)), numbers[place, call_id]
            mended.append(there or form.result(lines[place], _instead(call_id, number, known)))
        open_calls.clear()

    for place, line in enumerate(lines):
        if form.answers(line) is not None:
            continue
        if open_calls and not form.speaks(line):
            close()
        mended.append(line)
        open_calls += [(place, call_id) for call_id in dict.fromkeys(form.calls(line))]
    close()
    return mended


def _one(call_id: str | None, line: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [] if call_id is None else [(call_id, line)]


# -- results that stand as blocks in the user's next message: Anthropic ---------------------------


def _repair_blocks(messages: list[dict[str, Any]], known: Known) -> list[dict[str, Any]]:
    found = _found([(_uses(message), _block_results(message)) for message in messages])
    numbers = _numbered([_uses(message) for message in messages])
    mended: list[dict[str, Any]] = []
    owed: list[dict[str, Any]] = []
    for place, message in enumerate(messages):
        if message.get("role") == "user":
            rest, had_results = _without_results(message)
            if owed or not had_results or rest:
                mended.append({**message, "content": _joined(owed, rest, message, had_results)})
            owed = []
            continue
        if owed:
            mended.append({"role": "user", "content": owed})
            owed = []
        mended.append(message)
        owed = [
            found.get((place, call_id))
            or _calls.messages_result(_instead(call_id, numbers[place, call_id], known))
            for call_id in dict.fromkeys(_uses(message))
        ]
    if owed:
        mended.append({"role": "user", "content": owed})
    return mended


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    return cast("list[dict[str, Any]]", content) if isinstance(content, list) else []


def _uses(message: Message) -> list[str]:
    if message.get("role") != "assistant":
        return []
    return [str(get(it, "id")) for it in _blocks(message) if get(it, "type") == "tool_use"]


def _block_results(message: Message) -> list[tuple[str, dict[str, Any]]]:
    if message.get("role") != "user":
        return []
    return [
        (str(block.get("tool_use_id")), block)
        for block in _blocks(message)
        if block.get("type") == "tool_result"
    ]


def _without_results(message: Message) -> tuple[list[dict[str, Any]], bool]:
    blocks = _blocks(message)
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    return rest, len(rest) < len(blocks)


def _joined(
    owed: list[dict[str, Any]], rest: list[dict[str, Any]], message: Message, had_results: bool
) -> Any:
    """Results first, then what the user says; a message without results stays as it was."""
    if not owed and not had_results:
        return message.get("content")
    text = message.get("content")
    said = [{"type": "text", "text": text}] if isinstance(text, str) and text else rest
    return [*owed, *said]


# -- both -----------------------------------------------------------------------------------------


def _found(
    lines: Sequence[tuple[list[str], list[tuple[str, dict[str, Any]]]]],
) -> dict[tuple[int, str], dict[str, Any]]:
    """Return the results that are there, each under the place of its call and its id.

    A result belongs to the last call before it that has its id, and the first one counts.
    """
    asked: dict[str, int] = {}
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for place, (calls, results) in enumerate(lines):
        for call_id, result in results:
            if call_id in asked:
                found.setdefault((asked[call_id], call_id), result)
        asked.update(dict.fromkeys(calls, place))
    return found


def _numbered(lines: Sequence[list[str]]) -> dict[tuple[int, str], int]:
    """Return which call of its id a call is, under its place and its id."""
    seen: dict[str, int] = {}
    numbers: dict[tuple[int, str], int] = {}
    for place, calls in enumerate(lines):
        for call_id in calls:
            seen[call_id] = seen.get(call_id, 0) + 1
            numbers.setdefault((place, call_id), seen[call_id])
    return numbers


def _named(call_id: str, number: int) -> str:
    return call_id if number == 1 else f"{call_id}#{number}"


def _instead(call_id: str, number: int, known: Known) -> Result:
    given = known.get(_named(call_id, number))
    if isinstance(given, str):
        return Result(call_id, given)
    if given is None or given.id != call_id:  # An id may look like the second call of another.
        return Result(call_id, _NO_RESULT, is_error=True)
    return given


# -- what a run knows -----------------------------------------------------------------------------


def results_of(store: Store, run_id: str) -> dict[str, Result]:
    """Return the results of tool calls that a run has recorded, under the ids of the calls.

    Of calls that have one id the first has it, and then `id#2`, `id#3` …, turn by turn. A call that
    was begun and has no outcome is there with a note that says so.
    """
    told: dict[str, Result] = {}
    for entry in store.history(run_id):
        step = entry.step or ""
        name, _, quoted = step.rpartition("/")[2].partition(":")
        call_id = unquote(quoted.partition("#")[0])
        result = _told(entry, name, call_id) if call_id else None
        if result is not None and not _REQUEST.fullmatch(f"{name}:{call_id}"):
            told[step] = result
    results: dict[str, Result] = {}
    seen: dict[str, int] = {}
    for step in _as_called(told):
        call_id = told[step].id
        seen[call_id] = seen.get(call_id, 0) + 1
        results[_named(call_id, seen[call_id])] = told[step]
    return results


def _as_called(steps: Iterable[str]) -> list[str]:
    """Return steps in the order of their calls: what was called at once may have ended in any order."""
    turns: dict[str, list[tuple[int, str]]] = {}
    for step in steps:
        side = _GATHERED.fullmatch(step.rpartition("/")[0])
        turn, place = (side["gather"], int(side["branch"])) if side else (step, 0)
        turns.setdefault(turn, []).append((place, step))
    return [step for turn in turns.values() for _, step in sorted(turn)]


def _told(entry: Entry, name: str, call_id: str) -> Result | None:
    """Return what an entry says of a tool call; a later entry of the call says it better."""
    body = entry.body
    if "result" in body:
        return Result(call_id, _calls.text_of(body["result"]))
    if body.get("as") == "not_done":
        return Result(call_id, f"not done: {name} was not carried out", is_error=True)
    if entry.kind in ("step_failed", "step_settled"):
        error, unknown = body["error"], body.get("unknown") or body.get("as") == "fail"
        tail = " (its outcome is unknown)" if unknown else ""
        return Result(call_id, f"{error['type']}: {error['message']}{tail}", is_error=True)
    if entry.kind in ("step_started", "step_in_doubt"):
        return Result(call_id, _BEGUN.format(name=name), is_error=True)
    return None
