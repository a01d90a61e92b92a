"""An effect that was renamed keeps its business keys: `aliases=` names what it was called before."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast import NOT_DONE, effect, flow
from holdfast._engine.decisions.resume import key_changes
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.rows import KeyState
from holdfast._engine.journal.step_record import Record, State
from holdfast._engine.scripts.attempts import intent, key_change
from holdfast._engine.scripts.business_keys import claimed_key, find_name
from holdfast._engine.scripts.requests import LookUpKey, Spec, StepCall
from holdfast._features.retention.model import claims
from holdfast._features.rollback.model import effect_undone
from holdfast.context import sql_connection
from holdfast.errors import KeyConflict, RunHeld, RunRolledBack
from holdfast.types import Failed
from tests.runtime.stops import Stop, interrupted

BEFORE, TODAY = "renamed-charge", "renamed-pay"

paid: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_paid():
    paid.clear()


def shop(name: str, *, stop: Stop | None = None, fails: bool = False, **options: Any):
    """Return the flow as the code is that knows the effect by this name."""
    aliases = () if name == BEFORE else (BEFORE,)

    @effect(name=name, aliases=aliases, key="order:{order}", **options)
    def charge(order: str) -> str:
        paid.append(f"{name} {order}")
        if fails:
            raise ConnectionError(order)
        return f"by {name}"

    @charge.undo
    def refund(result: str, order: str) -> None:
        paid.append(f"refund {order}")

    @flow(name="renamed-shop")
    def selling(order: str) -> str:
        got = charge(order)
        if stop is not None:
            stop.here()
        return got

    return selling


def states(store: Any, key: str = "order:1") -> list[str | None]:
    found = [store._backend.key(name, key) for name in (BEFORE, TODAY)]
    return [None if it is None else it.state for it in found]


def test_a_key_that_was_used_under_the_former_name_is_a_duplicate(store):
    assert shop(BEFORE).run("old", "1") == f"by {BEFORE}"
    assert shop(TODAY).run("new", "1") == f"by {BEFORE}"
    assert paid == [f"{BEFORE} 1"]
    assert states(store) == ["completed", None]


def test_what_is_claimed_anew_goes_under_the_name_of_today(store):
    assert shop(TODAY).run("new", "1") == f"by {TODAY}"
    assert shop(TODAY).run("newer", "1") == f"by {TODAY}"
    assert states(store) == [None, "completed"]
    assert paid == [f"{TODAY} 1"]


def test_a_run_goes_on_with_the_key_that_it_has(store):
    interrupted(lambda: shop(BEFORE, stop=Stop()).run("r", "1"))
    assert shop(TODAY).run("r", "1") == f"by {BEFORE}"
    assert paid == [f"{BEFORE} 1"]
    assert states(store) == ["completed", None]


def test_a_doubt_under_the_former_name_is_repeated_under_it(store):
    with pytest.raises(RunHeld):
        shop(BEFORE, fails=True).run("r", "1")
    store.settle("r", BEFORE, NOT_DONE, actor="ana")
    assert shop(TODAY).run("r", "1") == f"by {TODAY}"
    assert states(store) == ["completed", None], "one key, and no second one beside it"
    assert shop(TODAY).run("other", "1") == f"by {TODAY}"
    assert len(paid) == 2


def test_a_key_in_doubt_under_the_former_name_holds_others_and_settling_it_frees_them(store):
    with pytest.raises(RunHeld):
        shop(BEFORE, fails=True).run("old", "1")
    new = shop(TODAY)
    with pytest.raises(RunHeld, match="which is in doubt in run 'old'"):
        new.run("new", "1")
    assert store.settle("old", BEFORE, NOT_DONE, actor="ana").freed == ("new",)
    assert new.run("new", "1") == f"by {TODAY}"
    assert paid == [f"{BEFORE} 1", f"{TODAY} 1"]


def test_a_key_that_was_given_up_under_the_former_name_is_not_used_again(store):
    with pytest.raises(RunHeld):
        shop(BEFORE, fails=True).run("old", "1")
    store.settle("old", BEFORE, Failed("who knows"), actor="ana")
    with pytest.raises(RunHeld, match="in doubt in run 'old'"):
        shop(TODAY).run("new", "1")


@pytest.mark.parametrize("resumed", [False, True])
def test_an_undo_undoes_the_key_where_it_stands(store, resumed):
    stop = Stop() if resumed else None
    first = shop(BEFORE, stop=stop)
    interrupted(lambda: first.run("r", "1")) if resumed else first.run("r", "1")
    today = shop(TODAY)
    assert store.rollback("r").status == "rolled_back"
    assert states(store) == ["undone", None]
    with pytest.raises(RunRolledBack):
        today.run("r", "1")
    with pytest.raises(Exception, match="undone since") as failed:
        today.run("new", "1")
    assert isinstance(failed.value.__cause__, KeyConflict)
    assert paid == [f"{BEFORE} 1", "refund 1"]


def test_retention_knows_the_key_where_it_stands(store):
    shop(BEFORE).run("r", "1")
    shop(TODAY).run("s", "2")
    told = {left.run_id: left.why for left in store.prune(older_than=0).left}
    assert f"'order:1' of {BEFORE}" in told["r"]
    assert f"'order:2' of {TODAY}" in told["s"]


def test_the_intent_names_what_does_not_follow_from_the_step():
    """A key that another call has at this moment is waited for, and claimed where it stands."""
    spec = Spec(TODAY, effect=True, aliases=(BEFORE,))
    call = StepCall(spec, TODAY, 0, b"digest", "order:1", "order:1")
    script = find_name(call, None)
    asked = [next(script), script.send(None)]
    assert asked == [LookUpKey(TODAY, "order:1"), LookUpKey(BEFORE, "order:1")]
    row = KeyState("", BEFORE, "order:1", "in_progress", 1, "old", BEFORE, 1, b"", None, 0)
    with pytest.raises(StopIteration):
        script.send(row)
    assert intent(call).facts["claimed_as"] == BEFORE
    body = msgspec.json.encode(intent(call).facts)
    entry = Entry(1, Kind.STEP_STARTED, 0, TODAY, 1, 0, None, None, body, b"")
    assert claimed_key(entry) == (BEFORE, "order:1")
    assert [change.effect for change in key_change(call, "completed")] == [BEFORE]
    (claimed,) = claims([entry])
    assert claimed.effect == BEFORE
    record = Record(TODAY, 0, None, 1, 0, State.COMPLETED, intent=entry)
    assert effect_undone(record).effect == BEFORE
    assert [change.effect for change in key_changes(record, "in_doubt")] == [BEFORE]


def test_in_an_async_flow(store):
    shop(BEFORE).run("old", "1")

    @effect(name="renamed-async-pay", aliases=(BEFORE,), key="order:{order}")
    async def charge(order: str) -> str:
        paid.append(order)
        return "again"

    @flow(name="renamed-async-shop")
    async def selling(order: str) -> str:
        return await charge(order)

    assert asyncio.run(selling.run("new", "1")) == f"by {BEFORE}"
    assert paid == [f"{BEFORE} 1"]


def test_an_effect_in_the_stores_own_database(sqlite):
    def made(name: str):
        aliases = () if name == "renamed-own-charge" else ("renamed-own-charge",)

        @effect(name=name, aliases=aliases, key="order:{order}", transaction=True)
        def charge(order: str) -> str:
            sql_connection().execute("CREATE TABLE IF NOT EXISTS charged (order_id TEXT)")
            sql_connection().execute("INSERT INTO charged VALUES (?)", (order,))
            paid.append(name)
            return name

        @flow(name="renamed-own-shop")
        def selling(order: str) -> str:
            return charge(order)

        return selling

    assert made("renamed-own-charge").run("old", "1") == "renamed-own-charge"
    assert made("renamed-own-pay").run("new", "1") == "renamed-own-charge"
    assert paid == ["renamed-own-charge"]
