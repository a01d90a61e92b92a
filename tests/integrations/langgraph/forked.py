"""The harness with processes that are forked from one that has LangChain loaded already. Each life is
still a process of its own, and is killed as one; but loading takes seconds, and there are hundreds."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

from tests.integrations.harness import PATIENCE_S, Agent, Life

PRELOADED = [
    "langchain.agents",
    "langchain.agents.middleware",
    "langchain_openai",
    "holdfast.integrations.langgraph.middleware",
    "holdfast.integrations.langgraph.recovery",
    "holdfast.integrations.langgraph.saver",
    "tests.integrations.langgraph.agent",
]
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(PRELOADED)


class Forked(Agent):
    def life(self, kill: str = "", *, together: bool = False, python: str | None = None) -> Life:
        if python is not None:
            return super().life(kill, together=together, python=python)
        environ = self.environ | {
            "STORE": self.url,
            "SERVER": self.server.url,
            "WORLD": str(self.folder),
            "KILL": kill,
            "TOGETHER": "1" if together else "",
            "HOLDFAST_STRICT": "1",
            "OPENAI_API_KEY": "test-key",
        }
        said = self.folder / "output"
        process: Any = processes.Process(target=_live, args=(self.module, environ, said))
        process.start()
        end = time.monotonic() + PATIENCE_S
        while process.exitcode is None:
            if time.monotonic() > end:
                process.kill()
                process.join()
                raise AssertionError(f"{self.module} {kill} did not end: {said.read_text()}")
            self._attend()
            process.join(0.02)
        return Life(self, process.exitcode, said.read_text())


def _live(module: str, environ: dict[str, str], said: Path) -> None:
    with said.open("wb") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.environ.update(environ)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__")
