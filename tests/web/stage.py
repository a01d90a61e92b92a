"""What a browser test stands on: a store in a file, a `holdfast ui` process, worker processes.

Nothing is imitated: the test process submits runs, workers execute them, the page is served over a
socket. A test waits for a fact and never for time.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import holdfast
from holdfast._operator.web import app
from tests.tidy.source import ROOT

FLOWS = "tests.web.flows"
PATIENCE_S = 60.0
ADDRESS = re.compile(r"https?://[^\s#]+#token=\S+")


def until(fact: Callable[[], Any], process: subprocess.Popen[bytes] | None = None) -> Any:
    """Return what a function says, once it says something; a process that ends before is told."""
    deadline = time.monotonic() + PATIENCE_S
    while not (said := fact()):
        assert process is None or process.poll() is None, f"it ended with {process.returncode}"
        assert time.monotonic() < deadline, "waited for it in vain"
        time.sleep(0.02)
    return said


def served(code: str) -> str:
    """Return code that runs in the page, with the paths of files as they are served."""
    return code.replace("/static/", f"{app.static()}/")


class Stage:
    """The files of some tests, and the processes that work on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/runs.db"
        self.store = holdfast.open(self.url, default=False)
        self.environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "HOLDFAST_STAGE": str(folder),
            "PYTHONUNBUFFERED": "1",
        }
        self.address = ""
        """Where the page is, with the token in its fragment."""

    @property
    def origin(self) -> str:
        """Where the page is."""
        return self.address.partition("#")[0].rstrip("/")

    def address_of(self, name: str, role: str) -> str:
        """Make a token, and return the address that signs its holder in."""
        said = self.command("tokens", "create", name, "--role", role)
        found = re.search(r"\bhft?_\S+", said)
        assert found is not None, said
        return f"{self.origin}/#token={found.group()}"

    # -- processes -----------------------------------------------------------------------------

    def command(self, *arguments: str) -> str:
        """Call `holdfast`, and return what it prints."""
        done = subprocess.run(
            self._holdfast(*arguments),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _holdfast(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "holdfast._operator.cli", *arguments, "--url", self.url]

    @contextlib.contextmanager
    def process(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """A `holdfast` process that writes to a log; ended with the block."""
        log = self.folder / f"{arguments[0]}-{time.monotonic_ns()}.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                self._holdfast(*arguments),
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
            )
        try:
            yield process, log
        finally:
            process.kill()
            process.wait()

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """A `holdfast ui` process; gives the address that it says, token included."""
        with self.process("ui", "--port", "0") as (process, log):

            def said() -> str | None:
                found = ADDRESS.search(log.read_text())
                return None if found is None else found.group()

            try:
                self.address = until(said, process)
            except AssertionError as error:
                raise AssertionError(f"{error}: {log.read_text()}") from None
            yield self.address

    @contextlib.contextmanager
    def working(self, *options: str, module: str = FLOWS) -> Iterator[subprocess.Popen[bytes]]:
        """A `holdfast worker` process that is ready; killed with the block."""
        known = {seen.name for seen in self.store.workers()}
        with self.process("worker", module, *options) as (process, log):

            def ready() -> bool:
                return bool({seen.name for seen in self.store.workers()} - known)

            try:
                until(ready, process)
            except AssertionError as error:
                raise AssertionError(f"{error}: {log.read_text()}") from None
            yield process

    def killed(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a worker and the processes that it started, as a machine would that goes down."""
        folder = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        children = [int(pid) for pid in folder.read_text().split()]
        for pid in (process.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.wait()

    # -- runs ----------------------------------------------------------------------------------

    def submit(self, flow: Any, run_id: str, *arguments: Any, **named: Any) -> None:
        """Leave a run to the workers."""
        flow.with_options(store=self.store).submit(run_id, *arguments, **named)

    def status(self, run_id: str) -> str:
        """Return the status of a run."""
        return str(self.store.get(run_id).status)

    def until_status(self, run_id: str, *wanted: str) -> str:
        """Wait until a run has one of these statuses."""
        return until(lambda: (now := self.status(run_id)) in wanted and now)

    def mark(self, name: str) -> None:
        """State a fact that code of a flow waits for (`flows.wait_for_mark`)."""
        (self.folder / name).touch()

    def marked(self, name: str) -> bool:
        """Whether code of a flow has stated a fact."""
        return (self.folder / name).exists()

    def close(self) -> None:
        """Release the store."""
        self.store.close()
