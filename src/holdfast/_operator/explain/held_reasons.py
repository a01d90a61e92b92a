"""Explain why a run is held and what frees it: one function per reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast._engine.command_lines import command
from holdfast._engine.decisions.control import requested
from holdfast._engine.decisions.resume import held_facts, moved_to
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.history import History, Record
from holdfast._engine.journal.lifecycle import HeldReason
from holdfast._engine.journal.rows import OPEN_KEYS, KeyState
from holdfast._engine.scripts.doubt import with_value
from holdfast._engine.scripts.step_script import UNCHANGED
from holdfast._engine.scripts.stops import CLASS, SORT, VALUE, Tried
from holdfast._engine.text import count
from holdfast._operator.explain import doubts
from holdfast._operator.explain.open_waits import about_waits, waiting
from holdfast._operator.explain.run_case import RunCase
from holdfast._operator.read.feature_sides import HOLDS
from holdfast._operator.read.run_views import fold
from holdfast._operator.read.step_views import counts_of
from holdfast._stores.lookups import existing_row


def held(case: RunCase) -> None:
    reason = str(case.row.held_reason)
    if reason in HOLDS:
        case.progress()
        HOLDS[HeldReason(reason)].explain(case)
    else:
        _REASON.get(reason, _held_otherwise)(case)
    case.said.known.append(f"It was held {case.since(_held_us(case))}.")
    asks = [record for record, begun in waiting(case.past) if begun.kind is Kind.QUESTION_ASKED]
    if asks and case.said.actions:
        about_waits(case)
        case.said.known.append("An answer is kept, and taken when the run goes on; it stays held.")


def _held_us(case: RunCase) -> int:
    return case.row.updated_us if case.past.held is None else case.past.held.at_us


def _in_doubt(case: RunCase) -> None:
    said, open_doubts = case.said, case.past.open_doubts()
    key = doubts.key_waited_for(case.store, case.row)
    for record in open_doubts:
        said.known += doubts.about_effect(case.store, case.row, record, case.now_us)
        said.unknown += doubts.not_known(record)
    if open_doubts:
        said.case = f"{case.name} is held: {_verdict(case, open_doubts)}"
    elif key is not None:
        _on_the_key_of_another(case, key)
    else:
        said.case = f"{case.name} is held: {held_facts(case.past).get('detail', 'in doubt')}"
    case.progress()
    ends = requested(case.past) is not None
    for record in open_doubts:
        for meaning, arguments in doubts.ways_out(record, case.now_us):
            said_so = meaning.partition(" (")[0] + " (then the run is cancelled):"
            case.do(said_so if ends else meaning, case.cmd("settle", record.key, *arguments))


def _verdict(case: RunCase, open_doubts: list[Record]) -> str:
    """What the process said when it held the run, if it spoke of what is open now."""
    held = held_facts(case.past)
    if len(open_doubts) == 1 and open_doubts[0].key == held.get("step") and held.get("detail"):
        return f"{held['detail']}."
    names = " and ".join(record.key for record in open_doubts)
    return doubts.verdict(open_doubts[0], names)


def _on_the_key_of_another(case: RunCase, key: KeyState) -> None:
    said = case.said
    step = str(held_facts(case.past).get("step"))
    state = "in doubt" if key.state == "in_doubt" else "in progress"
    said.case = (
        f"{case.name} is held: {step} needs the business key {key.key}, which is {state} in run "
        f"{key.run_id} at {key.step}."
    )
    said.known += doubts.about_key(key)
    other = existing_row(case.store, key.run_id)
    record = fold(case.store, other).records.get(key.step)
    if key.state not in OPEN_KEYS:
        said.case = f"{case.name} was held on the business key {key.key}, which is settled since."
        said.known.append("The run goes on with that as soon as it is released.")
        case.do(
            "Release it (what was settled there stays as it is):",
            case.cmd("settle", step, "--not-done"),
        )
        return
    if record is None or record.has_outcome:
        said.known.append(
            f"Run {key.run_id} gave {key.step} up without knowing whether it happened."
        )
        said.unknown.append(f"Whether {key.step} of run {key.run_id} happened.")
        case.do(
            "If it did not happen, it is executed here:", case.cmd("settle", step, "--not-done")
        )
        return
    of = f" of run {key.run_id}"
    said.known += doubts.about_effect(case.store, other, record, case.now_us, of=of)
    said.unknown += doubts.not_known(record)
    said.case += " Settling it as done or as not done frees both."
    for meaning, arguments in doubts.ways_out(record, case.now_us):
        stays = f"Give {key.step} up there (this run stays held, since nobody knows):"
        told = stays if "--fail" in arguments else meaning
        case.do(told, command("settle", key.run_id, key.step, *arguments))


def _diverged(case: RunCase) -> None:
    held, said = held_facts(case.past), case.said
    said.case = f"{case.name} is held as diverged: {held.get('detail', '')}"
    case.progress()
    done = [r.key for r in case.past.records.values() if r.effect and r.has_outcome]
    if done:
        said.known.append(f"Effects that have happened and are recorded: {', '.join(done)}.")
    tried = Tried.read(case.row.waiting_on)
    if tried is not None:
        said.known.append(
            f"Code that could not replay it (version/fingerprint): {tried.as_text()}. A worker whose flow "
            f"{case.row.flow} has other code replays it once more by itself."
        )
    if held.get("differs") == VALUE:
        said.unknown.append("Whether the value is wrong, or what the effect is declared to return.")
        case.goes_on_when_run("If the value is right, declare it, then run your program again")
        fork = with_value(case.row.run_id, str(held.get("step", "")))
        case.do("Else go on in a new run, with the right value (JSON stands for it):", fork)
        return
    said.unknown.append("Whether the code was meant to change for runs that were under way.")
    if held.get("differs") == CLASS:
        case.goes_on_when_run(
            "Put the class back as it was, or register an upgrade for what is stored, then run your "
            "program again"
        )
        case.do("Or, if a worker has that code:", case.cmd("resume"))
        return
    unchanged = UNCHANGED in str(held.get("detail", ""))
    back = "Make the flow call what is recorded" if unchanged else "Put the code back as it was"
    case.goes_on_when_run(f"{back}, then run your program again")
    if held.get("differs") == SORT:
        case.do(
            "Keep the changed code, with another name (name=…) for this call, which is executed:",
            case.cmd("resume", "--accept-change"),
        )
        return
    if not may_be_accepted(held):
        return
    if any("--confirm" in action for action in held.get("actions", ())):
        case.do(
            f"Keep the changed code, and confirm {confirms(case.past, held)}:",
            case.cmd("resume", "--accept-change", "--confirm"),
        )
        return
    if done:
        said.unknown.append(
            "Whether the changed code still calls them under the same keys. If it comes to a new effect "
            "before it has called them, the run is held once more."
        )
    case.do(
        "Keep the changed code: records are matched by step key alone, and calls without one are "
        "executed:",
        case.cmd("resume", "--accept-change"),
    )


def may_be_accepted(held: dict[str, Any]) -> bool:
    """Return whether the code can go on if its change is accepted. Who stopped the run knows best."""
    actions = held.get("actions", ())
    return not actions or any("--accept-change" in action for action in actions)


def confirms(past: History, held: dict[str, Any]) -> str:
    """Return what `--confirm` says of a run whose changed code does not call an effect that happened."""
    step = str(held.get("step", ""))
    if step in past.records:
        return "that it is meant to leave out effects that happened"
    return f"that {step} is to be executed as a new one"


def _quarantined(case: RunCase) -> None:
    said = case.said
    said.case = (
        f"{case.name} is quarantined: it was taken up again and again, and each process died or left "
        "it before anything new was recorded."
    )
    case.where()
    case.progress()
    case.open_effects()
    for record in case.past.open_doubts():
        for meaning, arguments in doubts.ways_out(record, case.now_us):
            case.do(meaning, case.cmd("settle", record.key, *arguments))
    said.unknown.append("Why: look at the logs of those processes (out of memory? a crash in C?).")
    case.do("Remove the cause, then let it be executed again:", case.cmd("resume"))


def _corrupt(case: RunCase) -> None:
    case.said.case = f"{case.name} is held: {held_facts(case.past).get('detail', 'it is damaged')}"
    case.progress()
    case.said.unknown.append("What the damaged part said.")
    case.do("Find out what is damaged in this store:", "holdfast store verify")
    case.do("If it was put right (a backup restored, say), go on:", case.cmd("resume"))


def _moved(case: RunCase) -> None:
    gone = moved_to(case.past)
    assert gone is not None
    case.said.case = (
        f"{case.name} was moved to {gone['url']} (namespace {gone['namespace']}) by "
        f"{gone['actor']}, and must not go on here as well."
    )
    case.progress()
    case.said.unknown.append("How it goes there: this store does not hear of it.")
    there = ("--url", str(gone["url"]), "--namespace", str(gone["namespace"]))
    case.do("See how it is there:", case.cmd("explain", *there))
    case.do(
        "Only if it is not there, or will never go on there, let it go on here:",
        case.cmd("resume", "--confirm"),
    )


def _paused(case: RunCase) -> None:
    detail = held_facts(case.past).get("detail")
    case.said.case = f"{case.name} is {detail or 'paused'}."
    case.progress()
    case.open_effects()
    case.do("Let it go on:", case.cmd("resume"))


def _held_otherwise(case: RunCase) -> None:
    held = held_facts(case.past)
    case.said.case = f"{case.name} is held ({case.row.held_reason}): {held.get('detail', '')}"
    case.progress()
    for action in held.get("actions", ()):
        case.do(str(action))
    case.do("Let it go on:", case.cmd("resume"))


def _drift(case: RunCase) -> None:
    held, said = held_facts(case.past), case.said
    said.case = (
        f"{case.name} is held, because something changed meanwhile: {held.get('detail', '')}."
    )
    said.known.append(
        f"{count(counts_of(case.past).done, 'step')} with a recorded outcome; only a redo executes any again."
    )
    case.open_effects()
    said.unknown.append("Whether what is recorded is still right, now that this has changed.")
    case.do("Keep what is recorded, and go on:", case.cmd("resume", "--keep"))
    if any("--redo" in action for action in held.get("actions", ())):
        sure = any("--confirm" in action for action in held.get("actions", ()))
        again = " (effects among it are executed again)" if sure else ""
        case.do(
            f"Do it again from {held.get('step')} on{again}:",
            case.cmd("resume", "--redo", *(["--confirm"] if sure else [])),
        )
    case.do(
        "See what else has changed (it executes nothing):",
        case.cmd("resume", "--dry-run", *(() if case.is_block else ("--app", "MODULE"))),
    )


_REASON: dict[str, Callable[[RunCase], None]] = {
    HeldReason.IN_DOUBT: _in_doubt,
    HeldReason.DIVERGED: _diverged,
    HeldReason.DRIFT: _drift,
    HeldReason.QUARANTINED: _quarantined,
    HeldReason.CORRUPT: _corrupt,
    HeldReason.PAUSED: _paused,
    HeldReason.MOVED: _moved,
}
