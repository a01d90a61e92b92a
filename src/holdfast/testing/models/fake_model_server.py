"""The server: notes each request, and decides which turn answers it and which fault strikes."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

import msgspec

from holdfast.errors import UsageError
from holdfast.testing.models.answer import CREATED_S, answer_to
from holdfast.testing.models.chat import Chat
from holdfast.testing.models.conversation import ModelTurn, RefusedError
from holdfast.testing.models.http_listener import Listener, Reply, json_reply
from holdfast.testing.models.messages import Messages
from holdfast.testing.models.protocol import Protocol
from holdfast.testing.models.request import Request, share_messages
from holdfast.testing.models.responses import Responses
from holdfast.testing.models.script import Scripted, turn_of

_PROTOCOLS: dict[str, Protocol] = {
    protocol.path: protocol for protocol in (Chat(), Responses(), Messages())
}
_SERVER_ERRORS = 500
_SHAPE = (AttributeError, KeyError, TypeError, ValueError)


class FakeModelServer:
    """A scripted model behind real HTTP, on this machine only; see the package.

    Anthropic lets a message of a thread be continued only once, and its SDK then sends the whole
    conversation. Here the same request gets the same answer again, unless `continue_once` is set.
    """

    def __init__(
        self, script: Sequence[Scripted], *, port: int = 0, continue_once: bool = False
    ) -> None:
        self._script = list(script)
        self._port = port
        self._faults = Faults()
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._problems: list[str] = []
        self._kept: dict[str, list[ModelTurn]] = {}
        self._continue_once = continue_once
        self._continued: set[str] = set()
        self._listener: Listener | None = None

    def __enter__(self) -> Self:
        self._listener = Listener(self._port, self._reply)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._listener is not None:
            self._listener.stop_answering()
            self._faults.let_go()
            self._listener.close()

    # --- what a test looks at ---------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Its address. Add `/v1` for OpenAI's SDK; Anthropic's takes it unchanged."""
        if self._listener is None:
            raise UsageError("the server is not running: use `with FakeModelServer(…) as server:`")
        return self._listener.url

    @property
    def requests(self) -> list[Request]:
        """All requests for an answer up to now, in the order of their arrival."""
        with self._changed:
            return list(self._requests)

    @property
    def count(self) -> int:
        """How many requests for an answer were received, answered or not."""
        with self._changed:
            return len(self._requests)

    @property
    def counts(self) -> Counter[str]:
        """The same, by protocol."""
        return Counter(request.protocol for request in self.requests)

    @property
    def problems(self) -> list[str]:
        """Requests that a provider would reject, and requests that the script cannot answer."""
        with self._changed:
            return list(self._problems)

    def until(self, count: int, *, timeout_s: float | None = 30.0) -> None:
        """Wait until this many requests were received; `None` waits without a limit."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._requests) >= count, timeout_s):
                raise TimeoutError(
                    f"{len(self._requests)} requests were received in {timeout_s} s, not {count}"
                )

    def until_disconnected(self, *, timeout_s: float | None = 30.0) -> None:
        """Wait until the server has read everything that clients sent before they disconnected.

        After a client was killed, `count` and `requests` are complete from then on.
        """
        if self._listener is not None and not self._listener.until_disconnected(timeout_s):
            raise TimeoutError(f"clients are still connected after {timeout_s} s")

    # --- what a test lets happen ------------------------------------------------------------------

    def fail_next(
        self, status: int = 500, times: int = 1, retry_after: float | None = None
    ) -> None:
        """Answer the next requests with a provider's error: 429, 500, 529, …"""
        self._faults.fail(Failure(status, retry_after), times)

    def cut_stream(self, after_events: int) -> None:
        """Break off the next streamed answer after this many events; its connection is closed."""
        self._faults.cut(after_events)

    def hold(self) -> None:
        """Receive and count requests, and delay their answers until `let_go`."""
        self._faults.hold()

    def let_go(self) -> None:
        """Answer delayed requests, and later ones at once."""
        self._faults.let_go()

    # --- a request --------------------------------------------------------------------------------

    def _reply(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> Reply:
        protocol = _PROTOCOLS.get(path.partition("?")[0])
        if protocol is None or method != "POST":
            return self._other(method, path, headers)
        body, refused = _decoded(raw)
        turns: list[ModelTurn] = []
        if refused is None:
            turns, refused = self._read(protocol, headers, body)
        request = self._note(protocol, path, headers, body, -1 if refused else len(turns), refused)
        self._faults.wait()
        failure = self._faults.take_failure()
        if failure is not None:
            return _failed(protocol, failure)
        if refused is not None:
            return _refused(protocol, refused)
        return self._answer(protocol, request, turns)

    def _read(
        self, protocol: Protocol, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[list[ModelTurn], RefusedError | None]:
        """Return the turns of the model in this conversation, or why it is refused."""
        try:
            protocol.check_headers(headers)
            turns = protocol.read(body, self._before(protocol, body))
            if len(turns) >= len(self._script):
                raise RefusedError(
                    f"the script has {len(self._script)} turns, and there are {len(turns)} turns of "
                    "the model in this conversation: nothing is left to say"
                )
        except RefusedError as refused:
            return [], refused
        except _SHAPE as error:
            return [], RefusedError(f"the body is not in the shape of a conversation: {error!r}")
        return turns, None

    def _before(self, protocol: Protocol, body: dict[str, Any]) -> list[ModelTurn]:
        previous_id = protocol.previous_id(body)
        if previous_id is None:
            return []
        with self._changed:
            kept = self._kept.get(previous_id)
            if kept is None:
                raise protocol.lost(previous_id)
            if previous_id in self._continued:
                raise RefusedError(
                    f"the thread was continued from {previous_id!r} already",
                    code="thread_already_continued",
                )
            return [turn.copy() for turn in kept]

    def _note(
        self,
        protocol: Protocol,
        path: str,
        headers: dict[str, str],
        body: dict[str, Any],
        turn: int,
        refused: RefusedError | None,
    ) -> Request:
        stream = bool(body.get("stream"))
        request = Request(protocol.name, path, headers, body, stream, turn, time.time())
        with self._changed:
            if self._requests:
                share_messages(body, self._requests[-1].body)
            self._requests.append(request)
            if refused is not None:
                number = len(self._requests)
                self._problems.append(f"request {number} ({protocol.name}): {refused.message}")
            self._changed.notify_all()
        return request

    def _answer(self, protocol: Protocol, request: Request, turns: list[ModelTurn]) -> Reply:
        try:
            answer = answer_to(request, turn_of(self._script, request))
        except Exception as error:
            self._problem(f"turn {request.turn} of the script raised {error!r}")
            return _refused(protocol, RefusedError(repr(error), status=_SERVER_ERRORS))
        calls = [call.id for call in answer.calls]
        self._keep(protocol, request, protocol.answer_id(answer), [*turns, ModelTurn(calls)])
        identified = {protocol.id_header: f"req_{answer.mark}"}
        if not request.stream:
            return json_reply(200, protocol.spell(answer, request.body), identified)
        return Reply(
            200,
            identified,
            events=tuple(protocol.stream(answer, request.body)),
            pause=answer.pause,
            cut_after=self._faults.take_cut(),
        )

    def _keep(
        self, protocol: Protocol, request: Request, answer_id: str, turns: list[ModelTurn]
    ) -> None:
        if not protocol.keeps(request.body):
            return
        previous_id = protocol.previous_id(request.body)
        with self._changed:
            self._kept[answer_id] = turns
            if self._continue_once and previous_id and protocol.name == Messages.name:
                self._continued.add(previous_id)

    def _other(self, method: str, path: str, headers: dict[str, str]) -> Reply:
        """Answer other requests: the list of models, or an unknown address."""
        anthropic = "anthropic-version" in headers
        protocol = _PROTOCOLS[Messages.path if anthropic else Chat.path]
        if (method, path.partition("?")[0]) != ("GET", "/v1/models"):
            message = f"there is no {method} {path}"
            self._problem(message)
            return _refused(protocol, RefusedError(message, status=404))
        try:
            protocol.check_headers(headers)
        except RefusedError as refused:
            self._problem(f"{method} {path}: {refused.message}")
            return _refused(protocol, refused)
        return json_reply(200, _models(anthropic=anthropic))

    def _problem(self, text: str) -> None:
        with self._changed:
            self._problems.append(text)


def _decoded(raw: bytes) -> tuple[dict[str, Any], RefusedError | None]:
    try:
        body = msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return {}, RefusedError("the body is no JSON")
    if not isinstance(body, dict):
        return {}, RefusedError("the body is no JSON object")
    return cast("dict[str, Any]", body), None


def _failed(protocol: Protocol, failure: Failure) -> Reply:
    wait = {} if failure.retry_after is None else {"retry-after": f"{failure.retry_after:g}"}
    body = protocol.spell_error(failure.status, "the test asked for this failure")
    return json_reply(failure.status, body, wait)


def _refused(protocol: Protocol, refused: RefusedError) -> Reply:
    body = protocol.spell_error(refused.status, refused.message, refused.code)
    mark = hashlib.sha256(refused.message.encode()).hexdigest()[:24]
    return json_reply(refused.status, body, {protocol.id_header: f"req_{mark}"})


def _models(*, anthropic: bool) -> dict[str, Any]:
    name = "scripted"
    if not anthropic:
        model = {"id": name, "object": "model", "created": CREATED_S, "owned_by": "holdfast"}
        return {"object": "list", "data": [model]}
    made_at = "2025-06-15T15:06:40Z"
    model = {"type": "model", "id": name, "display_name": "Scripted", "created_at": made_at}
    return {"data": [model], "has_more": False, "first_id": name, "last_id": name}


# -- planned faults ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """An answer that is an error."""

    status: int
    retry_after: float | None


class Faults:
    """Planned faults that have not struck yet. Used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: deque[Failure] = deque()
        self._cuts: deque[int] = deque()
        self._open = threading.Event()
        self._open.set()

    def fail(self, failure: Failure, times: int) -> None:
        """Let the next requests fail."""
        with self._lock:
            self._failures.extend([failure] * times)

    def cut(self, after_events: int) -> None:
        """Break off the next stream."""
        with self._lock:
            self._cuts.append(after_events)

    def take_failure(self) -> Failure | None:
        """Return the failure that strikes now, if any."""
        with self._lock:
            return self._failures.popleft() if self._failures else None

    def take_cut(self) -> int | None:
        """Return after how many events this stream breaks off, if it does."""
        with self._lock:
            return self._cuts.popleft() if self._cuts else None

    def hold(self) -> None:
        """Delay requests from now on."""
        self._open.clear()

    def let_go(self) -> None:
        """Delay none any longer."""
        self._open.set()

    def wait(self) -> None:
        """Wait while requests are delayed."""
        self._open.wait()
