"""Errors of models and tools: in a run as outside of one, and on replay the same again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    Model,
    ModelBehaviorError,
    ModelResponse,
    ModelSettings,
    Runner,
    Usage,
    UserError,
    function_tool,
)
from agents.retry import ModelRetrySettings, retry_policies
from openai import (
    APIConnectionError,
    APITimeoutError,
    BadRequestError,
    InternalServerError,
    RateLimitError,
    _exceptions,
)
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from holdfast import flow
from holdfast.errors import RunFailed
from holdfast.integrations.openai_agents._answers import plain_response, rebuilt_response
from tests.integrations.openai_agents.made import keys

HTTP: Any = getattr(_exceptions, "httpx2", None) or getattr(_exceptions, "httpx")  # noqa: B009
REQUEST = HTTP.Request("POST", "https://example.com/v1?key=sk-never")


def refused(kind: Any, code: int, body: Any = None, **headers: str) -> Exception:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = HTTP.Response(code, request=REQUEST, headers=named)
    error: Exception = kind("it said no", response=response, body=body)
    return error


def text(said: str) -> Any:
    part = ResponseOutputText(text=said, type="output_text", annotations=[])
    return ResponseOutputMessage(
        id="m", content=[part], role="assistant", status="completed", type="message"
    )


class Scripted(Model):
    """A model that answers or raises what it was given, in turn."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.calls = 0

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        self.calls += 1
        step = self.steps.pop(0)
        if isinstance(step, BaseException):
            raise step
        return ModelResponse(output=[step], usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        await self.get_response()
        yield  # It has raised.


class Odd(ValueError):
    """An error of the program that holds data, and something that is none."""

    def __init__(self, number: int) -> None:
        super().__init__(f"the number {number}")
        self.number = number
        self.client = object()


def from_network() -> Exception:
    try:
        raise ConnectionError("cut") from TimeoutError("late")
    except ConnectionError as error:
        wrapped = RuntimeError("no answer")
        wrapped.__cause__ = error
        return wrapped


ERRORS: dict[str, Callable[[], BaseException]] = {
    "status": lambda: refused(InternalServerError, 500, {"code": "down", "param": "p"}),
    "connection": lambda: APIConnectionError(request=REQUEST),
    "time": lambda: APITimeoutError(request=REQUEST),
    "behavior": lambda: ModelBehaviorError("no JSON"),
    "user": lambda: UserError("no such model"),
    "value": lambda: ValueError("bad model", 3),
    "odd": lambda: Odd(7),
    "caused": from_network,
    "missing": lambda: FileNotFoundError(2, "no such file", "/there"),
    "group": lambda: ExceptionGroup("two", [ValueError("a"), Odd(2)]),
}


def told(error: BaseException | None) -> Any:
    if error is None:
        return None
    held = {name: getattr(error, name, None) for name in ("code", "status_code", "body", "number")}
    more = [told(it) for it in getattr(error, "exceptions", ())]
    return type(error), str(error), held, told(error.__cause__), more


async def caught(work: Callable[[], Any]) -> Any:
    try:
        return await work()
    except Exception as error:
        return told(error)


def twice(go: Any, name: str, work: Callable[[], Any]) -> list[Any]:
    """What the work comes to in a run that fails at its end, and in the replay."""
    seen: list[Any] = []

    @flow(name=name)
    async def play() -> None:
        seen.append(await caught(work))
        if len(seen) == 1:
            raise OSError("the end")

    with pytest.raises(RunFailed, match="the end"):
        go(play.run("r"))
    go(play.run("r"))
    return seen


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("which", ERRORS)
def test_an_error_of_a_model_reaches_the_caller_as_itself(store, go, which, streamed):
    asked: list[Scripted] = []

    async def work() -> Any:
        asked.append(Scripted(ERRORS[which]()))
        agent = Agent(name="support", model=asked[-1])
        if not streamed:
            return await Runner.run(agent, "Go on.")
        result = Runner.run_streamed(agent, "Go on.")
        async for _event in result.stream_events():
            pass
        return None

    outside = go(caught(work))
    assert twice(go, f"raising-{which}-{streamed}", work) == [outside, outside]
    assert [it.calls for it in asked] == [1, 1, 0]
    assert [(it.key, it.status) for it in store.get("r").steps] == [("model:support", "failed")]


def test_a_live_error_is_the_object_that_the_model_raised(store, go):
    error = Odd(7)
    got: list[Any] = []

    @flow(name="the_object")
    async def play() -> None:
        try:
            await Runner.run(Agent(name="support", model=Scripted(error)), "Go on.")
        except Odd as odd:
            got.append(odd)
        if len(got) == 1:
            raise OSError("the end")

    with pytest.raises(RunFailed, match="the end"):
        go(play.run("r"))
    go(play.run("r"))
    assert got[0] is error
    assert (got[1].number, got[1].client, str(got[1])) == (7, None, "the number 7")


def test_a_run_that_fails_of_it_asks_the_model_again(store, go):
    model = Scripted(Odd(7), text("Fine."))

    @flow(name="asked_again")
    async def play() -> str:
        return str((await Runner.run(Agent(name="support", model=model), "Go on.")).final_output)

    with pytest.raises(RunFailed) as failed:
        go(play.run("r"))
    assert (failed.value.type_name, failed.value.message) == ("Odd", "the number 7")
    assert go(play.run("r")) == "Fine."
    assert model.calls == 2


POLICIES = {
    "network": (lambda: APIConnectionError(request=REQUEST), retry_policies.network_error()),
    "status": (lambda: refused(RateLimitError, 429), retry_policies.http_status([429])),
    "after": (
        lambda: refused(RateLimitError, 429, retry_after="0.001"),
        retry_policies.retry_after(),
    ),
    "locked": (lambda: refused(BadRequestError, 400, {"code": "conversation_locked"}), None),
}


@pytest.mark.parametrize("which", POLICIES)
def test_the_sdk_tries_again_as_outside_a_run(store, go, which, monkeypatch):
    make, policy = POLICIES[which]
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _seconds, *rest: sleep(0, *rest))
    asked: list[Scripted] = []

    async def work() -> Any:
        retry = ModelRetrySettings(max_retries=1, policy=policy) if policy else None
        asked.append(Scripted(make(), text("Fine.")))
        agent = Agent(name="support", model=asked[-1], model_settings=ModelSettings(retry=retry))
        return (await Runner.run(agent, "Go on.")).final_output

    assert twice(go, f"again-{which}", work) == ["Fine.", "Fine."]
    assert [it.calls for it in asked] == [2, 0]
    assert keys(store, "r") == ["model:support", "model:support#2"]


