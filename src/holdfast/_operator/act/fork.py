"""Fork a run, the time travel of an operator: start a new run from any step of an existing one.

    fork  ─► plan_fork   read the old run, cut it before the step, encode the replacement values;
              │          stop if effects would be executed again without confirmation
              └────► make        one transaction: run_started, run_forked, and the new chunks

The old run is only read, and may have any status; of a running one, the committed journal so far
counts. Nothing is executed here: the fork is queued, for a worker or for `flow.run` with its id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast._engine.command_lines import another_id, command
from holdfast._engine.decisions.action_result import check_actor
from holdfast._engine.decisions.resume import refuse_moved
from holdfast._engine.journal import fork_history
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.fork_history import NOT_GIVEN, Cut, Facts
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.journal.step_keys import check_run_id
from holdfast._engine.values.opaque_values import LenientValues, has_strangers
from holdfast._engine.values.redactor import Redact
from holdfast._stores import lineage
from holdfast._stores.contract import NewRun, Store
from holdfast._stores.expected_version import checked_etag
from holdfast._stores.lookups import existing_row
from holdfast._stores.readable_values import readable
from holdfast.errors import (
    ClassChanged,
    ConfirmationRequired,
    Corrupt,
    RunConflict,
    RunDeleted,
    UsageError,
)


class Fork(msgspec.Struct, frozen=True):
    """A fork that was made."""

    run_id: str
    flow: str
    origin: str
    """The run that it came from."""
    before: str
    """The first call that is the fork's own."""
    borrowed: int
    """How many outcomes came along."""
    states: tuple[str, ...] = ()
    """Turns of loops whose states came along: they stand for all turns before them."""
    differences: tuple[str, ...] = ()
    """The values that were replaced."""
    repeats: tuple[str, ...] = ()
    """Effects of the other run that it may execute again, under new keys."""
    created: bool = True
    """False: the same fork was made before."""
    input_checked: bool | None = None
    """Whether an input in JSON was checked against the flow's annotations; null without an input."""


class ForkPreview(msgspec.Struct, frozen=True):
    """A fork before it is made, and the effects that it may repeat."""

    origin: str
    """The run that it would come from."""
    before: str
    """The first call that would be the fork's own."""
    differences: tuple[str, ...]
    """The values that would be replaced: input, state or results."""
    effects: tuple[fork_history.Repeated, ...]
    """Effects of the other run that it may execute again, under new keys; they must be confirmed."""


class Plan(msgspec.Struct):
    """A fork that is ready to be written."""

    origin: RunRow
    cut: Cut
    facts: Facts
    new: NewRun
    repeats: list[fork_history.Repeated]


def preview(planned: Plan) -> ForkPreview:
    """Return the preview of a planned fork."""
    return ForkPreview(
        origin=planned.origin.run_id,
        before=planned.facts.before,
        differences=tuple(planned.facts.differences),
        effects=tuple(planned.repeats),
    )


def fork(
    store: Store,
    run_id: str,
    new_run_id: str,
    *,
    before: str,
    input: Mapping[str, Any] | None = None,
    state: Any = NOT_GIVEN,
    results: Mapping[str, Any] | None = None,
    actor: str,
    confirm: bool = False,
    redact: Redact | None = None,
    expected_version: str | None = None,
) -> Fork:
    """Make a new run of an old one, from before a step."""
    planned = plan_fork(
        store,
        run_id,
        new_run_id,
        before=before,
        input=input,
        state=state,
        results=results,
        actor=actor,
        redact=redact,
        expected_version=expected_version,
    )
    if planned.repeats and not confirm:
        raise not_confirmed(planned)
    return make(store, planned)


