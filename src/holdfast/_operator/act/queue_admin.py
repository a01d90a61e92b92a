"""Change the limits of a queue, and resume many runs of a queue together."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.journal.step_keys import check_label
from holdfast._operator.act import run_decisions
from holdfast._operator.read import queue_views
from holdfast._stores import audit_log
from holdfast._stores.contract import Limits, Query, Store
from holdfast.errors import HoldfastError, UsageError

PAGE = 500


class Resumed(msgspec.Struct, frozen=True):
    """The result for one of the runs that are resumed together."""

    run_id: str
    did: str
    error: str | None = None


def set_limits(store: Store, limits: Limits, actor: str) -> None:
    """Set the limits of a queue. The audit log has the actor before the limits hold."""
    allows = queue_views.limit_fields(limits)
    audit_log.record(store, actor, f"queue {limits.queue}", "set", **allows)
    store.set_limits(limits)


def set_paused(store: Store, queue: str, *, paused: bool, actor: str) -> None:
    """Pause a queue, or resume it; its limits stay. A queue may be paused before it has a run."""
    name = check_label("the name of a queue", queue)
    limits = queue_views.existing_limits(store, name)
    if limits is None and not paused:
        raise queue_views.no_queue(name)
    limits = limits or Limits(name)
    set_limits(store, msgspec.structs.replace(limits, paused=paused), actor)


class Many(msgspec.Struct, frozen=True):
    """The runs to resume together: of a queue and a flow (None is any), "failed", "quarantined" or
    "diverged". Diverged runs are replayed once more, unless the change of their code is accepted."""

    queue: str | None = None
    status: str = "failed"
    flow: str | None = None
    accept_change: bool = False

    def check(self) -> None:
        """Refuse combinations that select no runs."""
        if self.status == "diverged" and self.flow is None:
            raise UsageError(
                "diverged runs are resumed flow by flow: give the changed one as `flow`"
            )
        if self.accept_change and self.status != "diverged":
            raise UsageError(f"`accept_change` is for diverged runs, not for {self.status} ones")


def matching_runs(store: Store, many: Many) -> Iterator[RunRow]:
    """Yield the matching runs, newest first."""
    many.check()
    query = Query(status=[Status.FAILED], queue=many.queue, flow=many.flow, limit=PAGE)
    if many.status != "failed":
        query.status, query.held_reason = [Status.HELD], HeldReason(many.status).value
    while True:
        rows = store.list(query)
        yield from rows
        if len(rows) < PAGE:
            return
        query.before_run_no = rows[-1].run_no


def resume_all(store: Store, many: Many, actor: str) -> Iterator[Resumed]:
    """Resume all matching runs; the error of one (such as an effect in doubt) does not stop the
    others."""
    again = many.status == "diverged"
    for row in matching_runs(store, many):
        try:
            answer = run_decisions.resume(
                store, row.run_id, actor=actor, accept_change=many.accept_change, again=again
            )
        except HoldfastError as error:
            yield Resumed(row.run_id, "left as it is", str(error))
        else:
            yield Resumed(row.run_id, answer.did)
