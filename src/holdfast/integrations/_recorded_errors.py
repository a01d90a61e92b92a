"""Errors that a framework or its caller inspects: unchanged live, and recreated on replay.

Frameworks decide by the class of an error whether to ask again, what to send to the model, and what
to raise. A recorded call that fails with such an error records `CallFailed`, which describes the
error in plain data, and `as_itself` raises the error outside the step: live the original object, on
replay an equal one.

The description has the class and its bases, the arguments, the attributes and the causes. Of
requests and responses of httpx the journal keeps no body and only the headers that retry policies
read. Other objects are None on replay. No `__init__` is called: it may have a different signature,
and other consequences.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import sys
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar, cast

from holdfast.errors import StepFailed

T = TypeVar("T")

_STEP = "__holdfast_step__"
"""The attribute by which a failed run finds the step of its error."""
_DEPTH = 20
_CAUSES = 4
_PLAIN = (str, int, float, bool, type(None))
_HTTP = ("httpx", "httpx2")
_HEADERS = ("retry-after", "retry-after-ms", "x-request-id", "x-should-retry")
_PRIVATE = ("headers", "authorization", "api_key", "cookie", "password", "secret")
"""Attributes whose names contain one of these words are not recorded."""
_INTERRUPTS = (KeyboardInterrupt, SystemExit, GeneratorExit)
_LOST: Any = object()
_UNNAMED = (Exception, BaseException)
"""Classes without information: the class below them says more."""


class CallFailed(Exception):
    """A recorded call raised: `error` describes the exception in plain data."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)

    @property
    def error(self) -> dict[str, Any]:
        """The error in plain data."""
        described: dict[str, Any] = self.args[0]
        return described

    def __str__(self) -> str:
        """Describe the recorded exception."""
        name = self.error["classes"][0][1]
        return f"{name}: {self.error['message']}" if self.error["message"] else str(name)


@contextlib.contextmanager
def kept() -> Generator[None]:
    """Inside a step: record exceptions so that they can be recreated.

    Errors of Holdfast pass unchanged, and so does an external interruption. A cancelled task is
    one; a `CancelledError` that the call itself raised is an error like any other.
    """
    try:
        yield
    except _INTERRUPTS:
        raise
    except BaseException as error:
        if str(type(error).__module__).partition(".")[0] == "holdfast" or _is_cancelled(error):
            raise
        try:
            described = _described(error, _CAUSES)
        except Exception:  # Failing code of its class must not replace it.
            described = None
        if described is None:
            raise
        raise CallFailed(described) from error


async def as_itself(called: Awaitable[T]) -> T:
    """Await a recorded call. A recorded error is raised unchanged."""
    try:
        return await called
    except CallFailed as failed:
        error = _original(failed)
    except StepFailed as failed:
        if not isinstance(failed.__cause__, CallFailed):
            raise
        error = _original(failed)  # It could not be stored: only here is the original available.
    try:
        raise error  # Not while another one is handled: its cause must stay.
    finally:
        del error


def _is_cancelled(error: BaseException) -> bool:
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _original(failed: CallFailed | StepFailed) -> BaseException:
    live = failed.__cause__
    error = live.__cause__ if isinstance(live, CallFailed) else None
    if error is None and isinstance(failed, CallFailed):
        error = _made_or_none(failed.error)
    if error is None:
        return failed
    with contextlib.suppress(Exception):
        BaseException.__setattr__(error, _STEP, getattr(failed, _STEP, None))
    return error


# --- in plain data --------------------------------------------------------------------------------------


def _described(error: BaseException, causes: int) -> dict[str, Any]:
    try:
        message = str(error)
    except Exception:
        message = ""
    held = {
        name: _LOST if any(word in name.lower() for word in _PRIVATE) else _plain(value, _LOST)
        for name, value in vars(error).items()
        if name != _STEP
    }
    told: dict[str, Any] = {
        "classes": _names(type(error)),
        "message": message,
        "args": [
            _plain(it, str(it) if _is_worth_text(it) else None)
            for it in _constructor_arguments(error)
        ],
        "attributes": {name: it for name, it in held.items() if it is not _LOST},
        "lost": [name for name, it in held.items() if it is _LOST],
    }
    if isinstance(error, BaseExceptionGroup):
        told["args"] = [error.message]
        told["members"] = [_described(it, causes - 1) for it in _members(error)]
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None and causes > 1:
        how = "cause" if error.__cause__ is not None else "context"
        told[how] = _described(before, causes - 1)
    return told


def _constructor_arguments(error: BaseException) -> tuple[Any, ...]:
    """Return what Python's own class below an error is made with; an OSError holds more than args."""
    made_of: Any = _own_class(type(error)).__reduce__(error)
    return cast("tuple[Any, ...]", made_of[1])


