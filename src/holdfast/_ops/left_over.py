"""Runs that a deployment left behind: no live worker executes their version of the flow."""

from __future__ import annotations

from holdfast._core.commands import command
from holdfast._ops import queues
from holdfast._ops.explanation import Case
from holdfast._ops.text import count
from holdfast._store.decisions import DEFAULT_QUEUE, queue_of


def nobody_executes(case: Case) -> bool:
    """Say so if there are workers, and none of them would take this run."""
    row, alive = case.row, queues.workers(case.store)
    if not alive or any(worker.executes(row) for worker in alive):
        return False
    known = case.said.known
    versions = sorted({version for worker in alive for version in worker.flows.get(row.flow, ())})
    alone = len(alive) == 1
    among = "The one worker that is alive" if alone else f"None of the {len(alive)} workers alive"
    if not versions:
        known.append(f"{among} {'does not have' if alone else 'has'} the flow {row.flow}.")
        case.do("Start a worker that has it:", command("worker", "MODULE"))
    elif row.version not in versions:
        known.append(
            f"{among} {'cannot' if alone else 'can'} run version {row.version} of {row.flow}; "
            f"{'it runs' if alone else 'they run'} {', '.join(versions)}."
        )
        case.do(
            "Start a worker with the code of that version; or, if newer code replays it, say so "
            f"there, @flow(…, accepts=({row.version!r},)), and start its workers again."
        )
    else:
        takes = "does not take" if alone else "takes"
        known.append(f"{among} {takes} from its queue, {queue_of(row)}.")
        case.do("Start a worker that does:", command("worker", "MODULE", "--queue", queue_of(row)))
    return True


def about_queue(case: Case) -> None:
    """Say what keeps a run in its queue, and who would take it from there."""
    name = queue_of(case.row)
    for queue in queues.queues(case.store):
        if queue.name != name:
            continue
        if queue.paused:
            case.said.known.append(f"Its queue, {name}, is paused: nothing of it is taken.")
            case.do("To let it go on:", command("queue", name, "--unpause"))
        elif queue.concurrency is not None and queue.running >= queue.concurrency:
            limit = count(queue.concurrency, "run")
            case.said.known.append(f"Its queue, {name}, is full: it allows {limit} at one time.")
    if not queues.workers(case.store):
        case.said.known.append("No worker is alive.")
        also = () if name == DEFAULT_QUEUE else ("--queue", name)
        case.do(
            "To start a worker, which takes it when it is due:", command("worker", "MODULE", *also)
        )