def plan_fork(
    store: Store,
    run_id: str,
    new_run_id: str | None,
    *,
    before: str,
    input: Mapping[str, Any] | None = None,
    state: Any = NOT_GIVEN,
    results: Mapping[str, Any] | None = None,
    actor: str,
    redact: Redact | None = None,
    expected_version: str | None = None,
) -> Plan:
    """Plan a fork without writing anything; a preview needs no id. `redact` removes what must not be
    stored from what is given."""
    check_actor(actor)
    if new_run_id is not None:
        check_run_id(new_run_id)
    row = existing_row(store, run_id)
    etag = checked_etag(store, row, expected_version)
    entries = store.load(row)
    cut = fork_history.cut_before(run_id, before, entries, lineage.borrowed(store, row))
    _check_here(cut)
    chunks = lineage.chunks_of(store, row)
    given = _Given(cut, LenientValues(chunks, next_chunk=max(row.next_chunk, 1)))
    given.values.redact = redact
    started, digest = given.input(row, input)
    for key, value in (results or {}).items():
        given.result(key, value)
    if state is not NOT_GIVEN:
        given.state(state)
    repeats = fork_history.repeated(cut, given.results)
    old_results, old_states = fork_history.inherited(cut)
    told = Facts(
        origin=run_id,
        from_seq=max(cut.seq - 1, 0),
        before=cut.step,
        actor=actor,
        parts=fork_history.parts_of(cut, entries),
        differences=given.differences,
        repeats=[effect.step for effect in repeats],
        given=given.digest(digest),
        results=list({**dict(old_results), **given.results}.items()),
        states=[one for one in old_states if one[0] not in given.states]
        + list(given.states.values()),
    )
    at_us = store.now_us()
    new = NewRun(
        run_id=new_run_id or "",
        flow=row.flow,
        version=row.version,
        input_digest=digest,
        drafts=[
            Draft(Kind.RUN_STARTED, at_us, body=started),
            Draft(Kind.RUN_FORKED, at_us, body=msgspec.json.encode(told)),
        ],
        chunks=given.values.take_fresh(),
        tags=row.tags,
        queue=row.queue,
        priority=row.priority,
        limit_key=row.limit_key,
        origin=msgspec.json.encode(lineage.Origin(run_id, row.next_chunk)).decode(),
        next_chunk=row.next_chunk,
        origin_etag=etag,
    )
    if new_run_id is not None:
        _check_id(store, new_run_id, told)
    return Plan(row, cut, told, new, repeats)


def _check_id(store: Store, new_run_id: str, told: Facts) -> None:
    """Refuse the id of another run, so that a preview says so as well. Who makes the fork looks again."""
    there = store.get(new_run_id)
    if there is not None and there.deleted_us is not None:
        raise RunDeleted(new_run_id)
    if there is not None:
        _same_fork(store, there, told)


def preview_fork(
    store: Store,
    run_id: str,
    new_run_id: str | None = None,
    *,
    before: str,
    results: Mapping[str, Any] | None = None,
    actor: str,
) -> ForkPreview:
    """Return the effects that a fork from before a step would repeat, without making it. An id for it is
    refused if the fork would be."""
    planned = plan_fork(store, run_id, new_run_id, before=before, results=results, actor=actor)
    return preview(planned)


def make(store: Store, planned: Plan) -> Fork:
    """Write a fork; the same fork again returns the existing one. The transaction itself refuses an
    origin that was deleted meanwhile."""
    started = store.start(planned.new, None)
    row, told = started.row, planned.facts
    if row.deleted_us is not None:
        raise RunDeleted(row.run_id)
    if not started.created:
        _same_fork(store, row, told)
    past = fork_history.fold(row.run_id, (), lineage.borrowed(store, row))
    return Fork(
        run_id=row.run_id,
        flow=row.flow,
        origin=told.origin,
        before=told.before,
        borrowed=sum(not record.keeps_place for record in past.records.values()),
        states=tuple(fork_history.states_at(past)),
        differences=tuple(told.differences),
        repeats=tuple(told.repeats),
        created=started.created,
    )


def _same_fork(store: Store, row: RunRow, told: Facts) -> None:
    if row.origin is None:
        raise RunConflict(row.run_id, "and is no fork", another_id(row.run_id))
    there = lineage.told_of(store, row)
    for what, ours, theirs in (
        ("run", told.origin, there.origin),
        ("step", told.before, there.before),
        ("input, state or results", told.given, there.given),
    ):
        if ours != theirs:
            raise RunConflict(
                row.run_id,
                f"as a fork of run {there.origin!r} before {there.before}, with another {what}",
                another_id(row.run_id),
            )


def _check_here(cut: Cut) -> None:
    refuse_moved(cut.whole)


