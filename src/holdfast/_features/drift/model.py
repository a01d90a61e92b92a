"""Drift: changes of code, files and models while no process executed a run. Pure.

Between the process that stopped and the one that goes on lies a gap: minutes or weeks, in which files,
models, prompts and code change. A recorded outcome is never asked for again, so each change is
reported, and a policy decides about it:

    keep    recorded outcomes stay as they are; the change is noted
    redo    what the change concerns, and what was recorded behind it, is done again in the next
            generation; effects among it need a confirmation
    hold    the run is held until a person says one of the two
    fail    the flow, or the run, gets `Drifted`

`_engine/journal/drift_record.py` is what the fold of a journal remembers; `comparison` finds the changes,
`_engine/decisions/redo.py` says what would be done again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from holdfast._engine.journal.drift_record import Change
from holdfast.errors import UsageError

Policy = Literal["keep", "redo", "hold", "fail"]
POLICIES = ("keep", "redo", "hold", "fail")
NO_REDO = frozenset({"flow", "key"})
"""Kinds of change that no step stands for: there is nothing to begin again from."""
DEFAULTS: dict[str, Policy] = {"fact": "hold", "expired": "hold", "key": "hold"}
"""Other changes (code, models, prompts) are noted: recorded outcomes are replayed as they are."""


def checked_policy(policy: object, kind: str, what: str) -> Policy:
    """Return a policy for a kind of change, or raise a UsageError that names the choices."""
    allowed = [name for name in POLICIES if name != "redo" or kind not in NO_REDO]
    if kind == "key":
        # A key that the other side may have forgotten is never sent: there is no going on with it.
        allowed = ["hold", "fail"]
    if policy in allowed:
        return policy  # type: ignore[return-value]
    choices = ", ".join(f'"{name}"' for name in allowed)
    raise UsageError(f"{what}={policy!r:.80}: one of {choices}")


def checked_policies(policies: object, flow: str) -> dict[str, Policy]:
    """Return what a flow does about each kind of change."""
    if policies is None:
        return {}
    if not isinstance(policies, Mapping):
        raise UsageError(
            f'on_drift of flow {flow}: a dict such as {{"model": "hold", "fact": "redo"}}, '
            f"not {policies!r:.80}"
        )
    pairs: Mapping[Any, Any] = policies  # pyright: ignore[reportUnknownVariableType]
    return {
        str(kind): checked_policy(policy, str(kind), f"on_drift[{kind!r}] of flow {flow}")
        for kind, policy in pairs.items()
    }


class AfterGap:
    """The gap before one execution."""

    def __init__(self) -> None:
        self.compares = False
        """Whether a process was at work on the run before: watched facts are looked at again."""
        self.policies: dict[str, str] = {}
        self.seen: list[Change] | None = None
        """The changes that a preview finds."""
