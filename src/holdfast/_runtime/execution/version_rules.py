"""Rules of a rolling deploy: which versions of a flow's runs a worker takes, and how an older run continues.

A worker takes a run if its version is the flow's own or one that the flow accepts; `flow.run` takes
any. An older run is replayed exactly, position by position, like any other. With its first new entry
the run becomes one of the newer version, in the same transaction: from then on a worker with the older
code, which could not replay that entry, no longer takes it. If the newer code does not fit, it writes a
note with its fingerprint and releases the run for code of the older version; no worker tries it again
with the same code.

Code of the run's own version that does not fit holds the run as diverged, with the fingerprints of all
code that has tried (`stops.Tried`). A process with other code tries it again, once, without a person.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.step_keys import check_label
from holdfast._engine.scripts.stops import CLASS, VALUE, Tried
from holdfast._engine.values.class_registry import KNOWN
from holdfast._runtime import registry
from holdfast._runtime.execution.fingerprints import of_code
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._engine.journal.rows import RunRow
    from holdfast._runtime.registry import RegisteredFlow

_ENDS = frozenset({Kind.RUN_COMPLETED, Kind.RUN_FAILED})
"""Entries of no step that only code can have written that came to the end of the record."""


def accepted(flow: str, versions: Iterable[str]) -> tuple[str, ...]:
    """Return the older versions that a flow accepts, or raise a UsageError."""
    if isinstance(versions, str):
        raise UsageError(
            f"flow {flow}: accepts_versions={versions!r} is a string; write ({versions!r},)"
        )
    return tuple(check_label(f"a version that flow {flow} accepts", text) for text in versions)


class Upgrade:
    """A run of an older version that is executed by newer code."""

    def __init__(self, flow: str, version: str) -> None:
        self.flow = flow
        self.version = version

    def joins(
        self, drafts: list[Draft], changes: dict[str, Any], history: History, consumed: set[str]
    ) -> bool:
        """Join the first write that goes beyond what is recorded; False if this does not: it says
        something of the run, or part of the record has not been replayed yet."""
        if not any(draft.step is not None or draft.kind in _ENDS for draft in drafts):
            return False
        if any(record.has_outcome for record in history.unconsumed(consumed)[0]):
            return False
        facts = {"actor": f"version {self.version} of {self.flow}", "exact": True}
        body = msgspec.json.encode(facts)
        drafts.insert(0, Draft(Kind.CHANGE_ACCEPTED, drafts[0].at_us, body=body))
        changes["version"] = self.version
        return True


# -- code of the same version that does not fit ------------------------------------------------


def mark(code: str, differs: str | None, about: str) -> str:
    """Return what stands for the code that could not replay a run. Classes, and whether a name is one
    of a step or of a flow, are no part of a flow's fingerprint: where one of these does not fit, it is
    named, with what it is today."""
    return code if differs is None else f"{code}+{differs}:{about}={_today(differs, about)}"


def has_tried(tried: Sequence[str], code: str) -> bool:
    """Return whether code of this fingerprint has tried a run, with the class or name as it is today."""
    for one in tried:
        if one == code:
            return True
        if one.startswith(f"{code}+"):
            differs, _, rest = one.removeprefix(f"{code}+").partition(":")
            about, _, was = rest.rpartition("=")
            if was == _today(differs, about):
                return True
    return False


def is_new_to(row: RunRow, flow: RegisteredFlow) -> bool:
    """Return whether a run is held as diverged by other code only than that of this flow."""
    tried = Tried.read(row.waiting_on)
    return tried is not None and not has_tried(tried.codes, flow.code())


def _today(differs: str, about: str) -> str:
    """Return what a class, or a name of a step or flow, is in this process."""
    if differs == VALUE:
        found = registry.effects.get(about)
        returns = None if found is None else found.spec.returns
        schema = None if returns is None else returns.schema()
        return _digest(msgspec.json.encode(schema, order="sorted"))
    if differs != CLASS:
        kinds = ("flow", registry.flows), ("effect", registry.effects), ("step", registry.steps)
        return next((kind for kind, known in kinds if about in known), "unknown")
    cls = KNOWN.by_name(about)
    if cls is None:
        return "unknown"
    upgrade = KNOWN.upgrade(cls)
    told = [type(cls).__name__, "" if upgrade is None else of_code(upgrade)]
    told += [base.__qualname__ for base in cls.__mro__]
    told += list(getattr(cls, "__members__", ()))
    with contextlib.suppress(NameError):  # Of an annotation that nobody can resolve.
        for base in reversed(cls.__mro__):
            fields = inspect.get_annotations(base)
            told += [f"{name}: {_ADDRESS.sub('', str(it))}" for name, it in fields.items()]
    return _digest("\0".join(told).encode())


def _digest(told: bytes) -> str:
    return hashlib.blake2b(told, digest_size=6).hexdigest()


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
