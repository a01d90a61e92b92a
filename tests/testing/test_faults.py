"""Stores that fail as planned, and what the runtime makes of it."""

import threading

import pytest

from holdfast import effect, flow, step, testing
from holdfast.errors import HoldfastError, LeaseLost, RunHeld, StoreFailed, StoreFull, UsageError
from holdfast.testing import StoreFaults

calls: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


@step(name="faults-one")
def one() -> int:
    calls.append("one")
    return 1


@effect(name="faults-pay")
def pay(amount: int) -> str:
    calls.append("pay")
    return f"paid {amount}"


@flow(name="faults-flow")
def paying() -> str:
    return pay(one())


@pytest.mark.parametrize("url", [None, "sqlite:"])
def test_the_nth_operation_fails_once(url):
    faults = StoreFaults()
    faults.fail("append", at=1, error=StoreFull("no space"))
    with testing.store(url=url, faults=faults) as store:
        with pytest.raises(StoreFull, match="no space"):
            paying.run("r")
        assert calls == ["one"]
        assert store.get("r").status == "queued"
        assert paying.run("r") == "paid 1"
    assert calls == ["one", "one", "pay"]
    assert any("no space" in line for line in faults.seen)


def test_no_intent_no_effect():
    """Fault 20: a full disk on the intent; nothing is executed until there is space."""
    faults, executed = StoreFaults(), calls
    faults.fail("append", at=2, error=StoreFull("no space"))
    with testing.store(faults=faults):
        assert paying.run("r") == "paid 1"
    struck = [line for line in faults.seen if "no space" in line]
    assert struck == ["append step_started: StoreFull('no space')"]
    assert executed == ["one", "pay"]


def test_a_handle_that_failed_gives_no_more_acknowledgements():
    faults = StoreFaults()
    faults.fail("append", at=3, error=StoreFailed("I/O error"), forever=True)
    with testing.store(faults=faults) as store:
        with pytest.raises(StoreFailed):
            paying.run("r")
        assert calls == ["one", "pay"]
        assert store.get("r").status == "running"


def test_a_write_that_was_done_and_not_acknowledged():
    """Fault 38: the fate of the commit is unknown; the effect is not repeated on a guess."""
    faults = StoreFaults()
    faults.fail("append", at=3, error=StoreFailed("cut"), after=True)
    with testing.store(faults=faults) as store:
        with pytest.raises(StoreFailed):
            paying.run("r")
        steps = {step.key: step.status for step in store.get("r").steps}
        assert steps["faults-pay"] == "completed"
    assert calls == ["one", "pay"]


def test_an_owner_that_is_fenced_is_told_and_stops():
    faults = StoreFaults()
    faults.fence(at=2)
    with testing.store(faults=faults), pytest.raises(LeaseLost):
        paying.run("r")
    assert calls == ["one"]


def test_an_outcome_that_is_fenced_leaves_a_doubt():
    faults = StoreFaults()
    faults.fence(at=3)
    with testing.store(faults=faults):
        with pytest.raises(LeaseLost):
            paying.run("r")
        assert calls == ["one", "pay"]
        with pytest.raises(RunHeld):
            paying.run("r")
    assert calls == ["one", "pay"]


def test_an_operation_waits_until_the_test_lets_it_go():
    faults, gate = StoreFaults(), threading.Event()
    faults.delay("append", at=2, until=gate)
    faults.delay("append", at=1, seconds=0.001)
    with testing.store(faults=faults) as store:
        handle = paying.start("r")
        store.wait_until("r", done="faults-one")
        assert calls == ["one"]
        gate.set()
        assert handle.result(timeout=10) == "paid 1"


def test_reads_fail_too():
    faults = StoreFaults()
    faults.fail("get", error=StoreFailed("gone"), forever=True)
    with testing.store(faults=faults), pytest.raises(StoreFailed, match="gone"):
        paying.run("r")
    assert faults.count("get") == 1
    assert faults.count("append") == 0


def test_a_plan_that_cannot_work_is_refused():
    faults = StoreFaults()
    with pytest.raises(UsageError, match="no operation 'write'"):
        faults.fail("write", error=HoldfastError())
    with pytest.raises(UsageError, match="counted from 1"):
        faults.fence(at=0)


def test_every_writing_operation_of_the_contract_is_known_to_the_kit():
    """A new one that is handed through unseen would be no boundary in a crash matrix."""
    from holdfast._stores.contract import Store
    from holdfast.testing.store_proxy import WITHIN, WRITES

    reads = {
        *("now_us", "regression", "accepted_through", "get", "by_number", "list", "load", "entry"),
        *(
            "chunks",
            "key",
            "waiting_on",
            "held_on",
            "claimable",
            "owner_name",
            "owner_is_dead",
            "heard_us",
            "inbox",
            "verify",
            "schema_version",
            "path",
        ),
        *("pulses", "queues", "schedules", "whole"),
        *(
            "message",
            "messages",
            "news",
            "questions",
            "account",
            "memo",
            "memos",
            "spaces",
            "measures",
        ),
        "expired_memos",
    }
    others = {"accept_data_loss", "register_owner", "backup", "wait_for_change", "close"}
    others |= {"pulse", "set_limits", "put_schedule", "put_whole", "put_measures", "drop_measures"}
    operations = {name for name in vars(Store) if not name.startswith("_")}
    assert operations - reads - others == set(WRITES) - {WITHIN}
