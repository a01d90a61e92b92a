"""How a run goes on after a gap: what has changed is found, told, and treated by its policy.

    look ── nothing to tell ─────────────────────────────► the flow is called
      │
      └─ changes ── on_resume ── policies ─┬─ keep ──────► drift_found, the flow is called
                                           ├─ redo ──────► drift_found, next generation, called
                                           ├─ hold ──────► drift_found, run_held (drift)
                                           └─ fail ──────► drift_found, run_failed (Drifted)

Watched facts are compared by `watching`, when the flow passes them. Nothing is waited for here: what
is written goes before everything that the flow writes.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from holdfast._engine.decisions.redo import effects_behind, held_for, redo_facts
from holdfast._engine.journal.drift_record import Change
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import ENDED, ClaimedBecause
from holdfast._engine.journal.rows import Lease, RunRow
from holdfast._engine.journal.step_keys import name_of
from holdfast._engine.journal.step_record import Record
from holdfast._engine.scripts.requests import StepCall
from holdfast._engine.scripts.stops import Unwind
from holdfast._engine.values.durations import Duration, micros
from holdfast._features.drift import comparison
from holdfast._features.drift.comparison import CodeNow, ResumePreview, StepNow
from holdfast._features.drift.model import AfterGap, Policy, checked_policies, checked_policy
from holdfast._runtime import registry
from holdfast._runtime.clocks import Thread
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.fingerprints import of_code, version_text
from holdfast._runtime.execution.frames import Frame, current, here
from holdfast._runtime.execution.recorder import Recorder
from holdfast._runtime.signatures import fingerprint as of_source
from holdfast._stores import lineage
from holdfast.errors import Drifted, HoldfastError, RunHeld, UsageError

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.registry import RegisteredFlow

Versions = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
OnResume = Callable[[ResumePreview], Any]

_encode = msgspec.json.Encoder().encode


class StepDrift:
    """The options of a step that concern drift."""

    def __init__(
        self,
        step: str,
        valid_for: Duration | None = None,
        on_expired: str | None = None,
        versions: Versions | None = None,
    ) -> None:
        self._step = step
        self.valid_for_us = (
            None if valid_for is None else micros(valid_for, f"valid_for of step {step}")
        )
        self.on_expired = None
        if on_expired is not None:
            if valid_for is None:
                raise UsageError(f"on_expired= of step {step} has no effect without valid_for=")
            self.on_expired = checked_policy(on_expired, "expired", f"on_expired of step {step}")
        if versions is not None and not callable(versions):
            self._version_texts(versions)
        self._versions = versions

    @property
    def has_versions(self) -> bool:
        """Whether versions are declared, which may change from call to call."""
        return self._versions is not None

    def versions(self) -> dict[str, str]:
        """Return what the step uses now: its model, its prompt."""
        if self._versions is None:
            return {}
        found = self._versions() if callable(self._versions) else self._versions
        return self._version_texts(found)

    def _version_texts(self, found: Any) -> dict[str, str]:
        if not isinstance(found, Mapping):
            raise UsageError(
                f'versions of step {self._step}: a dict such as {{"model": MODEL}}, or a function '
                f"that returns one; not {found!r:.80}"
            )
        pairs: Mapping[Any, Any] = found  # pyright: ignore[reportUnknownVariableType]
        return {str(name): version_text(value) for name, value in pairs.items()}

    def made_by(self, fn: Callable[..., Any]) -> bytes:
        """Return what is recorded with each outcome: a part of the entry's JSON."""
        code = of_code(fn)
        parts = [b'"code":"%b"' % code.encode()] if code else []
        versions = None if self._versions is None else self.versions()
        if versions:
            parts.append(b'"versions":' + _encode(versions))
        return b",".join(parts)


def taken_from(options: dict[str, Any], step: str) -> StepDrift:
    """Take the options of a step that concern gaps out of the others."""
    names = ("valid_for", "on_expired", "versions")
    return StepDrift(step, **{name: options.pop(name) for name in names if name in options})


