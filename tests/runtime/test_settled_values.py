"""A person says what an effect returned: that is what it is declared to return, or is refused."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
from collections.abc import Iterator
from typing import Any

import pydantic
import pytest

from holdfast import Done, effect, flow, testing
from holdfast._runtime.execution import return_types
from holdfast.errors import RunHeld, UsageError
from holdfast.testing import PrivateStore


@dataclasses.dataclass
class Receipt:
    id: str
    cents: int


class Answer(pydantic.BaseModel):
    id: str


class Dated(pydantic.BaseModel, strict=True):
    on: dt.date


class Lax(pydantic.BaseModel, populate_by_name=True):
    n: int = pydantic.Field(alias="number")


@dataclasses.dataclass
class Unresolved:
    """A field of a type that only a type checker knows."""

    id: str
    total: NowhereDefined  # type: ignore[name-defined]  # noqa: F821


@dataclasses.dataclass
class Careful:
    id: str

    def __post_init__(self) -> None:
        if self.id == "bad":
            raise RuntimeError("no such id")


got: list[Any] = []


@pytest.fixture(params=["memory:", "sqlite:"])
def store(request: pytest.FixtureRequest) -> Iterator[PrivateStore]:
    got.clear()
    with testing.store(url=request.param) as opened:
        yield opened


def paying(kind: Any) -> Any:
    """Return a flow whose effect returns this, and leaves a doubt."""

    def pay():
        raise TimeoutError

    pay.__annotations__["return"] = kind
    charge = effect(name="settled-pay")(pay)

    @flow(name="settled-buy")
    def buy() -> None:
        got.append(charge())

    return buy


@pytest.mark.parametrize(
    ("kind", "given", "taken"),
    [
        (int, 7, 7),
        (Receipt, {"id": "x", "cents": 3}, Receipt("x", 3)),
        (Receipt, Receipt("x", 3), Receipt("x", 3)),
        (Answer, {"id": "x"}, Answer(id="x")),
        (dt.date, "2026-12-01", dt.date(2026, 12, 1)),
        (tuple[int, int], [1, 2], (1, 2)),
        (None, None, None),
        (Any, "anything", "anything"),
        ("Unknown", "anything", "anything"),
        (Receipt | None, None, None),
        (list[Receipt], [Receipt("x", 3)], [Receipt("x", 3)]),
        (list[dt.date], [dt.date(2026, 12, 1)], [dt.date(2026, 12, 1)]),
        (list[Receipt], [{"id": "x", "cents": 3}], [Receipt("x", 3)]),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (Answer | None, {"id": "x"}, {"id": "x"}),
        (collections.OrderedDict, {"a": 1}, {"a": 1}),
        (Dated, {"on": "2026-12-01"}, Dated(on=dt.date(2026, 12, 1))),
        (Lax, {"n": "5"}, Lax(number=5)),
        (Unresolved, {"id": "x", "total": "1"}, {"id": "x", "total": "1"}),
    ],
)
def test_a_value_reaches_the_flow_as_what_the_effect_returns(store, kind, given, taken) -> None:
    buy = paying(kind)
    with pytest.raises(RunHeld, match="in_doubt"):
        buy.run("r")
    store.settle("r", "settled-pay", Done(given), actor="kim")
    buy.run("r")
    buy.run("r")
    assert got == [taken]
    assert type(got[0]) is type(taken)


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (
            int,
            "seven",
            r"it is string \('seven'\), not integer; settled-pay returns a whole number",
        ),
        (Receipt, {"id": "x"}, "it has no field 'cents'"),
        (Answer, [], "array.*not object"),
        (None, "sent", "not null"),
    ],
)
def test_another_value_is_refused_before_it_is_recorded(store, kind, given, said) -> None:
    with pytest.raises(RunHeld):
        paying(kind).run("r")
    before = store.history("r")
    with pytest.raises(UsageError, match=said):
        store.settle("r", "settled-pay", Done(given), actor="kim")
    assert len(store.history("r")) == len(before)


def test_what_nobody_could_refuse_holds_the_run_before_the_flow_gets_it(
    store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died, and nobody with the code has looked at the run when it was settled."""
    buy = paying(int)
    with monkeypatch.context() as without:
        without.setattr(return_types.Returns, "schema", lambda _: None)
        with pytest.raises(RunHeld):
            buy.run("r")
    store.settle("r", "settled-pay", Done("seven"), actor="kim")
    fork = "holdfast fork r NEW_RUN_ID --before settled-pay --result settled-pay=JSON"
    with pytest.raises(RunHeld, match="kim settled it as done.*Expected `int`, got `str`"):
        buy.run("r")
    with pytest.raises(RunHeld, match=fork):
        buy.run("r")
    assert got == []
    said = str(store.explain("r"))
    assert fork in said
    assert "--accept-change" not in said

    store.fork("r", "right", before="settled-pay", results={"settled-pay": 7}, actor="kim")
    buy.run("right")
    assert got == [7]

    paying(str).run("r")  # What is declared was wrong: other code is tried by itself.
    assert got == [7, "seven"]
    assert store.verify() == []


def test_a_class_that_refuses_the_value_holds_the_run(store) -> None:
    buy = paying(Careful)
    with pytest.raises(RunHeld):
        buy.run("r")
    store.settle("r", "settled-pay", Done({"id": "bad"}), actor="kim")
    with pytest.raises(RunHeld, match="RuntimeError: no such id"):
        buy.run("r")
    assert got == []


@pytest.mark.parametrize("kind", [Unresolved, list[Unresolved], Unresolved | None, "Nowhere"])
def test_no_annotation_comes_between_an_effect_and_its_doubt(store, kind) -> None:
    """I5: a doubt is recorded, whatever stands behind the arrow."""
    buy = paying(kind)
    with pytest.raises(RunHeld, match="in_doubt"):
        buy.run("r")
    assert "step_in_doubt" in [entry.kind for entry in store.history("r")]
