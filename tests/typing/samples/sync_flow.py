"""A user's module, all of it checked: what the types promise in a plain flow.

A line that ends in `# error` is wrong, and every checker has to say so; no other line is.
"""

import uuid
from dataclasses import dataclass
from typing import assert_type

import holdfast
from holdfast import NOT_DONE, Done, Retry, effect, flow, step
from holdfast.types import Entry, Handle, Store


@dataclass
class Published:
    url: str


@dataclass
class Chat:
    messages: list[str]


@step(retry=Retry(attempts=4))
def search(topic: str, limit: int = 10) -> list[str]:
    return [topic] * limit


@step
def summarize(notes: list[str]) -> str:
    return " ".join(notes)


@effect(key="report:{report_id}", not_done_on=(PermissionError,))
def publish(report_id: str, text: str) -> Published:
    return Published(f"{report_id}/{text}")


@publish.undo
def unpublish(published: Published, report_id: str, text: str) -> None:
    print(published.url, report_id, text)


@effect
def announce(text: str) -> str:
    return text


@announce.undo(on_doubt="retry", retry=Retry(attempts=3), not_done_on=(PermissionError,))
def take_back(announced: str, text: str) -> None:
    print(announced, text)


announce.undo(on_doubt="retry", reserve_usd=3)  # error
assert_type(take_back("a", "b"), None)


@flow
def regretted(text: str) -> str:
    if not announce(text):
        raise holdfast.errors.Rollback("nobody listens")
    return text


def look(store: holdfast.types.Store) -> None:
    plan = store.preview_rollback("r", to="announce")
    assert_type([undo.step for undo in plan.effects], list[str])
    store.rollback("r", to="announce", reason="why", confirm=True)


@flow
def write_report(report_id: str, topic: str) -> Published:
    notes = search(topic)
    assert_type(notes, list[str])
    text = summarize(notes)
    assert_type(text, str)
    published = publish(report_id, text)
    assert_type(published, Published)
    return published


@flow(name="agent")
def agent(question: str) -> str:
    for chat in holdfast.turns(Chat([question]), max_turns=200):
        assert_type(chat, Chat)
        chat.messages.append(summarize(chat.messages))
    notes, text = holdfast.gather(lambda: search("a"), lambda: summarize(["b"]))
    assert_type(notes, list[str])
    assert_type(text, str)
    each = holdfast.each(search, ["a", "b"], max_concurrency=2)
    assert_type(each, list[list[str]])
    assert_type(holdfast.run_step("length", len, "four"), int)
    assert_type(holdfast.context.uuid4(), uuid.UUID)
    return text


class Tools:
    @step
    def look_up(self, word: str) -> int:
        return len(word)


def use_them(store: Store) -> None:
    assert_type(write_report.run("report-42", "42", topic="refunds"), Published)
    assert_type(write_report.start("report-42", "42", "refunds"), Handle[Published])
    assert_type(write_report.submit("report-42", "42", "refunds"), Handle[Published])
    assert_type(write_report.submit("report-42", "42", "refunds").result(timeout=1.0), Published)
    assert_type(Tools().look_up("word"), int)
    assert_type(publish.fn("42", "text"), Published)
    assert_type(store.history("report-42"), list[Entry])
    store.settle("report-42", "publish", Done(Published("x")), actor="kim")
    store.settle("report-42", "publish", NOT_DONE, actor="kim")
    with holdfast.open("memory:", default=False) as other:
        assert_type(other, Store)


def misuse() -> None:
    write_report.run("report-42", 42, topic="refunds")  # error
    write_report.run("report-42", "42")  # error
    write_report.run("report-42", "42", topc="refunds")  # error
    write_report.run(42, "42", topic="refunds")  # error
    search(7)  # error
    publish("42", txt="x")  # error
    Tools().look_up(1)  # error
    wrong: int = write_report.run("report-42", "42", topic="refunds")  # error
    print(wrong)