class FlowDrift:
    """The options of a flow that concern drift."""

    def __init__(
        self,
        flow: str,
        on_drift: Mapping[str, Policy] | None = None,
        on_resume: OnResume | None = None,
    ) -> None:
        self.policies = checked_policies(on_drift, flow)
        if on_resume is not None and not callable(on_resume):
            raise UsageError(f"on_resume of flow {flow} is a function that takes the report")
        self.on_resume = on_resume


# -- looking -----------------------------------------------------------------------------------


def code_now(flow: RegisteredFlow | None, names: Iterable[str]) -> CodeNow:
    """Return what the flow and these steps are in this process."""
    steps: dict[str, StepNow] = {}
    for name in names:
        settings = registry.steps.get(name)
        if settings is not None:
            drift: StepDrift = settings.drift
            steps[name] = StepNow(
                of_code(settings.fn),
                drift.versions(),
                drift.valid_for_us,
                drift.on_expired,
                settings.spec.key_ttl_s,
            )
    if flow is None:
        return CodeNow(steps=steps)
    return CodeNow(of_source(flow.fn), steps, dict(flow._drift.policies))  # pyright: ignore[reportPrivateUsage]


def names_in(history: History) -> set[str]:
    """Return the names of the steps that a history has records of."""
    return {name_of(key) for key in history.records}


def look(flow: RegisteredFlow | None, execution: Execution) -> ResumePreview | None:
    """Return what the run finds after a gap, or None if there was none."""
    history = execution.history
    if flow is not None:
        execution.slot(AfterGap).policies = dict(flow._drift.policies)  # pyright: ignore[reportPrivateUsage]
    drift = history.drift
    if not execution.slot(AfterGap).compares or drift.is_first or history.rollback is not None:
        return None
    assert drift.before is not None
    assert drift.claim is not None
    row = execution.lease.row
    changes = comparison.code_changes(
        history, row.flow, code_now(flow, names_in(history)), execution.engine.now_us()
    )
    why = msgspec.json.decode(drift.claim.body).get("why")
    return ResumePreview(
        row.run_id,
        row.flow,
        str(row.status),
        drift.length_us / 1e6,
        str(drift.before.kind),
        why in (ClaimedBecause.OWNER_DEAD, ClaimedBecause.LEASE_EXPIRED),
        tuple(whole_effects(execution, change) for change in changes),
        comparison.redone(history),
        tuple(record.key for record in history.open_doubts()),
    )


def whole_effects(execution: Execution, change: Change) -> Change:
    """Complete what a redo would execute again: a snapshot may hide some of it."""
    if not change.steps or change.kind == "key":
        return change
    return msgspec.structs.replace(
        change, effects=effects_behind(whole_history(execution), change.steps)
    )


def whole_history(execution: Execution) -> History:
    """Return the history with what snapshots replace."""
    row = msgspec.structs.replace(execution.lease.row)
    if row.skips == "[]":
        return execution.history
    return lineage.fold(execution.engine.backend, row)


def used_since(execution: Execution, call: StepCall) -> list[Draft]:
    """Return the entry that reports that a model call after a gap used another model, prompt or tools than
    earlier calls of that step, as `record_usage` says. Declared versions are compared before."""
    name = name_of(call.key)
    said = call.attempt.usage or {}
    used = {kind: str(said[kind]) for kind in comparison.USED if kind in said}
    was = comparison.used_by(execution.history, name)
    settings = registry.steps.get(name)
    declared: dict[str, Any] = {} if settings is None else settings.drift.versions()
    changes = [
        Change(kind, name, was[kind], now, "keep", did="keep")
        for kind, now in used.items()
        if kind in was and kind not in declared
        if now not in (was[kind], execution.history.drift.accepted.get(f"{kind}:{name}"))
    ]
    if not changes:
        return []
    body = _encode({"changes": changes})
    execution.history.drift.add_found(msgspec.json.decode(body))
    return [Draft(Kind.DRIFT_FOUND, execution.engine.now_us(), body=body)]


# -- deciding and acting -----------------------------------------------------------------------


def begin(flow: RegisteredFlow, execution: Execution) -> None:
    """Before a sync flow is called: find what has changed, and do what its policies say."""
    report = look(flow, execution)
    if report is not None:
        answer = _asked(flow, report)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise UsageError(
                f"on_resume of flow {flow.name} is async, and the flow is not; make it a plain "
                "function"
            )
        act(execution, report, _checked(flow, answer))


