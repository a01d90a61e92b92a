"""Journals written straight through the store contract: no runtime, no user code."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast._engine.journal.changes import ClaimKey, CloseQuestion, OpenQuestion, SetKey
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Question, Write
from holdfast._engine.journal.step_keys import APPROVE
from holdfast._engine.scripts import doubt
from holdfast._engine.values import codec
from holdfast._stores.contract import Busy, Committed, NewRun, Store

KEY = "hf_0123456789abcdef0123456789abcdef01234567"


def node(value: Any) -> msgspec.Raw:
    return msgspec.Raw(codec.encode(value))


class Journal:
    """One run, written as its owner would write it."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        flow: str = "pay",
        input: dict[str, Any] | None = None,
        owner: int | None = None,
        tags: dict[str, str] | None = None,
        version: str = "1",
        parent: str | None = None,
        until_us: int | None = None,
        watch: dict[str, Any] | None = None,
        submitted: bool = False,
        block: bool = False,
    ) -> None:
        self.store = store
        self.run_id = run_id
        body: dict[str, Any] = {"input": node(input or {}), "fingerprint": "f", "holdfast": "0.1.0"}
        if until_us is not None:
            body["deadline_us"] = until_us
        if block:
            body["block"] = True
        if watch is not None:
            body["watch"] = watch
        new = NewRun(
            run_id,
            flow,
            version,
            b"d" * 16,
            [self.draft(Kind.RUN_STARTED, **body)],
            tags=msgspec.json.encode(tags or {}).decode(),
            parent=parent,
            root=parent,
        )
        self.owner = store.register_owner() if owner is None else owner
        started = store.start(new, None if submitted else self.owner)
        lease = store.claim(run_id, self.owner, store.now_us()) if submitted else started.lease
        assert lease is not None
        assert not isinstance(lease, Busy), lease
        self.lease = lease
        self.position = 0

    @classmethod
    def taken(cls, store: Store, run_id: str, position: int = 1) -> Journal:
        """Take up a run that is there, with so many calls in it."""
        journal = cls.__new__(cls)
        journal.store, journal.run_id, journal.position = store, run_id, position
        journal.owner = store.register_owner()
        lease = store.claim(run_id, journal.owner, store.now_us())
        assert not isinstance(lease, Busy), lease
        journal.lease = lease
        return journal

    def draft(self, kind: Kind, step: str | None = None, attempt: int = 0, **facts: Any) -> Draft:
        return Draft(
            kind, self.store.now_us(), step=step, attempt=attempt, body=msgspec.json.encode(facts)
        )

    def write(
        self,
        *drafts: Draft,
        claim: ClaimKey | None = None,
        keys: list[SetKey] | None = None,
        opens: list[Question] | None = None,
        closes: list[str] | None = None,
        **changes: Any,
    ) -> Journal:
        write = Write(self.lease, list(drafts), row=changes)
        write.changes = [
            *([] if claim is None else [claim]),
            *(keys or []),
            *map(CloseQuestion, closes or []),
            *map(OpenQuestion, opens or []),
        ]
        [outcome] = self.store.append([write])
        assert isinstance(outcome, Committed), outcome
        return self

    def _call(self, draft: Draft, *, new: bool = True) -> Draft:
        if new:
            draft.position, self.position = self.position, self.position + 1
            draft.args_digest = b"a" * 16
        return draft

    def step(self, key: str, result: Any = None, args: Any = None, **facts: Any) -> Journal:
        draft = self._call(
            self.draft(
                Kind.STEP_COMPLETED, key, 1, args=node(args or {}), result=node(result), **facts
            )
        )
        draft.started_us = draft.at_us
        degraded = 1 if "degraded" in facts else 0
        return self.write(draft, degraded=self.lease.row.degraded + degraded)

    def child_called(self, key: str, run_id: str) -> Journal:
        """Another run was called, and is waited for."""
        draft = self._call(self.draft(Kind.CHILD_STARTED, key, 1, run=run_id, flow=key))
        self.write(draft)
        waits = {"what": "child", "name": run_id, "until_us": None, "step": key}
        facts: dict[str, Any] = {"for": [waits]}
        return self.write(self.draft(Kind.RUN_WAITING, **facts), waiting_on=f"child:{run_id}")

    # -- waiting -------------------------------------------------------------------------------

    def sleeps(self, key: str, seconds: float) -> Journal:
        until_us = self.store.now_us() + int(seconds * 1e6)
        return self.write(self._call(self.draft(Kind.TIMER_SET, key, until_us=until_us)))

    def waits(self, key: str, name: str, seconds: float | None = None) -> Journal:
        facts: dict[str, Any] = {"name": name}
        if seconds is not None:
            facts["until_us"] = self.store.now_us() + int(seconds * 1e6)
        return self.write(self._call(self.draft(Kind.SIGNAL_AWAITED, key, **facts)))

    def asks(
        self,
        key: str,
        name: str,
        text: str,
        to: str | None = None,
        choices: list[Any] | None = None,
        schema: dict[str, Any] | None = None,
        seconds: float | None = None,
    ) -> Journal:
        until_us = None if seconds is None else self.store.now_us() + int(seconds * 1e6)
        more = {"to": to, "choices": choices, "until_us": until_us}
        facts: dict[str, Any] = {"name": name, "number": 1, "text": text}
        facts |= {name: it for name, it in more.items() if it is not None}
        body = {"text": text, "step": key, "choices": choices, "schema": schema}
        now_us, told = self.store.now_us(), msgspec.json.encode(body)
        row = Question(self.run_id, name, 1, "question", to, told, now_us, until_us)
        draft = self._call(self.draft(Kind.QUESTION_ASKED, key, **facts))
        return self.write(draft, opens=[row])

    def asks_approval(
        self, key: str, args: Any, to: str | None = None, expires_us: int | None = None
    ) -> Journal:
        name, digest = APPROVE + key, (b"a" * 16).hex()
        more = {"to": to, "expires_us": expires_us}
        facts: dict[str, Any] = {"name": name, "number": 1, "digest": digest, "args": node(args)}
        facts |= {name: it for name, it in more.items() if it is not None}
        body = {"effect": key, "step": key, "digest": digest, "generation": 1, "key": KEY}
        body["expires_us"] = expires_us
        now_us, told = self.store.now_us(), msgspec.json.encode(body)
        row = Question(self.run_id, name, 1, "approval", to, told, now_us, None)
        return self.write(self._call(self.draft(Kind.QUESTION_ASKED, key, **facts)), opens=[row])

    def unloaded(self, waiting_on: str, wake_us: int | None = None) -> Journal:
        """A worker gave the run back until its time or a message comes."""
        draft = self.draft(Kind.RUN_WAITING)
        return self.write(draft, waiting_on=waiting_on, wake_us=wake_us, owner=None)

    def failing(self, key: str, attempts: int = 1, *, final: bool = True, **facts: Any) -> Journal:
        error = facts.pop("error", {"type": "TimeoutError", "message": "the model did not answer"})
        for attempt in range(1, attempts + 1):
            last = final and attempt == attempts
            more = facts if last else {"retry_at_us": self.store.now_us() + 5_000_000}
            draft = self.draft(
                Kind.STEP_FAILED, key, attempt, args=node({}), error=error, final=last, **more
            )
            draft.started_us = draft.at_us
            self.write(self._call(draft, new=attempt == 1))
        return self

    def intent(
        self,
        key: str,
        args: Any = None,
        on_doubt: str = "hold",
        business_key: str | None = None,
        attempt: int = 1,
        **more: Any,
    ) -> Journal:
        facts: dict[str, Any] = {"args": node(args or {}), "effect": True}
        facts |= {"key": business_key or KEY, "on_doubt": on_doubt, **more}
        claim = None
        if business_key is not None:
            facts["business_key"] = business_key
            claim = ClaimKey(key.partition("#")[0], business_key, key, b"a" * 16)
        draft = self._call(self.draft(Kind.STEP_STARTED, key, attempt, **facts))
        return self.write(draft, claim=claim)

    def effect(self, key: str, result: Any = None, **intent: Any) -> Journal:
        self.intent(key, **intent)
        return self.write(self.draft(Kind.STEP_COMPLETED, key, 1, result=node(result)))

    def doubt(
        self, key: str, why: str = "process_died", *, ended: bool = True, **facts: Any
    ) -> Journal:
        keys = []
        if (business_key := facts.pop("business_key", None)) is not None:
            keys = [SetKey(key, business_key, "in_doubt")]
        return self.write(
            self.draft(Kind.STEP_IN_DOUBT, key, 1, why=why, ended=ended, **facts), keys=keys
        )

    def first_doubt(self, key: str, **facts: Any) -> Draft:
        """An effect that may have happened before a store lost its records: there is no intent."""
        draft = self.draft(Kind.STEP_IN_DOUBT, key, 1, key=KEY, args=node({}), **facts)
        return self._call(draft)

    def held(
        self,
        reason: str,
        detail: str = "",
        step: str = "",
        waiting_on: str | None = None,
        actions: tuple[str, ...] = (),
    ) -> Journal:
        if reason == "in_doubt":
            actions = doubt.settle_actions(self.run_id, step)
        facts = {"reason": reason, "detail": detail, "step": step, "actions": actions}
        draft = Draft(Kind.RUN_HELD, self.store.now_us(), body=msgspec.json.encode(facts))
        return self.write(draft, held_reason=reason, waiting_on=waiting_on)

    def held_in_doubt(self, key: str, why: str = "process_died", **intent: Any) -> Journal:
        """An effect that a crash left open, found by the next process."""
        business_key = intent.get("business_key")
        self.intent(key, **intent).doubt(key, why, business_key=business_key)
        detail = f"{key} may or may not have happened: {doubt.DOUBTS[why]}"
        return self.held("in_doubt", detail, key)

    def held_on_key(self, key: str, other: Journal, business_key: str) -> Journal:
        detail = f"{key} uses the key {business_key!r}, which is in doubt in run {other.run_id!r}"
        return self.held("in_doubt", detail, key, waiting_on=doubt.key_token(key, business_key))

    def failed(self, *steps: str, error: tuple[str, str] = ("StepFailed", "gave up")) -> Journal:
        told = {"type": error[0], "message": error[1]}
        return self.write(self.draft(Kind.RUN_FAILED, error=told, steps=steps, trace="…"))

    def completed(self, result: Any = None) -> Journal:
        return self.write(self.draft(Kind.RUN_COMPLETED, result=node(result)))

    def released(self, why: str = "interrupted") -> Journal:
        return self.write(self.draft(Kind.RUN_RELEASED, why=why))

    def unfit(
        self, code: str, detail: str, step: str = "", actions: tuple[str, ...] = ()
    ) -> Journal:
        """Code of another version could not replay it, and gave it back."""
        facts: dict[str, Any] = {"why": "does_not_fit", "reason": "diverged", "detail": detail}
        facts |= {"step": step, "actions": actions, "code": code}
        draft = Draft(Kind.RUN_RELEASED, self.store.now_us(), body=msgspec.json.encode(facts))
        return self.write(draft)
