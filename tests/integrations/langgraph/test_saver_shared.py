"""A saver that others use too, and processes that die: no checkpoint is lost, and all can be read."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.integrations.langgraph import HoldfastSaver
from tests.integrations.langgraph.saving import config, id_of, put, sqlite_saver, values, write

ROOT = Path(__file__).parents[3]
RESULT = "RESULT ['plan after 0', 'left after 1', 'right after 1', 'join after 3', 'end after 4']"
LONG = "long enough for a row of its own. " * 12


def life(url: str, log: Path, kill: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.integrations.langgraph.saver_program", url],
        cwd=ROOT,
        env=os.environ | {"LOG": str(log), "KILL": kill},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def lines(log: Path, word: str) -> list[str]:
    return [line.split()[1] for line in log.read_text().splitlines() if line.startswith(word)]


def killed(url: str, log: Path, kill: str) -> bool:
    """Kill it there and start it again; False if it ended before."""
    first = life(url, log, kill)
    if first.returncode != -signal.SIGKILL:
        assert first.returncode == 0, first.stderr
        return False
    saved = set(lines(log, "saved")) if log.exists() else set()
    again = life(url, log)
    assert again.returncode == 0, again.stderr
    assert RESULT in again.stdout
    ran = Counter(lines(log, "ran"))
    assert {name: ran[name] for name in saved if name in ran} == dict.fromkeys(
        saved & ran.keys(), 1
    )
    with HoldfastSaver(url) as saver:
        assert len(values(saver)["done"]) == 5
        assert all(it.checkpoint["channel_values"] is not None for it in saver.list(config()))
        assert saver.store.verify() == []
    return True


@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", ["before put", "after put", "before writes", "after writes"])
def test_a_graph_is_killed_at_writes_and_goes_on(tmp_path, where):
    for number in (1, 4):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert killed(f"sqlite:///{folder}/runs.db", folder / "log", f"{where}:{number}")


@pytest.mark.timeout(300)
def test_a_graph_is_killed_and_goes_on_on_postgresql(tmp_path, postgres_url):
    assert killed(postgres_url, tmp_path / "log", "after writes:3")


def test_threads_and_handles_write_one_thread_at_once(tmp_path):
    with sqlite_saver(tmp_path) as one, sqlite_saver(tmp_path) as other:
        root = put(one, {"items": [LONG]})

        def work(number: int) -> list[tuple[str, int]]:
            saver, at, made = (one, other)[number % 2], root, []
            for step in range(10):
                items = [LONG, *(f"{number} {it} {LONG}" for it in range(step))]
                at = put(saver, {"items": items}, at)
                write(saver, at, f"{number} {step} {LONG}")
                made.append((id_of(at), step + 1))
            return made

        with ThreadPoolExecutor(6) as pool:
            made = [it for part in pool.map(work, range(6)) for it in part]
        found = {id_of(it.config): it for it in other.list(config())}
        assert len(found) == 61
        assert all(len(found[name].checkpoint["channel_values"]["items"]) == n for name, n in made)
        assert all(len(found[name].pending_writes) == 1 for name, _ in made)
        assert one.store.verify() == []


def prune_while_others_write(url: str) -> None:
    """One handle writes, another one prunes: what is left can always be read."""
    with HoldfastSaver(url) as writer, HoldfastSaver(url) as pruner:
        at = put(writer, {"items": [LONG]})
        ended = threading.Event()
        prunes = 0

        def prune() -> int:
            nonlocal prunes
            while not ended.is_set():
                pruner.prune(["t"])
                prunes += 1
                assert values(pruner)["items"][0] == LONG
            return prunes

        with ThreadPoolExecutor(1) as pool:
            pruned = pool.submit(prune)
            try:
                step = 0
                while step < 40 or (prunes < 3 and not pruned.done()):
                    write(writer, at, f"{step} {LONG}", LONG)
                    items = [LONG, *(f"{it} {LONG}" for it in range(step % 7))]
                    at = put(writer, {"items": items}, at)
                    assert values(writer)["items"] == items
                    step += 1
            finally:
                ended.set()
            assert pruned.result() >= 3
        writer.prune(["t"])
        assert [id_of(it.config) for it in writer.list(config())] == [id_of(at)]
        assert writer.store.verify() == []


def test_pruning_while_others_write(tmp_path):
    prune_while_others_write(f"sqlite:///{tmp_path}/runs.db")


def test_pruning_while_others_write_on_postgresql(postgres_url):
    prune_while_others_write(postgres_url)


def test_processes_write_one_thread_at_once(tmp_path):
    program = (
        "import sys\n"
        "from tests.integrations.langgraph.saving import *\n"
        "with HoldfastSaver(sys.argv[1]) as saver:\n"
        "    at = None\n"
        "    for step in range(20):\n"
        "        at = put(saver, {'items': ['x' * 400] * step, 'by': sys.argv[2]}, at)\n"
        "        write(saver, at, 'y' * 400)\n"
    )
    url = f"sqlite:///{tmp_path}/runs.db"
    command = [sys.executable, "-c", program, url]
    going = [subprocess.Popen([*command, name], cwd=ROOT) for name in "abc"]
    assert [it.wait(timeout=110) for it in going] == [0, 0, 0]
    with HoldfastSaver(url) as saver:
        found = list(saver.list(config()))
        counts = Counter(it.checkpoint["channel_values"]["by"] for it in found)
        assert counts == {"a": 20, "b": 20, "c": 20}
        assert all(len(it.pending_writes) == 1 for it in found)


def test_special_writes_are_renewed_and_others_stay(tmp_path):
    with sqlite_saver(tmp_path) as saver:
        at = put(saver, {})
        saver.put_writes(at, [("ch", "first"), ("__error__", "first")], "task", "p")
        saver.put_writes(at, [("ch", "second"), ("__error__", "second")], "task", "p")
        saver.put_writes(at, [("a", 1), ("b", 2), ("c", 3)], "task", "p")
        found = saver.get_tuple(at)
        assert found is not None
        assert [it[1:] for it in found.pending_writes or []] == [
            ("__error__", "second"),
            ("ch", "first"),
            ("b", 2),
            ("c", 3),
        ]
