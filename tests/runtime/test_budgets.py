"""Budgets: what a run may spend, kept in the store, held when it is used up, raised by a person."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Budget, Retry, effect, flow, step, testing
from holdfast._features.budgets import prices as pricing, runtime as spending
from holdfast._features.budgets.model import BudgetGate
from holdfast.context import record_usage
from holdfast.errors import RunEnded, RunHeld, UsageError
from holdfast.pricing import Price
from holdfast.testing import FakeClock
from tests.runtime.facts import until

CENT = 10_000_000

done: list[Any] = []


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    done.clear()
    spending._unpriced.clear()
    table = dict(pricing._table)
    yield
    pricing._table.clear()
    pricing._table.update(table)


@step(name="budget-think", reserve_usd=0.30)
def think(number: int) -> int:
    done.append(number)
    return number


@flow(name="budget-thinker", budget=Budget(usd=1))
def thinker(count: int) -> str:
    return ",".join(str(think(number)) for number in range(count))


def spent(store: testing.PrivateStore, run_id: str = "r") -> int:
    account = store._backend.account(run_id)
    assert account is not None
    return account.spent_usd_nanos


def kinds(store: testing.PrivateStore, run_id: str = "r") -> list[str]:
    return [str(entry.kind) for entry in store.history(run_id)]


def held(work: Any, *args: Any) -> RunHeld:
    with pytest.raises(RunHeld) as raised:
        work(*args)
    assert raised.value.reason == "budget"
    return raised.value


# -- used up, and raised -----------------------------------------------------------------------


def test_a_run_stops_before_the_step_that_it_cannot_pay(store):
    error = held(thinker.run, "r", 5)
    assert done == [0, 1, 2]
    assert spent(store) == 90 * CENT
    assert "$0.90 of $1.00 is spent, and it may cost $0.30" in error.detail
    assert error.step == "budget-think#4"
    assert error.actions == ("holdfast set-budget r --usd 2.00",)
    assert "budget-think#4" not in [view.key for view in store.get("r").steps], "it never began"
    assert not list(store.verify())


def test_trying_again_without_more_money_executes_nothing(store):
    held(thinker.run, "r", 5)
    held(thinker.run, "r", 5)
    assert done == [0, 1, 2]
    assert spent(store) == 90 * CENT


def test_raising_it_goes_on_and_replays_cost_nothing(store):
    held(thinker.run, "r", 5)
    answer = store.set_budget("r", budget=Budget(usd=2), actor="ada")
    assert answer.status == "queued"
    assert answer.goes_on
    assert thinker.run("r", 5) == "0,1,2,3,4"
    assert done == [0, 1, 2, 3, 4]
    assert spent(store) == 150 * CENT
    entry = next(entry for entry in store.history("r") if entry.kind == "budget_set")
    assert entry.body["actor"] == "ada"
    assert entry.body["to"] == {"usd_nanos": 200 * CENT}
    assert entry.body["before"]["spent_usd_nanos"] == 90 * CENT
    assert not list(store.verify())


def test_a_failed_run_that_is_taken_up_again_goes_on_with_what_is_left(store):
    broken = [True]

    @step(name="budget-breaks")
    def breaks() -> None:
        if broken.pop():
            raise OSError("not today")

    @flow(name="budget-mends", budget=Budget(usd=1, steps=4))
    def mends() -> int:
        first = think(1)
        breaks()
        return first + think(2)

    with pytest.raises(holdfast.errors.RunFailed):
        mends.run("r")
    assert spent(store) == 30 * CENT
    broken.append(False)
    assert mends.run("r") == 3
    account = store._backend.account("r")
    assert (account.spent_usd_nanos, account.spent_steps) == (60 * CENT, 4)


def test_the_first_budget_of_a_run_stays_whatever_the_code_says_later(store):
    held(thinker.run, "r", 5)
    held(thinker.with_options(budget=Budget(usd=100)).run, "r", 5)
    assert thinker.with_options(budget=Budget(usd=100)).run("other", 5) == "0,1,2,3,4"


def test_a_worker_goes_on_with_a_run_whose_budget_was_raised(store):
    thinker.submit("r", 5)
    with store.worker(flows=[thinker]):
        store.wait_until("r", status="held")
        store.set_budget("r", budget=Budget(usd=2), actor="ada")
        store.wait_until("r", status="completed")
    assert done == [0, 1, 2, 3, 4]


def test_a_budget_is_shown(store):
    held(thinker.run, "r", 5)
    budget = store.get("r").budget
    assert (budget.usd, budget.spent_usd, budget.left_usd) == (1.0, 0.9, 0.1)
    assert (budget.steps, budget.spent_steps, budget.root) == (None, 3, "r")
    said = str(store.explain("r"))
    assert "is held, since its budget is used up" in said
    assert "$0.90 of $1.00 spent, 3 attempts, 0 tokens" in " ".join(said.split())
    assert "holdfast set-budget r --usd 2.00" in said


def test_a_run_without_a_budget_writes_and_asks_nothing_more(store):
    asked: list[str] = []
    account_of = store._backend.account

    def asking(root: str) -> Any:
        asked.append(root)
        return account_of(root)

    store._backend.account = asking

    @flow(name="budget-none")
    def none() -> int:
        return think(1)

    assert none.run("r") == 1
    assert asked == []
    row = store._backend.get("r")
    joined = [entry for entry in store._backend.load(row) if entry.step == "budget-think"]
    assert [entry.started_us is not None for entry in joined] == [True], "one row, as before"


# -- what refuses to be raised -----------------------------------------------------------------


def test_a_budget_is_not_set_below_what_is_spent(store):
    held(thinker.run, "r", 5)
    with pytest.raises(UsageError, match=r"`usd` .* cannot be \$0.50: \$0.90 is spent already"):
        store.set_budget("r", budget=Budget(usd=0.5), actor="ada")
    assert "budget_set" not in kinds(store)
    with pytest.raises(UsageError, match="`steps` .* cannot be 2: 3 is spent"):
        store.set_budget("r", budget=Budget(steps=2), actor="ada")
    store.set_budget("r", budget=Budget(steps=4), actor="ada")
    budget = store.get("r").budget
    assert (budget.usd, budget.steps) == (1.0, 4), "what is not given stays"


def test_what_has_no_budget_or_has_ended_has_none_to_raise(store):
    @flow(name="budget-unlimited")
    def unlimited() -> None:
        pass

    unlimited.run("r")
    with pytest.raises(UsageError, match="has no budget"):
        store.set_budget("r", budget=Budget(usd=1), actor="ada")
    thinker.run("done", 1)
    with pytest.raises(RunEnded, match="is completed: that is final"):
        store.set_budget("done", budget=Budget(usd=5), actor="ada")
    with pytest.raises(UsageError, match="holdfast.Budget"):
        store.set_budget("done", budget=5, actor="ada")


def test_raised_before_it_begins(store):
    thinker.submit("r", 5)
    store.set_budget("r", budget=Budget(usd=3), actor="ada")
    assert thinker.run("r", 5) == "0,1,2,3,4"


def test_raised_while_a_live_process_has_it(store):
    inside, go_on = threading.Event(), threading.Event()

    @step(name="budget-long")
    def long() -> None:
        inside.set()
        assert go_on.wait(20)

    @flow(name="budget-at-work", budget=Budget(usd=0.30))
    def at_work() -> int:
        long()
        return think(1) + think(2)

    handle = at_work.start("r")
    assert inside.wait(20)
    store.set_budget("r", budget=Budget(usd=1), actor="ada")
    until(lambda: "budget_set" in kinds(store))
    go_on.set()
    assert handle.result(timeout=20) == 3
    entry = next(entry for entry in store.history("r") if entry.kind == "budget_set")
    assert entry.body["actor"] == "ada"


# -- all that counts ---------------------------------------------------------------------------


def test_ten_parallel_steps_of_a_third_give_three(store):
    @flow(name="budget-each", budget=Budget(usd=1))
    def each_of() -> list[int]:
        return holdfast.each(think, range(10), max_concurrency=10)

    held(each_of.run, "r")
    assert len(done) == 3
    assert spent(store) == 90 * CENT
    store.set_budget("r", budget=Budget(usd=3), actor="ada")
    assert each_of.run("r") == list(range(10))
    assert sorted(done) == list(range(10))


def test_the_planted_bug_without_a_reservation_is_caught(store, monkeypatch):
    monkeypatch.setattr(BudgetGate, "start", lambda gate, call: ())

    @flow(name="budget-planted", budget=Budget(usd=1))
    def planted() -> list[int]:
        return holdfast.each(think, range(10), max_concurrency=10)

    planted.run("r")
    assert len(done) == 10, "so the test above can fail"


def test_branches_wait_for_what_others_give_back(store):
    @step(name="budget-cheap", reserve_usd=0.30)
    def cheap(number: int) -> int:
        record_usage(cost_usd=0.05)
        return number

    @flow(name="budget-cheaper", budget=Budget(usd=1))
    def cheaper() -> list[int]:
        return holdfast.each(cheap, range(10), max_concurrency=10)

    assert cheaper.run("r") == list(range(10))
    assert spent(store) == 50 * CENT


def test_async_branches_too(store):
    @step(name="budget-athink", reserve_usd=0.30)
    async def athink(number: int) -> int:
        done.append(number)
        await asyncio.sleep(0)
        return number

    @step(name="budget-acheap", reserve_usd=0.30)
    async def acheap(number: int) -> int:
        record_usage(cost_usd=0.05)
        return number

    @flow(name="budget-agather", budget=Budget(usd=1))
    async def agather(cheap: bool) -> list[int]:
        work = acheap if cheap else athink
        return list(await holdfast.aio.gather(*(work(number) for number in range(10))))

    with pytest.raises(RunHeld):
        asyncio.run(agather.run("r", cheap=False))
    assert len(done) == 3
    assert spent(store) == 90 * CENT
    store.set_budget("r", budget=Budget(usd=3), actor="ada")
    assert asyncio.run(agather.run("r", cheap=False)) == list(range(10))
    assert sorted(done) == list(range(10))
    assert asyncio.run(agather.run("c", cheap=True)) == list(range(10))
    assert spent(store, "c") == 50 * CENT


def test_every_attempt_counts_and_so_do_those_that_fail(store):
    @step(name="budget-fails", reserve_usd=0.10, retry=Retry(attempts=9, initial_wait_s=0))
    def fails() -> None:
        done.append("try")
        raise OSError("no")

    @flow(name="budget-storm", budget=Budget(steps=4))
    def storm() -> None:
        fails()

    error = held(storm.run, "r")
    assert len(done) == 4
    assert "4 of 4 steps are used" in error.detail
    assert error.actions == ("holdfast set-budget r --steps 8",)
    account = store._backend.account("r")
    assert (account.spent_steps, account.spent_usd_nanos) == (4, 40 * CENT)
    store.set_budget("r", budget=Budget(steps=100), actor="ada")
    with pytest.raises(holdfast.errors.RunFailed):
        storm.run("r")
    assert len(done) == 9, "the policy of the step goes on counting"


def test_effects_pay_before_they_are_called(store):
    @effect(
        name="budget-mail", reserve_usd=lambda to, text: 0.01 * len(text), not_done_on=(OSError,)
    )
    def mail(to: str, text: str) -> str:
        done.append(to)
        if to == "nobody":
            raise OSError("no such address")
        return to

    @flow(name="budget-mails", budget=Budget(usd=0.10))
    def mails() -> None:
        mail("ada", "12345")
        try:
            mail("nobody", "123")
        except holdfast.errors.StepFailed:
            mail("bob", "12345")

    error = held(mails.run, "r")
    assert done == ["ada", "nobody"]
    assert spent(store) == 8 * CENT
    assert "it may cost $0.05" in error.detail
    assert [view.key for view in store.get("r").steps] == ["budget-mail", "budget-mail#2"]


def test_a_duplicate_of_a_business_key_costs_nothing(store):
    @effect(name="budget-once", key="once:{number}", reserve_usd=0.30)
    def once(number: int) -> int:
        done.append(number)
        return number

    @flow(name="budget-keys", budget=Budget(usd=1))
    def keys(count: int) -> int:
        return sum(once(7) for _ in range(count))

    assert keys.run("r", 1) == 7
    assert keys.run("s", 1) == 7
    assert done == [7]
    assert (spent(store, "r"), spent(store, "s")) == (30 * CENT, 0)


def test_an_effect_in_doubt_that_is_tried_again_pays_twice(store):
    @effect(
        name="budget-shaky",
        on_doubt="retry",
        retry=Retry(attempts=5, initial_wait_s=0),
        reserve_usd=0.30,
    )
    def shaky() -> str:
        done.append("try")
        if len(done) < 3:
            raise OSError("who knows")
        record_usage(cost_usd=0.10)
        return "at last"

    @flow(name="budget-doubt", budget=Budget(usd=1))
    def doubtful() -> str:
        return shaky()

    assert doubtful.run("r") == "at last"
    assert spent(store) == 70 * CENT


def test_grouped_steps_and_inline_calls_count(store):
    @step(name="budget-grouped", commit="grouped", reserve_usd=0.30)
    def grouped(number: int) -> None:
        done.append(number)

    with pytest.raises(RunHeld), holdfast.run("r", budget=Budget(usd=1, steps=4)):
        holdfast.run_step("budget-inline", done.append, "inline")
        for number in range(5):
            grouped(number)
    assert done == ["inline", 0, 1, 2]
    account = store._backend.account("r")
    assert (account.spent_steps, account.spent_usd_nanos) == (4, 90 * CENT)


def test_an_effect_in_the_stores_own_database_counts_and_is_not_called_in_vain(sqlite):
    @effect(
        name="budget-insert",
        transaction=True,
        reserve_usd=0.30,
        retry=Retry(attempts=2, initial_wait_s=0),
    )
    def insert(number: int) -> int:
        done.append(number)
        holdfast.context.sql_connection().execute("create table if not exists budget_rows (number)")
        if number == 1 and done.count(1) == 1:
            raise OSError("rolled back, and tried again")
        record_usage(cost_usd=0.25)
        holdfast.context.sql_connection().execute("insert into budget_rows values (?)", (number,))
        return number

    @flow(name="budget-inserts", budget=Budget(usd=1))
    def inserts() -> None:
        for number in range(5):
            insert(number)

    held(inserts.run, "r")
    assert done == [0, 1, 1]
    account = sqlite._backend.account("r")
    assert (account.spent_usd_nanos, account.spent_steps) == (80 * CENT, 3)
    sqlite.set_budget("r", budget=Budget(usd=5), actor="ada")
    inserts.run("r")
    assert done == [0, 1, 1, 2, 3, 4]
    assert spent(sqlite) == 155 * CENT
    assert not list(sqlite.verify())


def test_an_interrupted_step_has_spent_what_it_was_to_cost(store):
    @step(name="budget-interrupted", reserve_usd=0.30)
    def interrupted() -> None:
        if not done:
            done.append("first")
            raise KeyboardInterrupt

    @flow(name="budget-interrupts", budget=Budget(usd=1))
    def interrupts() -> None:
        interrupted()

    with pytest.raises(KeyboardInterrupt):
        interrupts.run("r")
    assert spent(store) == 30 * CENT
    interrupts.run("r")
    assert spent(store) == 60 * CENT


def test_time_is_a_budget_too():
    with testing.store(clock=FakeClock()) as store:

        @step(name="budget-slow")
        def slow() -> None:
            store.clock.advance(3600)
            done.append("slow")

        @flow(name="budget-wall", budget=Budget(wall="90m"))
        def wall() -> None:
            for _ in range(5):
                slow()

        wall.submit("r")
        store.clock.advance(10 * 3600)
        error = held(wall.run, "r")
        assert len(done) == 2, "the time in the queue does not count"
        assert "the 1 h 30 min that it may take are over" in error.detail
        with pytest.raises(UsageError, match="it was opened 2 h ago"):
            store.set_budget("r", budget=Budget(wall="1h"), actor="ada")
        with pytest.raises(UsageError, match="it was opened 2 h ago"):
            store.set_budget("r", budget=Budget(usd=1), actor="ada")
        store.set_budget("r", budget=Budget(wall="1d"), actor="ada")
        wall.run("r")
        assert len(done) == 5


# -- families ----------------------------------------------------------------------------------


@flow(name="budget-child")
def child(number: int) -> int:
    return think(number)


@flow(name="budget-parent", budget=Budget(usd=1))
def parent(count: int) -> list[int]:
    return [child(number) for number in range(count)]


def test_children_spend_from_the_account_of_the_root_and_any_of_them_raises_it(store):
    handle = parent.start("p", 5)
    fourth = "p::budget-child#4"
    store.wait_until(fourth, status="held")
    store.wait_until("p", waiting=True)
    assert done == [0, 1, 2]
    assert spent(store, "p") == 90 * CENT
    assert store._backend.account(fourth) is None
    assert store.get(fourth).budget.root == "p"
    said = " ".join(str(store.explain("p")).split())
    assert "The child is held: the budget of run p is used up" in said
    assert said.count("set-budget") == 1, "one cause, one command"
    assert f"holdfast set-budget '{fourth}' --usd 2.00" in said
    answer = store.set_budget(fourth, budget=Budget(usd=2), actor="ada")
    assert answer.did == "the budget of run 'p' is now $2.00"
    assert handle.result(timeout=20) == [0, 1, 2, 3, 4]
    assert spent(store, "p") == 150 * CENT
    assert kinds(store, "p").count("budget_set") == 1


def test_the_budget_of_a_childs_flow_is_no_second_account(store):
    @flow(name="budget-own", budget=Budget(usd=0.30))
    def own(count: int) -> int:
        return sum(think(number) for number in range(count))

    @flow(name="budget-rich", budget=Budget(usd=5))
    def rich() -> int:
        return own(2)

    assert rich.run("p") == 1
    assert store._backend.account("p::budget-own") is None

    @flow(name="budget-free")
    def free() -> int:
        return own(2)

    handle = free.start("q")
    store.wait_until("q::budget-own", status="held")
    assert spent(store, "q::budget-own") == 30 * CENT, "its own, since its family has none"
    assert store._backend.account("q") is None
    store.set_budget("q::budget-own", budget=Budget(usd=1), actor="ada")
    assert handle.result(timeout=20) == 1


def test_a_fork_has_the_budget_of_its_origin_for_itself(store):
    held(thinker.run, "r", 5)
    store.fork("r", "s", before="budget-think#3")
    assert thinker.run("s", 5) == "0,1,2,3,4"
    assert (spent(store, "r"), spent(store, "s")) == (90 * CENT, 90 * CENT)
    assert done == [0, 1, 2, 2, 3, 4], "what it took over costs nothing"


# -- tokens and prices -------------------------------------------------------------------------


@step(name="budget-model")
def ask_model(model: str, tokens: int) -> None:
    done.append(model)
    record_usage(model=model, input_tokens=tokens, output_tokens=tokens)


@flow(name="budget-models")
def models(model: str, tokens: int, count: int) -> None:
    for _ in range(count):
        ask_model(model, tokens)


def test_tokens_are_counted_when_they_are_known(store):
    limited = models.with_options(budget=Budget(tokens=100))
    error = held(limited.run, "r", "gpt-x", 30, 5)
    assert len(done) == 2, "60, then 120: the limit is passed by the step that nobody could foresee"
    assert "120 of 100 tokens are used" in error.detail
    assert error.actions == ("holdfast set-budget r --tokens 220",)


def test_tokens_are_priced_by_the_table_that_users_give(store):
    holdfast.pricing.set_prices(
        {
            "gpt-x": Price(input_mtok=1, output_mtok=2),
            "gpt-*": Price(input_mtok=100, output_mtok=100),
        }
    )
    limited = models.with_options(budget=Budget(usd=1))
    limited.run("r", "gpt-x", 100_000, 2)
    assert spent(store) == 60 * CENT
    assert store.get("r").totals.usage["cost"] == pytest.approx(0.6)
    held(limited.run, "s", "gpt-y-2031", 10_000, 2)
    assert spent(store, "s") == 200 * CENT


def test_a_model_without_a_price_is_told_once_and_shown(store, caplog):
    limited = models.with_options(budget=Budget(usd=1))
    with caplog.at_level(logging.WARNING, "holdfast"):
        limited.run("r", "mystery", 1000, 3)
    told = [record for record in caplog.records if "mystery" in record.getMessage()]
    assert len(told) == 1
    assert "holdfast.pricing.set_prices" in told[0].getMessage()
    assert spent(store) == 0
    assert store.get("r").budget.unpriced == ("mystery",)
    assert "Tokens of model mystery cost nothing" in " ".join(str(store.explain("r")).split())


def test_without_a_budget_nobody_is_told_of_prices(store, caplog):
    with caplog.at_level(logging.WARNING, "holdfast"):
        models.run("r", "mystery", 1000, 1)
    assert not caplog.records
    assert "unpriced" not in str(store.history("r")[-2].body)


def test_prices_in_a_file(store, tmp_path, monkeypatch):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"filed": {"input_mtok": 5, "output_mtok": 5}}))
    monkeypatch.setenv("HOLDFAST_PRICES", str(path))
    models.with_options(budget=Budget(usd=9)).run("r", "filed", 100_000, 1)
    assert spent(store) == 100 * CENT
    path = tmp_path / "broken.json"
    path.write_text("[1]")
    monkeypatch.setenv("HOLDFAST_PRICES", str(path))
    with pytest.raises(UsageError, match="HOLDFAST_PRICES=.*broken.json"):
        models.with_options(budget=Budget(usd=9)).run("s", "filed", 100_000, 1)
    monkeypatch.delenv("HOLDFAST_PRICES")
    models.with_options(budget=Budget(usd=9)).run("s", "filed", 100_000, 1)
    assert spent(store, "s") == 100 * CENT


def test_prices_that_are_none_are_refused():
    with pytest.raises(UsageError, match="name of a model"):
        holdfast.pricing.set_prices({"gpt-x": 3})  # type: ignore[dict-item]


# -- more than can be counted ------------------------------------------------------------------


@effect(name="budget-much")
def much(tokens: int, cost: float) -> int:
    done.append(tokens)
    record_usage(input_tokens=tokens, output_tokens=tokens, cost_usd=cost)
    return 1


@flow(name="budget-muchness", budget=Budget(usd=10**9, tokens=2**62, steps=100))
def muchness(times: int, tokens: int, cost: float) -> int:
    return sum(much(tokens, cost) for _ in range(times))


@pytest.mark.parametrize(("tokens", "cost"), [(2**62, 0.0), (0, 1e9)])
def test_an_outcome_is_recorded_whatever_it_used(store, tokens, cost):
    held(muchness.run, "r", 9, tokens, cost)
    assert len(done) == 1, "the account is used up, and the next one is not executed"
    assert "step_completed" in kinds(store)


def test_sums_of_a_account_stop_where_a_database_cannot_count_on(store):
    free = muchness.with_options(budget=Budget(steps=100))
    assert free.run("r", 4, 2**62, 1e9) == 4
    account = store._backend.account("r")
    assert account is not None
    assert account.spent_tokens == 2**63 - 1
    assert account.spent_usd_nanos == 4 * 10**18
    assert len(done) == 4
    assert free.run("s", 12, 0, 1e9) == 12
    assert spent(store, "s") == 2**63 - 1
    assert json.loads(store._backend.get("r").usage)["input_tokens"] == 2**63 - 1


@pytest.mark.parametrize(
    "used", [{"input_tokens": 2**63}, {"cost_usd": 2e9}, {"cost_usd": 10**400}]
)
def test_what_no_account_counts_is_refused_where_it_is_said(store, used):
    @step(name="budget-too-much")
    def too_much() -> str:
        record_usage(input_tokens=1)
        with pytest.raises(UsageError, match="counts up to"):
            record_usage(**used)
        return "ok"

    @flow(name="budget-too-much-flow", budget=Budget(tokens=2))
    def flow_of_much() -> str:
        return too_much()

    assert flow_of_much.run("r") == "ok"
    assert store._backend.account("r").spent_tokens == 1


# -- first mistakes ----------------------------------------------------------------------------


def test_the_cost_of_a_model_call_has_a_unit(store):
    @step(name="budget-no-unit")
    def no_unit() -> str:
        with pytest.raises(UsageError, match="cost_usd="):
            record_usage(cost=1)
        return "refused"

    @flow(name="budget-no-unit-flow")
    def work() -> str:
        return no_unit()

    assert work.run("r") == "refused"


@pytest.mark.parametrize("cost", [-1, float("nan"), "1", True])
def test_a_cost_that_is_none_is_refused_where_it_is_written(cost):
    with pytest.raises(UsageError, match="reserve_usd= of"):
        step(reserve_usd=cost)(lambda_free)


def lambda_free() -> None:
    pass


def test_a_budget_that_is_none_is_refused_where_it_is_written():
    with pytest.raises(UsageError, match="holdfast.Budget"):
        thinker.with_options(budget=1)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="holdfast.Budget"):
        holdfast.run("r", budget=1)  # type: ignore[arg-type]
