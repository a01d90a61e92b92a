"""The watchdog is killed half way through what it does: it is done once, whoever does it then."""

from __future__ import annotations

from holdfast._features.watchdog import store as watchdog
from tests.crash.harness import SERVER_IN_SWEEPS, World, assert_sound, wait_for

ENDS = {
    "stuck": ("held", "run_held", "hold"),
    "looping": ("queued", "finding_noted", "called page"),
    "duplicate_action": ("cancelled", "run_cancelled", "cancel"),
    "partial_failure": ("failed", "finding_noted", "note"),
    "runaway_cost": ("held", "run_held", "hold"),
}
POINTS = ("found", "told", "writing", "within", "written")


@SERVER_IN_SWEEPS
def test_killed_before_within_and_after_what_it_writes(world: World) -> None:
    ended = world.run("watchdog.py", "die").result
    # A failed run reads no messages, but it is asked whether it would; all die where they should.
    assert set(ended) == {f"{kind}-{at}" for kind in ENDS for at in POINTS}
    assert set(ended.values()) == {-9}, ended

    # A function is left to the one who may be at it for a minute: here it has died.
    with world.store() as store:
        for memo in store._backend.memos("holdfast.watchdog"):
            memo.value = None
            store._backend.put_memo(memo)
    first, second = world.run("watchdog.py", "patrol").result
    assert second == []
    # What was written, or was on its way, is not decided anew.
    undecided = {run for run in ended if run.endswith("-found")}
    undecided |= {f"partial_failure-{at}" for at in ("told", "writing", "within")}
    assert set(first) == undecided

    with world.store() as store:
        for kind, (status, last, did) in ENDS.items():
            for at in POINTS:
                run_id = f"{kind}-{at}"
                entries = store.history(run_id)
                noted = [it for it in entries if it.kind == "finding_noted"]
                assert [(it.body["finding"], it.body["did"]) for it in noted] == [(kind, did)], (
                    run_id
                )
                assert entries[-1].kind == last, run_id
                assert store.get(run_id).status == status, run_id
                assert [it.kind for it in entries].count("run_held") == (last == "run_held")
                assert_sound(store, run_id)
                called = world.counts(run_id)["page"]
                assert called == (0 if kind != "looping" else 2 if at == "found" else 1), run_id


@SERVER_IN_SWEEPS
def test_a_run_at_work_that_dies_before_it_has_stopped_is_held_when_it_is_taken_up(
    world: World,
) -> None:
    script = world.start("watchdog.py", "live").until("slow")
    with world.store() as store:
        [finding] = store.findings("r")
        assert finding.kind == "looping"
        watchdog.tell(store._backend, finding, "hold")
        watchdog.tell(store._backend, finding, "hold")
        assert script.kill().killed

    ended = wait_for(lambda: world.run("watchdog.py", "live"), "the end")
    assert ended.error == "RunHeld", ended
    with world.store() as store:
        kinds = [it.kind for it in store.history("r")]
        assert (kinds.count("finding_noted"), kinds.count("run_held")) == (1, 1)
        assert_sound(store)
        store.resume("r", actor="ana")
    assert world.run("watchdog.py", "live").result == "done"