def not_confirmed(planned: Plan) -> ConfirmationRequired:
    """Return the error that lists the effects which a fork would repeat, and the ways to confirm."""
    run_id, new_run_id = planned.origin.run_id, planned.new.run_id
    arguments = [run_id, new_run_id, "--before", planned.facts.before]
    ways = ["store.fork(…, confirm=True)"]
    if planned.facts.differences:
        ways.append("the same `holdfast fork` with --confirm")
    else:
        ways.append(command("fork", *arguments, "--confirm"))
    return ConfirmationRequired(
        run_id,
        f"a fork of run {run_id!r} before {planned.facts.before} may execute these again, "
        "under keys of its own",
        [f"{effect.step} ({effect.what})" for effect in planned.repeats],
        ways,
    )


# -- replacement values ------------------------------------------------------------------------


class _Given:
    """Encodes the replacement values of a fork, in the space of values that it shares with its origin.

    The recorded value is read first, so that equal parts are found and not stored twice.
    """

    def __init__(self, cut: Cut, values: LenientValues) -> None:
        self.cut = cut
        self.values = values
        self.differences: list[str] = []
        self.results: dict[str, msgspec.Raw] = {}
        self.states: dict[str, tuple[str, int, msgspec.Raw]] = {}
        self._digests: list[Any] = []

    def digest(self, input_digest: bytes) -> str:
        """Return a digest of all replacement values."""
        return self.values.digest([input_digest, *self._digests]).hex()

    def input(self, row: RunRow, changed: Mapping[str, Any] | None) -> tuple[bytes, bytes]:
        """Return the body of `run_started`, and the digest of the input."""
        started = self.cut.whole.started
        assert started is not None
        node, digest = bytes(started.data()["input"]), row.input_digest
        if changed:
            recorded: dict[str, Any] = self._read(node, "`input`", self.values.decode_leniently)
            unknown = [name for name in changed if name not in recorded]
            if unknown:
                raise UsageError(
                    f"the input of run {row.run_id!r} has no {unknown[0]!r}; "
                    f"it has: {', '.join(recorded) or 'nothing'}"
                )
            for name, value in changed.items():
                if has_strangers(recorded[name]):
                    raise self._unknown("`input`")
                if self.values.digest(value) != self.values.digest(recorded[name]):
                    self.differences.append(f"input {name}")
            node = self.values.encode({**recorded, **changed}, "input")
            digest = self.values.digest({**recorded, **changed})
        rest = {**started.data(), "input": msgspec.Raw(node)}
        return msgspec.json.encode(rest), digest

    def result(self, key: str, value: Any) -> None:
        """Take a result in the place of the recorded one."""
        fork_history.check_replaceable(self.cut, key)
        record = self.cut.whole.records[key]
        data = {} if record.outcome is None else record.outcome.data()
        node = data.get("result", data.get("value"))
        if node is not None:
            self._read(bytes(node), "`results`")
        self.results[key] = msgspec.Raw(self.values.encode(value, f"results[{key!r}]"))
        self.differences.append(f"result of {key}")
        self._digests.append([key, self.values.digest(value)])

    def state(self, value: Any) -> None:
        """Take the state with which the turn begins."""
        if self.cut.loop is None:
            raise UsageError(
                f"`state` is for a loop of turns; {self.cut.step} of run {self.cut.whole.run_id!r} is "
                "in no loop"
            )
        loop, turn = self.cut.loop
        saved = self.cut.past.saved.get(loop)
        if saved is not None:
            was = self._read(bytes(saved.data()["state"]), "`state`")
            if type(was) is not type(value):
                raise UsageError(
                    f"the state of {loop} is of type {type(was).__name__}, not "
                    f"{type(value).__name__}"
                )
        node = msgspec.Raw(self.values.encode(value, "state"))
        self.states[loop] = (loop, turn, node)
        self.differences.append(f"state of {loop}[{turn}]")
        self._digests.append([loop, turn, self.values.digest(value)])

    def _read(self, node: bytes, what: str, decode: Callable[[bytes], Any] | None = None) -> Any:
        try:
            return (decode or self.values.decode)(node)
        except (Corrupt, ClassChanged):
            readable(node, self.values)  # Raises, if it is damaged.
            raise self._unknown(what) from None

    def _unknown(self, what: str) -> UsageError:
        return UsageError(
            f"{what} replaces a value of a class that this process does not know; fork run "
            f"{self.cut.whole.run_id!r} from Python, where it is imported: store.fork(…)"
        )
