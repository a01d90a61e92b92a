"""Deciding over HTTP: on what was seen, with a second yes where effects are concerned, once, and as
an entry that says who and from where."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import RunRow, etag_of
from holdfast._engine.scripts.doubt_policies import NOT_DONE, Done
from holdfast._features.budgets.model import new_account
from holdfast._features.schedules.model import Spec, When
from holdfast._operator.act import cancellation, run_decisions
from holdfast._operator.read import run_views
from holdfast._operator.web.access_tokens import Tokens
from holdfast._operator.web.action_routes import ROUTES
from holdfast._stores.contract import ScheduleRow, Store
from holdfast.errors import StaleView
from tests.ops.journals import Journal
from tests.web_api.served import Browser, Person, Reply, Site, content

DIGEST = "61" * 16


def row_of(store: Store, run_id: str) -> RunRow:
    row = store.get(run_id)
    assert row is not None
    return row


def last(store: Store, run_id: str, kind: str) -> Any:
    return [it for it in run_views.history(store, run_id, plain=True) if it.kind == kind][-1].body


def messages(store: Store, run_id: str) -> list[tuple[str, str]]:
    found = store.messages(row_of(store, run_id).run_no)
    return [(message.kind, message.actor) for message, _ in found]


# -- each action, and who is recorded (I21) ----------------------------------------------------


def test_i21_settling_is_an_entry_with_actor_and_address(operator: Person, store: Store):
    etag = operator.etag("in-doubt")
    body = {"step": "charge", "outcome": "done", "result": {"id": 7}}
    told = operator.act("run/settle", body, etag, id="in-doubt").data
    assert told["did"] == "charge of run 'in-doubt' is settled as done"
    assert (told["status"], told["goes_on"]) == ("queued", True)
    entry = last(store, "in-doubt", "step_settled")
    assert entry["actor"] == "kim (api, 127.0.0.1)"
    assert entry["result"] == {"id": 7}


def test_i21_the_page_says_that_it_was_the_page(browser: Browser, store: Store):
    etag = str(browser.get("run", id="in-doubt").data["etag"])
    body = {"step": "charge", "outcome": "failed", "reason": "nobody knows"}
    assert browser.act("run/settle", body, etag, id="in-doubt").status == 200
    assert last(store, "in-doubt", "step_settled")["actor"] == "lee (page, 127.0.0.1)"


@pytest.mark.parametrize(
    ("action", "run_id", "body", "kind"),
    [
        ("resume", "failed", {}, "run_resumed"),
        ("resume", "paused", {}, "run_resumed"),
        ("cancel", "waiting", {"reason": "enough"}, "run_cancelled"),
        ("pause", "waiting", {"reason": "later"}, "run_held"),
        ("rollback", "paid", {"confirm": True}, "rollback_requested"),
        ("settle", "in-doubt", {"step": "charge", "outcome": "done"}, "step_settled"),
    ],
)
def test_i21_each_decision_is_an_entry_with_its_actor(
    operator: Person, store: Store, action: str, run_id: str, body: dict[str, Any], kind: str
):
    reply = operator.act(f"run/{action}", body, operator.etag(run_id), id=run_id)
    assert reply.status == 200, reply
    entry = last(store, run_id, kind)
    assert "kim (api, 127.0.0.1)" in msgspec.json.encode(entry).decode(), entry
    assert reply.data["run_id"] == run_id
    assert reply.data["did"]


def test_i21_a_fork_names_who_made_it(operator: Person, store: Store):
    body = {"new_run_id": "second", "before": "look"}
    told = operator.act("run/fork", body, operator.etag("done"), id="done").data
    assert (told["run_id"], told["origin"], told["created"]) == ("second", "done", True)
    assert last(store, "second", "run_forked")["actor"] == "kim (api, 127.0.0.1)"


def test_i21_what_is_said_to_a_run_names_who_said_it(operator: Person, store: Store):
    who = "kim (api, 127.0.0.1)"
    assert operator.act("run/answer", {"name": "size", "value": "l"}, id="asking").status == 200
    assert messages(store, "asking") == [("answer:size", who)]
    body = {"step": "charge", "digest": DIGEST, "expected_number": 1}
    assert operator.act("run/approve", body, id="approving").status == 200
    assert messages(store, "approving")[0][1] == who
    sent = operator.act("run/signal", {"name": "go", "value": 1, "signal_id": "s1"}, id="waiting")
    assert sent.data["recorded"] is True
    assert messages(store, "waiting") == [("signal:go", who)]
    again = operator.act("run/signal", {"name": "go", "value": 1, "signal_id": "s1"}, id="waiting")
    assert again.data["recorded"] is False
    assert len(messages(store, "waiting")) == 1


def test_what_is_said_to_a_run_says_whether_it_goes_on(operator: Person, store: Store):
    def told(route: str, run_id: str, **body: Any) -> bool:
        return operator.act(f"run/{route}", body, id=run_id).data["goes_on"]

    Journal(store, "wants").waits("wait", "go").unloaded("signal:go")
    assert told("signal", "wants", name="other", value=1) is False
    assert told("signal", "wants", name="go", value=1, signal_id="s1") is True
    assert told("signal", "wants", name="go", value=1, signal_id="s1") is True  # Not taken yet.
    Journal(store, "stopped").waits("wait", "go").held("paused")
    assert told("signal", "stopped", name="go", value=1) is False
    assert told("answer", "asking", name="colour", value="red") is False  # It does not ask that.
    assert told("answer", "asking", name="size", value="l") is True


def test_a_budget_is_raised_by_its_actor(operator: Person, store: Store):
    journal = Journal(store, "poor")
    store.put_account(new_account("poor", {"steps": 1}, store.now_us()), only_new=True)
    journal.step("look").held("budget", "1 of 1 steps")
    told = operator.act("run/set-budget", {"steps": 5}, operator.etag("poor"), id="poor").data
    assert "5 steps" in told["did"]
    assert last(store, "poor", "budget_set")["actor"] == "kim (api, 127.0.0.1)"
    assert row_of(store, "poor").status == "queued"
    empty = operator.act("run/set-budget", {}, operator.etag("poor"), id="poor")
    assert (empty.status, empty.error) == (400, "UsageError")


def test_an_admin_changes_a_queue_and_nothing_else_of_it(admin: Person, store: Store):
    told = admin.act("queue", {"rate": 9, "paused": True}, name="mail").data["queue"]
    assert (told["concurrency"], told["rate"], told["paused"]) == (3, 9, True)
    told = admin.act("queue", {"concurrency": None, "paused": False}, name="mail").data["queue"]
    assert (told["concurrency"], told["rate"], told["paused"]) == (None, 9, False)
    assert admin.act("queue", {"concurrency": 0}, name="mail").status == 400
    assert admin.act("schedule/pause", {}, name="nightly").error == "NotFound"


# -- on what was seen --------------------------------------------------------------------------


SEEING = [
    ("resume", {}),
    ("pause", {}),
    ("cancel", {}),
    ("settle", {"step": "charge", "outcome": "done"}),
    ("rollback", {"confirm": True}),
    ("fork", {"new_run_id": "fork", "before": "charge", "confirm": True}),
    ("set-budget", {"steps": 9}),
]


@pytest.mark.parametrize(("action", "body"), SEEING)
def test_a_stale_view_is_refused_and_nothing_changes(
    operator: Person, store: Store, action: str, body: dict[str, Any]
):
    stale = operator.etag("in-doubt")
    journal = {"step": "charge", "outcome": "failed", "reason": "a colleague was quicker"}
    assert operator.act("run/settle", journal, stale, id="in-doubt").status == 200
    before = content(store)
    reply = operator.act(f"run/{action}", body, stale, id="in-doubt")
    assert (reply.status, reply.error) == (409, "StaleView")
    assert "it is queued now" in reply.data["error"]["message"]
    assert content(store) == before


@pytest.mark.parametrize(("action", "body"), SEEING)
def test_who_does_not_say_what_was_seen_decides_nothing(
    operator: Person, store: Store, action: str, body: dict[str, Any]
):
    before = content(store)
    for header in (None, "", "*", "held.1.in_doubt.5", '"'):
        headers = {**operator.headers, "Content-Type": "application/json"}
        if header is not None:
            headers["If-Match"] = header
        reply = operator.client.ask("POST", f"/api/v1/run/{action}?id=in-doubt", headers, body)
        assert (reply.status, reply.error) == (400, "UsageError"), header
    assert content(store) == before


def test_a_run_at_work_may_write_meanwhile(store: Store):
    journal = Journal(store, "busy")
    etag = etag_of(row_of(store, "busy"))
    journal.step("look")
    assert etag_of(row_of(store, "busy")) == etag
    journal.held("paused", "enough")
    held = etag_of(row_of(store, "busy"))
    assert held != etag


def test_nobody_slips_in_between_the_look_and_the_write(store: Store, monkeypatch: Any):
    """The comparison is part of the write: what is decided meanwhile is not written over."""
    etag = etag_of(row_of(store, "in-doubt"))
    real = store.append
    raced: list[bool] = []

    def racing(writes: Any) -> Any:
        if not raced:
            raced.append(True)
            run_decisions.settle(store, "in-doubt", "charge", NOT_DONE, actor="the other")
        return real(writes)

    monkeypatch.setattr(store, "append", racing)
    with pytest.raises(StaleView, match="changed since you looked"):
        run_decisions.settle(
            store, "in-doubt", "charge", Done(1), actor="kim", expected_version=etag
        )
    entry = last(store, "in-doubt", "step_settled")
    assert (entry["outcome"], entry["actor"]) == ("not_done", "the other")


Intruder = Callable[[Store, str, Journal], object]


def resumes(store: Store, run_id: str, _journal: Journal) -> object:
    return run_decisions.resume(store, run_id, actor="the other")


def pauses(store: Store, run_id: str, _journal: Journal) -> object:
    return cancellation.pause(store, run_id, actor="the other")


def cancels(store: Store, run_id: str, _journal: Journal) -> object:
    return cancellation.cancel(store, run_id, actor="the other")


def settles(store: Store, run_id: str, _journal: Journal) -> object:
    return run_decisions.settle(store, run_id, "charge", NOT_DONE, actor="the other")


def stops(_store: Store, _run_id: str, journal: Journal) -> object:
    return journal.held("paused", "its owner was asked to")


RACES: list[tuple[str, str, dict[str, Any], str, Intruder]] = [
    ("resume", "paused", {}, "append", resumes),
    ("resume", "failed", {}, "append", resumes),
    ("pause", "waiting", {}, "append", cancels),
    ("pause", "busy", {}, "post", stops),
    ("cancel", "waiting", {}, "append", pauses),
    ("cancel", "busy", {}, "post", stops),
    ("settle", "in-doubt", {"step": "charge", "outcome": "done"}, "append", settles),
    ("rollback", "in-doubt", {"confirm": True}, "append", settles),
    ("rollback", "busy", {"confirm": True}, "post", stops),
    (
        *("fork", "in-doubt", {"new_run_id": "fork", "before": "charge", "confirm": True}),
        *("start", settles),
    ),
    ("fork", "busy", {"new_run_id": "fork", "before": "look", "confirm": True}, "start", stops),
    ("set-budget", "poor", {"steps": 5}, "append", cancels),
    ("set-budget", "busy", {"steps": 5}, "post", stops),
    ("signal", "waiting", {"name": "go", "value": 1}, "post", pauses),
    ("answer", "asking", {"name": "size", "value": "l"}, "post", pauses),
    ("reject", "asking", {"name": "size", "reason": "no"}, "post", pauses),
    (
        "approve",
        "approving",
        {"step": "charge", "digest": DIGEST, "expected_number": 1},
        "post",
        pauses,
    ),
]


def test_every_action_is_raced() -> None:
    about_runs = {it.path.partition("/run/")[2] for it in ROUTES}
    assert {race[0] for race in RACES} == about_runs - {""}


@pytest.mark.parametrize(
    ("action", "run_id", "body", "write", "intruder"),
    RACES,
    ids=[f"{race[0]}-{race[1]}" for race in RACES],
)
def test_an_action_that_is_refused_has_changed_nothing(
    operator: Person,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    run_id: str,
    body: dict[str, Any],
    write: str,
    intruder: Intruder,
) -> None:
    """Somebody else commits just before the write: 409, and only what he did has happened."""
    journal = Journal(store, "busy").step("look")
    store.put_account(new_account("busy", {"steps": 1}, store.now_us()), only_new=True)
    Journal(store, "poor").step("look").held("budget", "1 of 1 steps")
    store.put_account(new_account("poor", {"steps": 1}, store.now_us()), only_new=True)
    etag = operator.etag(run_id)
    real = getattr(store, write)
    left: list[Any] = []

    def racing(*values: Any, **more: Any) -> Any:
        if not left:
            left.append(None)
            intruder(store, run_id, journal)
            left.append(
                content(store) + msgspec.json.encode([store.account("poor"), store.account("busy")])
            )
        return real(*values, **more)

    monkeypatch.setattr(store, write, racing)
    reply = operator.act(f"run/{action}", body, etag, id=run_id)
    assert (reply.status, reply.error) == (409, "StaleView"), reply.data
    now = content(store) + msgspec.json.encode([store.account("poor"), store.account("busy")])
    assert now == left[-1]
    assert store.get("fork") is None


def test_a_fork_that_was_made_is_not_refused_afterwards(
    operator: Person, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What happens to the first run once the fork is written does not matter."""
    real = store.start

    def started(*values: Any) -> Any:
        made = real(*values)
        run_decisions.settle(store, "in-doubt", "charge", NOT_DONE, actor="the other")
        return made

    etag = operator.etag("in-doubt")
    monkeypatch.setattr(store, "start", started)
    body = {"new_run_id": "fork", "before": "charge", "confirm": True}
    reply = operator.act("run/fork", body, etag, id="in-doubt")
    assert (reply.status, reply.data["created"]) == (200, True)


