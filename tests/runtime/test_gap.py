"""A run that goes on after a gap: what has changed is told, and treated by its policy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import aio, effect, flow, gather, step, testing, turns
from holdfast._engine.decisions import redo
from holdfast._features.drift.model import Policy
from holdfast.context import record_usage
from holdfast.errors import Drifted, RunFailed, RunHeld, StepFailed, UsageError
from holdfast.versioning import depends_on
from tests.runtime.facts import until
from tests.runtime.stops import Stop, interrupted, kinds


class Outside:
    """What a flow watches, and a ledger of what was executed."""

    def __init__(self) -> None:
        self.fact: Any = "old"
        self.looks = 0
        self.calls: list[str] = []
        self.stop = Stop()

    def look(self) -> Any:
        self.looks += 1
        return self.fact

    def call(self, name: str) -> str:
        self.calls.append(name)
        return f"{name} {self.fact}"


@pytest.fixture
def outside() -> Outside:
    return Outside()


def found(store: holdfast.types.Store, run_id: str = "r") -> list[dict[str, Any]]:
    """Return all changes that the run was told, in order."""
    entries = [e for e in store.history(run_id) if e.kind == "drift_found"]
    return [change for entry in entries for change in entry.body["changes"]]


def watching(outside: Outside, on_change: Policy | None, *, with_effect: bool = False):
    """A flow that watches, works, and is stopped the first time that it comes to its end."""

    @step
    def read() -> str:
        return outside.call("read")

    @effect
    def send(text: str) -> str:
        return outside.call("send")

    @step
    def finish() -> str:
        outside.stop.here()
        return outside.call("finish")

    @flow
    def watcher() -> list[str]:
        seen = depends_on("fact", lambda: outside.look(), on_change=on_change)
        got = [seen, read()]
        if with_effect:
            got.append(send(got[-1]))
        return [*got, finish()]

    return watcher


OLD, NEW = holdfast.versioning.fingerprint("old"), holdfast.versioning.fingerprint("new")


def test_what_is_as_it_was_is_not_told(store, outside):
    watcher = watching(outside, None)
    interrupted(lambda: watcher.run("r"))
    assert watcher.run("r") == [OLD, "read old", "finish old"]
    assert outside.looks == 2, "it is looked at once, and once more after the gap"
    assert "drift_found" not in kinds(store, "r")
    assert watcher.run("r") == [OLD, "read old", "finish old"]
    assert outside.looks == 2, "a run that has ended looks at nothing"


def test_go_on_keeps_what_is_recorded_and_tells_it_once(store, outside):
    watcher = watching(outside, "keep")
    interrupted(lambda: watcher.run("r"))
    outside.fact, outside.stop = "new", Stop()
    interrupted(lambda: watcher.run("r"))
    assert watcher.run("r") == [OLD, "read old", "finish new"]
    assert outside.calls == ["read", "finish"]
    (change,) = found(store)
    assert (change["kind"], change["was"], change["now"]) == ("fact", OLD, NEW)
    assert change["did"] == "keep"


def test_redo_does_again_what_was_recorded_behind_it(store, outside):
    watcher = watching(outside, "redo")
    interrupted(lambda: watcher.run("r"))
    outside.fact = "new"
    assert watcher.run("r") == [NEW, "read new", "finish new"]
    assert outside.calls == ["read", "read", "finish"]
    run = store.get("r")
    assert run.generation == 2
    assert {s.key for s in run.steps if s.superseded} >= {"watch:fact"}
    assert not store.verify()


@pytest.mark.parametrize("drift", ["keep", "redo"])
def test_asking_holds_the_run_until_somebody_decides(store, outside, drift):
    watcher = watching(outside, None)
    interrupted(lambda: watcher.run("r"))
    outside.fact = "new"
    with pytest.raises(RunHeld) as held:
        watcher.run("r")
    assert held.value.reason == "drift"
    assert any("resume r --redo" in action for action in held.value.actions)
    with pytest.raises(RunHeld, match="fact was"):
        store.resume("r", actor="ann")  # It says what can be said, and changes nothing.
    assert "holdfast resume r --keep" in str(store.explain("r"))
    store.resume("r", actor="ann", drift=drift)
    kept = [OLD, "read old", "finish new"]
    assert watcher.run("r") == (kept if drift == "keep" else [NEW, "read new", "finish new"])
    (resumed,) = [e for e in store.history("r") if e.kind == "run_resumed"]
    assert (resumed.body["actor"], resumed.body["drift"]) == ("ann", drift)
    assert not store.verify()


def test_a_fact_that_is_put_back_frees_the_run(store, outside):
    watcher = watching(outside, "hold")
    interrupted(lambda: watcher.run("r"))
    outside.fact = "new"
    with pytest.raises(RunHeld):
        watcher.run("r")
    with pytest.raises(RunHeld):
        watcher.run("r")
    outside.fact = "old"
    assert watcher.run("r") == [OLD, "read old", "finish old"]


def test_what_was_accepted_and_changes_again_is_asked_again(store, outside):
    watcher = watching(outside, "hold")
    interrupted(lambda: watcher.run("r"))
    for fact in ("new", "newer"):
        outside.fact, outside.stop = fact, Stop()
        with pytest.raises(RunHeld):
            watcher.run("r")
        store.resume("r", actor="ann", drift="keep")
        interrupted(lambda: watcher.run("r"))
    assert watcher.run("r")[0] == OLD


@pytest.mark.parametrize("on_change", ["hold", "redo"])
def test_an_effect_behind_it_is_not_repeated_without_a_confirmation(store, outside, on_change):
    watcher = watching(outside, on_change, with_effect=True)
    interrupted(lambda: watcher.run("r"))
    outside.fact = "new"
    with pytest.raises(RunHeld) as held:
        watcher.run("r")
    assert "send has happened" in held.value.detail
    with pytest.raises(RunHeld):
        store.resume("r", actor="ann", drift="redo")
    assert outside.calls == ["read", "send"]
    store.resume("r", actor="ann", drift="redo", confirm=True)
    assert watcher.run("r")[:2] == [NEW, "read new"]
    assert outside.calls == ["read", "send", "read", "send", "finish"]
    shown = [
        e.body["key"] for e in store.history("r") if e.kind == "step_started" and "key" in e.body
    ]
    assert len(set(shown)) == 2, "the next generation shows a key of its own"


def test_without_its_guard_a_redo_would_repeat_effects(store, outside, monkeypatch):
    monkeypatch.setattr(redo, "may_have_happened", lambda _record: False)
    watcher = watching(outside, "redo", with_effect=True)
    interrupted(lambda: watcher.run("r"))
    outside.fact = "new"
    watcher.run("r")
    assert outside.calls.count("send") == 2, "what the tests above would see"


def test_fail_gives_the_flow_an_error_that_replays(store, outside):
    stop = Stop()

    @step
    def mourn() -> str:
        stop.here()
        return "told"

    @flow
    def failing() -> str:
        try:
            return depends_on("fact", outside.look, on_change="fail")
        except Drifted as drifted:
            return f"{mourn()} {drifted.was} {drifted.now}"
        finally:
            outside.stop.here()

    interrupted(lambda: failing.run("r"))
    outside.fact = "new"
    interrupted(lambda: failing.run("r"))
    outside.fact = "old"
    assert failing.run("r") == f"told {OLD} {NEW}", "what the flow was told, it is told again"


def test_a_run_that_failed_for_it_needs_a_confirmation_to_repeat_effects(store, outside):
    watcher = watching(outside, "fail", with_effect=True)
    interrupted(lambda: watcher.run("r"))
    outside.fact = "new"
    with pytest.raises(RunFailed, match="fact"):
        watcher.run("r")
    with pytest.raises(RunHeld, match="once more"):
        watcher.run("r")
    store.resume("r", actor="ann", confirm=True)
    assert watcher.run("r")[:2] == [NEW, "read new"]


def test_a_look_that_fails_is_recorded_and_one_that_fails_later_is_a_change(store, outside):
    def broken() -> str:
        raise OSError("gone")

    @flow
    def never() -> str:
        return depends_on("fact", broken)

    with pytest.raises(RunFailed, match="StepFailed"):
        never.run("never")

    @flow
    def caught() -> str:
        try:
            depends_on("fact", lambda: outside.look() if outside.fact == "old" else broken())
        except StepFailed:
            return "failed"
        outside.stop.here()
        return "seen"

    interrupted(lambda: caught.run("r"))
    outside.fact = "new"
    with pytest.raises(RunHeld, match="unreadable .OSError: gone"):
        caught.run("r")


def test_an_interrupted_look_leaves_the_record_as_it_is(store, outside):
    watcher = watching(outside, None)
    interrupted(lambda: watcher.run("r"))
    look, outside.look = outside.look, Stop().here
    interrupted(lambda: watcher.run("r"))
    assert kinds(store, "r", "watch:fact") == ["dependency_recorded"]
    outside.look = look
    assert watcher.run("r") == [OLD, "read old", "finish old"]
    assert not store.verify()


def test_files_are_watched_by_their_contents(store, tmp_path: Path):
    prices = tmp_path / "prices.csv"
    stop = Stop()

    @flow
    def reading() -> list[str]:
        seen = [depends_on("prices", prices), depends_on("again", prices)]
        stop.here()
        return seen

    interrupted(lambda: reading.run("r"))
    prices.write_text("1")
    with pytest.raises(RunHeld, match="was absent"):
        reading.run("r")
    prices.unlink()
    assert reading.run("r") == ["absent", "absent"]


def test_async_flows_watch_with_sync_and_async_functions(store, outside):
    async def look() -> Any:
        await asyncio.sleep(0)
        return outside.look()

    @flow
    async def awaited() -> list[str]:
        seen = [
            await aio.depends_on("a", look, on_change="keep"),
            await aio.depends_on("b", outside.look),
        ]
        outside.stop.here()
        return seen

    interrupted(lambda: asyncio.run(awaited.run("r")))
    outside.fact = "new"
    with pytest.raises(RunHeld, match="the fact b"):
        asyncio.run(awaited.run("r"))
    store.resume("r", actor="ann", drift="redo")
    assert asyncio.run(awaited.run("r")) == [OLD, NEW]


def test_a_redo_leaves_branches_beside_it_alone(store, outside):
    @step
    def work(name: str) -> str:
        return outside.call(name)

    def left() -> str:
        depends_on("fact", outside.look, on_change="redo")
        return work("left")

    @flow
    def parallel() -> list[str]:
        got = list(gather(left, lambda: work("right")))
        got.append(work("behind"))
        outside.stop.here()
        return got

    interrupted(lambda: parallel.run("r"))
    outside.calls.clear()
    outside.fact = "new"
    assert parallel.run("r") == ["left new", "right old", "behind new"]
    assert sorted(outside.calls) == ["behind", "left"]


def test_a_loop_behind_it_starts_over_and_its_effects_are_known(store, outside):
    @effect
    def act(turn: int) -> int:
        outside.calls.append(f"act {turn}")
        return turn

    @flow
    def looping() -> int:
        depends_on("fact", outside.look, on_change="redo")
        for state in turns({"n": 0}):
            act(state["n"])
            state["n"] += 1
            if state["n"] == 3:
                outside.stop.here()
            if state["n"] == 4:
                return state["n"]
        return 0

    interrupted(lambda: looping.run("r"))
    outside.fact = "new"
    with pytest.raises(RunHeld) as held:
        looping.run("r")
    assert "turns[0]/" in held.value.detail, "also those that a snapshot hides"
    before = len(outside.calls)
    store.resume("r", actor="ann", drift="redo", confirm=True)
    assert looping.run("r") == 4
    assert outside.calls[before:] == ["act 0", "act 1", "act 2", "act 3"]


def test_blocks_watch_too(store, outside):
    def script() -> str:
        with holdfast.run("r"):
            seen = depends_on("fact", outside.look)
            outside.stop.here()
            return seen

    interrupted(script)
    outside.fact = "new"
    with pytest.raises(RunHeld, match="drift"):
        script()
    store.resume("r", actor="ann", drift="keep")
    assert script() == OLD


# -- results that are good for a while ---------------------------------------------------------


def aging(outside: Outside, *, behind: bool, on_expired: Any = None):
    @step(valid_for="6h", on_expired=on_expired)
    def quote() -> str:
        return outside.call("quote")

    @step
    def use_it(text: str) -> str:
        return outside.call("use")

    @flow
    def buying() -> list[str]:
        got = [quote()]
        if behind:
            got.append(use_it(got[0]))
        outside.stop.here()
        return got

    return buying


@pytest.fixture
def clock() -> testing.FakeClock:
    return testing.FakeClock()


@pytest.fixture
def timed(clock: testing.FakeClock):
    with testing.store(clock=clock) as opened:
        yield opened


def test_a_young_result_is_replayed(timed, clock, outside):
    buying = aging(outside, behind=True)
    interrupted(lambda: buying.run("r"))
    clock.advance(5 * 3600)
    assert buying.run("r") == ["quote old", "use old"]
    assert outside.calls == ["quote", "use"]


def test_an_expired_result_of_which_nothing_was_made_is_asked_for_again(timed, clock, outside):
    buying = aging(outside, behind=False)
    interrupted(lambda: buying.run("r"))
    clock.advance(7 * 3600)
    outside.fact = "new"
    assert buying.run("r") == ["quote new"]
    (change,) = found(timed)
    assert (change["kind"], change["policy"], change["did"]) == ("expired", "redo", "redo")
    assert "good for 6 h" in change["now"]


@pytest.mark.parametrize("policy", [None, "redo", "keep"])
def test_an_expired_result_that_was_used(timed, clock, outside, policy):
    buying = aging(outside, behind=True, on_expired=policy)
    interrupted(lambda: buying.run("r"))
    clock.advance(7 * 3600)
    outside.fact = "new"
    if policy is None:
        with pytest.raises(RunHeld, match="good for 6 h"):
            buying.run("r")
        timed.resume("r", actor="ann", drift="keep")
    kept = ["quote old", "use old"]
    assert buying.run("r") == (["quote new", "use new"] if policy == "redo" else kept)


def test_what_was_accepted_is_good_for_as_long_again(timed, clock, outside):
    buying = aging(outside, behind=True)
    interrupted(lambda: buying.run("r"))
    clock.advance(7 * 3600)
    with pytest.raises(RunHeld):
        buying.run("r")
    timed.resume("r", actor="ann", drift="keep")
    outside.stop = Stop()
    interrupted(lambda: buying.run("r"))
    clock.advance(5 * 3600)
    outside.stop = Stop()
    interrupted(lambda: buying.run("r"))
    clock.advance(2 * 3600)
    with pytest.raises(RunHeld):
        buying.run("r")


@pytest.mark.parametrize(("policy", "behind"), [(None, False), ("redo", True), ("keep", True)])
def test_a_result_goes_bad_in_every_gap(timed, clock, outside, policy, behind):
    buying = aging(outside, behind=behind, on_expired=policy)
    for gap in range(4):
        outside.stop, outside.fact = Stop(), f"fact {gap}"
        interrupted(lambda: buying.run("r"))
        assert str(timed.preview_resume("r"))
        clock.advance(7 * 3600)
    outside.fact = "last"
    last = "fact 0" if policy == "keep" else "last"
    assert buying.run("r") == ([f"quote {last}", f"use {last}"] if behind else [f"quote {last}"])
    assert [change["did"] for change in found(timed)] == [policy or "redo"] * 4


# -- versions and code -------------------------------------------------------------------------


def thinking(outside: Outside, model: list[str], on_drift: Any = None, on_resume: Any = None):
    @step(versions=lambda: {"model": model[0], "prompt": "x" * 500})
    def think() -> str:
        return f"{outside.call('think')} by {model[0]}"

    @flow(on_drift=on_drift, on_resume=on_resume)
    def agent() -> str:
        said = think()
        outside.stop.here()
        return said

    return agent


def test_another_model_is_told_and_recorded_answers_stay(store, outside):
    model = ["m-1"]
    agent = thinking(outside, model)
    interrupted(lambda: agent.run("r"))
    model[0] = "m-2"
    (change,) = store.preview_resume("r").changes
    assert (change.kind, change.was, change.now) == ("model", "m-1", "m-2")
    assert agent.run("r") == "think old by m-1"
    assert [c["kind"] for c in found(store)] == ["model"]


@pytest.mark.parametrize("policy", ["hold", "redo", "fail"])
def test_another_model_by_policy(store, outside, policy):
    model = ["m-1"]
    agent = thinking(outside, model, {"model": policy})
    interrupted(lambda: agent.run("r"))
    model[0] = "m-2"
    if policy == "redo":
        assert agent.run("r") == "think old by m-2"
        return
    with pytest.raises(RunHeld if policy == "hold" else RunFailed, match="model of step"):
        agent.run("r")
    if policy == "hold":
        store.resume("r", actor="ann", drift="redo")
        assert agent.run("r") == "think old by m-2"
    else:
        model[0] = "m-1"
        assert agent.run("r") == "think old by m-1"


def test_what_usage_says_is_told_when_the_next_call_says_otherwise(store, outside):
    says = ["m-1", "do this"]

    @step
    def ask(n: int) -> int:
        record_usage(model=says[0], prompt=says[1] * 100, tools=[{"name": "search"}])
        return n

    @flow
    def twice() -> int:
        ask(1)
        outside.stop.here()
        ask(2)
        return ask(3)

    interrupted(lambda: twice.run("r"))
    says[:] = ["m-2", "do that"]
    assert twice.run("r") == 3
    assert [(c["kind"], c["did"]) for c in found(store)] == [
        ("model", "keep"),
        ("prompt", "keep"),
    ]
    told = [e.seq for e in store.history("r") if e.kind == "drift_found"]
    done = [e.seq for e in store.history("r") if e.kind == "step_completed"]
    assert len(told) == 1
    assert told[0] < done[1], "before the outcome that shows it"


def edited(name: str, text: str, outside: Outside):
    """A step whose code is the given text, under one name."""
    space: dict[str, Any] = {"outside": outside}
    exec(f"def {name}():\n    {text}", space)  # noqa: S102
    return step(space[name])


def test_edited_steps_are_told(store, outside):
    calls: list[Any] = []

    @flow
    def editing() -> str:
        said = calls[0]()
        outside.stop.here()
        return said

    calls[:] = [edited("gap_edited", "return 'one'", outside)]
    interrupted(lambda: editing.run("r"))
    calls[:] = [edited("gap_edited", "return 'two'", outside)]
    assert [c.kind for c in store.preview_resume("r").changes] == ["step"]
    assert editing.run("r") == "one"
    assert [c["kind"] for c in found(store)] == ["step"]
    assert store.preview_resume("r").changes == ()


# -- keys --------------------------------------------------------------------------------------


def test_an_expired_key_is_told_and_never_sent(timed, clock, outside):
    @effect(on_doubt="retry", key_ttl=3600)
    def pay() -> str:
        outside.calls.append(holdfast.idempotency_key())
        outside.stop.here()
        return "paid"

    @flow
    def paying() -> str:
        return pay()

    interrupted(lambda: paying.run("r"))
    clock.advance(2 * 3600)
    report = timed.preview_resume("r")
    (change,) = report.changes
    assert change.kind == "key"
    assert "not sent again" in str(report)
    assert len(report.in_doubt) == 1
    with pytest.raises(RunHeld) as held:
        paying.run("r")
    assert held.value.reason == "in_doubt"
    assert len(outside.calls) == 1
    assert [c["kind"] for c in found(timed)] == ["key"]


# -- the hook ----------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [None, "keep", "hold", "fail"])
def test_the_hook_of_a_flow_sees_the_report_and_decides(store, outside, answer):
    model, reports = ["m-1"], []

    def hook(report: holdfast.types.ResumePreview) -> str | None:
        reports.append(report)
        return answer

    agent = thinking(outside, model, {"model": "hold"}, hook)
    interrupted(lambda: agent.run("r"))
    assert not reports, "a new run has no gap behind it"
    model[0] = "m-2"
    if answer == "keep":
        assert agent.run("r") == "think old by m-1"
    else:
        with pytest.raises(RunFailed if answer == "fail" else RunHeld):
            agent.run("r")
    (report,) = reports
    assert [c.kind for c in report.changes] == ["model"]
    assert report.last == "run_released"
    if answer == "hold":
        store.resume("r", actor="ann", drift="keep")
        assert agent.run("r") == "think old by m-1", "a person's word goes before the hook's"


def test_an_async_hook_is_awaited(store, outside):
    seen: list[str] = []

    async def hook(report: holdfast.types.ResumePreview) -> None:
        await asyncio.sleep(0)
        seen.append(report.run_id)

    @flow(on_resume=hook)
    async def hooked() -> str:
        outside.stop.here()
        return "done"

    @flow(on_resume=hook)
    def wrong() -> str:
        outside.stop.here()
        return "done"

    interrupted(lambda: asyncio.run(hooked.run("r")))
    assert asyncio.run(hooked.run("r")) == "done"
    assert seen == ["r"]
    outside.stop = Stop()
    interrupted(lambda: wrong.run("w"))
    with pytest.raises(RunFailed, match="on_resume"):
        wrong.run("w")


@pytest.mark.parametrize("awaits", [False, True])
def test_a_hook_is_outside_the_run_and_may_hold_it(store, outside, awaits):
    def hold(report: holdfast.types.ResumePreview) -> None:
        assert holdfast.context.current_run() is None
        raise RunHeld(report.run_id, "drift", "the budget year is over")

    async def hold_async(report: holdfast.types.ResumePreview) -> None:
        await asyncio.sleep(0)
        hold(report)

    @flow(on_resume=hold)
    def plain() -> None:
        outside.stop.here()

    @flow(on_resume=hold_async)
    async def awaited() -> None:
        outside.stop.here()

    def work() -> None:
        asyncio.run(awaited.run("r")) if awaits else plain.run("r")

    interrupted(work)
    with pytest.raises(RunHeld, match="the budget year is over"):
        work()
    assert store.get("r").held_reason == "drift"
    store.resume("r", actor="ann", drift="keep")
    work()


# -- workers -----------------------------------------------------------------------------------


def test_a_wait_of_the_run_itself_is_a_gap_for_facts_only(store, outside):
    reports: list[holdfast.types.ResumePreview] = []

    @flow(on_resume=reports.append)
    def waiting() -> list[Any]:
        seen = depends_on("fact", outside.look, on_change="keep")
        return [seen, holdfast.wait_for_signal("go"), holdfast.wait_for_signal("go")]

    waiting.submit("r")
    with store.worker(flows=[waiting], concurrency=1):
        for number in (1, 2):
            until(lambda: (row := store._backend.get("r")).waiting_on and row.owner is None)
            outside.fact = f"new {number}"
            store.signal("r", "go", number)
            store.wait_until("r", done="wait:go" if number == 1 else "wait:go#2")
        assert store.handle("r").result(timeout=20) == [OLD, 1, 2]
    assert outside.looks >= 3, "each time that it was loaded"
    assert [change["did"] for change in found(store)] == ["keep", "keep"]
    assert not reports, "nobody is asked about a wait that the run asked for"


# -- looking without resuming ------------------------------------------------------------------


def test_preflight_looks_at_facts_and_executes_nothing(store, outside):
    watcher = watching(outside, "redo", with_effect=True)
    interrupted(lambda: watcher.run("r"))
    outside.fact = "new"
    before = [kinds(store, "r"), list(outside.calls)]
    report = store.preview_resume("r")
    (change,) = report.changes
    assert (change.kind, change.now, change.policy) == ("fact", NEW, "redo")
    assert len(change.effects) == 1
    assert [kinds(store, "r"), outside.calls] == before
    assert "fact" in str(report)


def caused(work: Any) -> BaseException:
    """Do the work, whose run must fail; return what made it fail."""
    with pytest.raises(RunFailed) as failed:
        work()
    cause = failed.value.__cause__
    assert isinstance(cause, UsageError)
    return cause


def test_mistakes_are_told(store):
    @flow
    def wrong_policy() -> None:
        depends_on("x", str, on_change="perhaps")  # type: ignore[arg-type]

    @flow
    def no_function() -> None:
        depends_on("x", "prices.csv")  # type: ignore[arg-type]

    @flow
    async def wrong_colour() -> None:
        depends_on("x", str)

    assert 'one of "keep", "redo", "hold", "fail"' in str(caused(lambda: wrong_policy.run("r1")))
    assert "takes a function" in str(caused(lambda: no_function.run("r2")))
    assert "await holdfast.aio.depends_on" in str(
        caused(lambda: asyncio.run(wrong_colour.run("r3")))
    )
    with pytest.raises(UsageError, match="without valid_for"):
        step(on_expired="redo")(caused)
    with pytest.raises(UsageError, match='"hold", "fail"'):
        flow(on_drift={"key": "keep"})(caused)
    with pytest.raises(UsageError, match="inside a flow"):
        depends_on("x", str)
