"""Explain an orphan run: one that a deployment left behind.

No live worker executes its version of the flow, or newer code could not replay it and released it.
"""

from __future__ import annotations

from holdfast._engine.command_lines import command
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.fold import DOES_NOT_FIT
from holdfast._engine.journal.step_record import facts
from holdfast._engine.text import count, length
from holdfast._features.operator_side import ALL_IS_WELL
from holdfast._operator.explain.held_reasons import confirms, may_be_accepted
from holdfast._operator.explain.run_case import RunCase
from holdfast._operator.read import queue_views
from holdfast._stores.claim_rules import DEFAULT_QUEUE, queue_of

BLOCK = "It is a block of a script: no worker takes it, and only that script goes on with it."


def nobody_executes(case: RunCase) -> bool:
    """Report if there are workers and none of them would take this run, though one should."""
    row, alive = case.row, queue_views.workers(case.store)
    if case.is_block or not alive or any(worker.executes(row) for worker in alive):
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
            f"there, @flow(…, accepts_versions=({row.version!r},)), and start its workers again."
        )
    else:
        takes = "does not take" if alone else "takes"
        known.append(f"{among} {takes} from its queue, {queue_of(row)}.")
        case.do("Start a worker that does:", command("worker", "MODULE", "--queue", queue_of(row)))
    return True


def given_back_as_unfit(case: RunCase) -> bool:
    """Report if code of another version could not replay a run and released it."""
    row, past, said = case.row, case.past, case.said
    notes = {code: facts(it) for code, it in past.unfit.items() if DOES_NOT_FIT in it.body}
    if not notes:
        return False
    tried = [code.rpartition("/")[0] for code in notes]
    said.case = (
        f"{case.name} waits for code that fits, of version {row.version}: version "
        f"{' and '.join(dict.fromkeys(tried))} could not replay it and gave it back."
    )
    for version, note in zip(tried, notes.values(), strict=True):
        said.known.append(f"Version {version} does not fit: {note.get('detail', '')}")
    said.known.append("That code executed nothing of it, and its workers leave the run alone.")
    done = [record.key for record in past.records.values() if record.effect and record.has_outcome]
    if done:
        said.known.append(f"Effects that have happened and are recorded: {', '.join(done)}.")
    others = [it for it in queue_views.workers(case.store) if it.executes(row)]
    others = [it for it in others if it.flows[row.flow][0] not in tried]
    if others:
        _about_places(case, others)
    else:
        said.known.append("No worker that is alive executes it with the code of another version.")
    said.unknown.append("Whether the code was meant to change for runs that were under way.")
    case.goes_on_when_run(
        f"Start a worker with the code of version {row.version}, or run your program with it"
    )
    if not any(may_be_accepted(note) for note in notes.values()):
        return True
    wants = [
        it for it in notes.values() if any("--confirm" in way for way in it.get("actions", ()))
    ]
    confirm = f", and confirm {confirms(past, wants[-1])}" if wants else ""
    case.do(
        f"Go on with that code{confirm}: records are matched by "
        "step key alone, and calls without one are executed:",
        case.cmd("resume", "--accept-change", *(["--confirm"] if wants else [])),
    )
    return True


def about_queue(case: RunCase) -> None:
    """Explain why a run stays in its queue; a block is in none."""
    if case.is_block:
        return
    name = queue_of(case.row)
    for queue in queue_views.queues(case.store):
        if queue.name == name:
            _about_limits(case, queue)


def _about_limits(case: RunCase, queue: queue_views.QueueView) -> None:
    known, name = case.said.known, queue.name
    if queue.ready > 1:
        oldest = (
            "" if queue.oldest_s is None else f"; the oldest waits for {length(queue.oldest_s)}"
        )
        known.append(f"{count(queue.ready, 'run')} of its queue, {name}, could go on now{oldest}.")
    if queue.paused:
        known.append(f"Its queue, {name}, is paused: nothing of it is taken.")
        case.do("To let it go on:", command("queues resume", name))
        return
    if queue.concurrency is not None and queue.taking_room >= queue.concurrency:
        limit = count(queue.concurrency, "run")
        known.append(f"Its queue, {name}, is full: it allows {limit} at one time.")
        case.do(
            "To see who has the places:",
            command("runs", "--queue", name, "--status", "running"),
        )
        case.do(
            "To allow more at one time, if what they use can bear it:",
            command("queues set", name, "--concurrency", str(queue.concurrency * 2)),
        )
    others: list[tuple[int | None, str]] = [
        (queue.concurrency_per_key, "at one time of each limit key"),
        (queue.rate, f"to begin in {length(queue.period_s)}"),
        (queue.rate_per_key, f"of each limit key to begin in {length(queue.period_s)}"),
    ]
    for number, words in others:
        if number is not None:
            known.append(f"Its queue, {name}, allows {count(number, 'run')} {words}.")


