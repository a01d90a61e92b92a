"""Effects in the store's own database: what they write and their outcome are one commit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import apsw
import msgspec
import psycopg
import pytest

import holdfast
from holdfast import Retry, effect, flow, step, testing
from holdfast._engine.journal.rows import Lease
from holdfast._runtime.execution import transactional_effects
from holdfast._runtime.execution.recorder import Recorder
from holdfast.errors import (
    KeyConflict,
    LeaseLost,
    RunFailed,
    RunHeld,
    UsageError,
)
from tests.attempts import attempt
from tests.runtime.stops import Stop, interrupted, kinds

ORDERS = "CREATE TABLE orders (name TEXT PRIMARY KEY, amount INTEGER)"


class Bench:
    """A store, and a table of the user's in the same database."""

    def __init__(self, store: testing.PrivateStore, url: str) -> None:
        self.store = store
        self.url = url
        self.mark = "?" if url.startswith("sqlite") else "%s"
        self.execute(ORDERS)

    def execute(self, sql: str, *parameters: Any) -> list[Any]:
        """Do something in the database, beside Holdfast."""
        if not self.url.startswith("sqlite"):
            with psycopg.connect(self.url, autocommit=True) as connection:
                cursor = connection.execute(sql, parameters)
                return cursor.fetchall() if cursor.description else []
        beside = apsw.Connection(self.url.removeprefix("sqlite:///"))
        try:
            return beside.execute(sql, parameters).fetchall()
        finally:
            beside.close()

    def orders(self) -> dict[str, int]:
        """Return the user's table, as somebody else sees it."""
        return dict(self.execute("SELECT name, amount FROM orders ORDER BY name"))

    def order(self, name: str, amount: int = 1) -> None:
        """Write to the user's table, as the body of an effect does."""
        values = f"VALUES ({self.mark}, {self.mark})"
        holdfast.context.sql_connection().execute(f"INSERT INTO orders {values}", (name, amount))


bench: Bench


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(autouse=True)
def _bench(url: str) -> Iterator[None]:
    global bench
    with testing.store(url=url) as store:
        bench = Bench(store, url)
        yield


def tell(run_id: str) -> tuple[list[str], dict[str, int]]:
    """Return what the journal says of the steps, and what the table says."""
    said = [kind for kind in kinds(bench.store, run_id) if not kind.startswith("run_")]
    return said, bench.orders()


# --- what is written commits with the outcome -------------------------------------------------


@effect(name="tx-order", transaction=True)
def order(name: str) -> str:
    bench.order(name)
    return f"ordered {name}"


@flow(name="tx-one")
def one(name: str) -> str:
    return order(name)


def test_what_it_writes_and_its_outcome_are_one_commit() -> None:
    assert one.run("r", "tea") == "ordered tea"

    assert tell("r") == (["step_started", "step_completed"], {"tea": 1})
    started = bench.store.history("r")[2]
    assert (started.body["effect"], started.body["transaction"]) == (True, True)
    assert not list(bench.store.verify())


def test_a_replay_returns_the_recorded_value_and_calls_nothing() -> None:
    one.run("r", "tea")

    assert one.run("r", "tea") == "ordered tea"
    assert bench.orders() == {"tea": 1}


def test_nothing_is_seen_of_it_before_its_outcome() -> None:
    seen: list[Any] = []

    @effect(name="tx-look", transaction=True)
    def look() -> None:
        bench.order("tea")
        seen.append(bench.orders())

    @flow(name="tx-looking")
    def looking() -> None:
        look()

    looking.run("r")

    assert seen == [{}]
    assert bench.orders() == {"tea": 1}


def test_lazy_and_grouped_writes_before_it_are_in_the_journal_before_it() -> None:
    @step(name="tx-grouped", commit="grouped")
    def grouped(n: int) -> int:
        return n

    @flow(name="tx-ordered")
    def ordered() -> str:
        holdfast.context.uuid4()
        for n in range(5):
            grouped(n)
        holdfast.context.now()
        made = order("tea")
        holdfast.emit("made")
        grouped(5)
        return made + order("cake")

    assert ordered.run("r") == "ordered teaordered cake"

    steps = [e.step for e in bench.store.history("r") if e.kind == "step_completed"]
    assert steps[5:] == ["tx-order", "tx-grouped#6", "tx-order#2"]
    assert ordered.run("r") == "ordered teaordered cake"
    assert not list(bench.store.verify())


# --- an error means that nothing happened -----------------------------------------------------


class Declined(Exception):
    """An error that the flow gets as itself."""


