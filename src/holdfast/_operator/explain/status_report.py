"""Explain a run's state: what is known, what is not known, and the safe next actions.

Written for a person who is woken at night and has never seen this run: one sentence first, then
facts, then commands that can be pasted as they stand. It never guesses: what the journal cannot
know is reported as unknown, and each command says what it would cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast._engine.command_lines import command
from holdfast._engine.decisions.control import requested
from holdfast._engine.decisions.resume import facts_of
from holdfast._engine.journal import fork_history
from holdfast._engine.journal.entries import WAIT_BEGINS
from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.lifecycle import ENDED, Status
from holdfast._engine.journal.rows import KeyState, RunRow
from holdfast._engine.journal.step_record import outcome_is_unknown
from holdfast._engine.journal.superseded import superseded_by_resume
from holdfast._engine.text import clipped, count, length, moment
from holdfast._features.operator_side import (
    ALL_IS_WELL,
    NOTHING_TO_DO,
    TO_SEE,
    Action,
    Explanation,
    Journal,
    Wait,
)
from holdfast._operator.explain import doubts, open_waits
from holdfast._operator.explain.child_runs import about_parent
from holdfast._operator.explain.held_reasons import held
from holdfast._operator.explain.run_case import RunCase
from holdfast._operator.explain.stranded_runs import (
    about_queue,
    given_back_as_unfit,
    who_goes_on,
    who_takes_it,
)
from holdfast._operator.read.feature_sides import SECTIONS, STATUSES, WARNINGS
from holdfast._operator.read.relatives import deadline_us
from holdfast._operator.read.run_views import FLOW, failed_in, may_be_taken, pending_stop, us
from holdfast._operator.read.step_views import counts_of, error_of, is_step, step_views
from holdfast._stores import lineage
from holdfast._stores.contract import Store
from holdfast._stores.lookups import existing_row
from holdfast.errors import Corrupt


def explain(store: Store, run_id: str) -> Explanation:
    """Explain a run as it is now."""
    row = existing_row(store, run_id)
    try:
        journal = lineage.read(store, row)
    except Corrupt as damage:
        return damaged(store, row, damage)
    return explain_of(store, row, journal)


def damaged(store: Store, row: RunRow, damage: Corrupt) -> Explanation:
    """Explain a run that cannot be read."""
    return _warned(store, _damaged(row, damage))


def explain_of(
    store: Store, row: RunRow, journal: Journal, findings: Sequence[Any] | None = None
) -> Explanation:
    """Explain a run whose journal was read before, and its findings too if they are given."""
    case = RunCase(store, row, journal, findings)
    _STATUS[row.status](case)
    about_control(case)
    about_parent(case)
    for section in SECTIONS:
        section(case)
    about_fork(case)
    for warn in WARNINGS:
        warn(case)
    return _warned(store, case.said)


def _warned(store: Store, said: Explanation) -> Explanation:
    lost = store.regression()
    if lost is not None:
        said.warning = (
            f"This store has lost acknowledged commits: {lost}. What stands here may be older than "
            "what happened. Effects are blocked until somebody accepts the loss: holdfast store accept-data-loss"
        )
    return said


# -- one function per status -------------------------------------------------------------------


def _queued(case: RunCase) -> None:
    row, said = case.row, case.said
    case.waits_for(Wait.QUEUE)
    if open_waits.needs_people(case):  # Its process ended while it waited, or it was given back.
        said.case = (
            f"{case.name} {open_waits.in_short(case, nobody_has_it=True)}. No process has it."
        )
    else:
        said.case = f"{case.name} waits to be executed. No process has it."
    said.known.append(f"Its journal last changed {case.since(row.updated_us)}.")
    _replayed_once_more(case)
    if row.wake_us is not None and row.wake_us > case.now_us:
        said.known.append(f"It is not due before {moment(row.wake_us)}.")
    open_waits.about_waits(case)
    case.progress()
    case.open_effects()
    about_queue(case)
    if not given_back_as_unfit(case):
        who_takes_it(case)


def _running(case: RunCase) -> None:
    row, said = case.row, case.said
    owner = case.store.owner_name(row.owner)
    died = False
    if row.owner is None:
        said.case = f"{case.name} has been begun, and no process has it now."
    elif not may_be_taken(case.store, row):
        _at_work(case, owner)
        return
    elif not case.store.owner_is_dead(row.owner):
        said.case = f"{case.name} is stalled: {owner} has not renewed its lease."
        said.known.append("Its lease has run out; any process may take the run over.")
        said.known.append(f"It last wrote to its journal {case.since(row.updated_us)}.")
        said.unknown.append("Whether that process has died, or is only paused or cut off.")
    else:
        died = True
        said.case = f"{case.name} was being executed by {owner}, which has died."
        said.known.append("Its death is proven, so the next process takes the run over at once.")
    case.where()
    open_waits.about_waits(case)
    case.progress()
    case.open_effects(owner_died=died)
    who_goes_on(case)


def _replayed_once_more(case: RunCase) -> None:
    """Report that other code goes on by itself with a run that was held as diverged."""
    again, past = case.past.again, case.past
    if again is not None and past.last_seq <= again.seq + 1:
        case.said.known.append(
            "It was held as diverged, and is replayed once more because the flow has other code now."
        )


def _at_work(case: RunCase, owner: str) -> None:
    row, said = case.row, case.said
    said.case = f"{case.name} is being executed by {owner}."
    said.known.append(f"It last wrote to its journal {case.since(row.updated_us)}.")
    _replayed_once_more(case)
    case.at_work()
    case.progress()
    open_waits.about_waits(case)
    # What is waited for needs somebody: then there is something to do.
    case.do(TO_SEE if said.actions else NOTHING_TO_DO, case.cmd("show"))


def _waiting(case: RunCase) -> None:
    row, said = case.row, case.said
    nobody_has_it = row.owner is None or may_be_taken(case.store, row)
    key = doubts.key_waited_for(case.store, row)
    if key is not None:
        _for_a_key(case, key)
    else:
        said.case = f"{case.name} {open_waits.in_short(case, nobody_has_it=nobody_has_it)}."
    open_waits.about_waits(case)
    if not nobody_has_it:
        said.known.append(f"{case.store.owner_name(row.owner)} has it, and waits in the process.")
    if row.wake_us is not None and row.wake_us != deadline_us(case.past):
        who = open_waits.taken_up(case) if nobody_has_it else "by itself"
        due = "now" if open_waits.is_spoken_to(case) else f"from {moment(row.wake_us)} on"
        said.known.append(f"It goes on {who}, {due}.")
    case.progress()
    if nobody_has_it:
        who_takes_it(case)
    elif not said.actions:
        case.do(NOTHING_TO_DO, case.cmd("show"))


def _for_a_key(case: RunCase, key: KeyState) -> None:
    case.waits_for(Wait.KEY)
    case.said.case = f"{case.name} waits for a business key that another call has."
    case.said.known += doubts.about_key(key)
    case.said.unknown.append(
        f"How {key.step} of run {key.run_id} ends: if it completes, its result is used here; if it "
        "did not happen, it is executed here."
    )
    case.do("To see the run that has it:", command("explain", key.run_id))


def _completed(case: RunCase) -> None:
    row, said = case.row, case.said
    said.case = f"{case.name} completed{_degraded_note(row)}. {ALL_IS_WELL}"
    took = length((row.updated_us - row.created_us) / 1e6)
    said.known.append(f"It ended {case.since(row.updated_us)}, {took} after it was started.")
    said.known.append(
        f"{count(counts_of(case.past).done, 'step')} done in {count(row.attempts, 'attempt')}"
        f"{f', in generation {row.generation}' if row.generation > 1 else ''}."
    )
    for step in step_views(case.past):
        if step.degraded is not None:
            said.known.append(
                f"{step.key} is degraded: it gave up with {step.degraded}, and its fallback's "
                "value was used."
            )
    case.do("To see its result:", case.cmd("show"))


def _degraded_note(row: RunRow) -> str:
    if not row.degraded:
        return ""
    return f", with {count(row.degraded, 'degraded step')}"


def _failed(case: RunCase) -> None:
    past, said = case.past, case.said
    facts = {} if past.failed is None else facts_of(past.failed)
    error = facts.get("error", {})
    told = clipped(f"{error.get('type', 'an error')}: {error.get('message', '')}")
    said.case = f"{case.name} failed: {told}"
    said.known.append(
        f"It failed {case.since(case.row.updated_us if past.failed is None else past.failed.at_us)}."
    )
    if failed_in(past.failed) == FLOW:
        said.known.append(_raised_by_the_flow(past))
    for key in facts.get("steps", ()):
        record = past.records.get(key)
        if record is not None:
            tries = count(record.attempts, "attempt")
            gave_up = f"{key} gave up after {tries}: {clipped(str(error_of(record)))}"
            said.known.append(open_waits.about_end(record) or gave_up)
            if record.transaction:
                said.known.append(f"What {key} wrote was rolled back: nothing of it has happened.")
    gone = superseded_by_resume(past)
    keys = {record.key for record in gone}
    keeps = sum(
        is_step(record) and record.has_outcome and record.key not in keys
        for record in past.records.values()
    )
    if keeps > 0:
        steps = "1 step keeps its" if keeps == 1 else f"{keeps:,} steps keep their"
        said.known.append(f"{steps} recorded outcome when it is taken up again.")
    _about_anew(case, gone)
    _take_up(case, [record for record in gone if outcome_is_unknown(record)])


def _raised_by_the_flow(past: History) -> str:
    """Report that no step failed for good; an interrupted one may be why the flow raised all the same."""
    cut = [record.key for record in past.records.values() if record.state is State.CANCELLED]
    if not cut:
        return "The flow's own code raised that, and no step of it."
    return (
        "The flow's own code raised that; no step gave up. Cancelled before an outcome was recorded: "
        f"{', '.join(cut)}."
    )


def _about_anew(case: RunCase, gone: list[Record]) -> None:
    """Explain what is executed once more, and what never was and is only waited for again."""
    waited = [record for record in gone if not record.attempts and _begins_wait(record)]
    again = [record.key for record in gone if record not in waited]
    if again:
        case.said.known.append(f"Taking it up again executes these anew: {', '.join(again)}.")
    for record in waited:
        approval = record.effect or open_waits.is_approval(record)
        what = (
            f"asks for the approval of {record.key} again; nothing of it has been executed"
            if approval
            else f"waits for {record.key} again"
        )
        case.said.known.append(f"Taking it up again {what}.")


def _begins_wait(record: Record) -> bool:
    return record.begun is not None and record.begun.kind in WAIT_BEGINS


def _take_up(case: RunCase, unknown: list[Record]) -> None:
    if not unknown and case.is_block:
        case.do("Remove the cause, then run your program again.")
        return
    if not unknown:
        case.do("Remove the cause, then leave it to the workers:", case.cmd("resume"))
        case.goes_on_when_run("Or run your program again", ", or execute it here:")
        return
    for record in unknown:
        case.said.unknown.append(f"Whether {record.key} happened.")
        case.said.known += doubts.about_effect(case.store, case.row, record, case.now_us)
    names = ", ".join(record.key for record in unknown)
    case.do(
        f"Look at the other side first. If it is right to execute {names} once more:",
        case.cmd("resume", "--confirm"),
    )
    case.goes_on_when_run("Then run your program again")


def _cancelled(case: RunCase) -> None:
    case.said.case = f"{case.name} was cancelled{_by_whom(case)}, and that is final."
    case.said.known.append(f"It ended {case.since(case.row.updated_us)}.")
    case.progress()
    case.do("To do the work after all, start a new run under another id.")


def _by_whom(case: RunCase) -> str:
    last = case.store.entry(case.row.run_no, case.row.last_seq)
    told = {} if last is None else facts_of(last)
    if not told.get("actor"):
        return ""
    return f" by {told['actor']}" + (f" ({told['reason']})" if told.get("reason") else "")


def _damaged(row: RunRow, damage: Corrupt) -> Explanation:
    return Explanation(
        row.run_id,
        row.flow,
        str(row.status),
        f"Run {row.run_id} of flow {row.flow} cannot be read: {damage}.",
        known=[
            f"Its row says {row.status}, with {count(row.last_seq, 'entry', 'entries')}.",
            "Nothing is executed on damaged records, and nothing is repaired silently.",
        ],
        unknown=["What the damaged part said."],
        actions=[
            Action("Find out what else is damaged:", "holdfast store verify"),
            Action(
                "End all programs that use the store, move its files away (all whose names begin like "
                "its own), and put a backup in its place:",
                "holdfast store restore BACKUP",
            ),
        ],
    )


_STATUS: dict[Status, Callable[[RunCase], None]] = {
    Status.QUEUED: _queued,
    Status.RUNNING: _running,
    Status.WAITING: _waiting,
    Status.HELD: held,
    Status.COMPLETED: _completed,
    Status.FAILED: _failed,
    Status.CANCELLED: _cancelled,
    **STATUSES,
}


def about_fork(case: RunCase) -> None:
    """Report the origin of a fork."""
    if case.row.origin is None:
        return
    told = lineage.told_of(case.store, case.row)
    lent = sum(record.borrowed and not record.keeps_place for record in case.past.records.values())
    said = f"It was forked from run {told.origin}, before {told.before}, by {told.actor}"
    if lent:
        came = "came along and is" if lent == 1 else "came along and are"
        said += f"; {count(lent, 'outcome')} of that run {came} not executed again"
    states = [f"the state of {turn}" for turn in fork_history.states_at(case.past)]
    if states:
        said += f"; {' and '.join(states)} came along"
    case.said.known.append(said + ".")
    if told.differences:
        case.said.known.append(f"It differs from that run in: {', '.join(told.differences)}.")
    inputs = [it.removeprefix("input ") for it in told.differences if it.startswith("input ")]
    if inputs and case.row.status is Status.FAILED:
        anew = command("fork", told.origin, "NEW_RUN_ID", "--before", told.before)
        case.do(
            f"The input of a run cannot be changed. If {', '.join(inputs)} is wrong, resume fails "
            "again: fork with another input:",
            f"{anew} --input JSON",
        )
    if told.repeats:
        case.said.known.append(
            f"Effects of that run that it may execute again, which {told.actor} confirmed: "
            f"{', '.join(told.repeats)}."
        )


# -- requests to stop --------------------------------------------------------------------------


def about_control(case: RunCase) -> None:
    """Name the actor that wants the run stopped, and the time limit."""
    asked = requested(case.past)
    if asked is not None:
        who, why = asked
        because = f": {why}" if why else ""
        case.said.known.append(
            f"{who} wants it cancelled{because}. It is cancelled when every doubt is settled, and "
            "nothing more is executed."
        )
    _about_request(case)
    until_us = deadline_us(case.past)
    if until_us is not None and case.row.status not in ENDED:
        case.waits_for(Wait.DEADLINE)
        passed = (
            "that has passed, and" if until_us <= case.now_us else "if it has not ended by then"
        )
        case.said.known.append(f"Its deadline is {moment(until_us)}: {passed} it is cancelled.")


def _about_request(case: RunCase) -> None:
    """Explain what was asked of the run's owner, and is not carried out yet."""
    asked = pending_stop(case.store, case.row)
    if asked is None:
        return
    told = f"It is to be {asked.what}, as {asked.actor} asked {case.since(us(asked.at))}"
    case.said.case = f"{case.said.case.removesuffix(ALL_IS_WELL).rstrip()} {told}."
    if asked.reason:
        case.said.known.append(f"{asked.actor} said why: {asked.reason}")
    case.said.known.append(
        "That is done when what is executing now has ended, unless that was the last thing the run "
        "had to do."
    )