def _own_class(kind: type[BaseException]) -> type[BaseException]:
    own: type[BaseException]
    own = next(it for it in _named(kind) if vars(builtins).get(it.__name__) is it)
    return own


def _named(kind: type[BaseException]) -> list[type[BaseException]]:
    return [it for it in kind.__mro__ if issubclass(it, BaseException)]


def _names(kind: type[BaseException]) -> list[list[str]]:
    return [[it.__module__, it.__qualname__] for it in _named(kind)]


def _members(error: Any) -> tuple[BaseException, ...]:
    return cast("tuple[BaseException, ...]", error.exceptions)


def _is_worth_text(value: Any) -> bool:
    """Whether the text of a value tells something of it."""
    return not isinstance(value, type) and type(value).__module__.partition(".")[0] not in _HTTP


def _plain(value: Any, otherwise: Any) -> Any:
    library = type(value).__module__.partition(".")[0]
    if library in _HTTP and type(value).__name__ in ("Request", "Response"):
        return _exchange(library, value)
    return value if _is_plain(value, _DEPTH) else otherwise


def _is_plain(value: Any, depth: int) -> bool:
    if type(value) is dict and depth:
        return all(type(key) is str and _is_plain(it, depth - 1) for key, it in value.items())
    if type(value) in (list, tuple) and depth:
        return all(_is_plain(it, depth - 1) for it in cast("list[Any]", value))
    return type(value) in _PLAIN


def _exchange(library: str, value: Any) -> dict[str, Any]:
    if type(value).__name__ == "Response":
        headers = {name: value.headers[name] for name in _HEADERS if name in value.headers}
        request = getattr(value, "_request", None)  # The public property raises if there is none.
        told = {"status": value.status_code, "headers": headers}
        return {"__http__": library, **told, "request": _plain(request, None)}
    url = value.url
    # No user and no query: some providers put keys there.
    return {
        "__http__": library,
        "method": value.method,
        "url": f"{url.scheme}://{url.host}{url.path}",
    }


# --- and back -------------------------------------------------------------------------------------------


def _made_or_none(told: dict[str, Any]) -> BaseException | None:
    """Recreate an error as the nearest class of today; None if that says nothing about it."""
    classes = told["classes"]
    for at in range(len(classes)):
        kind = _class_of(classes[at:])
        if kind in _UNNAMED and at:
            return None
        if kind is not None and not issubclass(kind, _INTERRUPTS):
            with contextlib.suppress(Exception, *_INTERRUPTS):
                return _made(kind, told)
    return None


def _class_of(classes: list[list[str]]) -> type[BaseException] | None:
    """Return a class of this program by its name, and by its bases where two have one name.

    Nothing is imported because a journal names it.
    """
    module, name = classes[0]
    found: Any = sys.modules.get(module)
    others = list(vars(found).values()) if found is not None else []
    for part in name.split("."):
        # Not `getattr`: a module may import what it is asked for.
        found = getattr(found, "__dict__", {}).get(part)
    errors = [
        it for it in (found, *others) if isinstance(it, type) and issubclass(it, BaseException)
    ]
    same = next((it for it in errors if _names(it) == classes), None)
    return same or (found if found in errors else None)


def _made(kind: type[BaseException], told: dict[str, Any]) -> BaseException:
    args = [_rebuilt(it) for it in told["args"]]
    if "members" in told:
        args.append([_made_or_none(it) or CallFailed(it) for it in told["members"]])
    own = _own_class(kind)
    made = own.__new__(kind, *args)
    own.__init__(made, *args)
    # Into its dictionary, bypassing any __setattr__ and any property of its class.
    attributes = vars(made)
    for name, value in told["attributes"].items():
        attributes[name] = _rebuilt(value)
    for name in told["lost"]:
        # Otherwise its class has a value for it.
        if not any(name in vars(base) for base in kind.__mro__):
            attributes.setdefault(name, None)
    str(made)  # An error that cannot be shown is none.
    if "cause" in told:
        made.__cause__ = _made_or_none(told["cause"]) or CallFailed(told["cause"])
    elif "context" in told:
        made.__context__ = _made_or_none(told["context"]) or CallFailed(told["context"])
    return made


def _rebuilt(value: Any) -> Any:
    if not isinstance(value, dict) or value.get("__http__") not in _HTTP:
        return cast("Any", value)
    told = cast("dict[str, Any]", value)
    library: Any = sys.modules[told["__http__"]]
    if "status" not in told:
        return library.Request(told["method"], told["url"])
    request = _rebuilt(told["request"])
    return library.Response(told["status"], headers=told["headers"], request=request)
