"""LangChain's reviews of tool calls as questions: nobody approves what was not shown."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.types import Interrupt

from holdfast import testing
from holdfast.errors import Rejected, RunFailed, UsageError
from holdfast.integrations._tool_questions import TEXT_MAX_CHARS
from holdfast.integrations.langgraph import DurableMiddleware, HoldfastSaver, durable_graph
from holdfast.integrations.langgraph.interrupts import Question
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.langgraph.conversing import HELLO, agent_of

PATIENCE_S = 20.0


class Reviewed:
    """An agent that wants to delete things, each in a call of its own, and the question about it."""

    def __init__(
        self, store: Any, server: FakeModelServer, allowed: list[str] | None = None
    ) -> None:
        self.deleted: list[str] = []

        def delete(what: str) -> str:
            """Delete something."""
            self.deleted.append(what)
            return "deleted"

        on: Any = {"delete": {"allowed_decisions": allowed} if allowed else True}
        middleware = [HumanInTheLoopMiddleware(interrupt_on=on), DurableMiddleware()]
        agent = agent_of(server, [delete], middleware=middleware)
        self.store = store
        support = durable_graph("rv-support", agent, saver=HoldfastSaver(store))
        self.handle = support.start("t-1", HELLO)

    def question(self) -> Any:
        end = time.monotonic() + PATIENCE_S
        while not (found := self.store.questions()):
            assert time.monotonic() < end, "nobody was asked"
            self.store._backend.wait_for_change(0.05)
        return found[0]

    def result(self) -> list[str]:
        messages = self.handle.result(timeout=PATIENCE_S)["messages"]
        return [it["content"] for it in messages]


@pytest.fixture
def store() -> Iterator[Any]:
    with testing.store() as opened:
        yield opened


def calling(*what: str) -> FakeModelServer:
    calls = [("delete", {"what": it}, f"c{at}") for at, it in enumerate(what)]
    return FakeModelServer([CallTools(*calls), Say("Done.")])


def test_all_calls_are_shown_as_a_whole(store: Any) -> None:
    long = "a" * 60_000 + " THE END"
    with calling(long, "/etc") as server:
        reviewed = Reviewed(store, server)
        asked = reviewed.question()
        assert asked.text == (
            f'May these 2 tools be called? delete(what="{long}"); delete(what="/etc")'
        )
        store.answer("t-1", asked.name, True, actor="ana")
        assert reviewed.result()[-1] == "Done."
        assert sorted(reviewed.deleted) == ["/etc", long]


def test_what_was_cut_is_approved_by_its_digest(store: Any) -> None:
    long = "a" * TEXT_MAX_CHARS + " THE END"
    with calling(long, "/etc") as server:
        reviewed = Reviewed(store, server)
        asked = reviewed.question()
        assert len(asked.text) <= TEXT_MAX_CHARS
        assert asked.text.startswith("May these 2 tools be called? CUT, too long to be shown here.")
        assert 'delete(what="/etc")' in asked.text
        assert "more characters)" in asked.text
        key = next(it.key for it in store.get("t-1").steps if it.name == "shown")
        assert f"holdfast history t-1 --step {key} --json" in asked.text[:400]
        calls = [{"name": "delete", "args": {"what": it}} for it in (long, "/etc")]
        digest = hashlib.sha256(msgspec.json.encode(calls)).hexdigest()
        assert digest in asked.text[:400]
        entries = [it for it in store.history("t-1") if it.step == key]
        assert entries[-1].body["result"] == {"sha256": digest, "asked": calls}
        approve = {"decisions": [{"type": "approve"}] * 2}
        for wrong in (True, False, approve, {"sha256": "0" * 64}):
            with pytest.raises(UsageError):
                store.answer("t-1", asked.name, wrong, actor="ana")
        store.answer("t-1", asked.name, {"sha256": digest}, actor="ana")
        assert reviewed.result()[-1] == "Done."
        assert sorted(reviewed.deleted) == ["/etc", long]


def test_what_was_cut_is_rejected_without_it(store: Any) -> None:
    with calling("a" * TEXT_MAX_CHARS) as server:
        reviewed = Reviewed(store, server)
        store.reject("t-1", reviewed.question().name, reason="Far too much.", actor="ana")
        assert "Far too much." in reviewed.result()[2]
        assert reviewed.deleted == []


def test_each_call_has_one_decision(store: Any) -> None:
    with calling("a", "b") as server:
        reviewed = Reviewed(store, server)
        asked = reviewed.question()
        with pytest.raises(UsageError):
            store.answer("t-1", asked.name, {"decisions": [{"type": "approve"}]}, actor="ana")
        decisions = [{"type": "approve"}, {"type": "reject", "message": "Not this."}]
        store.answer("t-1", asked.name, {"decisions": decisions}, actor="ana")
        assert reviewed.result()[-1] == "Done."
        assert reviewed.deleted == ["a"]


def test_only_what_is_allowed_can_be_answered(store: Any) -> None:
    with calling("a") as server:
        reviewed = Reviewed(store, server, allowed=["approve", "edit"])
        asked = reviewed.question()
        with pytest.raises(UsageError):
            store.answer("t-1", asked.name, False, actor="ana")
        store.reject("t-1", asked.name, reason="No.", actor="ana")
        with pytest.raises(RunFailed, match=r"No\."):
            reviewed.result()
        assert reviewed.deleted == []


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        ({"type": "approv"}, "'approv', not one of 'approve', 'edit', 'reject'"),
        ({}, "no field 'type'"),
        ({"type": "edit", "edited_action": {"name": "delete"}}, "no field 'args'"),
        ({"type": "reject", "message": 7}, "not string"),
    ],
)
def test_a_mistyped_decision_is_refused_and_the_next_one_is_taken(
    store: Any, decision: Any, why: str
) -> None:
    with calling("a") as server:
        reviewed = Reviewed(store, server, allowed=["approve", "edit", "reject"])
        asked = reviewed.question()
        with pytest.raises(UsageError, match=why):
            store.answer("t-1", asked.name, {"decisions": [decision]}, actor="ana")
        action = {"name": "delete", "args": {"what": "b"}}
        good = {"decisions": [{"type": "edit", "edited_action": action}]}
        store.answer("t-1", asked.name, good, actor="ana")
        assert reviewed.result()[-1] == "Done."
        assert reviewed.deleted == ["b"]


def test_the_run_refuses_what_only_it_can_tell_and_asks_again(store: Any) -> None:
    with calling("a") as server:
        reviewed = Reviewed(store, server)
        asked = reviewed.question()
        store.answer("t-1", asked.name, {"decisions": [{"type": "edit"}]}, actor="ana")
        end = time.monotonic() + PATIENCE_S
        while not any(it.kind == "message_discarded" for it in store.history("t-1")):
            assert time.monotonic() < end, "it was not refused"
            store._backend.wait_for_change(0.05)
        store.answer("t-1", reviewed.question().name, True, actor="ana")
        assert reviewed.result()[-1] == "Done."
        assert reviewed.deleted == ["a"]


def test_no_field_of_a_decision_is_lost() -> None:
    calls = [{"name": "look", "args": {}}]
    configs = [{"action_name": "look", "allowed_decisions": ["respond"]}]
    question = asked_about({"action_requests": calls, "review_configs": configs})
    answer = {"decisions": [{"type": "respond", "message": "There.", "by": "ana"}]}
    assert question.resume_with(question.type.model_validate(answer)) == answer
    with pytest.raises(ValueError, match="lacks the field 'message'"):
        question.type.model_validate({"decisions": [{"type": "respond"}]})
    with pytest.raises(ValueError, match="not one of 'respond'"):
        question.type.model_validate({"decisions": [{"type": "approve"}]})


def asked_about(value: Any) -> Question:
    return Question(Interrupt(value, id="0123456789abcdef"), "node", 0)


def test_no_argument_looks_like_a_call() -> None:
    args = {'a"); delete(b': 1, "ok": 'x"); delete("y'}
    question = asked_about({"action_requests": [{"name": "look", "args": args}]})
    shown = r"""look("a\"); delete(b"=1, ok="x\"); delete(\"y")"""
    assert question.text("r") == f"May this tool be called? {shown}"


def test_a_review_of_one_call_goes_back_as_one_decision() -> None:
    """As newer versions of LangChain ask with `interrupt_mode="per_call"`."""
    value = {"type": "tool_approval", "tool_call_id": "c1", "name": "look", "args": {"at": 1}}
    question = asked_about(value)
    assert question.text("r") == "May this tool be called? look(at=1)"
    assert question.resume_with(True) == {"type": "approve"}
    assert question.resume_with(False) == {"type": "reject"}
    refused = question.refused_with(Rejected("ask", "No.", "ana"))
    assert question.resume_with(refused) == {"type": "reject", "message": "No."}
    edited = {"type": "edit", "edited_action": {"name": "look", "args": {"at": 2}}}
    assert question.resume_with({"decisions": [edited]}) == edited


def test_a_long_value_of_any_interrupt_is_cut_aloud() -> None:
    question = asked_about("b" * (TEXT_MAX_CHARS + 1))
    assert question.is_cut
    text = question.text("order 42")
    assert text.startswith(
        "CUT, too long to be shown here. All of it: holdfast history 'order 42' "
    )
    assert len(text) <= TEXT_MAX_CHARS
    assert text.endswith(" more characters)")
