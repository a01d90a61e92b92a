"""The example `examples/research`, killed and compared with the books of the servers it talks to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import holdfast
from examples.research.clients import World as Outside
from tests.crash.harness import ROOT, WAIT_AT_MOST_S, assert_sound

REPORT = "report-1"
TOPIC = "tidal power"
GUIDE = str(ROOT / "examples" / "research" / "style_guide.md")
TEXT = "A report on 5 findings. (shorter)"
PROMPTS = 5
"""Different conversations that the model is asked to go on with, from the outline to the revision."""
SEARCHES = {f"{TOPIC}: {part}" for part in ("causes", "figures", "outlook")} | {
    "detail 1",
    "detail 2",
}


@contextmanager
def outside() -> Iterator[Outside]:
    """Start the model, the search engine and the publisher in a process of their own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.research.servers"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Outside(process.stdout.readline().strip())
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(WAIT_AT_MOST_S)


def compare(
    store: holdfast.types.Store, books: dict[str, Any], *, deaths: int, withdrawn: bool
) -> None:
    """Assert that the journal and what the servers saw tell one story."""
    # Published once: a second request would have made a second copy.
    assert books["posts"] == {REPORT: 1}, f"requests to publish: {books['posts']}"
    history = store.history(REPORT)
    assert_sound(store, REPORT)
    assert store.get(REPORT).status == ("rolled_back" if withdrawn else "completed")

    compare_calls(history, books, deaths)
    compare_people(history)

    if withdrawn:
        assert books["reports"] == {}
        assert 1 <= books["deletes"][REPORT] <= 1 + deaths
        assert store.memory("reports").get(REPORT) is None
    else:
        assert [copy["text"] for copy in books["reports"][REPORT]] == [TEXT]
        assert books["deletes"] == {}
        assert store.memory("reports").get(REPORT) == {"url": f"/reports/{REPORT}"}


def compare_calls(history: list[Any], books: dict[str, Any], deaths: int) -> None:
    """No recorded call was asked again: each attempt is one request at most, and what was asked
    oftener than once was under way when a process died."""
    begun = Counter(entry.step for entry in history if entry.kind == "step_started")
    done: set[str] = set()
    for entry in history:
        assert entry.kind != "step_started" or entry.step not in done, f"again: {entry}"
        if entry.kind == "step_completed":
            done.add(entry.step)
    thoughts = [step for step in begun if step.rpartition("/")[2].startswith("think")]
    assert len(books["chats"]) == len(thoughts) == PROMPTS
    asked = sum(books["chats"].values())
    assert PROMPTS <= asked <= sum(begun[step] for step in thoughts) <= PROMPTS + deaths
    assert set(books["searches"]) == SEARCHES | {f"archive: {TOPIC}"}
    assert all(books["searches"][query] <= 1 + deaths for query in SEARCHES)


def compare_people(history: list[Any]) -> None:
    """Everything was asked once and answered once, and the approval served one intent."""
    asked = Counter(entry.body["name"] for entry in history if entry.kind == "question_asked")
    assert asked == {"wish": 1, "approve:publish": 1, "keep": 1}
    answered = Counter(entry.step for entry in history if entry.kind == "question_answered")
    assert answered == {"ask:wish": 1, "ask:keep": 1}
    intents = [e for e in history if e.kind == "step_started" and e.step == "publish"]
    assert {intent.body["approved"]["actor"] for intent in intents} == {"edna"}


class Desk:
    """Starts lives of the run, one after another, and says how each ended."""

    def __init__(self, servers: Outside) -> None:
        self.servers = servers
        self.blind = False
        """Whether the look at the publisher is broken, and never finds a report."""
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "crash" / "scripts" / "research.py")],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "RESEARCH_WORLD": servers.url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def live(self, url: str, entry: int | str = 0, when: str = "after", *, withdrawn: bool) -> bool:
        """Have the run executed; returns whether the process was killed at the entry."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        told = {
            "url": url,
            "entry": entry,
            "when": when,
            "withdrawn": withdrawn,
            "blind": self.blind,
        }
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        assert code in (0, -signal.SIGKILL), f"ended with {code}: {told}"
        return code != 0

    def killed_once(self, folder: Path, entry: int | str, when: str, *, withdrawn: bool) -> int:
        """Kill a run of its own at an entry, let it finish, compare; returns how many entries
        the finished run has, or 0 if it was through before that entry."""
        self.servers.clear()
        url = f"sqlite:///{folder / f'{when}-{entry}.db'}"
        died = self.live(url, entry, when, withdrawn=withdrawn)
        if died:
            assert not self.live(url, withdrawn=withdrawn)
        with holdfast.open(url, default=False) as store:
            compare(store, self.servers.books(), deaths=int(died), withdrawn=withdrawn)
            return len(store.history(REPORT)) if died else 0

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(WAIT_AT_MOST_S)
        self._process.stdout.close()


@contextmanager
def desk() -> Iterator[Desk]:
    """A desk with its servers, and no process left over at the end."""
    with outside() as servers:
        made = Desk(servers)
        try:
            yield made
        finally:
            made.close()
