"""The types of what each command prints with `--json`.

The pages `json.md` and `json.schema.json` in `docs/reference` are generated from this, and a test
compares the output of every command with it. Names and types stay; a later version may add fields.
A change that removes one needs another "version".
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
from msgspec import UnsetType

from holdfast._engine.decisions.action_result import Answer
from holdfast._engine.decisions.control import Stopped
from holdfast._features.drift.comparison import ResumePreview
from holdfast._features.memory.operator import MemoView, Remembered
from holdfast._features.operator_side import Explanation
from holdfast._features.rollback.operator import RollbackPreview
from holdfast._features.schedules.operator import ScheduleView
from holdfast._features.watchdog.model import Finding
from holdfast._operator.act.fork import Fork, ForkPreview
from holdfast._operator.act.garbage_collection import Collected
from holdfast._operator.act.message_actions import Answered, Sent
from holdfast._operator.act.queue_admin import Resumed
from holdfast._operator.explain.doctor import Checkup
from holdfast._operator.read.overview import Overview
from holdfast._operator.read.question_views import QuestionView
from holdfast._operator.read.queue_views import QueueView, WorkerView
from holdfast._operator.read.run_views import RunSummary, RunView
from holdfast._operator.read.snapshots import Comparison, SnapshotView, StateView
from holdfast._operator.read.trends import Trends
from holdfast._stores.audit_log import AuditView
from holdfast._stores.structs import Damage


class Field(msgspec.Struct, frozen=True):
    """One field of an answer: its type and a note."""

    type: Any
    note: str = ""

    @property
    def may_be_missing(self) -> bool:
        """Whether the field may be missing."""
        return UnsetType in getattr(self.type, "__args__", ())


class EntryData(msgspec.Struct, frozen=True):
    """An entry of a journal."""

    seq: int
    kind: str
    step: str | None
    attempt: int
    at: dt.datetime
    body: dict[str, Any]
    """The content of the entry; its fields depend on the kind."""


class ErrorData(msgspec.Struct, frozen=True):
    """Why a command failed; `run_id`, `reason`, `step`, `actions` and `effects` if the error has
    them."""

    message: str
    type: str | UnsetType = msgspec.UNSET
    """The name of the error's class in `holdfast.errors`."""
    run_id: str | UnsetType = msgspec.UNSET
    reason: str | UnsetType = msgspec.UNSET
    step: str | UnsetType | None = msgspec.UNSET
    actions: tuple[str, ...] | UnsetType = msgspec.UNSET
    effects: tuple[str, ...] | UnsetType = msgspec.UNSET


class OpenQuestion(QuestionView, frozen=True, kw_only=True):
    """A question of a run, with all data that an answer needs."""

    commands: tuple[str, ...]  # pyright: ignore[reportIncompatibleMethodOverride] - printed, not computed
    """Command lines that answer it."""


class LeftRun(msgspec.Struct, frozen=True):
    """A run that was not moved."""

    run_id: str
    fate: str
    why: str


class TokenView(msgspec.Struct, frozen=True):
    """A token, without its secret."""

    name: str
    role: str
    created_at: dt.datetime
    expires_at: dt.datetime
    holds: bool


_OTHER = Field(str | None, "what the run waits for now, if it differs")
_NEXT = Field(list[str], "commands that execute the freed runs")
_CODE = Field(int, "the exit code")
_REFUSED = {
    "error": Field(ErrorData | UnsetType, "why not, only if nothing was found or changed"),
    "exit_code": Field(int | UnsetType, "the exit code, only with `error`"),
}
_SECRET = {"name": Field(str), "token": Field(str, "the secret; shown only now")}

