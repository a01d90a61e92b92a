"""Effects that a run has done, or may have done, and has not called again yet. Pure.

An effect with its own key (`pay:call_17`) is found by that key alone. If the model's answer that
chose the key was not recorded, the model is asked again and chooses another one: the same effect
comes under a new key, and nothing would reveal the repetition. An effect that is new to the journal
is therefore compared with those of its name that the run has not called again since the resume.

After an accepted change records are matched by key alone, and a renamed effect is a new one. No new
effect or child run begins while one from before the change was not called again.
"""

from __future__ import annotations

from holdfast._engine.journal.history import History
from holdfast._engine.journal.step_keys import is_undo, name_of
from holdfast._engine.journal.step_record import CHILD_RUN, Record, State, outcome_is_unknown
from holdfast._engine.scripts.requests import StepCall

_OPEN = frozenset({State.RUNNING, State.IN_DOUBT})


def _may_have_acted(record: Record) -> bool:
    if record.borrowed:
        return False
    done = record.state in (State.COMPLETED, State.SKIPPED)
    return record.sort == CHILD_RUN or (record.effect and done) or outcome_is_unknown(record)


class UnreplayedEffects:
    """The effects of a history that have keys of their own, and were not called again yet."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._by_name: dict[str, list[Record]] | None = None
        self._changed: list[Record] | None = None

    def like(self, call: StepCall, met: set[str], *, by_place: bool) -> Record | None:
        """Return an effect that a call may repeat: one of its name that is in doubt; or one
        with the same arguments that was done, unless (not `by_place`) done effects are not
        called again."""
        if self._by_name is None:
            self._by_name = self._unmatched()
        left = self._by_name.get(call.spec.name)
        if not left:
            return None
        left[:] = [record for record in left if record.key not in met]
        for record in left:
            if record.state in _OPEN or (by_place and record.args_digest == call.args_digest):
                return record
        return None

    def before_change(self, met: set[str]) -> Record | None:
        """Return an effect or child run from before an accepted change that was not called
        again."""
        if self._changed is None:
            passed = self._history.passed()
            old = self._history.old.values()
            self._changed = [it for it in old if _may_have_acted(it) and not passed(it.key)]
        self._changed = [it for it in self._changed if it.key not in met]
        return self._changed[0] if self._changed else None

    def in_doubt(self, met: set[str]) -> list[Record]:
        """Return those with an unknown outcome."""
        records = self._history.open_doubts()
        return [it for it in records if it.key not in met and self._is_ours(it)]

    def _unmatched(self) -> dict[str, list[Record]]:
        found: dict[str, list[Record]] = {}
        passed = self._history.passed()
        for record in self._history.records.values():
            done = record.state is State.COMPLETED and not passed(record.key)
            if (done or record.state in _OPEN) and record.effect and self._is_ours(record):
                found.setdefault(name_of(record.key), []).append(record)
        return found

    def _is_ours(self, record: Record) -> bool:
        return (
            record.position is None
            and not record.borrowed
            and not record.transaction
            and record.key not in self._history.old
            and not is_undo(record.key)
        )


class Replay:
    """How far a flow has come in its record."""

    def __init__(self, history: History) -> None:
        self.unreplayed = history.recorded()
        """How many records with an outcome the flow has not reached."""
        self.consumed: set[str] = set()
        """Keys of the records that the flow has asked for."""
        self.unreplayed_effects = UnreplayedEffects(history)
        """The effects that it has not called again."""

    def replayed(self, key: str) -> None:
        """The flow has reached a record with an outcome."""
        self.consumed.add(key)
        self.unreplayed -= 1
