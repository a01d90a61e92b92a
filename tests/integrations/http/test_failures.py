"""Errors on the way: which of them say that nothing was sent, and what is stored of them."""

from __future__ import annotations

import socket
from collections.abc import Generator
from types import ModuleType
from typing import Any

import pytest

from holdfast import testing
from holdfast.errors import RunFailed, RunHeld
from tests.integrations.http.lives import runner
from tests.integrations.http.wire import Wire, whole


def everything(store: Any) -> str:
    return repr([(it.kind, it.step, it.body) for it in store.history("r")])


def posts(url: str, **more: Any) -> Any:
    def script() -> Generator[Any, Any, Any]:
        yield {"method": "POST", "url": url, **more}

    return script


def raising(library: ModuleType, error: Exception) -> Any:
    def answer(_request: Any) -> Any:
        raise error

    return library.MockTransport(answer)


@pytest.mark.parametrize("effect", [True, False])
def test_a_header_that_cannot_be_sent_is_not_stored(
    library: ModuleType, colour: str, effect: bool
) -> None:
    with Wire(lambda _: whole("200 OK")) as wire, testing.store() as store:
        script = posts(wire.url, headers={"authorization": "Bearer hunter2\n"})
        run = runner(library, colour, script, effects=lambda _: effect)
        # Nothing was sent, so that nobody has to settle anything.
        with pytest.raises(RunFailed, match="LocalProtocolError") as failed:
            run("r")
        assert "hunter2" not in str(failed.value)
        told = everything(store)
        assert "LocalProtocolError" in told
        assert "hunter2" not in told
        assert wire.got == []


@pytest.mark.parametrize("effect", [True, False])
def test_what_the_other_side_says_amiss_is_not_stored(
    library: ModuleType, colour: str, effect: bool
) -> None:
    def script() -> Generator[Any, Any, Any]:
        try:
            yield {"method": "POST", "url": wire.url}
        except library.RemoteProtocolError:
            raise RuntimeError("for the flow it has a text") from None

    with Wire(lambda _: b"hunter2\r\n\r\n") as wire, testing.store() as store:
        run = runner(library, colour, script, effects=lambda _: effect)
        with pytest.raises(RunHeld if effect else RunFailed):
            run("r")
        told = everything(store)
        assert "RemoteProtocolError" in told
        assert "hunter2" not in told


@pytest.mark.parametrize("name", ["LocalProtocolError", "UnsupportedProtocol", "ProxyError"])
def test_an_effect_that_was_not_sent_did_not_happen(library: ModuleType, name: str) -> None:
    inner = raising(library, getattr(library, name)("no"))
    with testing.store() as store:
        with pytest.raises(RunFailed):
            runner(library, "sync", posts("https://a.test"), inner, effects=lambda _: True)("r")
        assert "step_in_doubt" not in everything(store)


def test_an_address_that_nobody_listens_at(library: ModuleType, colour: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with testing.store() as store:
        script = posts(f"http://127.0.0.1:{port}")
        with pytest.raises(RunFailed):
            runner(library, colour, script, effects=lambda _: True)("r")
        assert "ConnectError" in everything(store)


class _OfH2(Exception):
    __module__ = "h2.exceptions"


def test_in_http_2_a_protocol_error_may_come_after_the_request(library: ModuleType) -> None:
    error = library.LocalProtocolError("no")
    error.__cause__ = RuntimeError("of httpcore")
    error.__cause__.__context__ = _OfH2()
    inner = raising(library, error)
    with testing.store(), pytest.raises(RunHeld):
        runner(library, "sync", posts("https://a.test"), inner, effects=lambda _: True)("r")


def test_other_errors_leave_an_effect_in_doubt(library: ModuleType) -> None:
    inner = raising(library, ValueError("of body hunter2"))
    with testing.store() as store:
        with pytest.raises(RunHeld):
            runner(library, "sync", posts("https://a.test"), inner, effects=lambda _: True)("r")
        assert "hunter2" not in everything(store)
