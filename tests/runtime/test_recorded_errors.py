"""Errors that are made again from a journal: nothing is imported or called because the data names it."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from holdfast.integrations import _recorded_errors as recorded_errors


class Odd(Exception):
    """Takes something else than its arguments, and remembers more."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.itself: Any = self


def again(error: BaseException) -> Any:
    try:
        with recorded_errors.kept():
            raise error
    except recorded_errors.CallFailed as failed:
        return recorded_errors._made_or_none(failed.error)
    raise AssertionError("it was not kept")


def test_an_error_with_an_init_of_its_own_is_made_again() -> None:
    made = again(Odd(code=503))
    assert type(made).__name__ == "Odd"
    assert (str(made), made.code, made.itself) == ("code 503", 503, None)


def test_a_cycle_of_causes_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    made = again(first)
    assert str(made) == "first"
    assert str(made.__cause__) == "second"


def test_no_module_is_asked_for_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    lazy = types.ModuleType("lazy_errors")
    lazy.__getattr__ = asked.append  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "lazy_errors", lazy)
    told = {"classes": [["lazy_errors", "Boom"]], "message": "", "args": [], "attributes": {}}
    assert recorded_errors._made_or_none({**told, "lost": []}) is None
    told["classes"] = [["never_imported_by_anybody", "Boom"], ["builtins", "ValueError"]]
    assert type(recorded_errors._made_or_none({**told, "lost": []})) is ValueError
    assert asked == []
    assert "never_imported_by_anybody" not in sys.modules


@pytest.mark.parametrize("library", ["os", "urllib.request", "tests"])
def test_only_exchanges_of_httpx_are_made(library: str) -> None:
    error = ValueError("no")
    error.about = {"__http__": library, "method": "GET", "url": "x"}  # type: ignore[attr-defined]
    made = again(error)
    assert made.about == {"__http__": library, "method": "GET", "url": "x"}


def test_a_class_that_is_no_error_is_not_made() -> None:
    told = {"classes": [["subprocess", "Popen"]], "message": "", "args": ["true"]}
    assert recorded_errors._made_or_none({**told, "attributes": {}, "lost": []}) is None


class Guarded(Exception):
    """Has a property that runs code when it is set, and a text that cannot be made."""

    set_to: list[object] = []

    @property
    def code(self) -> int:
        return 1

    @code.setter
    def code(self, value: object) -> None:
        self.set_to.append(value)
        raise SystemExit


def test_no_property_is_set() -> None:
    told = {"classes": [[__name__, "Guarded"]], "message": "", "args": [], "lost": []}
    made = recorded_errors._made_or_none({**told, "attributes": {"code": 5}})
    assert type(made) is Guarded
    assert Guarded.set_to == []


def test_no_interrupt_is_made() -> None:
    told = {"classes": [["builtins", "SystemExit"]], "message": "", "args": [], "lost": []}
    assert recorded_errors._made_or_none({**told, "attributes": {}}) is None


class Unshown:
    def __str__(self) -> str:
        raise RuntimeError("not shown")


def test_an_error_that_cannot_be_described_stays_itself() -> None:
    with pytest.raises(ValueError) as caught, recorded_errors.kept():  # noqa: PT011
        raise ValueError(Unshown())
    assert isinstance(caught.value.args[0], Unshown)


def test_headers_and_keys_are_not_recorded() -> None:
    error = ValueError("no")
    vars(error).update(request_headers={"authorization": "sk-1"}, api_key="sk-2", code=5)
    with pytest.raises(recorded_errors.CallFailed) as failed, recorded_errors.kept():
        raise error
    assert "sk-" not in repr(failed.value.error)
    assert vars(again(error)) == {"request_headers": None, "api_key": None, "code": 5}
