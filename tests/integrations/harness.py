"""One agent in every integration: two model calls, three tools, one question, killed everywhere.

    agent = Agent("tests.integrations.openai.agent", tmp_path, server)
    agent.check_undisturbed(is_model=lambda step: step.name == "chat")
    agent.check_killed_everywhere(is_model=…)

The model asks for `lookup_order` and `check_stock` (steps, at the same time) and `refund` (an effect
with an `on_doubt` that looks at the bank), a person is asked once, and the model ends with a text.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import holdfast
from holdfast.errors import AnswerConflict
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations import lives, world
from tests.integrations.program import RUN_ID

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
ANSWER = "Order 42 is refunded."
CALL_IDS = {"lookup_order": "call_a", "check_stock": "call_b", "refund": "call_c"}
SCRIPT = [
    CallTools(
        ("lookup_order", {"order": "42"}, "call_a"),
        ("check_stock", {"item": "lamp"}, "call_b"),
        ("refund", {"order": "42", "amount": 30}, "call_c"),
    ),
    Say(ANSWER),
]

IsModel = Callable[[Any], bool]
DONE = ("completed", "settled", "skipped")


class Life:
    """What was known when a process had ended."""

    def __init__(self, agent: Agent, code: int, output: str) -> None:
        self.code = code
        self.output = output
        agent.server.until_disconnected()
        self.requests = agent.server.count - agent.base
        self.begun = Counter(
            it["tool"] for it in world.lines(agent.folder, "calls") if it["what"] == "begin"
        )
        self.charges = world.lines(agent.folder, "bank")
        self.steps = agent.steps()

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL

    def recorded_key(self, call_id: str) -> int:
        return self.recorded(lambda step: step.key.endswith(f":{call_id}"))

    def recorded(self, fits: Callable[[Any], bool]) -> int:
        return sum(1 for step in self.steps if fits(step) and step.status in DONE)


class Agent:
    """One program, one folder, one store, one model server."""

    def __init__(
        self,
        module: str,
        folder: Path,
        server: FakeModelServer,
        *,
        python: str = sys.executable,
        store: str | None = None,
        answer: Callable[[Any, Any], None] | None = None,
        run_id: str = RUN_ID,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.module = module
        self.folder = folder
        self.server = server
        self.base = server.count
        self.python = python
        self.run_id = run_id
        self.environ = environ or {}
        self._answer = answer or approve_all
        folder.mkdir(parents=True, exist_ok=True)
        self.url = store or f"sqlite:///{folder}/runs.db"

    # -- processes -----------------------------------------------------------------------------

    def life(self, kill: str = "", *, together: bool = False, python: str | None = None) -> Life:
        """Start the program and attend to it, until it ends. Another `python` is another
        environment."""
        environ = self.environ | {"STORE": self.url, "SERVER": self.server.url}
        environ |= {"WORLD": str(self.folder), "KILL": kill, "TOGETHER": "1" if together else ""}
        environ |= {"OPENAI_API_KEY": "test-key", "ANTHROPIC_API_KEY": "test-key"}
        environ |= {"HOLDFAST_STRICT": "1"}
        said = self.folder / "output"
        process = lives.start(self.module, environ, said, python or self.python)
        end = time.monotonic() + PATIENCE_S
        while (code := process.poll()) is None:
            if time.monotonic() > end:
                process.kill()
                said_last = said.read_text()[-3000:]
                raise AssertionError(
                    f"{self.module} {kill} did not end: {said_last}\n{self.steps()}"
                )
            self._attend()
            time.sleep(0.02)
        return Life(self, code, said.read_text())

    def _attend(self) -> None:
        """Answer what is asked, as a person would, from another process."""
        with self.opened() as store:
            if store is not None:
                for question in store.questions():
                    self._answer(store, question)

    @contextmanager
    def opened(self) -> Iterator[Any]:
        path = Path(self.url.removeprefix("sqlite:///"))
        if self.url.startswith("sqlite:") and not path.exists():
            yield None
            return
        with holdfast.open(self.url, default=False) as store:
            yield store

    def steps(self) -> list[Any]:
        with self.opened() as store:
            if store is None or not any(it.run_id == self.run_id for it in store.runs()):
                return []
            return list(store.get(self.run_id).steps)

    def history(self) -> list[Any]:
        with self.opened() as store:
            return list(store.history(self.run_id))

    # -- what must hold ------------------------------------------------------------------------

    def check_undisturbed(self, is_model: IsModel) -> Life:
        """Two model steps, three tool steps by call id, two of them at the same time."""
        life = self.life(together=True)
        assert life.code == 0, life.output
        self._check_end(life)
        models = [step.key for step in life.steps if is_model(step)]
        assert len(models) == 2, models
        assert life.requests == 2
        tools = [step for step in life.steps if not is_model(step)]
        for name, call_id in CALL_IDS.items():
            keys = [_last(step.key) for step in tools if step.key.endswith(f":{call_id}")]
            assert keys == [f"{name}:{call_id}"], [step.key for step in life.steps]
        assert life.begun == Counter(dict.fromkeys(CALL_IDS, 1))
        calls = world.lines(self.folder, "calls")
        begins, ends = _times(calls, "begin"), _times(calls, "end")
        assert begins["lookup_order"] < ends["check_stock"]
        assert begins["check_stock"] < ends["lookup_order"]
        return life

    def check_killed_everywhere(self, is_model: IsModel, *, kinds: str = "entry ended") -> int:
        """Kill at each entry and after each call of user code, resume, look; returns how many."""
        kills = 0
        for kind in kinds.split():
            for number in range(1, 200):
                if not self._killed(f"{kind}:{number}", is_model):
                    assert number > 1, f"nothing was killed at {kind}"
                    break
                kills += 1
        return kills

    def _killed(self, kill: str, is_model: IsModel) -> bool:
        self._clear()
        first = self.life(kill)
        if not first.was_killed:
            assert first.code == 0, first.output
            return False
        again = self.life()
        assert again.code == 0, f"killed at {kill}: {again.output}"
        self._check_end(again)
        repeated = again.requests - first.requests
        assert repeated == 2 - first.recorded(is_model), (kill, repeated, first.steps)
        for name, call_id in CALL_IDS.items():
            known = first.recorded_key(call_id)
            anew = again.begun[name] - first.begun[name]
            if name == "refund":  # The bank said that it was paid: nothing was done again.
                assert anew == (0 if first.charges else 1), (kill, name, anew)
            else:
                assert anew == 1 - known, (kill, name, anew, known)
        return True

    def _check_end(self, life: Life) -> None:
        assert f"RESULT {ANSWER}" in life.output, life.output
        assert self.server.problems == []
        assert len(life.charges) == 1, life.charges
        with self.opened() as store:
            assert store.get(self.run_id).status == "completed"
            assert store.verify() == []

    def _clear(self) -> None:
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.base = self.server.count


def approve_all(store: Any, question: Any) -> None:
    """Say yes to whatever is asked; the run may have taken an earlier yes since it was listed."""
    with contextlib.suppress(AnswerConflict):
        if question.kind == "approval":
            store.approve(question.run_id, question.name, digest=question.digest, actor="ana")
        else:
            store.answer(question.run_id, question.name, True, actor="ana")


def _last(key: str) -> str:
    """Return a step key without the branch that it is in."""
    return key.rpartition("/")[2]


def _times(calls: list[dict[str, Any]], what: str) -> dict[str, float]:
    return {it["tool"]: it["at"] for it in calls if it["what"] == what}
