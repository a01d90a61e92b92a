"""Processes of agents. Each life is a process of its own, and is killed as one; but to load a framework
takes seconds and there are hundreds of lives, so they are forked from a process that has it loaded."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[2]

_forks = multiprocessing.get_context("forkserver")
_loaded: list[str] = []


class Process(Protocol):
    """A program that was started."""

    def poll(self) -> int | None: ...
    def kill(self) -> None: ...


def start(module: str, environ: Mapping[str, str], said: Path, python: str) -> Process:
    """Start `python -m module`; what it says goes to a file."""
    if not _loaded:
        _loaded.append(module)
        os.environ["PRELOADED"] = module
        _forks.set_forkserver_preload(["tests.integrations.preloading"])
    # What was loaded has named its steps; programs of other folders have names of their own.
    if python != sys.executable or _folder(module) != _folder(_loaded[0]):
        return _elsewhere(module, environ, said, python)
    process = _forks.Process(target=_live, args=(module, dict(environ), str(said)))
    process.start()
    return _Forked(process)


def _folder(module: str) -> str:
    return module.rpartition(".")[0]


def _elsewhere(module: str, environ: Mapping[str, str], said: Path, python: str) -> Process:
    with said.open("wb") as out:
        return subprocess.Popen(
            [python, "-m", module],
            cwd=ROOT,
            env=os.environ | environ,
            stdout=out,
            stderr=subprocess.STDOUT,
        )


class _Forked:
    def __init__(self, process: Any) -> None:
        self._process = process

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _live(module: str, environ: dict[str, str], said: str) -> None:
    with Path(said).open("wb") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.environ.update(environ)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__")