def test_no_key_of_a_request_is_stored(store, go, tmp_path):
    async def work() -> Any:
        await Runner.run(Agent(name="s", model=Scripted(ERRORS["status"]())), "Go on.")

    live, replayed = twice(go, "no_key", work)
    assert live == replayed
    store.close()
    assert b"sk-never" not in b"".join(it.read_bytes() for it in tmp_path.iterdir())


async def cancels() -> str:
    raise asyncio.CancelledError("inner")


async def awaits_cancelled() -> str:
    task = asyncio.create_task(asyncio.sleep(5))
    task.cancel()
    await task
    return "never"


async def slow() -> str:
    await asyncio.Event().wait()
    return "never"


async def odd() -> str:
    raise Odd(7)


TOOLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "cancels": (cancels, {}),
    "awaits_cancelled": (awaits_cancelled, {}),
    "cancels_untold": (cancels, {"failure_error_function": None}),
    "slow": (slow, {"timeout": 0.01, "timeout_behavior": "raise_exception"}),
    "slow_told": (slow, {"timeout": 0.01}),
    "odd": (odd, {"failure_error_function": None}),
    "odd_told": (odd, {}),
}


@pytest.mark.parametrize("which", TOOLS)
def test_a_tool_that_raises_is_told_as_outside_a_run(store, go, which):
    function, how = TOOLS[which]
    called: list[str] = []

    async def tool() -> str:
        called.append(which)
        return str(await function())

    async def work() -> Any:
        call = ResponseFunctionToolCall(
            name="tool", arguments="{}", call_id="call_1", type="function_call"
        )
        model = Scripted(call, text("Fine."))
        agent = Agent(name="support", model=model, tools=[function_tool(**how)(tool)])
        try:
            result = await Runner.run(agent, "Go on.")
        except asyncio.CancelledError as error:
            return told(error)
        return [it.output for it in result.new_items if it.type == "tool_call_output_item"]

    outside = go(caught(work))
    assert twice(go, f"tool-{which}", work) == [outside, outside]
    assert len(called) == 2
    assert "tool:call_1" in keys(store, "r")


def test_errors_of_the_provider_have_their_requests_again(store, go):
    got: list[Any] = []

    async def work() -> Any:
        try:
            error = refused(RateLimitError, 429, x_request_id="req_1", set_cookie="secret")
            await Runner.run(Agent(name="s", model=Scripted(error)), "Go on.")
        except openai.RateLimitError as error:
            got.append(error)

    twice(go, "its_request", work)
    replayed = got[1]
    assert replayed.response.status_code == 429
    assert dict(replayed.response.headers) == {"x-request-id": "req_1"}
    assert str(replayed.request.url) == "https://example.com/v1"


def test_an_item_with_an_aliased_field_is_the_same_again():
    known = ResponseFunctionToolCall.model_fields
    names = {it.alias: name for name, it in known.items() if it.alias}
    told = {"name": "tool", "arguments": "{}", "call_id": "call_1", "type": "function_call"}
    item = ResponseFunctionToolCall.model_validate({**told, **dict.fromkeys(names, True)})
    response = ModelResponse(output=[item], usage=Usage(), response_id=None)
    assert rebuilt_response(plain_response(response)).output == [item]