def test_an_error_rolls_back_and_is_a_plain_failure() -> None:
    @effect(name="tx-failing", transaction=True)
    def failing() -> None:
        bench.order("tea")
        raise ValueError("out of stock")

    @flow(name="tx-fails")
    def fails() -> None:
        failing()

    with pytest.raises(RunFailed, match="out of stock"):
        fails.run("r")

    assert tell("r") == (["step_started", "step_failed"], {})
    assert bench.store.get("r").status == "failed"
    with pytest.raises(RunFailed):
        fails.run("r")
    assert bench.orders() == {}


def test_it_is_tried_again_by_its_policy_and_each_try_starts_from_nothing() -> None:
    tries: list[int] = []

    @effect(name="tx-flaky", transaction=True, retry=Retry(attempts=3, initial_wait_s=0.001))
    def flaky() -> int:
        bench.order("tea")
        tries.append(attempt())
        if len(tries) < 3:
            raise ConnectionError("try again")
        return len(tries)

    @flow(name="tx-tries")
    def tried() -> int:
        return flaky()

    assert tried.run("r") == 3

    assert tries == [1, 2, 3]
    assert tell("r") == (
        ["step_started", "step_failed"] * 2 + ["step_started", "step_completed"],
        {"tea": 1},
    )


def test_a_declared_error_reaches_the_flow_as_itself_live_and_replayed() -> None:
    @effect(name="tx-declines", transaction=True, raises=(Declined,))
    def declines() -> None:
        bench.order("tea")
        raise Declined("no", 7)

    stop = Stop()

    @flow(name="tx-declined")
    def declined() -> Any:
        try:
            declines()
        except Declined as error:
            stop.here()
            return list(error.args)

    interrupted(lambda: declined.run("r"))

    assert declined.run("r") == ["no", 7]
    assert tell("r") == (["step_started", "step_failed"], {})


def test_a_fallback_stands_in_for_what_was_rolled_back() -> None:
    @effect(name="tx-degrades", transaction=True, fallback="nothing")
    def degrades() -> str:
        bench.order("tea")
        raise ValueError("no")

    @flow(name="tx-degraded")
    def degraded() -> str:
        return degrades()

    assert degraded.run("r") == "nothing"
    assert bench.orders() == {}


def test_a_value_that_cannot_be_stored_is_refused_before_the_commit() -> None:
    @effect(name="tx-unstorable", transaction=True)
    def unstorable() -> Any:
        bench.order("tea")
        return object()

    @flow(name="tx-refused")
    def refused() -> Any:
        return unstorable()

    with pytest.raises(RunFailed, match="object"):
        refused.run("r")

    assert tell("r") == (["step_started", "step_failed"], {})


def test_an_interrupt_in_the_body_rolls_back_and_leaves_no_doubt() -> None:
    stop = Stop()

    @effect(name="tx-stopped", transaction=True)
    def stopped() -> str:
        bench.order("tea")
        stop.here()
        return "ordered"

    @flow(name="tx-stops")
    def stops() -> str:
        return stopped()

    interrupted(lambda: stops.run("r"))

    assert tell("r") == (["step_started", "step_cancelled"], {})
    assert stops.run("r") == "ordered"
    assert bench.orders() == {"tea": 1}


def test_a_run_that_was_lost_meanwhile_is_fenced_before_the_body_is_called() -> None:
    called: list[str] = []

    @effect(name="tx-late", transaction=True)
    def late() -> None:
        called.append("late")
        bench.order("tea")

    @flow(name="tx-lost")
    def lost() -> None:
        with holdfast.open(bench.url, default=False) as other:
            kept = other._backend
            taken = kept.claim("r", kept.register_owner(), kept.now_us() + 3600 * 10**6)
            assert not hasattr(taken, "owner")
        late()

    with pytest.raises(LeaseLost):
        lost.run("r")

    assert called == []
    assert bench.orders() == {}
    assert "step_completed" not in kinds(bench.store, "r")


