"""A fixed share of the seeded schedules; `python -m tests.simulation` plays more."""

import os
import subprocess
import sys

import pytest

from tests import sweeps
from tests.simulation.__main__ import PEOPLE, main
from tests.simulation.scheduler import Faults, simulate

SEEDS = sweeps.size(100, 300)
CHUNK = 50
STORES = ("memory:", "sqlite:")

# Seeds that found something once. They stay cases for ever.
FOUND = {
    11: "a step behind a loop was called again after both had changed places",
    30: "the result of a completed run that is stored apart could not be read again",
    55: "as 30",
    138: "as 30",
    230: "as 30",
    65: "the death of a later owner was taken as proof for the one that left the doubt",
    80: "as 11",
    188: "as 11",
    271: "as 11, and the journal had two outcomes",
    292: "as 11, with branches",
    437: "a snapshot let a resume skip a step that is no part of the loop",
    900: "as 437",
    1233: "as 437, and an effect was called twice",
    1277: "as 437",
}


@pytest.mark.sweep
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_schedule_breaks_a_promise(first):
    """R6: I1 to I8, I11, I12, I14 and I15, after every move and at the end."""
    for seed in range(first, first + CHUNK):
        outcome = simulate(seed)
        assert outcome.violation is None, str(outcome)


@pytest.mark.parametrize("seed", list(FOUND))
def test_what_was_found_stays_mended(seed):
    outcome = simulate(seed)
    assert outcome.violation is None, f"{outcome} ({FOUND[seed]})"


@pytest.mark.parametrize("seed", range(1000, 1006))
def test_sqlite_and_memory_go_the_same_way(seed):
    in_memory, in_a_file = simulate(seed), simulate(seed, url="sqlite:")
    assert in_a_file.violation is None, str(in_a_file)
    assert in_a_file.log == in_memory.log


@pytest.mark.parametrize("seed", range(2000, 2006))
def test_people_stop_runs_and_no_promise_breaks(seed):
    """I10: a pause or a cancel takes effect within two claims."""
    stopped = Faults(dies=2, stalls=3, wakes=6, leases_run_out=2, people_stop_runs=8)
    in_memory, in_a_file = (simulate(seed, url=url, faults=stopped) for url in STORES)
    assert in_memory.violation is None, str(in_memory)
    assert in_a_file.log == in_memory.log


SIGNALS = Faults(signals=6, people_stop_runs=2)
STALE_VIEWS = Faults(stale_views=6, people_stop_runs=2)
BOTH = Faults(signals=6, stale_views=6, people_stop_runs=3)


@pytest.mark.parametrize("faults", [SIGNALS, STALE_VIEWS, BOTH], ids=["signals", "views", "both"])
def test_signals_and_old_views_break_no_promise(faults):
    """I13: each signal is received once. I22: what is refused because the run has changed has changed
    nothing; what is not was written on the run as it was seen."""
    seen: dict[str, int] = {}
    for seed in range(3000, 3015):
        outcome = simulate(seed, faults=faults)
        assert outcome.violation is None, str(outcome)
        for name, count in outcome.counts.items():
            seen[name] = seen.get(name, 0) + count
    if faults.signals:
        assert min(seen["signals to"], seen["waits for a signal"]) > 10, seen
    if faults.stale_views:
        assert min(seen["fork of"], seen["StaleView"]) > 5, seen


@pytest.mark.parametrize("seed", [24, 1092, 1122, 1176])
def test_a_wait_that_is_said_in_the_background_is_said(seed):
    """A run that waited for a signal alone in its process stayed `running`: nothing committed what it
    had said, and so nobody sent it one."""
    outcome = simulate(seed, faults=PEOPLE)
    assert outcome.violation is None, str(outcome)


@pytest.mark.parametrize("seed", range(3100, 3103))
def test_signals_and_old_views_break_no_promise_in_a_file(seed):
    outcome = simulate(seed, url="sqlite:", faults=BOTH)
    assert outcome.violation is None, str(outcome)
    in_memory, in_a_file = (simulate(seed, url=url, faults=STALE_VIEWS) for url in STORES)
    assert in_a_file.log == in_memory.log


DEPLOYS = Faults(dies=2, stalls=2, wakes=6, leases_run_out=2, deploys=6)


def test_code_that_is_put_back_frees_what_other_code_could_not_replay():
    """I15: a run that is held as diverged is tried once per code, without a person."""
    seen: dict[str, int] = {}
    for seed in range(4000, 4060):
        outcome = simulate(seed, faults=DEPLOYS)
        assert outcome.violation is None, str(outcome)
        for name, count in outcome.counts.items():
            seen[name] = seen.get(name, 0) + count
    assert min(seen["is deployed"], seen["tries it again"]) > 10, seen


@pytest.mark.parametrize("seed", range(4100, 4103))
def test_deploys_go_the_same_way_in_a_file(seed):
    in_memory, in_a_file = (simulate(seed, url=url, faults=DEPLOYS) for url in STORES)
    assert in_a_file.violation is None, str(in_a_file)
    assert in_a_file.log == in_memory.log


def test_the_same_seed_is_the_same_schedule_bit_for_bit():
    script = "from tests.simulation.scheduler import simulate; print(simulate(7).trace)"
    traces = {simulate(7).trace, simulate(7).trace}
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        traces.add(done.stdout.strip())
    assert len(traces) == 1
    assert simulate(8).trace not in traces


def test_what_is_simulated_does_happen():
    """A simulation in which nothing goes wrong proves nothing."""
    seen: dict[str, int] = {}
    for seed in range(60):
        for name, count in simulate(seed).counts.items():
            seen[name] = seen.get(name, 0) + count
    rare = {name: seen.get(name, 0) for name in WANTED if seen.get(name, 0) < 10}
    assert not rare, seen


WANTED = (
    "LeaseLost",
    "RunFailed",
    "RunHeld",
    "completed",
    "dies",
    "settled",
    "wakes",
    "zombie calls",
)


def test_a_calm_world_completes_everything():
    calm = Faults(0, 0, 0, 0, 0, 0, 0)
    for seed in range(20):
        outcome = simulate(seed, faults=calm)
        assert outcome.violation is None, str(outcome)
        assert outcome.counts.get("dies", 0) == 0


def test_no_key_is_sent_after_its_lifetime_when_days_pass():
    days = Faults(days_pass=4.0)
    for seed in range(60):
        outcome = simulate(seed, faults=days)
        assert outcome.violation is None, str(outcome)


def test_values_that_are_stored_apart_are_found_again():
    big = Faults(big_values=0.4, code_is_edited=0)
    for seed in range(60):
        outcome = simulate(seed, faults=big)
        assert outcome.violation is None, str(outcome)


def test_the_command_prints_a_summary(capsys):
    assert main(["--seeds", "3", "--first", "20", "--sqlite", "20"]) == 0
    assert "3 seeds" in capsys.readouterr().out
    assert main(["--seeds", "2", "--people"]) == 0
    assert "2 seeds" in capsys.readouterr().out
    assert main(["--log", "20"]) == 0
    assert "seed 20" in capsys.readouterr().out