# -- a second yes ------------------------------------------------------------------------------


def confirms_as_http_does(reply: Reply) -> bool:
    """Return whether an error names the one way in which a request confirms."""
    told = reply.data["error"]["message"].partition("if this is meant:")[2]
    return told.split() == ["send", '"confirm":', "true"]


def test_not_done_lists_the_effect_and_wants_a_second_yes(operator: Person, store: Store):
    etag, before = operator.etag("in-doubt"), content(store)
    body: dict[str, Any] = {"step": "charge", "outcome": "not_done"}
    reply = operator.act("run/settle", body, etag, id="in-doubt")
    assert (reply.status, reply.error) == (409, "ConfirmationRequired")
    assert reply.data["error"]["effects"] == ["charge"]
    assert confirms_as_http_does(reply)
    assert content(store) == before
    assert operator.act("run/settle", {**body, "confirm": True}, etag, id="in-doubt").status == 200
    assert last(store, "in-doubt", "step_settled")["outcome"] == "not_done"


def test_a_fork_that_repeats_an_effect_wants_a_second_yes(operator: Person, store: Store):
    preview = operator.get("run/preview-fork", id="paid", before="charge").data["preview"]
    assert [it["step"] for it in preview["effects"]] == ["charge"]
    etag, before = operator.etag("paid"), content(store)
    body: dict[str, Any] = {"new_run_id": "again", "before": "charge"}
    reply = operator.act("run/fork", body, etag, id="paid")
    assert (reply.status, reply.error) == (409, "ConfirmationRequired")
    assert "charge" in reply.data["error"]["effects"][0]
    assert confirms_as_http_does(reply)
    assert content(store) == before
    assert operator.act("run/fork", {**body, "confirm": True}, etag, id="paid").status == 200


