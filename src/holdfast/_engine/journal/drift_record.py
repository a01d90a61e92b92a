"""The record of drift: the gap in which no process executed a run, and what changed in it. Pure.

A gap lies between the process that stopped and the one that goes on. The fold of a history keeps one
`DriftRecord`; a `drift_found` entry holds a list of `Change`. The feature (`_features/drift`) decides
what is compared, and what is done about a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast._engine.journal.entries import Entry, Kind


class Change(msgspec.Struct, frozen=True):
    """One difference from what the run recorded."""

    kind: str
    """`flow` and `step` (code), `fact` (a dependency), `expired`, `key`, or the name of a version,
    such as `model` or `prompt`."""
    name: str
    """The name of the flow, step or dependency."""
    was: str
    now: str
    policy: str
    steps: tuple[str, ...] = ()
    """Recorded steps that it concerns."""
    effects: tuple[str, ...] = ()
    """Effects that a redo would execute again."""
    did: str = ""
    """The treatment: `keep`, `redo`, `hold`, `fail`, of a key `in_doubt`; empty while nothing
    has."""

    @property
    def token(self) -> str:
        """Return the name under which a run remembers that it was reported."""
        return f"{self.kind}:{self.steps[0] if self.kind == 'fact' else self.name}"

    def __str__(self) -> str:
        return f"{what_it_is(self.kind, self.name)} {self._how()}"

    def _how(self) -> str:
        if self.kind in ("expired", "key"):
            return f"{self.was}, and {self.now}"
        if self.kind in ("flow", "step"):
            return f"was changed ({self.was} is {self.now} now)"
        return f"was {self.was}, and is {self.now} now"


def what_it_is(kind: str, name: str) -> str:
    """Return the name of a change for people."""
    known = {
        "flow": f"the code of flow {name}",
        "step": f"the code of step {name}",
        "fact": f"the fact {name}",
        "expired": f"the result of {name}",
        "key": f"the idempotency key of {name}",
    }
    return known.get(kind, f"{kind} of step {name}")


class DriftRecord:
    """The gap before the last claim, and the changes that were found in gaps."""

    __slots__ = (
        "_decided",
        "accepted",
        "before",
        "broken",
        "claim",
        "found_last",
        "free",
        "last",
        "previous",
    )

    def __init__(self) -> None:
        self.last: Entry | None = None
        """The newest entry."""
        self.before: Entry | None = None
        """The last entry before the last claim."""
        self.claim: Entry | None = None
        self.previous: Entry | None = None
        """The claim before the last one, among the entries that were read."""
        self.accepted: dict[str, str] = {}
        """Reported changes that the run went on with: by token, the value of now."""
        self.broken: dict[str, dict[str, Any]] = {}
        """Watched facts whose change was raised in the flow as an error, by step."""
        self.found_last: dict[str, Any] = {}
        self.free = False
        """Whether the last claim follows a person's decision about a change."""
        self._decided = False

    def claimed(self, entry: Entry) -> None:
        """Record that a process claimed the run."""
        self.before, self.previous, self.claim = self.last, self.claim, entry
        self.free, self._decided = self._decided, False

    def decided(self, data: Mapping[str, Any]) -> None:
        """Record that somebody resumed the run, possibly with a decision about a change."""
        self.accepted.update(data.get("accepted", {}))
        self._decided = "drift" in data

    def add_found(self, data: dict[str, Any]) -> None:
        """Something was found to have changed."""
        self.found_last = data
        for change in changes_of(data):
            # An expired result is accepted for a time, which is in `accepted` below.
            if change.did in ("keep", "redo", "in_doubt") and change.kind != "expired":
                self.accepted[change.token] = change.now
            if change.did == "fail" and change.kind == "fact":
                self.broken[change.steps[0]] = {"was": change.was, "now": change.now}
        self.accepted.update(data.get("accepted", {}))

    def forget(self, step: str) -> None:
        """A step is superseded: reports about it do not apply to the next one."""
        self.broken.pop(step, None)

    @property
    def is_first(self) -> bool:
        """Whether the run had no owner before the last claim."""
        return self.before is None or self.before.kind is Kind.RUN_STARTED

    @property
    def was_asked_for(self) -> bool:
        """Whether the run itself waited meanwhile and was released for that."""
        if self.before is None or self.before.kind is not Kind.RUN_WAITING:
            return False
        return self.claim is not None and b'"why":"free"' in self.claim.body

    @property
    def length_us(self) -> int:
        """How long nothing was written before the last claim."""
        if self.before is None or self.claim is None:
            return 0
        return max(0, self.claim.at_us - self.before.at_us)


def changes_of(data: Mapping[str, Any]) -> list[Change]:
    """Return the changes of an entry."""
    return [msgspec.convert(told, Change) for told in data.get("changes", ())]