async def begin_async(flow: RegisteredFlow, execution: Execution) -> None:
    """Before an async flow is called: the same, and the hook may be async."""
    report = look(flow, execution)
    if report is not None:
        answer = _asked(flow, report)
        if inspect.isawaitable(answer):
            with _outside(execution):
                answer = await answer
        act(execution, report, _checked(flow, answer))


def begin_block(execution: Execution | Any) -> None:
    """Before a block is entered that goes on with its run: the same, without policies of a flow."""
    report = look(None, execution)
    if report is not None:
        act(execution, report, None)


def _asked(flow: RegisteredFlow, report: ResumePreview) -> Any:
    """Ask the flow's hook, outside the run: nothing of it is recorded."""
    hook = flow._drift.on_resume  # pyright: ignore[reportPrivateUsage]
    frame = current.get()
    assert frame is not None
    drift = frame.execution.history.drift
    if hook is None or drift.free or (drift.was_asked_for and not report.changes):
        return None
    with _outside(frame.execution):
        return hook(report)


@contextlib.contextmanager
def _outside(execution: Execution) -> Generator[None, None, None]:
    """While a hook is at work: it is no part of the run, and may hold it."""
    token = current.set(None)
    try:
        yield
    except RunHeld as held:
        raise execution.stop(Unwind(held)) from None
    finally:
        current.reset(token)


def _checked(flow: RegisteredFlow, answer: Any) -> str | None:
    if answer in (None, "keep", "hold", "fail"):
        return None if answer is None else str(answer)
    raise UsageError(
        f"on_resume of flow {flow.name} returned {answer!r:.80}; it returns None (as the policies "
        'say), "keep", "hold" or "fail"'
    )


def act(execution: Execution, report: ResumePreview, answer: str | None) -> None:
    """Write down what was found, and do what is decided about it."""
    changes = [decided(change, answer) for change in report.changes]
    fates = {change.did for change in changes} | {answer or ""}
    if not changes and not fates & {"hold", "fail"}:
        return
    if fates & {"hold", "fail"}:
        changes = [_put_off(change) for change in changes]
    found = msgspec.structs.replace(report, changes=tuple(changes))
    facts: dict[str, Any] = {
        "gap_us": int(report.gap_s * 1e6),
        "died": report.died,
        "redone": report.redone,
        "in_doubt": report.in_doubt,
        "changes": changes,
    }
    write(execution, facts, redo=[key for c in changes if c.did == "redo" for key in c.steps])
    said = "; ".join(map(str, changes)) or "its on_resume says so"
    if "fail" in fates:
        raise Drifted(f"the run goes no further after a gap: {said}", found)
    if "hold" in fates:
        detail = "" if changes else "on_resume held it after a gap"
        raise execution.stop(Unwind(held_for(execution.run_id, changes, detail)))


def decided(change: Change, answer: str | None = None) -> Change:
    """Describe the treatment of a change."""
    if answer is not None:
        did = answer
    elif change.policy == "hold" or (change.policy == "redo" and change.effects):
        did = "hold"
    else:
        did = change.policy
    if change.kind == "key" and did in ("hold", "keep"):
        did = "in_doubt"  # It is held as that, or settled by a function: the key is never sent.
    return msgspec.structs.replace(change, did=did)


def _put_off(change: Change) -> Change:
    """Leave a redo to be decided when the run goes on."""
    return msgspec.structs.replace(change, did="") if change.did == "redo" else change


def write(
    execution: Execution, facts: dict[str, Any], redo: list[str], **place: Any
) -> dict[str, Any]:
    """Write what was found in a gap, and leave behind what is to be done again."""
    row_changes: dict[str, Any] = {}
    history = execution.history
    at_us = execution.engine.now_us()
    with execution.lock:
        if redo:
            facts |= redo_facts(whole_history(execution), redo)
            row_changes["generation"] = facts["generation"]
        expired = [c for c in facts["changes"] if c.kind == "expired" and c.did == "keep"]
        if expired:
            facts["accepted"] = {change.token: str(at_us) for change in expired}
        body = _encode(facts)
        execution.recorder.write(
            [Draft(Kind.DRIFT_FOUND, at_us, body=body, **place)], None, row_changes, lazily=True
        )
        told: dict[str, Any] = msgspec.json.decode(body)
        history.drift.add_found(told)
        if redo:
            history.supersede(told)
            execution.replay.unreplayed = sum(
                record.has_outcome
                for records in history.unconsumed(execution.replay.consumed)
                for record in records
            )
    return facts