def test_a_rollback_that_leaves_something_wants_a_second_yes(operator: Person, store: Store):
    preview = operator.get("run/preview-rollback", id="paid").data["preview"]
    assert preview["confirm"] is True
    etag, before = operator.etag("paid"), content(store)
    reply = operator.act("run/rollback", {}, etag, id="paid")
    assert (reply.status, reply.error) == (409, "ConfirmationRequired")
    assert reply.data["error"]["effects"][0].startswith("charge (has no undo")
    assert confirms_as_http_does(reply)
    assert content(store) == before


def test_resuming_over_an_effect_that_may_have_happened_wants_a_second_yes(
    operator: Person, store: Store
):
    journal = Journal(store, "gave-up")
    journal.intent("charge", on_doubt="fail").doubt("charge")
    journal.write(
        journal.draft(Kind.STEP_SETTLED, "charge", 1, outcome="failed", actor="x", reason="gone")
    )
    journal.failed("charge")
    etag, before = operator.etag("gave-up"), content(store)
    reply = operator.act("run/resume", {}, etag, id="gave-up")
    assert (reply.status, reply.error) == (409, "ConfirmationRequired")
    assert reply.data["error"]["effects"] == ["charge"]
    assert confirms_as_http_does(reply)
    assert content(store) == before
    assert operator.act("run/resume", {"confirm": True}, etag, id="gave-up").status == 200


