"""More situations of real runs: those that wait or are found to go wrong, and a damaged store."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import time
from pathlib import Path

import holdfast as hf
from tests.ops import pasted_flows as flows
from tests.ops.situations import FORCED, Then, leads_to, run, store, worker

# -- nobody has it -----------------------------------------------------------------------------


def executes(flow: str, log: str, *, shell: bool = False, after: str = "") -> dict[str, Then]:
    """What is printed of a run that nobody has, and that no worker would take."""
    done = Then("completed", None, log, after=after, in_a_shell=shell)
    return {f"holdfast run MODULE:{flow} r": done, "holdfast worker MODULE": done}


@leads_to(executes("plain", "search", shell=True))
def queued() -> None:
    store(lambda opened: flows.plain.submit("r"))


@leads_to(
    executes("plain", "search", after="holdfast queues resume default")
    | {"holdfast queues resume default": Then("queued", "completed", "search")}
)
def queued_while_the_queue_is_paused() -> None:
    store(lambda opened: flows.plain.submit("r"))
    store(lambda opened: opened.set_queue(hf.Queue("default", paused=True)))


@leads_to({"holdfast run MODULE:diverges r": Then("completed", None, "search stops stops")})
def running_owner_died() -> None:
    run(flows.diverges)


@leads_to({"holdfast show r": Then("completed", None)})
def completed() -> None:
    run(flows.plain)


@leads_to({})
def cancelled() -> None:
    store(lambda opened: flows.plain.submit("r"))
    store(lambda opened: opened.cancel("r", actor="kim"))


# -- waiting -----------------------------------------------------------------------------------


@leads_to(executes("naps", "search"))
def waiting_for_a_time() -> None:
    worker(flows.naps)


@leads_to(executes("tries_again", "attempt attempt"))
def waiting_for_the_next_attempt() -> None:
    worker(flows.tries_again)


PAID = "holdfast signal r paid VALUE"


@leads_to(
    executes("listens", "", after=PAID) | {PAID: Then("waiting", "completed", "", in_a_shell=True)}
)
def waiting_for_a_signal() -> None:
    worker(flows.listens)


@leads_to(executes("has_deadline", "", after=PAID) | {PAID: Then("waiting", "completed", "")})
def waiting_until_its_deadline() -> None:
    worker(flows.has_deadline)


YES = "holdfast answer r send yes"


@leads_to(
    executes("asks", "", after=YES)
    | {
        YES: Then("waiting", "completed", ""),
        "holdfast answer r send no": Then("waiting", "completed", ""),
        "holdfast reject r send --reason REASON": Then("waiting", "failed", "", in_a_shell=True),
    }
)
def waiting_for_an_answer() -> None:
    worker(flows.asks)


APPROVE = "holdfast approve r pasted_approved --digest DIGEST"


@leads_to(
    executes("approves", "approved", after=APPROVE)
    | {
        APPROVE: Then("waiting", "completed", "approved", in_a_shell=True),
        "holdfast reject r pasted_approved --reason REASON": Then("waiting", "failed", ""),
    }
)
def waiting_for_an_approval() -> None:
    worker(flows.approves)


CHILD = "holdfast settle r::pays_error pasted_error"


@leads_to(
    executes("has_child", "charge", after=f"{CHILD} --done JSON")
    | {
        f"{CHILD} --done JSON": Then("waiting", "completed", "charge"),
        f"{CHILD} --not-done": Then("waiting", "completed", FORCED),
        f"{CHILD} --fail REASON": Then("waiting", "failed", "charge"),
        "holdfast explain r::pays_error": Then("waiting"),
    }
)
def waiting_for_a_child_that_is_held() -> None:
    worker(flows.has_child)


# -- findings ----------------------------------------------------------------------------------

STOPS = {
    "holdfast pause r": Then("held"),
    "holdfast cancel r": Then("cancelled"),
}


@leads_to(
    executes("circles", "search search search", after=PAID)
    | STOPS
    | {
        PAID: Then("waiting", "completed", "search search search"),
        "holdfast history r": Then("waiting"),
    }
)
def found_looping() -> None:
    worker(flows.circles)


@leads_to(
    executes("costs", "", after=PAID)
    | {command: dataclasses.replace(then) for command, then in STOPS.items()}
    | {
        PAID: Then("waiting", "completed", ""),
        "holdfast show r": Then("waiting"),
    }
)
def found_runaway_cost() -> None:
    worker(flows.costs)


@leads_to(
    {
        "holdfast show r": Then("completed"),
        "holdfast rollback r --dry-run": Then("completed"),
    }
)
def found_duplicate_action_in_a_completed_run() -> None:
    run(flows.mails_twice)


@leads_to(executes("left_alone", "search"))
def found_stuck_since_nobody_has_it() -> None:
    store(lambda opened: flows.left_alone.submit("r"))
    time.sleep(0.06)


# -- damage ------------------------------------------------------------------------------------

MOVED_AWAY = "mv holdfast.db* away/"


@leads_to(
    {
        "holdfast store verify": Then("queued", code=7),
        "holdfast store restore BACKUP": Then(
            "queued", "completed", "search", after=MOVED_AWAY, in_a_shell=True
        ),
    }
)
def damaged() -> None:
    store(lambda opened: flows.plain.submit("r"))
    store(lambda opened: opened.backup("backup.db"))
    with contextlib.closing(sqlite3.connect("holdfast.db")) as database:
        database.execute("UPDATE journal SET at_us = at_us + 1")
        database.commit()
    Path("away").mkdir()