def test_a_write_that_is_refused_at_the_end_is_rolled_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fence is passed before the body, and is no longer passed after it."""
    prepared = Recorder.prepared

    def outdated(recorder: Recorder, request: Any) -> Any:
        write, copy = prepared(recorder, request)
        row = msgspec.structs.replace(write.lease.row, epoch=write.lease.row.epoch - 1)
        return msgspec.structs.replace(write, lease=Lease(row.sealed())), copy

    @effect(name="tx-outdated", transaction=True)
    def late() -> None:
        bench.order("tea")
        monkeypatch.setattr(Recorder, "prepared", outdated)

    @flow(name="tx-fenced")
    def fenced() -> None:
        late()

    with pytest.raises(LeaseLost):
        fenced.run("r")

    assert bench.orders() == {}


def test_a_store_may_call_it_again_after_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = bench.store._backend
    within = kept.append_within
    calls: list[int] = []

    def twice(lease: Any, work: Any) -> Any:
        def again(connection: Any) -> Any:
            work(connection)
            connection.execute("DELETE FROM orders")
            return work(connection)

        return within(lease, again)

    monkeypatch.setattr(kept, "append_within", twice)

    @effect(name="tx-twice", transaction=True)
    def ordered() -> str:
        calls.append(1)
        bench.order("tea")
        return "a long text " * 100

    @flow(name="tx-again")
    def again() -> str:
        return ordered() + ordered.fn.__name__

    assert again.run("r") == "a long text " * 100 + "ordered"
    assert calls == [1, 1]
    entries = bench.store.history("r")
    assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
    assert not list(bench.store.verify())


# --- business keys ----------------------------------------------------------------------------


def keyed_flow(called: list[str]) -> Any:
    @effect(name="tx-keyed", transaction=True, key="order:{name}")
    def keyed(name: str, amount: int) -> str:
        called.append(name)
        bench.order(name, amount)
        return f"ordered {name}"

    @flow(name="tx-by-key")
    def by_key(name: str, amount: int = 1) -> str:
        return keyed(name, amount)

    return by_key


def test_a_business_key_is_taken_and_done_in_the_same_commit() -> None:
    called: list[str] = []
    by_key = keyed_flow(called)

    assert by_key.run("a", "tea") == "ordered tea"
    assert by_key.run("b", "tea") == "ordered tea"

    assert called == ["tea"]
    assert kinds(bench.store, "b", "tx-keyed") == ["skipped_duplicate"]
    state = bench.store._backend.key("tx-keyed", "order:tea")
    assert state is not None
    assert (state.state, state.run_id) == ("completed", "a")


def test_a_key_with_other_arguments_is_a_conflict() -> None:
    by_key = keyed_flow([])
    by_key.run("a", "tea")

    with pytest.raises(RunFailed) as failed:
        by_key.run("b", "tea", amount=2)

    assert isinstance(failed.value.__cause__, KeyConflict)
    assert bench.orders() == {"tea": 1}


def test_a_rolled_back_effect_leaves_its_key_to_others() -> None:
    fails = [True]

    @effect(name="tx-key-fails", transaction=True, key="k")
    def once() -> str:
        bench.order("tea")
        if fails.pop():
            raise ValueError("no")
        return "ordered"

    @flow(name="tx-key-free")
    def free() -> str:
        return once()

    fails[:] = [False, True]
    with pytest.raises(RunFailed):
        free.run("a")
    assert bench.store._backend.key("tx-key-fails", "k") is None

    assert free.run("b") == "ordered"
    assert bench.orders() == {"tea": 1}


@pytest.mark.parametrize("notices", ["the body", "the store"])
def test_a_key_that_another_run_took_meanwhile(
    monkeypatch: pytest.MonkeyPatch, notices: str
) -> None:
    """The body ran into what the other run wrote, or the write itself was refused."""
    name = iter(["tea", "tea" if notices == "the body" else "cake"])

    @effect(name="tx-raced", transaction=True, key="k")
    def raced() -> str:
        bench.order(next(name))
        return "ordered"

    @flow(name="tx-race")
    def race() -> str:
        return raced()

    race.run("a")
    taken = transactional_effects._taken_key
    looks: list[int] = []

    def looks_too_early(execution: Any, claim: Any) -> Any:
        looks.append(1)
        return None if len(looks) == 1 else taken(execution, claim)

    monkeypatch.setattr(transactional_effects, "_taken_key", looks_too_early)

    assert race.run("b") == "ordered"

    assert kinds(bench.store, "b", "tx-raced") == ["skipped_duplicate"]
    assert bench.orders() == {"tea": 1}
    assert not list(bench.store.verify())


# --- several lines at once --------------------------------------------------------------------


def test_branches_write_at_the_same_time_and_the_journal_keeps_one_order() -> None:
    @step(name="tx-plain")
    def plain(n: int) -> str:
        holdfast.emit(n)
        return f"text {n} " * 200

    def line(n: int) -> str:
        plain(n)
        order(f"order-{n}")
        return plain(n)

    @flow(name="tx-lines")
    def lines() -> list[str]:
        return holdfast.each(line, list(range(12)), max_concurrency=6)

    stop = lines.run("r")

    assert stop == [f"text {n} " * 200 for n in range(12)]
    assert bench.orders() == {f"order-{n}": 1 for n in range(12)}
    entries = bench.store.history("r")
    assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
    assert not list(bench.store.verify())
    assert lines.run("r") == stop


def test_a_write_that_waits_for_the_transaction_shares_its_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The transaction commits first, so what both of them refer to has to go with it."""
    text = "the same long text " * 200
    begun, kept_back = threading.Event(), threading.Event()
    seen: list[Any] = []

    @effect(name="tx-long", transaction=True)
    def long() -> str:
        bench.order("tea")
        begun.set()
        assert kept_back.wait(30)
        return text

    @step(name="tx-short")
    def short() -> str:
        return text

    submit, unpark = Recorder._submit, Recorder.unpark

    def submits(recorder: Recorder, ticket: Any) -> None:
        submit(recorder, ticket)
        drafts = ticket.write.drafts
        if ticket.parked and drafts and drafts[-1].kind == "step_completed":
            kept_back.set()

    def looks_first(recorder: Recorder) -> None:
        try:
            with holdfast.open(bench.url, default=False) as other:
                done = [e for e in other.history("r") if e.kind == "step_completed"]
                seen.extend((e.step, e.body["result"]) for e in done)
        finally:
            unpark(recorder)

    monkeypatch.setattr(Recorder, "_submit", submits)
    monkeypatch.setattr(Recorder, "unpark", looks_first)

    def second() -> str:
        assert begun.wait(30)
        return short()

    @flow(name="tx-sharing")
    def sharing() -> list[str]:
        return list(holdfast.gather(long, second))

    assert sharing.run("r") == [text, text]
    assert seen == [("gather[0]/tx-long", text)]