def test_what_is_not_there_is_not_found(operator: Person, admin: Person):
    for reply in (
        admin.act("queue/resume", {}, name="nope"),
        operator.act("schedule/pause", {}, name="nope"),
        operator.act("schedule/resume", {}, name="nope"),
    ):
        assert (reply.status, reply.error) == (404, "NotFound")


def test_a_pause_of_a_paused_run_succeeds(operator: Person):
    reply = operator.act("run/pause", {}, operator.etag("paused"), id="paused")
    assert (reply.status, reply.data["status"]) == (200, "held")
    assert reply.data["did"] == "run 'paused' is paused: it is paused already"


def test_a_refusal_names_the_field_and_no_option_of_the_command(operator: Person):
    body = {"drift": "keep"}
    reply = operator.act("run/resume", body, operator.etag("paused"), id="paused")
    assert (reply.status, reply.error) == (400, "UsageError")
    assert reply.data["error"]["message"].startswith("`drift` is for a run that is held for drift")
    reply = operator.act("resume-all", {"held_reason": "diverged"})
    assert reply.data["error"]["message"].endswith("give the changed one as `flow`")


def test_a_doubt_is_not_resumed_over(operator: Person, store: Store):
    reply = operator.act("run/resume", {}, operator.etag("in-doubt"), id="in-doubt")
    assert (reply.status, reply.error) == (409, "RunHeld")
    assert reply.data["error"]["reason"] == "in_doubt"


