"""A script that is forked ends as one that is started: its code, its output, its last words."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.crash.forkserver import ForkedProcess
from tests.crash.harness import World

ENDINGS = {
    "returns": ("pass", 0),
    "leaves with a code": ("sys.exit(7)", 7),
    "raises": ("raise ValueError('at the end')", 1),
    "is interrupted": ("raise KeyboardInterrupt", -signal.SIGINT),
    "kills itself": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "ends at once": ("os._exit(9)", 9),
}
HEAD = "import atexit, os, signal, sys, threading\natexit.register(lambda: print('left'))\n"


def script(world: World, text: str) -> Path:
    path = world.root / "script.py"
    path.write_text(HEAD + text)
    return path


@pytest.mark.parametrize("name", ENDINGS)
def test_it_ends_with_the_code_of_a_process_that_was_started(world: World, name: str) -> None:
    text, code = ENDINGS[name]
    started = world.start(script(world, text))
    assert isinstance(started.process, ForkedProcess)
    assert started.process.wait(60) == code
    assert started.process.poll() == started.process.returncode == code
    assert started.stdout.read_text() == ("left\n" if code in (0, 7, 1, -2) else "")
    assert ("ValueError: at the end" in started.stderr.read_text()) is (name == "raises")


def test_it_has_its_arguments_folder_and_environment(world: World) -> None:
    text = (
        "print(sys.argv[1:], os.getcwd(), os.environ['CRASH_COLOUR'], __name__, "
        "sys.modules['__main__'].__file__ == __file__, sys.stdin.read() == '')"
    )
    started = world.start(script(world, text), "a", "b", colour="red")
    assert started.process.wait(60) == 0
    said = started.stdout.read_text().splitlines()
    assert said == [f"['a', 'b'] {world.root} red __main__ True True", "left"]


def test_it_waits_for_its_threads_and_is_signalled(world: World) -> None:
    text = (
        "def report(*_):\n    print('told', flush=True)\n    go_on.set()\n"
        "go_on = threading.Event()\n"
        "signal.signal(signal.SIGTERM, report)\n"
        "threading.Thread(target=go_on.wait).start()\n"
        f"open({str(world.marks / 'ready')!r}, 'w').close()\n"
    )
    started = world.start(script(world, text)).until("ready")
    with pytest.raises(subprocess.TimeoutExpired):
        started.process.wait(0)
    started.process.terminate()
    assert started.process.wait(60) == 0
    assert started.stdout.read_text() == "told\nleft\n"
    started.process.kill()  # It has ended: nobody else is meant.


def test_a_signal_to_a_process_that_has_just_ended_goes_nowhere(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = world.start(script(world, "os._exit(3)")).process
    assert process.wait(60) == 3
    monkeypatch.setattr(process, "poll", lambda: None)  # The look came before its end.
    process.kill()
    assert process.returncode == 3


def test_what_python_reads_at_its_start_needs_a_start(world: World) -> None:
    world.env["PYTHONHASHSEED"] = "7"
    started = world.start(script(world, "print(sys.flags.hash_randomization, hash('a') != 0)"))
    assert isinstance(started.process, subprocess.Popen)
    assert started.process.wait(60) == 0