def test_other_runs_go_on_meanwhile_on_a_server_and_wait_in_a_file() -> None:
    in_a_file = bench.url.startswith("sqlite")
    ended: list[bool] = []

    @step(name="tx-beside")
    def beside() -> str:
        return "beside"

    @flow(name="tx-besides")
    def besides() -> str:
        return beside()

    @effect(name="tx-waits", transaction=True)
    def waits() -> None:
        thread.start()
        thread.join(0.2 if in_a_file else 60)
        ended.append(not thread.is_alive())

    @flow(name="tx-waiting")
    def waiting() -> None:
        waits()

    thread = threading.Thread(target=lambda: besides.run("b"))
    waiting.run("a")
    thread.join()

    assert ended == [not in_a_file]
    assert bench.store.get("b").status == "completed"


def test_usage_of_all_branches_is_added_up() -> None:
    @effect(name="tx-costs", transaction=True)
    def costs(n: int) -> None:
        holdfast.context.record_usage(input_tokens=10)

    @step(name="tx-costs-too")
    def costs_too(n: int) -> None:
        holdfast.context.record_usage(input_tokens=1)

    def both(n: int) -> None:
        costs(n)
        costs_too(n)

    @flow(name="tx-costing")
    def costing() -> None:
        holdfast.each(both, list(range(8)), max_concurrency=4)

    costing.run("r")

    assert bench.store.get("r").totals.usage["input_tokens"] == 88


def test_a_loop_goes_on_at_its_last_turn() -> None:
    stop = Stop()

    @flow(name="tx-loop")
    def looping() -> list[str]:
        nothing: list[str] = []
        for state in holdfast.turns(nothing, max_turns=10):
            if len(state) == 4:
                return list(state)
            if len(state) == 2:
                stop.here()
            state.append(order(f"order-{len(state)}"))
        raise AssertionError

    interrupted(lambda: looping.run("r"))

    assert looping.run("r") == [f"ordered order-{n}" for n in range(4)]
    assert bench.orders() == {f"order-{n}": 1 for n in range(4)}
    assert not list(bench.store.verify())


# --- async flows ------------------------------------------------------------------------------


def test_an_async_flow_awaits_it_in_a_thread() -> None:
    @step(name="tx-other")
    async def other(n: int) -> int:
        return n

    @flow(name="tx-async")
    async def ordering() -> list[Any]:
        made = await asyncio.gather(*(order.aio(f"order-{n}") for n in range(5)), other(7))
        return list(made)

    expected = [f"ordered order-{n}" for n in range(5)] + [7]
    assert asyncio.run(ordering.run("r")) == expected
    assert asyncio.run(ordering.run("r")) == expected
    assert len(bench.orders()) == 5
    assert not list(bench.store.verify())