# -- once --------------------------------------------------------------------------------------


def test_of_two_answers_the_first_counts_and_the_second_is_told(
    site: Site, operator: Person, browser: Browser, store: Store
):
    body = {"name": "size", "expected_number": 1}
    assert operator.act("run/answer", {**body, "value": "l"}, id="asking").status == 200
    reply = browser.act("run/answer", {**body, "value": "s"}, id="asking")
    assert (reply.status, reply.error) == (409, "AnswerConflict")
    assert reply.data["error"]["actor"] == "kim (api, 127.0.0.1)"
    assert len(messages(store, "asking")) == 1
    refused = browser.act("run/reject", {**body, "reason": "no"}, id="asking")
    assert refused.status == 409


def test_of_many_answers_at_one_time_one_counts(site: Site, tokens: Tokens, store: Store):
    people = [Person(site, tokens.create(f"p{n}", "operator")) for n in range(6)]
    replies: list[Reply] = []

    def answer(person: Person) -> None:
        body = {"name": "size", "expected_number": 1, "value": "s"}
        replies.append(person.act("run/answer", body, id="asking"))

    threads = [threading.Thread(target=answer, args=(person,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(reply.status for reply in replies) == [200] + [409] * 5
    assert len(messages(store, "asking")) == 1


def test_an_answer_that_does_not_fit_is_refused(operator: Person, store: Store):
    before = content(store)
    reply = operator.act("run/answer", {"name": "size", "value": "huge"}, id="asking")
    assert (reply.status, reply.error) == (400, "UsageError")
    reply = operator.act(
        "run/answer", {"name": "size", "value": "l", "expected_number": 2}, id="asking"
    )
    assert (reply.status, reply.error) == (409, "StaleView")
    assert content(store) == before


# -- fault 105: what was shown is what is approved ---------------------------------------------


def test_fault_105_an_approval_of_other_arguments_is_refused(operator: Person, store: Store):
    before = content(store)
    reply = operator.act("run/approve", {"step": "charge", "digest": "62" * 16}, id="approving")
    assert (reply.status, reply.error) == (409, "StaleView")
    assert content(store) == before


def test_fault_105_an_approval_without_a_digest_is_refused(operator: Person, store: Store):
    before = content(store)
    assert operator.act("run/approve", {"step": "charge"}, id="approving").status == 400
    assert (
        operator.act("run/approve", {"step": "charge", "digest": ""}, id="approving").status == 409
    )
    assert content(store) == before


def test_fault_105_arguments_that_changed_between_the_look_and_the_yes(
    operator: Person, store: Store
):
    shown = next(
        it for it in operator.get("pending").data["questions"] if it["run_id"] == "approving"
    )
    journal = Journal(store, "changed")
    journal.asks_approval("charge", {"amount": 12})
    store_digest = shown["digest"]
    assert store_digest == DIGEST
    # The same question, asked anew for another amount: its digest is another one.
    from holdfast._engine.journal.rows import Question

    body = {"effect": "charge", "step": "charge", "digest": "63" * 16, "generation": 1, "key": "k"}
    told = msgspec.json.encode({**body, "expires_us": None})
    row = Question("changed", "approve:charge", 2, "approval", None, told, store.now_us(), None)
    journal.write(journal.draft(Kind.RUN_RELEASED, why="x"), opens=[row])
    reply = operator.act(
        "run/approve",
        {"step": "charge", "digest": store_digest, "expected_number": 1},
        id="changed",
    )
    assert (reply.status, reply.error) == (409, "StaleView")
    assert messages(store, "changed") == []


def test_an_approval_counts_once(operator: Person, browser: Browser, store: Store):
    body = {"step": "charge", "digest": DIGEST, "expected_number": 1}
    assert operator.act("run/approve", body, id="approving").status == 200
    reply = browser.act("run/approve", body, id="approving")
    assert (reply.status, reply.error) == (409, "AnswerConflict")


def test_with_four_eyes_the_starter_does_not_approve(store: Store, tokens: Tokens):
    for run_id, tags in (("own", {"by": "kim"}), ("unsaid", {})):
        Journal(store, run_id, tags=tags).asks_approval("charge", {}).unloaded("answer:x")
    with Site(store, tokens, four_eyes="by") as site:
        kim, lee = (Person(site, tokens.create(name, "operator")) for name in ("kim", "lee"))
        body = {"step": "charge", "digest": DIGEST}
        before = content(store)
        for person, run_id in ((kim, "own"), (kim, "unsaid"), (lee, "unsaid")):
            reply = person.act("run/approve", body, id=run_id)
            assert (reply.status, reply.error) == (403, "FourEyes")
        assert content(store) == before
        assert lee.act("run/approve", body, id="own").status == 200


def test_with_four_eyes_who_forks_a_run_does_not_approve_what_the_fork_asks(
    store: Store, tokens: Tokens
):
    """A fork has the tags of its origin: its own maker is told by run_forked, also of ancestors."""
    journal = Journal(store, "first", tags={"by": "kim"}).step("look", 1)
    journal.step("weigh", 2).completed()
    with Site(store, tokens, four_eyes="by") as site:
        kim, lee, ann, bo = (
            Person(site, tokens.create(name, "operator")) for name in ("kim", "lee", "ann", "bo")
        )
        for person, old, new in ((lee, "first", "second"), (ann, "second", "third")):
            body = {"new_run_id": new, "before": "weigh"}
            assert person.act("run/fork", body, person.etag(old), id=old).status == 200
            Journal.taken(store, new).step("weigh", 2).asks_approval("charge", {}).unloaded(
                "answer:x"
            )
        approval = {"step": "charge", "digest": DIGEST}
        before = content(store)
        for person, run_id in ((lee, "second"), (kim, "third"), (lee, "third"), (ann, "third")):
            reply = person.act("run/approve", approval, id=run_id)
            assert (reply.status, reply.error) == (403, "FourEyes"), (run_id, reply)
        assert content(store) == before
        assert ann.act("run/approve", approval, id="second").status == 200
        assert bo.act("run/approve", approval, id="third").status == 200


def test_with_four_eyes_a_child_is_of_who_started_its_parent(store: Store, tokens: Tokens):
    Journal(store, "calling", tags={"by": "kim"})
    child = Journal(store, "called", parent="calling", tags={"by": "a program"})
    child.asks_approval("charge", {}).unloaded("answer:x")
    with Site(store, tokens, four_eyes="by") as site:
        kim, lee = (Person(site, tokens.create(name, "operator")) for name in ("kim", "lee"))
        body = {"step": "charge", "digest": DIGEST}
        assert kim.act("run/approve", body, id="called").error == "FourEyes"
        assert lee.act("run/approve", body, id="called").status == 200


# -- runs that cannot be decided about ---------------------------------------------------------


def test_what_has_ended_or_is_not_there(operator: Person, store: Store):
    etag = operator.etag("done")
    reply = operator.act("run/cancel", {}, etag, id="done")
    assert reply.status == 200
    assert reply.data["recorded"] is False
    assert operator.act("run/resume", {}, etag, id="done").error == "RunEnded"
    assert operator.act("run/signal", {"name": "go"}, id="done").error == "RunEnded"
    assert operator.act("run/cancel", {}, "x", id="nobody").status == 404


def test_a_live_process_is_asked(operator: Person, store: Store, monkeypatch: pytest.MonkeyPatch):
    from holdfast._operator.web import action_routes

    monkeypatch.setattr(action_routes, "WAIT_S", 0.05)
    Journal(store, "at-work").step("look")
    reply = operator.act("run/cancel", {"reason": "x"}, operator.etag("at-work"), id="at-work")
    assert reply.status == 200
    assert reply.data["recorded"] is False
    assert "is asked to stop" in reply.data["did"]
    assert messages(store, "at-work") == [("cancel", "kim (api, 127.0.0.1)")]


HUGE = b"1" + b"0" * 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("run/set-budget", b'{"usd": 1e308}'),
        ("run/set-budget", b'{"usd": 1e999}'),
        ("run/set-budget", b'{"tokens": ' + HUGE + b"}"),
        ("run/set-budget", b'{"wall": ' + HUGE + b"}"),
        ("run/set-budget", b'{"wall": "' + b"9" * 900 + b'd"}'),
        ("run/set-budget", b'{"steps": 9223372036854775808}'),
        ("run/answer", b'{"name": "size", "value": "s", "expected_number": ' + HUGE + b"}"),
        ("run/answer", b'{"name": "size", "value": "\\ud800"}'),
        ("run/answer", b'{"name": "\\u0000", "value": "s"}'),
        ("run/answer", b'{"name": "size", "value": "\xff"}'),
        ("run/answer", b'{"name": "size", "value": ' + b"[" * 5000 + b"]" * 5000 + b"}"),
        ("run/signal", b'{"name": "go", "value": "\\ud800"}'),
        ("run/settle", b'{"step": "charge", "outcome": "done", "result": "\\ud800"}'),
        ("queue", b'{"concurrency": ' + HUGE + b"}"),
        ("queue", b'{"concurrency": 9223372036854775808}'),
        ("queue", b'{"rate": 5, "period": 1e300}'),
        ("queue", b'{"rate": 5, "period": 1e-300}'),
    ],
)
def test_absurd_numbers_and_texts_change_nothing(
    admin: Person, store: Store, path: str, body: bytes
):
    etag = admin.etag("asking")
    query = {"name": "mail"} if path == "queue" else {"id": "asking"}
    before = content(store)
    reply = admin.act(path, body, etag, **query)
    assert reply.status in (400, 409), reply
    assert content(store) == before


@pytest.mark.parametrize("given", ["", '""', "x", '"x', 'W/"x"', "*", '"a", "b"', "'x'"])
def test_what_was_seen_is_readable_or_refused_with_every_action(
    operator: Person, store: Store, given: str
):
    """Also where it is not needed: who sends it wants to be sure of something."""
    before = content(store)
    for path, body in (
        ("run/answer", {"name": "size", "value": "s"}),
        ("run/signal", {"name": "go"}),
        ("run/cancel", {"reason": "x"}),
    ):
        headers = {**operator.headers, "Content-Type": "application/json", "If-Match": given}
        target = f"/api/v1/{path}?id=asking"
        reply = operator.client.ask("POST", target, headers, body)
        assert (reply.status, reply.error) == (400, "UsageError"), reply
    assert content(store) == before


# -- what belongs to no run (I21) --------------------------------------------------------------


def test_i21_changes_of_queues_and_schedules_are_kept_with_their_actor(
    admin: Person, operator: Person, viewer: Person, browser: Browser, store: Store
):
    spec = msgspec.json.encode(Spec(When(every_us=60_000_000))).decode()
    assert store.put_schedule(ScheduleRow("nightly", "pay", spec, 100), None)
    assert admin.act("queue", {"concurrency": 7}, name="mail").status == 200
    assert browser.act("schedule/pause", {}, name="nightly").status == 200
    assert operator.act("schedule/pause", {}, name="nightly").status == 200, "no change"
    assert operator.act("schedule/pause", {}, name="no such").status == 404
    found = operator.get("audit").data["audit"]
    assert [(it["actor"], it["what"], it["did"]) for it in found] == [
        ("lee (page, 127.0.0.1)", "schedule nightly", "paused"),
        ("ada (api, 127.0.0.1)", "queue mail", "set"),
    ]
    assert found[1]["detail"]["concurrency"] == 7
    assert viewer.get("audit").status == 403
    assert len(operator.get("audit", limit=1).data["audit"]) == 1
