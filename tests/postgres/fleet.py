"""Workers in processes of their own on a PostgreSQL server, and what they must never have done.

The witness is outside: the ledger of executions, the acknowledgements that flows got, and the books
of the payment server. The journal must agree with all three.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast
from holdfast import NOT_DONE, Done
from holdfast.errors import HoldfastError, StoreError
from tests.crash.harness import WAIT_AT_MOST_S, Execution, Script, World
from tests.crash.payments import Client
from tests.postgres.scripts.worker import ROUNDS, job

WORKER = Path(__file__).parent / "scripts" / "worker.py"
LABELS = {*(f"{kind}-{i}" for kind in ("work", "charge") for i in range(ROUNDS)), "order"}
LEASE_S = 2.0


@dataclass(frozen=True)
class Acknowledged:
    """What a flow got from a step: it is on disk, and stays so."""

    run: str
    label: str
    value: str
    pid: int


@dataclass
class Fleet(World):
    """Workers on one database."""

    @property
    def acks(self) -> Path:
        return self.root / "acks"

    def start_worker(self, **env: object) -> Script:
        """Start a worker, and wait until it is up."""
        script = self.start(WORKER, acks=self.acks, **{"lease_s": LEASE_S, **env})
        return script.until(f"up {script.process.pid}")

    def start_workers(self, count: int, **env: object) -> list[Script]:
        """Start several at once."""
        scripts = [
            self.start(WORKER, acks=self.acks, **{"lease_s": LEASE_S, **env}) for _ in range(count)
        ]
        return [script.until(f"up {script.process.pid}") for script in scripts]

    def stop_workers(self) -> None:
        """Tell all workers to stop, and see that they do so in order."""
        self.mark("stop")
        for script in self.scripts:
            if script.process.poll() is None:
                ended = script.end()
                assert ended.said == {"result": "stopped"}, ended

    def acknowledged(self) -> list[Acknowledged]:
        if not self.acks.exists():
            return []
        return [Acknowledged(*json.loads(line)) for line in self.acks.read_text().splitlines()]

    def executed(self) -> dict[tuple[str, str], list[Execution]]:
        """Return the executions of each step of each run, in order."""
        found: dict[tuple[str, str], list[Execution]] = defaultdict(list)
        for execution in self.executions():
            found[execution.run, execution.step].append(execution)
        return found

    # -- driving -------------------------------------------------------------------------------

    def submit(self, count: int) -> list[str]:
        """Submit runs; they are there when this returns."""
        names = [f"j{number}" for number in range(count)]
        with self.store() as store:
            for name in names:
                job.with_options(store=store).submit(name, name)
        return names

    def until_completed(self, runs: list[str]) -> None:
        """Wait until every run has completed; decide what workers leave to a person."""
        with self.store() as store:
            deadline = time.monotonic() + WAIT_AT_MOST_S
            open_runs = set(runs)
            while open_runs:
                assert time.monotonic() < deadline, self.told(store, sorted(open_runs))
                time.sleep(0.05)
                for run in sorted(open_runs):
                    try:
                        found = store.get(run)
                        if found.status == "completed":
                            open_runs.discard(run)
                        elif found.status == "held":
                            self.decide(store, run)
                    except StoreError:
                        break  # The server is away; look again.

    def decide(self, store: holdfast.types.Store, run: str) -> None:
        """Be the person: say of an order whether the ledger has it, and let poison go on."""
        found = store.get(run)
        try:
            if found.held_reason == "in_doubt":
                made = self.executed()[run, "order"]
                store.settle(
                    run, "job_order", Done(made[0].note) if made else NOT_DONE, actor="test"
                )
            else:
                store.resume(run, actor="test")
        except StoreError:
            raise
        except HoldfastError:
            pass  # It changed meanwhile; look again.

    def told(self, store: holdfast.types.Store, runs: list[str]) -> str:
        return "\n".join(str(store.explain(run)) for run in runs[:3]) + self.errors()

    def errors(self) -> str:
        return "\n".join(script.stderr.read_text()[-3000:] for script in self.scripts)

    # -- the oracle ----------------------------------------------------------------------------

    def violations(self, runs: list[str], payments: Client) -> list[str]:
        """Return what the journal says that the world denies."""
        executed, wrong = self.executed(), []
        acknowledged: dict[tuple[str, str], set[str]] = defaultdict(set)
        for ack in self.acknowledged():
            acknowledged[ack.run, ack.label].add(ack.value)
        charges: set[str] = set()
        with self.store() as store:
            for run in runs:
                outcomes, double = _outcomes(store.history(run))
                wrong += [f"{run}: {label} has two outcomes" for label in double]
                wrong += [f"{run}: {label} has no outcome" for label in LABELS - set(outcomes)]
                for label, value in outcomes.items():
                    made = executed[run, label]
                    told = acknowledged[run, label]
                    wrong += [f"{run}: {what}" for what in _compare(label, value, made, told)]
                charges |= {v for label, v in outcomes.items() if label.startswith("charge")}
            wrong += [f"verify: {finding}" for finding in store.verify()]
        wrong += _compare_books(payments.state(), charges)
        return wrong


def _outcomes(entries: list[Any]) -> tuple[dict[str, str], list[str]]:
    """Return what the journal has as the outcome of each step, and what it has twice."""
    outcomes: dict[str, str] = {}
    double: list[str] = []
    labels: dict[str | None, str] = {}
    for entry in entries:
        if entry.kind == "step_started":
            labels[entry.step] = entry.body["args"]["label"]
        done = entry.kind == "step_completed"
        if done or (entry.kind == "step_settled" and entry.body["outcome"] == "done"):
            # An effect that is in doubt because its intent was lost has no start.
            label = labels.get(entry.step) or str(entry.step).removeprefix("job_")
            result = entry.body["result"]
            if label in outcomes:
                double.append(label)
            value = result["charge"] if isinstance(result, dict) else result
            outcomes[label] = value
    return outcomes, double


def _compare(label: str, value: str, made: list[Execution], told: set[str]) -> list[str]:
    wrong = []
    if told != {value}:
        wrong.append(f"{label} was acknowledged as {told}, and is {value}")
    if not made:
        wrong.append(f"{label} has an outcome and was never executed")
    if label.startswith("work") and made and value != made[-1].note:
        wrong.append(f"{label} was executed again after its outcome, or has another's")
    if label == "order" and len(made) != 1:
        wrong.append(f"{label} happened {len(made)} times")
    return wrong


def _compare_books(state: dict[str, Any], charges: set[str]) -> list[str]:
    wrong = [f"key {key}: {at['charges']}" for key, at in state.items() if len(at["charges"]) != 1]
    made = {charge["charge"] for at in state.values() for charge in at["charges"]}
    if made != charges:
        wrong.append(f"charged and recorded differ: {made ^ charges}")
    return wrong
