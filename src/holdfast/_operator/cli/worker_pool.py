"""Start the processes of `holdfast worker`, read their reports, and replace those that die.

A process that crashes or runs out of memory affects only its own runs: the others take them over at
once. It is replaced after a pause, which grows with every further death.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable

import msgspec

from holdfast._operator.cli.child_process import start
from holdfast._operator.cli.exit_codes import ERROR, INTERRUPTED, OK, USAGE
from holdfast._operator.cli.worker_process import Order, ProcessStatus
from holdfast._operator.read.metrics_merge import Figures, Sums

BACKOFF_S, BACKOFF_MAX_S = 0.2, 30.0
SHORT_S = 5.0
"""A process that lives this long resets its count of deaths."""
DEATHS_ALOUD = 5
"""The number of deaths in a row after which a warning is printed."""
GRACE_S = 5.0
"""How long a process may take beyond its drain before it is killed."""
TICK_S = 1.0
ONE_SIGNAL_S = 1.0
"""Signals this close to each other count as one: `timeout` signals a process and its group."""
READ_BYTES = 65536
PIPE_LINES = 200
FIGURES = b'{"figures":'
"""The prefix of a line with the metrics of a process."""


class Process:
    """One process, or the place of one that died."""

    def __init__(self, order: Order, sums: Sums, *, captures: bool) -> None:
        self.order = order
        self._sums = sums
        self.standing = ProcessStatus(name=order.name or "")
        self.deaths = 0
        """Deaths in a row, each after a short life."""
        self.due_s = 0.0
        self.code: int | None = None
        """The exit code of the last process, while there is none."""
        self.output: deque[str] = deque(maxlen=PIPE_LINES)
        """The last lines of its output, if captured."""
        self._captures = captures
        self._popen: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._rest = {"report": b"", "output": b""}

    @property
    def pid(self) -> int:
        """Its process id; 0 while there is none."""
        return 0 if self._popen is None else self._popen.pid

    def start(self, now_s: float, selector: selectors.BaseSelector) -> None:
        """Start it."""
        self._started_s = now_s
        self._sums.begins(id(self))
        self.code = None
        self.standing = ProcessStatus(name=self.order.name or "")
        reads, writes = os.pipe()
        life_reads, self._life = os.pipe()
        order = msgspec.structs.replace(self.order, report_fd=writes, life_fd=life_reads)
        try:
            self._popen = start(
                "holdfast._operator.cli.worker_process",
                order,
                (writes, life_reads),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._captures else None,
                stderr=subprocess.STDOUT if self._captures else None,
                # Ctrl-C at the terminal is for the parent, which tells its children once.
                process_group=0,
            )
        except OSError:
            os.close(reads)
            os.close(self._life)
            raise
        finally:
            os.close(writes)
            os.close(life_reads)
        selector.register(reads, selectors.EVENT_READ, (self, "report"))
        if self._popen.stdout is not None:
            selector.register(self._popen.stdout, selectors.EVENT_READ, (self, "output"))

    def hear(self, which: str, data: bytes) -> None:
        """Process its output."""
        *lines, self._rest[which] = (self._rest[which] + data).split(b"\n")
        for line in lines:
            if which == "report" and line.startswith(FIGURES):
                self._sums.hear(id(self), msgspec.json.decode(line, type=Figures).figures)
            elif which == "report":
                self.standing = msgspec.json.decode(line, type=ProcessStatus)
            else:
                self.output.append(line.decode("utf-8", "replace"))

    def ended(self) -> int | None:
        """Return the exit code of an ended process, and forget the process."""
        if self._popen is None or self._popen.poll() is None:
            return None
        code = self.code = self._popen.returncode
        self._sums.ended(id(self))
        os.close(self._life)
        if self._popen.stdout is not None:
            self._popen.stdout.close()
        self._popen = None
        return code

    def wait_a_moment(self) -> None:
        """Wait briefly for its end after it closed a pipe; it may also have closed it on
        purpose."""
        if self._popen is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(0.5)

    def died(self, now_s: float) -> float:
        """Count a death; returns the pause before the next start."""
        self.deaths = self.deaths + 1 if now_s - self._started_s < SHORT_S else 1
        pause_s = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(self.deaths - 1, 20))
        self.due_s = now_s + pause_s
        self.order = msgspec.structs.replace(self.order, declares=False)
        return pause_s

    def send(self, number: int) -> None:
        """Send it a signal, if it exists."""
        if self._popen is not None and self._popen.poll() is None:
            self._popen.send_signal(number)


class WorkerPool:
    """All processes of one `holdfast worker`."""

    def __init__(
        self,
        orders: list[Order],
        say: Callable[[str], None],
        *,
        captures: bool = False,
        on_tick: Callable[[WorkerPool], None] | None = None,
    ) -> None:
        self.sums = Sums()
        """The sums of the metrics of all processes, ended ones included."""
        self.processes = [Process(order, self.sums, captures=captures) for order in orders]
        self.restarts = 0
        self._say = say
        self._on_tick = on_tick
        self._drain_s = max(order.drain_s for order in orders)
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._ending_s: float | None = None
        self._told_s = float("-inf")
        self._was_ready = False
        self._code = OK
        self._ticked_s = time.monotonic()

    # -- state ---------------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Whether it received a signal to end."""
        return self._ending_s is not None

    @property
    def ended(self) -> bool:
        """Whether it received a signal to end, and all processes have ended."""
        return self.draining and not any(process.pid for process in self.processes)

    @property
    def _begins(self) -> bool:
        """Whether no process has worked or died yet."""
        return not self._was_ready and not self.restarts

    def live(self) -> bool:
        """Return whether it still supervises its processes."""
        return time.monotonic() - self._ticked_s < 10 * TICK_S

    def ready(self) -> bool:
        """Return whether every process is connected and works."""
        return not self.draining and all(p.standing.ready and p.pid for p in self.processes)

    # -- work ----------------------------------------------------------------------------------

    def work(self) -> int:
        """Supervise the processes until a signal ends it; return the exit code."""
        reads, writes = os.pipe()
        os.set_blocking(writes, False)
        self._selector.register(reads, selectors.EVENT_READ, (None, "signal"))

        def on_signal(number: int, _frame: object) -> None:
            self._signals.append(number)
            with contextlib.suppress(BlockingIOError):
                os.write(writes, b"!")

        before = {n: signal.signal(n, on_signal) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            return self._watch()
        finally:
            for process in self.processes:
                process.send(signal.SIGKILL)
            for number, handler in before.items():
                signal.signal(number, handler)
            for key in list(self._selector.get_map().values()):
                self._forget(key.fileobj)
            self._selector.close()
            os.close(writes)

    def _watch(self) -> int:
        while True:
            self._ticked_s = now_s = time.monotonic()
            self._obey(now_s)
            for process in self.processes:
                if process.pid == 0 and not self.draining and now_s >= process.due_s:
                    self._start(process, now_s)
            self._hear(now_s)
            for process in self.processes:
                self._look_after(process, time.monotonic())
            self._was_ready = self._was_ready or any(p.standing.ready for p in self.processes)
            if self._on_tick is not None:
                self._on_tick(self)
            if self.ended:
                return self._code

    def _start(self, process: Process, now_s: float) -> None:
        try:
            process.start(now_s, self._selector)
        except OSError as error:  # Too little memory or too many processes: that may be temporary.
            pause_s = process.died(now_s)
            self._say(f"! a process cannot be started: {error}; next try in {pause_s:.1f} s")

    def _hear(self, now_s: float) -> None:
        due = [p.due_s - now_s for p in self.processes if p.pid == 0 and not self.draining]
        for key, _ in self._selector.select(max(0.0, min([TICK_S, *due]))):
            process, which = key.data
            data = os.read(key.fd, READ_BYTES)
            if process is not None and data:
                process.hear(which, data)
            elif process is not None:
                self._forget(key.fileobj)
                process.wait_a_moment()

    def _forget(self, source: object) -> None:
        self._selector.unregister(source)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        if isinstance(source, int):
            os.close(source)

    def _obey(self, now_s: float) -> None:
        """Drain at the first signal; end at once at the second, or when the drain takes too
        long."""
        if not self._signals:
            if self._ending_s is not None and now_s > self._ending_s:
                self._kill("it did not end in time")
            return
        number = self._signals.pop(0)
        if now_s - self._told_s < ONE_SIGNAL_S:
            return
        self._told_s = now_s
        if self.draining:
            self._kill(f"a second {signal.Signals(number).name}")
            self._code = INTERRUPTED
            return
        self._say(f"{signal.Signals(number).name}: draining; a second signal ends it at once")
        self.drain(now_s)

    def drain(self, now_s: float) -> None:
        """Signal all processes to drain."""
        self._ending_s = now_s + self._drain_s + GRACE_S
        for process in self.processes:
            process.send(signal.SIGTERM)

    def _kill(self, why: str) -> None:
        for process in self.processes:
            if process.pid:
                self._say(
                    f"process {process.pid} is killed: {why}; other workers take its runs later"
                )
                process.send(signal.SIGKILL)

    def _look_after(self, process: Process, now_s: float) -> None:
        pid, code = process.pid, process.ended()
        if code is None or (self.draining and code == OK):
            return
        said = process.standing
        if said.code == USAGE or (said.hopeless and self._begins):
            self._give_up(said.message, said.code or ERROR, now_s)
            return
        if self.draining:
            return
        self.restarts += 1
        pause_s = process.died(now_s)
        if not self._was_ready and code > 0 and process.deaths >= DEATHS_ALOUD:
            self._give_up(
                f"it {fate(code)} {process.deaths} times before it could work", ERROR, now_s
            )
            return
        again = f", {process.deaths} times now" if process.deaths > 1 else ""
        self._say(f"! process {pid} {fate(code)}{again}; another starts in {pause_s:.1f} s")
        if process.deaths == DEATHS_ALOUD:
            self._say("! it dies repeatedly: check its output, its memory and its runs")

    def _give_up(self, why: str, code: int, now_s: float) -> None:
        if not self.draining:
            self._say(f"holdfast: {why}")
            self._code = code
            self.drain(now_s)


def fate(code: int) -> str:
    """Return how a process ended."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