def test_a_cancelled_task_keeps_what_was_committed() -> None:
    entered, go_on = threading.Event(), threading.Event()

    @effect(name="tx-slow", transaction=True)
    def slow() -> str:
        bench.order("tea")
        entered.set()
        assert go_on.wait(30)
        return "ordered"

    @flow(name="tx-cancelled")
    async def cancelled() -> str:
        return await slow.aio()

    async def main() -> None:
        task = asyncio.create_task(cancelled.run("r"))
        await asyncio.to_thread(entered.wait, 30)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert tell("r") == (["step_started", "step_completed"], {"tea": 1})
    assert asyncio.run(cancelled.run("r")) == "ordered"


# --- what it is not for -----------------------------------------------------------------------


def body() -> None: ...


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"on_doubt": "retry"}, "no doubt is possible"),
        ({"not_done_on": (ValueError,)}, "every error means"),
        ({"key_ttl": 5}, "no key is shown"),
        ({"timeout": 5}, "could not be stopped"),
        ({"commit": "grouped"}, "no option commit="),
    ],
)
def test_options_that_say_what_is_never_the_case(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        effect(name="tx-odd", transaction=True, **options)(body)


def test_what_is_declared_wrongly_is_said_at_once() -> None:
    with pytest.raises(UsageError, match="True or False"):
        effect(name="tx-odd", transaction="yes")(body)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="@effect"):
        step(name="tx-odd", transaction=True)(body)  # type: ignore[call-overload]
    declared = effect(name="tx-no-doubt", transaction=True)(body)
    with pytest.raises(UsageError, match="no doubt is possible"):
        declared.on_doubt(body)
    with pytest.raises(UsageError, match=r"await waits\.aio"):

        @effect(name="tx-odd", transaction=True)
        async def waits() -> None: ...


def test_a_connection_is_to_be_had_inside_such_an_effect_only() -> None:
    with pytest.raises(UsageError, match="transaction=True"):
        holdfast.context.sql_connection()

    @step(name="tx-no-connection")
    def without() -> None:
        holdfast.context.sql_connection()

    @flow(name="tx-asks")
    def asks() -> None:
        without()

    with pytest.raises(RunFailed, match="transaction=True"):
        asks.run("r")


def test_progress_inside_is_refused() -> None:
    @effect(name="tx-progress", transaction=True)
    def advances() -> None:
        holdfast.context.save_progress(1)

    @flow(name="tx-advances")
    def advancing() -> None:
        advances()

    with pytest.raises(RunFailed, match="as a whole or not at all"):
        advancing.run("r")


def test_an_effect_that_was_begun_without_it_is_in_doubt_as_before() -> None:
    def declared(*, transaction: bool) -> Any:
        @effect(name="tx-changed", transaction=transaction)
        def changed() -> str:
            if not transaction:
                raise ConnectionError("who knows")
            bench.order("tea")
            return "ordered"

        @flow(name="tx-changing")
        def changing() -> str:
            return changed()

        return changing

    with pytest.raises(RunHeld):
        declared(transaction=False).run("r")
    with pytest.raises(RunHeld):
        declared(transaction=True).run("r")

    bench.store.settle("r", "tx-changed", holdfast.NOT_DONE, actor="ana")
    assert declared(transaction=True).run("r") == "ordered"
    assert bench.orders() == {"tea": 1}


def test_a_temporary_store_has_a_database_as_well() -> None:
    @effect(name="tx-count", transaction=True)
    def count(name: str) -> int:
        connection = holdfast.context.sql_connection()
        connection.execute("CREATE TABLE IF NOT EXISTS cups (name TEXT)")
        connection.execute("INSERT INTO cups VALUES (?)", (name,))
        ((number,),) = connection.execute("SELECT count(*) FROM cups").fetchall()
        return int(number)

    @flow(name="tx-counting")
    def counting(name: str) -> int:
        return count(name)

    with testing.store(url="memory:"):
        assert counting.run("1", "tea") == 1
        assert counting.run("2", "tea") == 2


def test_the_explanation_of_a_failed_one_says_that_nothing_happened() -> None:
    @effect(name="tx-told", transaction=True)
    def told() -> None:
        bench.order("tea")
        raise ValueError("out of stock")

    @flow(name="tx-telling")
    def telling() -> None:
        told()

    with pytest.raises(RunFailed):
        telling.run("r")

    said = str(bench.store.explain("r"))
    assert "What tx-told wrote was rolled back: nothing of it has happened." in said
    assert "doubt" not in said