def who_takes_it(case: RunCase) -> None:
    """Report what would take a run without an owner: a worker, when it is due; else what to start."""
    if case.is_block:
        case.said.known.append(BLOCK)
        case.said.unknown.append("Whether that script is about to be run again.")
        case.goes_on_when_run()
        return
    alive = queue_views.workers(case.store)
    takers = [worker for worker in alive if worker.executes(case.row)]
    if takers:
        _about_places(case, takers)
        if not case.said.actions:
            case.do(f"{ALL_IS_WELL} To see what is before it:", "holdfast queues")
        return
    unread = [worker.stands_back for worker in alive if worker.unread is not None]
    if unread:
        case.said.unknown += [f"Whether a worker takes it: {why}." for why in unread]
    elif not nobody_executes(case):
        case.said.known.append("No worker is alive.")
        case.said.unknown.append("Whether any process that has this flow is about to take it.")
    if alive:
        case.goes_on_when_run()
    elif _was_submitted(case):
        case.do("To start a worker, which takes it when it is due:", _worker(case))
        case.goes_on_when_run("Or execute it here", ":")
    else:
        case.goes_on_when_run()
        case.do("To start a worker, which takes it when it is due:", _worker(case))


def who_goes_on(case: RunCase) -> None:
    """Report what goes on with a run whose process has died: a worker, if it was submitted to one."""
    if nobody_executes(case) or not _was_submitted(case):
        case.goes_on_when_run("Run your program again (it goes on where it stopped)")
        return
    if queue_views.workers(case.store):
        case.said.known.append("A worker that is alive takes it over.")
        case.do("To see how far it is:", case.cmd("show"))
    else:
        case.said.known.append("No worker is alive.")
        case.do("Start a worker again (it goes on where this stopped):", _worker(case))
    case.goes_on_when_run("Or execute it here", ":")


def _was_submitted(case: RunCase) -> bool:
    """Return whether a run was submitted for any worker, and not started by its caller's process."""
    if case.is_block:
        return False
    second = case.store.entry(case.row.run_no, 2)
    begun = second is not None and second.kind is Kind.RUN_CLAIMED
    return second is None or not begun or facts(second)["why"] != "started"


def _worker(case: RunCase) -> str:
    name = queue_of(case.row)
    return command("worker", "MODULE", *(() if name == DEFAULT_QUEUE else ("--queue", name)))


def _about_places(case: RunCase, takers: list[queue_views.WorkerView]) -> None:
    places = sum(worker.concurrency for worker in takers)
    who = "1 worker that would take it is" if len(takers) == 1 else None
    who = who or f"{len(takers)} workers that would take it are"
    busy = sum(worker.working for worker in takers) >= places
    room = f"its {'places are' if places > 1 else 'one place is'}" if len(takers) == 1 else ""
    room = room or f"their {places} places are"
    aside = [told for worker in takers if (told := worker.stands_back) is not None]
    when = "; it is taken when it is due" if len(aside) < len(takers) else ""
    case.said.known.append(
        f"{who} alive; {room} in use: it waits for one." if busy else f"{who} alive{when}."
    )
    case.said.known += [f"{told[0].upper()}{told[1:]}." for told in aside]
    if len(aside) == len(takers):
        case.said.known.append("So it is not taken before that is over: after a minute at most.")
        first = next((worker.alone.run_id for worker in takers if worker.alone is not None), None)
        if first is not None:
            case.do("To see the run that is executed alone:", command("explain", first))