def compare(execution: Execution) -> None:
    """Compare what a run uses with what it used before."""
    execution.slot(AfterGap).compares = True
    execution.recorder.derive_entries.append(used_since)


# -- looking without taking up -----------------------------------------------------------------


class _Ends(HoldfastError):
    """The record ends here."""


def _ends() -> Unwind:
    return Unwind(_Ends("the record ends here"))


class _Record(History):
    """A history that ends a replay where it has no outcome."""

    def match(self, key: str, position: int | None, args_digest: bytes | None) -> Record | None:
        """Return the record of this call, or end."""
        record = super().match(key, position, args_digest)
        if record is None or not record.has_outcome:
            raise _ends()
        return record


class _WritesNothing(Recorder):
    """The recorder of a run that is only looked at: a write ends the look."""

    def append(self, *_args: Any, **_options: Any) -> NoReturn:
        raise self._execution.stop(_ends())

    def write(self, *_args: Any, **_options: Any) -> NoReturn:
        raise self._execution.stop(_ends())

    def prepared(self, *_args: Any, **_options: Any) -> NoReturn:
        raise self._execution.stop(_ends())


def looked(
    engine: Engine, row: RunRow, past: History
) -> tuple[CodeNow | None, list[Change], frozenset[str]]:
    """Return what the code of this process says of a run, None if it has none of it; which watched
    facts are not as they were, and which steps were looked at."""
    flow = registry.flows.get(row.flow)
    now = code_now(flow, names_in(past))
    if flow is None:
        return (now if now.steps else None), [], frozenset()
    if row.status in ENDED or flow.is_method:
        return now, [], frozenset()
    seen, consumed = facts_changed(engine, flow, row)
    return now, seen, frozenset(consumed)


def facts_changed(
    engine: Engine, flow: RegisteredFlow, row: RunRow
) -> tuple[list[Change], set[str]]:
    """Return which watched facts are not as they were, and the steps of those that were looked at. The
    run is not taken up.

    The flow's own code is executed on the recorded outcomes, up to the first call that has none. No step
    is called and nothing is written; only what it watches is looked at, with the functions that it gives.
    """
    skips = [(int(low), int(high)) for low, high in msgspec.json.decode(row.skips)]
    history = lineage.fold(engine.backend, row, skips, empty=_Record(row.run_id))
    look = Execution(engine, Lease(row), history, engine.values(row), awaits=flow.awaits)
    look.recorder = _WritesNothing(look)
    seen: list[Change] = []
    look.slot(AfterGap).compares, look.slot(AfterGap).seen = True, seen
    look.slot(AfterGap).policies = dict(flow._drift.policies)  # pyright: ignore[reportPrivateUsage]
    # In a thread of its own: the caller may be in an event loop, or inside another run.
    thread = Thread(target=_replay, name="holdfast-look", args=(flow, look))
    thread.start()
    thread.join()
    return seen, set(look.replay.consumed)


def _replay(flow: RegisteredFlow, look: Execution) -> None:
    try:
        args, kwargs = flow._arguments_of(look)  # pyright: ignore[reportPrivateUsage]
        if flow.awaits:
            import asyncio

            asyncio.run(_awaited(flow, look, args, kwargs))
            return
        current.set(Frame(look, look.root, here(awaits=False), awaits=False))
        flow._function()(*args, **kwargs)  # pyright: ignore[reportPrivateUsage]
    except BaseException:
        return


async def _awaited(
    flow: RegisteredFlow, look: Execution, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    current.set(Frame(look, look.root, here(awaits=True), awaits=True))
    await cast("Any", flow._function())(*args, **kwargs)  # pyright: ignore[reportPrivateUsage]
