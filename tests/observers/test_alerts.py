"""Somebody is told when a run needs a person: once for each state, and never at a run's expense."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import holdfast
from holdfast import Budget, Watchdog, effect, flow, step, wait_for_signal
from holdfast._features.alerts import alerter, runtime as alerting
from holdfast._features.watchdog.watchdog_loop import WatchdogLoop
from holdfast.errors import RunFailed, RunHeld, StoreFailed, UsageError
from holdfast.observers import Alert
from holdfast.observers.alerts import AlertNotSent, Command

PATIENCE_S = 30


@step
def alerted_break(text: str) -> str:
    if text == "fine":
        return text
    raise ValueError(f"canary-in-error {text}")


@effect
def alerted_pay(text: str) -> str:
    raise OSError(f"canary-in-error {text}")


@flow
def alerted_failing(text: str) -> str:
    return alerted_break(text)


@flow
def alerted_doubtful(text: str) -> str:
    return alerted_pay(text)


@flow
def alerted_fine(text: str) -> str:
    return alerted_break("fine")


class Told:
    """A receiver that remembers, and may fail or wait."""

    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        self.fails = 0
        self.calls = 0
        self.goes_on = threading.Event()
        self.goes_on.set()

    def __call__(self, alert: Alert) -> None:
        self.calls += 1
        self.goes_on.wait(PATIENCE_S)
        if self.fails:
            self.fails -= 1
            raise OSError("the pager is off")
        self.alerts.append(alert)

    def wait_for(self, number: int) -> list[Alert]:
        until(lambda: len(self.alerts) >= number)
        return self.alerts


@pytest.fixture
def told():
    receiver = Told()
    end = holdfast.observers.on_alert(receiver, name="tests.told")
    yield receiver
    end()


@pytest.fixture(params=["sqlite:", "postgresql:"])
def store(request: pytest.FixtureRequest, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/runs.db"
    if request.param == "postgresql:":
        url = request.getfixturevalue("postgres_url")
    with holdfast.open(url) as store:
        yield store


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(alerter, "SWEEP_US", 20_000)
    monkeypatch.setattr(alerter, "SHARE", 0)
    monkeypatch.setattr(alerter, "LOOK_US", 20_000)
    monkeypatch.setattr(alerter, "BACKOFF_US", 20_000)


def until(fact) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def fail(run_id: str) -> None:
    with pytest.raises(RunFailed):
        alerted_failing.run(run_id, "canary-in-args")


def swept(store: holdfast.types.Store) -> None:
    """Have a sweep made that began after this was called."""
    made = alerting.alerter(store._engine)
    for _ in range(2):
        made._sweep_us = 0
        made.sweep()
        until(lambda: made._sweep_us != 0)


def test_a_run_that_failed_and_one_that_is_held_are_told(store, told):
    fail("alert-1")
    with pytest.raises(RunHeld):
        alerted_doubtful.run("alert-2", "canary-in-args")
    failed, held = told.wait_for(2)
    assert (failed.kind, failed.run_id, failed.flow) == ("failed", "alert-1", "alerted_failing")
    assert (failed.reason, failed.step) == ("ValueError", "alerted_break")
    assert (held.kind, held.reason, held.step) == ("held", "in_doubt", "alerted_pay")
    assert held.command == "holdfast explain alert-2"
    assert held.since == store.history("alert-2")[-1].at
    for alert in (failed, held):
        assert b"canary" not in alert.json()
        assert json.loads(alert.json())["text"] == alert.text


def test_the_same_state_is_told_once_and_the_next_one_again(store, told, quick):
    fail("alert-3")
    told.wait_for(1)
    swept(store)
    assert len(told.alerts) == 1
    fail("alert-3")  # Taken up again, it fails in its next generation.
    first, second = told.wait_for(2)
    assert first.id != second.id
    assert (first.generation, second.generation) == (1, 2)


def test_what_a_dead_process_left_is_found_by_a_sweep(store, told, quick):
    """The run was held by a process that told nobody; another one sweeps."""
    swept(store)
    with holdfast.open(store.url, default=False) as other:
        alerted_fine.with_options(store=other).submit("alert-4", "x")
        other.pause("alert-4", reason="let me look", actor="ana")
    swept(store)
    (alert,) = told.wait_for(1)
    assert (alert.kind, alert.reason, alert.severity) == ("held", "paused", "info")
    assert "let me look" not in alert.text


def test_whoever_is_new_is_not_told_of_the_past(store, told, quick):
    swept(store)
    fail("alert-5")
    told.wait_for(1)
    receiver = Told()
    end = holdfast.observers.on_alert(receiver, name="tests.new")
    with holdfast.open(store.url, default=False) as other:
        swept(other)  # It looks as far back as the older receiver wants to know.
        fail("alert-6")
        receiver.wait_for(1)
        told.wait_for(2)
        swept(other)
    end()
    assert [it.run_id for it in receiver.alerts] == ["alert-6"]
    assert [it.run_id for it in told.alerts] == ["alert-5", "alert-6"]


def test_whoever_is_named_while_it_is_on_its_way_is_not_told_of_it(store, told):
    told.goes_on.clear()
    fail("alert-40")
    until(lambda: told.calls == 1)
    fail("alert-41")  # It is heard of, and looked at when the first one is sent.
    late = Told()
    end = holdfast.observers.on_alert(late, name="tests.late")
    told.goes_on.set()
    told.wait_for(2)
    fail("alert-42")
    late.wait_for(1)
    end()
    assert [it.run_id for it in late.alerts] == ["alert-42"]


def test_two_processes_send_it_once(store, told, quick):
    """Two handles of one file are two processes, as far as the store knows."""
    with holdfast.open(store.url, default=False) as other:
        swept(store)
        swept(other)
        told.goes_on.clear()
        alerted_fine.submit("alert-7", "x")
        store.pause("alert-7", actor="ana")
        both = [alerting.alerter(it._engine) for it in (store, other)]
        for one in both:
            one.hear("alert-7")
        until(lambda: told.calls == 1)
        time.sleep(0.1)  # The other one looks at it several times, and leaves it alone.
        assert told.calls == 1
        told.goes_on.set()
        told.wait_for(1)
        until(lambda: not any(one._pending or one._heard for one in both))
        swept(store)
        swept(other)
    assert told.calls == 1


def test_a_receiver_that_fails_is_called_again(store, told, quick, caplog):
    told.fails = 2
    fail("alert-8")
    told.wait_for(1)
    assert told.calls == 3
    assert caplog.text.count("about run alert-8 was not sent: OSError: the pager is off") == 2


def test_a_slow_receiver_delays_no_run(store, told):
    told.goes_on.clear()
    began_s = time.monotonic()
    for number in range(10):
        fail(f"alert-9-{number}")
    assert alerted_fine.run("alert-9", "x") == "fine"
    assert time.monotonic() - began_s < PATIENCE_S / 2
    assert told.calls <= 1
    assert not told.alerts
    told.goes_on.set()
    told.wait_for(10)


def test_what_is_over_before_it_could_be_told_is_not_told(store, told, quick):
    told.fails = 1
    told.goes_on.clear()
    alerted_fine.submit("alert-10", "x")
    store.pause("alert-10", actor="ana")
    sends = alerting.alerter(store._engine)
    sends.hear("alert-10")
    until(lambda: told.calls == 1)
    store.resume("alert-10", actor="ana")
    told.goes_on.set()
    until(lambda: not sends._pending)
    assert (told.calls, told.alerts) == (1, [])


@step
def alerted_look(text: str) -> str:
    return text


@flow
def alerted_loop() -> None:
    for _ in range(12):
        alerted_look("canary-in-args")
    wait_for_signal("more")


@flow(watchdog=Watchdog(looping="ignore"))
def alerted_loop_ignored() -> None:
    for _ in range(12):
        alerted_look("canary-in-args")
    wait_for_signal("more")


def test_findings_are_told_unless_they_are_ignored(store, told):
    with store.worker(flows=[alerted_loop, alerted_loop_ignored]):
        alerted_loop.submit("alert-11")
        alerted_loop_ignored.submit("alert-12")
        until(lambda: all(store.get(it).status == "waiting" for it in ("alert-11", "alert-12")))
    store.run_watchdog()
    (alert,) = told.wait_for(1)
    assert (alert.kind, alert.finding, alert.run_id) == ("finding", "looping", "alert-11")
    assert "alerted_look" in alert.text
    assert b"canary" not in alert.json()
    store.run_watchdog()
    store.close()  # What is on its way is sent first.
    assert len(told.alerts) == 1


@flow(budget=Budget(steps=10))
def alerted_spending(steps: int) -> None:
    for number in range(steps):
        alerted_look(f"canary-in-args {number}")
    wait_for_signal("more")


def test_a_budget_is_told_when_it_is_nearly_used_up_and_when_it_is(store, told):
    with store.worker(flows=[alerted_spending]):
        alerted_spending.submit("alert-13", 8)
        alerted_spending.submit("alert-14", 7)
        alerted_spending.submit("alert-15", 11)
        until(lambda: store.get("alert-15").status == "held")
        until(lambda: all(store.get(f"alert-{n}").status == "waiting" for n in (13, 14)))
    for run_id in ("alert-13", "alert-14", "alert-15"):
        store.run_watchdog(run_id)
    store.close()
    found = {(it.kind, it.reason, it.run_id) for it in told.alerts}
    assert found == {("budget", "steps", "alert-13"), ("held", "budget", "alert-15")}
    assert any("80 %" in it.text for it in told.alerts)


def test_an_alert_is_sent_although_the_store_is_closed_at_once(store, told, monkeypatch):
    """The alerter rests; what wakes it is that the store is closed, right after it was offered."""
    with store.worker(flows=[alerted_spending]):
        alerted_spending.submit("alert-18", 8)
        until(lambda: store.get("alert-18").status == "waiting")
    made, rests = alerting.alerter(store._engine), threading.Event()
    due_s = made._due_s

    def looks(now_us: int) -> float:
        wait_s = due_s(now_us)
        if wait_s > 0:
            rests.set()  # It has the lock, until it rests.
        return wait_s

    monkeypatch.setattr(made, "_due_s", looks)
    made.sweep()
    assert rests.wait(PATIENCE_S)
    with made._changed:
        store.run_watchdog("alert-18")
        made._closed = True
    store.close()
    assert [(it.kind, it.run_id) for it in told.alerts] == [("budget", "alert-18")]


def test_what_is_decided_meanwhile_makes_no_other_state(store, told, quick):
    """The entry that says since when is far behind, and found all the same."""
    with store.worker(flows=[alerted_spending]):
        alerted_spending.submit("alert-17", 5)
        until(lambda: store.get("alert-17").status == "waiting")
    swept(store)
    store.pause("alert-17", actor="ana")
    swept(store)
    told.wait_for(1)
    for steps in range(1, 41):
        store.set_budget("alert-17", Budget(steps=10 + steps), actor="ana")
    held = next(it for it in store.history("alert-17") if it.kind == "run_held")
    assert store.history("alert-17")[-1].seq > held.seq + alerter.TAILS[0]
    swept(store)
    until(lambda: not alerting.alerter(store._engine)._pending)
    assert [it.since for it in told.alerts] == [held.at]


LEAVES = """
import holdfast, time

