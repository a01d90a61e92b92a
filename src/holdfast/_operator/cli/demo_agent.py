"""The agent of `holdfast demo`: it researches a topic and sends a report by e-mail.

Nothing here uses a network. The library, the model and the mail server are a few lines with fixed
answers, so the demo shows the same on every machine. Every step writes its name into a log before
it works. From the log, independently of the journal, the demo knows which steps were executed.
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
"""The simulated duration of a step."""
PAUSE_S = 60.0
"""How long a step waits for the kill of its process."""


@dataclasses.dataclass
class Notes:
    """The state of the agent's loop."""

    open: list[str]
    taken: list[str]


def folder() -> Path:
    """Return the folder of the log, the outbox and the library's counter."""
    return Path(os.environ["HOLDFAST_DEMO_FOLDER"])


def work(name: str) -> None:
    """Log that this step is executed, and simulate its work."""
    with (folder() / "executed.log").open("a", encoding="utf-8") as log:
        log.write(f"{name}\n")
    time.sleep(WORK_S)


def pause_here(name: str) -> None:
    """Wait to be killed, if this is the step for it."""
    if os.environ.get("HOLDFAST_DEMO_PAUSE") == name:
        (folder() / "inside").write_text(name, encoding="utf-8")
        time.sleep(PAUSE_S)


# -- the agent ---------------------------------------------------------------------------------


@step
def find_questions(topic: str) -> list[str]:
    """Ask the model which questions to answer."""
    work("find_questions")
    assert topic == TOPIC
    return list(QUESTIONS)


@step(retry=Retry(attempts=3, initial_wait_s=0.1, jitter=0))
def look_up(question: str) -> str:
    """Ask the library, which fails the first time for the second question."""
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
    """Search the outbox for a message with this key."""
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