SHAPES: dict[str, dict[str, Field]] = {
    "answer": {"answer": Field(Answered), "note": _OTHER},
    "approve": {"answer": Field(Answered), "note": _OTHER},
    "cancel": {
        "answer": Field(Stopped),
        "next": Field(list[str], "commands that help if it is pending"),
        "exit_code": _CODE,
    },
    "completion": {"shell": Field(str), "script": Field(str)},
    "demo": {
        "as_promised": Field(bool),
        "wrong": Field(list[str]),
        "executed": Field(dict[str, int], "how often each function was executed"),
        "e_mails": Field(int),
    },
    "doctor": {
        "checkup": Field(Checkup | None, "null for one run"),
        "findings": Field(list[Finding]),
        "exit_code": _CODE,
    },
    "explain": {"explanation": Field(Explanation)},
    "fork": {
        "fork": Field(Fork | None, "null with --dry-run"),
        "preview": Field(ForkPreview | UnsetType, "only with --dry-run"),
        "next": Field(list[str], "commands that execute it"),
    },
    "history": {"run_id": Field(str), "entries": Field(list[EntryData])},
    "history --follow": {
        "event": Field(str, "entry, run, away, back or end"),
        "run_id": Field(str | UnsetType),
        "entry": Field(EntryData | UnsetType, "of an entry"),
        "run": Field(RunSummary | UnsetType, "of a run that changed"),
        "error": Field(ErrorData | UnsetType, "while the store is away: why"),
        "status": Field(str | UnsetType, "at the end"),
        "exit_code": Field(int | UnsetType, "at the end"),
    },
    "mcp": {
        "error": Field(
            ErrorData | UnsetType, "if it cannot start; else standard output is the assistant's"
        ),
    },
    "memory delete": {"removed": Field(bool), **_REFUSED},
    "memory get": {"value": Field(MemoView | None, "null if there is none"), **_REFUSED},
    "memory list": {
        "values": Field(list[MemoView] | UnsetType, "with MEMORY"),
        "memories": Field(list[str] | UnsetType, "without it: the names of all"),
    },
    "memory set": {
        "value": Field(MemoView | None, "null if its version has changed"),
        **_REFUSED,
    },
    "pause": {
        "answer": Field(Stopped),
        "next": Field(list[str], "the command that lets it go on"),
        "exit_code": _CODE,
    },
    "questions": {
        "questions": Field(list[OpenQuestion]),
        "next": Field(str | None, "what --after takes for the page that follows; null at the end"),
    },
    "queues list": {
        "queues": Field(list[QueueView]),
        "workers": Field(list[WorkerView]),
        "saturation": Field(
            float | None, "the share of their places in use, from 0 to 1; null without workers"
        ),
    },
    "queues pause": {"queue": Field(QueueView)},
    "queues resume": {"queue": Field(QueueView)},
    "queues set": {"queue": Field(QueueView)},
    "queues show": {"queue": Field(QueueView)},
    "reject": {"answer": Field(Answered), "note": _OTHER},
    "resume": {
        "answer": Field(Answer | None, "null with --dry-run, and for many"),
        "preview": Field(ResumePreview | UnsetType, "only with --dry-run"),
        "next": _NEXT,
        "resumed": Field(list[Resumed], "the outcome for each of many"),
        "refused": Field(int, "how many of them were not resumed"),
    },
    "rollback": {
        "preview": Field(RollbackPreview, "which effects are undone, and which are not"),
        "answer": Field(Answer | None, "null with --dry-run"),
        "next": Field(list[str], "commands that perform it"),
    },
    "run": {
        "run": Field(RunView | None),
        "restarts": Field(int),
        "exit_code": _CODE,
        "error": Field(ErrorData | UnsetType, "only if it did not complete"),
    },
    "runs": {
        "runs": Field(list[RunSummary]),
        "next": Field(str | None, "what --after takes for the page that follows; null at the end"),
    },
    "runs --follow": {
        "event": Field(str, "run, away or back"),
        "run_id": Field(str | UnsetType),
        "run": Field(RunSummary | UnsetType, "of a run that changed"),
        "error": Field(ErrorData | UnsetType, "while the store is away: why"),
    },
    "schedules list": {"schedules": Field(list[ScheduleView])},
    "schedules pause": {"schedule": Field(ScheduleView)},
    "schedules resume": {"schedule": Field(ScheduleView)},
    "set-budget": {"answer": Field(Answer), "next": _NEXT},
    "settle": {"answer": Field(Answer), "next": _NEXT},
    "show": {
        "run": Field(RunView),
        "trace_id": Field(str | None, "32 hexadecimal digits: its trace, if it is traced"),
    },
    "signal": {"signal": Field(Sent), "note": _OTHER},
    "state": {
        "run_id": Field(str),
        "state": Field(StateView | UnsetType, "without --list and --between"),
        "snapshots": Field(list[SnapshotView] | UnsetType, "with --list"),
        "comparison": Field(Comparison | UnsetType, "with --between"),
    },
    "store accept-data-loss": {
        "accepted": Field(str | None, "what was accepted; null if nothing was missing"),
        "actor": Field(str | UnsetType),
    },
    "store audit": {"audit": Field(list[AuditView], "the newest first")},
    "store backup": {"backup": Field(str, "path"), "bytes": Field(int)},
    "store export": {
        "export": Field(str, "path"),
        "runs": Field(list[str], "ids of the run and of those that belong to it"),
        "bytes": Field(int),
    },
    "store import": {
        "imported": Field(list[str], "ids of runs"),
        "there": Field(list[str], "ids of runs that the store already had, unchanged"),
    },
    "store move": {
        "source": Field(str, "address"),
        "target": Field(str, "address"),
        "dry_run": Field(bool),
        "runs": Field(
            dict[str, int],
            "how many of each fate: moved, there already, busy, conflict, damaged, stays, missing, "
            "deleted",
        ),
        "left": Field(list[LeftRun], "runs that are not in the target"),
        "queues": Field(list[str], "queues whose limits were set"),
        "schedules": Field(list[str], "schedules that were moved"),
        "memories": Field(list[Remembered], "how many values of each memory"),
        "exit_code": _CODE,
    },
    "store prune": {"collected": Field(Collected)},
    "store restore": {"restored": Field(str, "path")},
    "store verify": {"sound": Field(bool), "findings": Field(list[Damage])},
    "tokens create": _SECRET,
    "tokens list": {"tokens": Field(list[TokenView])},
    "tokens revoke": {"revoked": Field(TokenView)},
    "tokens rotate": _SECRET,
    "top": {"overview": Field(Overview)},
    "trends": {"trends": Field(Trends | None, "null if there is no store")},
    "ui": {
        "url": Field(str, "with the token of this start"),
        "token": Field(str),
        "socket": Field(str | None),
    },
    "worker": {"exit_code": _CODE},
}
"""The fields that each command adds to the object; with --follow it prints one such object per
line."""


def answer_type(command: str) -> type[msgspec.Struct]:
    """Return the whole object that a command prints when it does not fail."""
    fields: list[Any] = [
        ("version", int),
        ("command", str),
        ("warning", str | UnsetType, msgspec.UNSET),
    ]
    for name, field in SHAPES[command].items():
        missing = (msgspec.UNSET,) if field.may_be_missing else ()
        fields.append((name, field.type, *missing))
    name = "".join(word.capitalize() for word in command.replace("-", " ").split())
    return msgspec.defstruct(f"{name}Answer", fields, kw_only=True, forbid_unknown_fields=True)


def failure_type() -> type[msgspec.Struct]:
    """Return the object that any command prints when it fails."""
    return msgspec.defstruct(
        "Failure",
        [
            ("version", int),
            ("command", str),
            ("error", ErrorData),
            ("exit_code", int),
            ("warning", str | UnsetType, msgspec.UNSET),
        ],
        kw_only=True,
        forbid_unknown_fields=True,
    )