holdfast.open("sqlite:///left.db")

@holdfast.flow
def alerted_leaving():
    raise ValueError("no")

def tell(alert):
    time.sleep(0.2)
    print(alert.kind, alert.run_id, flush=True)

holdfast.observers.on_alert(tell)
try:
    alerted_leaving.run("alert-16")
except holdfast.errors.RunFailed:
    pass
"""


def test_a_program_that_ends_without_closing_its_store_tells_first(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LEAVES], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "failed alert-16\n"


def test_something_that_cannot_be_called_is_refused():
    with pytest.raises(UsageError, match="a function of an alert"):
        holdfast.observers.on_alert("notify")  # type: ignore[arg-type]


# -- commands ----------------------------------------------------------------------------------


@pytest.fixture
def alert(store, told) -> Alert:
    fail("alert-20")
    return told.wait_for(1)[0]


def command(tmp_path: Path, code: str, *words: str) -> list[str]:
    script = tmp_path / "notify.py"
    script.write_text(
        f"import json, os, pathlib, sys, time\nhere = pathlib.Path({str(tmp_path)!r})\n{code}"
    )
    return [sys.executable, str(script), *words]


def test_a_command_gets_the_alert_on_its_standard_input(alert, tmp_path):
    argv = command(
        tmp_path,
        "(here / 'got').write_text(sys.stdin.read() + repr(sys.argv[1:]))",
        "$HOME; ls",
        "a b",
    )
    Command(argv)(alert)
    line, rest = (tmp_path / "got").read_text().split("\n")
    assert json.loads(line)["id"] == alert.id
    assert rest == "['$HOME; ls', 'a b']"  # There is no shell.


def test_a_command_that_fails_or_is_late_has_not_sent_it(alert, tmp_path):
    argv = command(tmp_path, "sys.exit('no network')", "--key", "sk-command")
    with pytest.raises(AlertNotSent, match="exit code 1: no network") as failed:
        Command(argv)(alert)
    assert "sk-command" not in str(failed.value)
    code = "os.fork()\n(here / f'pid-{os.getpid()}').touch()\ntime.sleep(60)"
    with pytest.raises(AlertNotSent, match=r"not through in 1 s"):
        Command(command(tmp_path, code), timeout_s=1)(alert)
    started = [int(it.name.removeprefix("pid-")) for it in tmp_path.glob("pid-*")]
    assert len(started) == 2
    until(lambda: all(is_gone(pid) for pid in started))  # With all that it had started.
    with pytest.raises(AlertNotSent, match="cannot be started"):
        Command("/no/such/program")(alert)
    for wrong in ("", "notify 'open"):
        with pytest.raises(UsageError):
            Command(wrong)


# -- what must not be lost, and what must not stay -----------------------------------------------


@pytest.mark.parametrize("fails_in", ["load", "put_memo"])
def test_an_alert_is_not_lost_when_the_store_fails_for_a_moment(
    store, told, quick, monkeypatch, fails_in
):
    """The run was held elsewhere, and the first look at it fails."""
    monkeypatch.setattr(alerter, "AGAIN_S", 0.02)
    swept(store)
    kept = store._engine.backend
    whole, failures = getattr(kept, fails_in), ["the server was away for a moment"]

    def fails_once(*args, **kwargs):
        if threading.current_thread().name == "holdfast-alerts" and failures:
            raise StoreFailed(failures.pop())
        return whole(*args, **kwargs)

    monkeypatch.setattr(kept, fails_in, fails_once)
    with holdfast.open(store.url, default=False) as other:
        alerted_fine.with_options(store=other).submit("alert-30", "x")
        other.pause("alert-30", actor="ana")
    assert [it.run_id for it in told.wait_for(1)] == ["alert-30"]
    assert not failures


def test_a_run_that_cannot_be_looked_at_keeps_no_other_from_its_turn(
    store, told, quick, monkeypatch
):
    monkeypatch.setattr(alerter, "AGAIN_S", 0.02)
    swept(store)
    kept, bad = store._engine.backend, threading.Event()
    load = kept.load

    def loads(row, *args):
        if row.run_id == "alert-31" and not bad.is_set():
            raise StoreFailed("this page cannot be read")
        return load(row, *args)

    monkeypatch.setattr(kept, "load", loads)
    with holdfast.open(store.url, default=False) as other:
        for name in ("alert-31", "alert-32"):
            alerted_fine.with_options(store=other).submit(name, "x")
            other.pause(name, actor="ana")
            alerting.alerter(store._engine).hear(name)
    assert [it.run_id for it in told.wait_for(1)] == ["alert-32"]
    bad.set()
    assert [it.run_id for it in told.wait_for(2)] == ["alert-32", "alert-31"]


def test_what_there_was_no_room_for_is_offered_again(store, told, quick, monkeypatch):
    monkeypatch.setattr(alerter, "QUEUED_MAX", 1)
    swept(store)
    with holdfast.open(store.url, default=False) as other:
        for number in range(3):
            alerted_fine.with_options(store=other).submit(f"alert-33-{number}", "x")
            other.pause(f"alert-33-{number}", actor="ana")
    until(lambda: {it.run_id for it in told.alerts} == {f"alert-33-{n}" for n in range(3)})


def test_a_run_that_was_heard_of_waits_for_room(store, told, quick, monkeypatch):
    """There are two receivers, and room for one alert of each."""
    monkeypatch.setattr(alerter, "QUEUED_MAX", 2)
    second = Told()
    end = holdfast.observers.on_alert(second, name="tests.second")
    told.goes_on.clear()
    fail("alert-34")
    until(lambda: told.calls == 1)
    fail("alert-35")
    fail("alert-36")
    told.goes_on.set()
    for receiver in (told, second):
        assert [it.run_id for it in receiver.wait_for(3)] == ["alert-34", "alert-35", "alert-36"]
    end()


def test_the_watchdog_offers_again_what_there_was_no_room_for(store, told, monkeypatch):
    with store.worker(flows=[alerted_loop]):
        alerted_loop.submit("alert-37")
        until(lambda: store.get("alert-37").status == "waiting")
    rounds = WatchdogLoop(store._engine, lambda: {"alerted_loop": alerted_loop})
    monkeypatch.setattr(alerter, "QUEUED_MAX", 0)
    for _ in range(2):  # What the first one notes is an entry, and brings the second one here.
        list(rounds.round())
    assert not alerting.alerter(store._engine)._pending
    monkeypatch.undo()
    list(rounds.round())
    assert [(it.kind, it.run_id) for it in told.wait_for(1)] == [("finding", "alert-37")]


def test_a_command_does_not_outlive_its_process(tmp_path, monkeypatch):
    monkeypatch.setattr(alerter, "ENDING_S", 0.2)
    code = "os.fork()\n(here / f'pid-{os.getpid()}').touch()\ntime.sleep(60)"
    end = holdfast.observers.on_alert(Command(command(tmp_path, code)))
    store = holdfast.open(f"sqlite:///{tmp_path}/runs.db")
    try:
        fail("alert-38")
        until(lambda: len(list(tmp_path.glob("pid-*"))) == 2)
        store.close()
    finally:
        end()
    started = [int(it.name.removeprefix("pid-")) for it in tmp_path.glob("pid-*")]
    until(lambda: all(is_gone(pid) for pid in started))
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as again:
        told = Told()
        end = holdfast.observers.on_alert(told, name=Command(command(tmp_path, code)).name)
        monkeypatch.setattr(alerter, "LOOK_US", 20_000)
        swept(again)
        assert [it.run_id for it in told.wait_for(1)] == ["alert-38"]  # It was not sent.
        end()


def test_a_command_can_say_as_much_as_it_likes(alert, tmp_path, monkeypatch):
    """Its standard error is read as it is written, and only the end is kept; nothing of it is put
    into a file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "[os.write(2, b'x' * 65536) for _ in range(200)]\n"
        "os.write(2, b'\\nthe last words\\n')\nsys.exit(3)"
    )
    with pytest.raises(AlertNotSent, match="exit code 3: the last words$"):
        Command(command(tmp_path, code))(alert)


def test_what_a_command_leaves_behind_may_write_on(alert, tmp_path):
    """It is sent, and neither waited for nor cut off."""
    code = (
        "if os.fork() == 0:\n"
        "    while not (here / 'go').exists(): time.sleep(0.01)\n"
        "    os.write(2, b'late'); (here / 'wrote').touch()\n"
    )
    Command(command(tmp_path, code), timeout_s=20)(alert)
    (tmp_path / "go").touch()
    until((tmp_path / "wrote").exists)
