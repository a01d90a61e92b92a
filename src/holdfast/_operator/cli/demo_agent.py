"""The agent of `holdfast demo`: it researches a topic and sends a report by e-mail.

Nothing here reaches a network. The library, the model and the mail server are a few lines with fixed
answers, so that it shows the same thing on every machine. Every body writes its name into a log
before it works: that is how the demo knows what was executed, whatever the journal says.
"""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

from holdfast import NOT_DONE, Done, Retry, effect, flow, idempotency_key, step, turns
from holdfast._engine.scripts.doubt_policies import NotDone

RUN_ID = "tide-pools"
TOPIC = "life in tide pools"
READER = "reader@example.com"
QUESTIONS = (
    "Who lives in a tide pool?",
    "How do they hold fast in the surf?",
    "What happens at low tide?",
)
FACTS = (
    "Limpets, anemones, crabs, and a kelp that is called holdfast at its root.",
    "A limpet clings with its foot; a mussel with threads; kelp with its holdfast.",
    "The pool warms, the salt rises, and everybody closes up and waits.",
)
WORK_S = 0.12
"""How long a step pretends to work."""
PAUSE_S = 60.0
"""How long the step in which the process is to be killed waits for that."""


@dataclasses.dataclass
class Notes:
    """The state of the agent's loop."""

    open: list[str]
    taken: list[str]


def folder() -> Path:
    """Where the log, the outbox and the library's counter are."""
    return Path(os.environ["HOLDFAST_DEMO_FOLDER"])


def work(name: str) -> None:
    """Note that this body is executed, and take a moment."""
    with (folder() / "executed.log").open("a", encoding="utf-8") as log:
        log.write(f"{name}\n")
    time.sleep(WORK_S)


def pause_here(name: str) -> None:
    """Wait to be killed, if this is where it is to happen."""
    if os.environ.get("HOLDFAST_DEMO_PAUSE") == name:
        (folder() / "inside").write_text(name, encoding="utf-8")
        time.sleep(PAUSE_S)


# -- the agent ---------------------------------------------------------------------------------


@step
def find_questions(topic: str) -> list[str]:
    """Ask the model what to find out."""
    work("find_questions")
    assert topic == TOPIC
    return list(QUESTIONS)


@step(retry=Retry(attempts=3, initial_wait_s=0.1, jitter=0))
def look_up(question: str) -> str:
    """Ask the library, which does not answer the first time it is asked the second question."""
    number = QUESTIONS.index(question)
    work(f"look_up {number}")
    refused = folder() / "refused"
    if number == 1 and not refused.exists():
        refused.touch()
        raise ConnectionError("the library does not answer")
    return FACTS[number]


@step
def take_note(question: str, fact: str) -> str:
    """Let the model put a fact into words."""
    number = QUESTIONS.index(question)
    work(f"take_note {number}")
    pause_here(f"take_note {number}")
    return f"{question} {fact}"


@step
def write_report(topic: str, notes: list[str]) -> str:
    """Let the model write the report."""
    work("write_report")
    return "\n".join([f"On {topic}", "", *notes])


@effect
def send_report(to: str, text: str) -> str:
    """Send the report. This must not happen twice."""
    work("send_report")
    message_id = idempotency_key()
    with (folder() / "outbox.txt").open("a", encoding="utf-8") as outbox:
        outbox.write(f"To: {to}\nMessage-Id: {message_id}\n\n{text}\n\n")
    pause_here("send_report")
    return message_id


@send_report.on_doubt
def was_it_sent(to: str, text: str) -> Done[str] | NotDone:
    """Look into the outbox: has a message with this key been sent?"""
    message_id = idempotency_key()
    outbox = folder() / "outbox.txt"
    sent = outbox.read_text(encoding="utf-8") if outbox.exists() else ""
    del to, text
    return Done(message_id) if f"Message-Id: {message_id}\n" in sent else NOT_DONE


@flow
def research(topic: str, to: str) -> str:
    """Find out about a topic and send a report."""
    notes: list[str] = []
    for state in turns(Notes(find_questions(topic), []), max_turns=10):
        if not state.open:
            notes = state.taken
            break
        question = state.open.pop(0)
        state.taken.append(take_note(question, look_up(question)))
    return send_report(to, write_report(topic, notes))
