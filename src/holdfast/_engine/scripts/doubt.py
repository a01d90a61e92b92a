"""A doubt about an effect: its reason, the message for people and the actions that settle it."""

from __future__ import annotations

from typing import Any

from holdfast._engine.command_lines import command
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import KeyState
from holdfast._engine.scripts.attempts import error_facts
from holdfast._engine.scripts.requests import Note, Spec, StepCall
from holdfast._engine.scripts.stops import Unwind
from holdfast.errors import RunHeld

OTHER_ARGS = (
    "it was called with other arguments than now (a change was accepted), so to call it again would "
    "not repeat it, and nobody can ask about it for you: see what it was called with, and say what "
    "came of that"
)


class Doubt:
    """Why an effect is in doubt, and whether the attempt that left it so has ended."""

    def __init__(
        self,
        why: str,
        ended: bool,
        error: BaseException | None = None,
        lost_us: int | None = None,
        other: str = "",
        recorded: dict[str, str] | None = None,
    ) -> None:
        self.why = why
        self.ended = ended
        self.error = error
        self.told = recorded if error is None else error_facts(error)
        """Type and message of the exception, also where only the journal has it."""
        self.lost_us = lost_us
        self.other = other
        """The effect that it may repeat."""
        self.other_args = False
        """Whether it is called with different arguments now, because somebody accepted a change of
        the flow."""

    def note(self, spec: Spec, more: dict[str, Any] | None = None) -> Note:
        facts: dict[str, Any] = {"why": self.why, "ended": self.ended, **(more or {})}
        facts |= returned_by(spec)
        if self.other:
            facts["other"] = self.other
        if self.told is not None:
            facts["error"] = self.told
        return Note(Kind.STEP_IN_DOUBT, facts)


def returned_by(spec: Spec) -> dict[str, Any]:
    """Return the description of the result in the entry of a doubt, to settle it without the code."""
    schema = None if spec.returns is None else spec.returns.schema()
    return {"returns": schema} if schema else {}


def with_value(run_id: str, key: str) -> str:
    """Return the command for a run whose effect was settled with a wrong value: the settlement is
    recorded, so a new run continues with the right value and executes nothing again."""
    return command("fork", run_id, "NEW_RUN_ID", "--before", key, "--result", f"{key}=JSON")


DOUBTS = {
    "process_died": "its process died after it was started and before its outcome was recorded",
    "error": "it raised an error that does not say whether it happened",
    "timeout": "it ran out of time, and the request may still have been carried out",
    "value_lost": "it returned, so it happened, but its result could not be stored",
    "interrupted": "it was interrupted while it was at work",
    "data_loss": "the store lost records, so it may have happened before",
    "repeated": "the run did the same before, or may have done it, under another key",
    "key_expired": "its key is older than key_ttl=, and is not shown to the other side again",
}
"""The meaning of each kind of doubt, for people."""


def held(
    call: StepCall, doubt: Doubt, run_id: str, more: str = "", *, too_old: bool = False
) -> Unwind:
    """Stop the run: a person must settle the effect."""
    detail = f"{call.key} may or may not have happened: {DOUBTS[doubt.why]}"
    if doubt.why == "value_lost":
        detail = f"{call.key} happened, but {DOUBTS['value_lost'].partition('but ')[2]}"
    if doubt.why == "repeated":
        detail = (
            f"{call.key} may be the repetition of {doubt.other}, which this run has not come back to. "
            "A model that is asked again chooses new ids for its calls: were its answers recorded "
            "(a durable transport or adapter), and streams read to their end before a call was made?"
        )
    if doubt.told is not None:
        detail += f" ({doubt.told['type']}: {doubt.told['message']})"
    if more:
        detail += f"; {more}"
    if doubt.why == "error" and doubt.told is not None and not call.spec.transaction:
        detail += f". {declaration(doubt.told['type'])}"
    done, not_done, fail = settle_actions(run_id, call.key)
    # A key that is too old is never sent: "not done" would hold the run again.
    decided = too_old or doubt.why in ("value_lost", "key_expired")
    actions = (done, fail) if decided else (done, not_done, fail)
    return Unwind(RunHeld(run_id, "in_doubt", detail, actions, step=call.key))


def declaration(error: str) -> str:
    """Return the declaration for an exception that proves that nothing happened."""
    return f'If {error} always means "not done", add to its decorator: not_done_on=({error},)'


def was_effect(call: StepCall, run_id: str) -> Unwind:
    """Stop the run: a call that is a step now began as an effect, and is not simply executed
    again."""
    detail = (
        f"{call.key} may or may not have happened: it was an effect when it was begun, and its outcome "
        "is not known. It is a step now, and a step would be executed again"
    )
    return Unwind(
        RunHeld(run_id, "in_doubt", detail, settle_actions(run_id, call.key), step=call.key)
    )


def held_on_key(call: StepCall, taken: KeyState, run_id: str) -> Unwind:
    """Stop the run: the key of the effect is in doubt in another run."""
    detail = (
        f"{call.key} uses the key {call.business_key!r}, which is in doubt in run "
        f"{taken.run_id!r} at {taken.step}; settling one of them frees both"
    )
    actions = settle_actions(run_id, call.key)
    held = RunHeld(run_id, "in_doubt", detail, actions, step=call.key)
    return Unwind(held, waiting_on=key_token(taken.effect, taken.key))


def key_token(effect: str, key: str) -> str:
    """Return the `waiting_on` of a run that is held for another run's key."""
    return f"key:{effect}:{key}"


def settle_actions(run_id: str, step: str) -> tuple[str, ...]:
    """Return the commands that settle a doubt."""
    return (
        command("settle", run_id, step, "--done", "JSON") + "    (it happened; this is its result)",
        command("settle", run_id, step, "--not-done") + "     (it did not happen: it will be run)",
        command("settle", run_id, step, "--fail", "REASON") + "  (give it up)",
    )
