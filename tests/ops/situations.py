"""Situations of real runs, and what each command that `explain` prints there leads to.

`python -m tests.ops.make_situations FOLDER` makes them all: each in a folder of its own, by processes
that run the flows, die, and leave the store behind. `test_pasted.py` pastes the commands.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast._operator.cli.main import main as command_line
from holdfast.errors import HoldfastError
from tests.ops import pasted_flows as flows

URL = "sqlite:///holdfast.db"


@dataclasses.dataclass(frozen=True)
class Then:
    """What a command leads to."""

    status: str
    """The status of the run when the command has ended."""
    ends: str | None = None
    """Its status after a process that has the flow has gone on with it; None: nobody goes on."""
    log: str | None = None
    """All that has happened in the world by then, sorted; None: nothing new."""
    code: int = 0
    after: str = ""
    """What is done before, as the text says: a command that was printed too, or `rm`, `touch`."""
    in_a_shell: bool = False
    """Pasted into a shell; else given to a prompt that is quicker, since another case shows it."""


@dataclasses.dataclass
class Situation:
    name: str
    make: Callable[[], None]
    leads: dict[str, Then]


SITUATIONS: dict[str, Situation] = {}


def leads_to(leads: dict[str, Then]) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(make: Callable[[], None]) -> Callable[[], None]:
        SITUATIONS[make.__name__] = Situation(make.__name__, make, leads)
        return make

    return add


# -- processes ---------------------------------------------------------------------------------


def in_a_process(work: Callable[[], object]) -> None:
    """Do something in a process of its own, which may die of it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except (HoldfastError, KeyboardInterrupt):
            pass
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def run(flow: Any, run_id: str = "r") -> None:
    """Run a flow in a process; it may be held, fail, or die."""

    def work() -> None:
        with hf.open(URL):
            flow.run(run_id)

    in_a_process(work)


def store(act: Callable[[Any], object]) -> None:
    """Do something with the store in a process."""

    def work() -> None:
        with hf.open(URL) as opened:
            act(opened)

    in_a_process(work)


def cli(*words: str) -> None:
    """Give a command, in a process."""

    def work() -> None:
        with Path("cli.log").open("a") as log, contextlib.redirect_stdout(log):
            command_line(list(words))

    in_a_process(work)


def worker(flow: Any, status: str = "waiting", run_id: str = "r") -> None:
    """Leave a run to a worker, which ends when the run has this status."""

    def work(opened: Any) -> None:
        flow.submit(run_id)
        deadline = time.monotonic() + 30
        with opened.worker(flows=[flow, flows.pays_error], concurrency=2):
            while opened.get(run_id).status != status or _children(opened) - {"held"}:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    store(work)


def _children(opened: Any) -> set[str]:
    return {str(it.status) for it in opened.runs(parent="r")}


# -- in doubt ----------------------------------------------------------------------------------

FORCED = "charge charge"


def doubt(step: str, run_id: str = "r", quote: str = "", shell: bool = False) -> dict[str, Then]:
    settle = f"holdfast settle {run_id} {step}"
    once, twice = f"charge{quote}", f"{FORCED}{quote}"
    return {
        f"{settle} --done JSON": Then("queued", "completed", once, in_a_shell=shell),
        f"{settle} --not-done": Then("queued", "completed", twice, in_a_shell=shell),
        f"{settle} --fail REASON": Then("queued", "failed", once, in_a_shell=shell),
    }


@leads_to(doubt("pasted_charge", quote=" quote", shell=True))
def held_in_doubt() -> None:
    run(flows.pays)
    run(flows.pays)


@leads_to(doubt("pasted_error"))
def held_in_doubt_after_an_error() -> None:
    run(flows.pays_error)


@leads_to(doubt("pasted_slow"))
def held_in_doubt_after_a_timeout() -> None:
    run(flows.pays_slow)


@leads_to(doubt("pasted_interrupted"))
def held_in_doubt_after_an_interrupt() -> None:
    run(flows.pays_interrupted)
    run(flows.pays_interrupted)


@leads_to(doubt("pasted_anew:call_2"))
def held_in_doubt_it_may_repeat_another() -> None:
    run(flows.pays_anew)
    run(flows.pays_anew)


@leads_to(doubt("pasted_asked"))
def held_in_doubt_its_function_does_not_know() -> None:
    run(flows.pays_asked)


@leads_to(
    {
        "holdfast settle r pasted_lost --done JSON": Then("queued", "completed", "charge"),
        "holdfast settle r pasted_lost --fail REASON": Then("queued", "failed", "charge"),
    }
)
def held_in_doubt_value_lost() -> None:
    run(flows.pays_lost)


@leads_to(
    {
        "holdfast settle r pasted_old_key --done JSON": Then("queued", "completed", "charge"),
        "holdfast settle r pasted_old_key --fail REASON": Then("queued", "failed", "charge"),
    }
)
def held_in_doubt_its_key_expired() -> None:
    run(flows.pays_old_key)
    time.sleep(0.06)
    store(lambda opened: opened.settle("r", "pasted_old_key", hf.NOT_DONE, actor="kim"))
    run(flows.pays_old_key)


@leads_to(
    {
        "holdfast settle r pasted_mail --done JSON": Then("queued", "completed", "mail quote"),
        "holdfast settle r pasted_mail --not-done": Then("queued", "completed", "mail mail quote"),
        "holdfast settle r pasted_mail --fail REASON": Then("queued", "failed", "mail quote"),
    }
)
def held_in_doubt_in_an_adopted_store() -> None:
    worker(flows.adopts)
    store(lambda opened: opened.backup("backup.db"))
    store(lambda opened: opened.signal("r", "go"))
    run(flows.adopts)  # The mail is sent, and the store that knows of it is lost.
    for file in Path().glob("holdfast.db*"):
        file.unlink()
    cli("store", "restore", "backup.db")
    store(lambda opened: opened.signal("r", "go"))
    run(flows.adopts)


@leads_to(
    {
        f"holdfast settle r 'gather[{number}]/{step}' {how}": Then(
            "held", in_a_shell=(number, how) == (1, "--not-done")
        )
        for number, step in ((0, "pasted_left"), (1, "pasted_right"))
        for how in ("--done JSON", "--not-done", "--fail REASON")
    }
)
def held_two_doubts() -> None:
    run(flows.pays_twice)


def _first_in_doubt() -> None:
    run(flows.pays_once, "first")
    run(flows.pays_once)


@leads_to(
    doubt("pasted_once", "first")
    | {"holdfast settle first pasted_once --fail REASON": Then("held")}
)
def held_on_the_key_of_another() -> None:
    _first_in_doubt()


@leads_to({"holdfast settle r pasted_once --not-done": Then("queued", "completed", FORCED)})
def held_on_a_key_that_was_given_up() -> None:
    _first_in_doubt()
    fail = hf.types.Failed("nobody knows")
    store(lambda opened: opened.settle("first", "pasted_once", fail, actor="kim"))


@leads_to(
    {
        f"holdfast settle r pasted_error {how}": Then("cancelled", None, "charge")
        for how in ("--done JSON", "--not-done", "--fail REASON")
    }
)
def held_and_to_be_cancelled() -> None:
    run(flows.pays_error)
    store(lambda opened: opened.cancel("r", actor="kim"))


# -- other reasons -----------------------------------------------------------------------------


@leads_to(
    {
        "holdfast run MODULE:diverges r": Then(
            "completed", None, "search stops stops", after="rm changed", in_a_shell=True
        ),
        "holdfast resume r --accept-change": Then(
            "queued", "completed", "quote search stops stops"
        ),
    }
)
def held_diverged() -> None:
    run(flows.diverges)
    Path("changed").touch()
    run(flows.diverges)


@leads_to(
    {
        "holdfast run MODULE:leaves_out r": Then(
            "completed", None, "mail search stops stops", after="rm changed"
        ),
        "holdfast resume r --accept-change --confirm": Then(
            "queued", "completed", "mail search stops"
        ),
    }
)
def held_diverged_leaving_out_an_effect() -> None:
    run(flows.leaves_out)
    Path("changed").touch()
    run(flows.leaves_out)


@leads_to(
    {
        "holdfast resume r --keep": Then("queued", "completed", "search stops stops"),
        "holdfast resume r --redo": Then("queued", "completed", "search search stops stops"),
        "holdfast resume r --dry-run --app MODULE": Then("held"),
    }
)
def held_for_drift() -> None:
    Path("prices").write_text("10")
    run(flows.drifts)
    Path("prices").write_text("12")
    run(flows.drifts)


@leads_to(
    {
        "holdfast resume r": Then(
            "queued", "completed", "search" + 6 * " poison", after="touch mended"
        )
    }
)
def held_quarantined() -> None:
    for _ in range(6):
        run(flows.poisons)


@leads_to({"holdfast resume r": Then("queued", "completed", "search")})
def held_paused_by_somebody() -> None:
    store(lambda opened: flows.plain.submit("r"))
    store(lambda opened: opened.pause("r", actor="kim"))


@leads_to(
    {
        "holdfast explain r --url sqlite:///there.db --namespace default": Then("held"),
        "holdfast resume r --confirm": Then("queued", "completed", "search"),
    }
)
def held_because_it_was_moved() -> None:
    store(lambda opened: flows.plain.submit("r"))
    cli("store", "move", URL, "sqlite:///there.db")


@leads_to(
    {
        "holdfast set-budget r --usd 1.00": Then(
            "queued", "completed", "think think", in_a_shell=True
        ),
        "holdfast resume r": Then("queued", "held", "think"),
    }
)
def held_for_its_budget() -> None:
    run(flows.spends)


@leads_to(
    {
        "holdfast resume r": Then(
            "queued", "completed", "book broken broken broken", after="rm broken"
        ),
        "holdfast run MODULE:fails r": Then(
            "completed", None, "book broken broken broken", after="rm broken"
        ),
        "holdfast rollback r --dry-run": Then("failed", in_a_shell=True),
    }
)
def found_partial_failure() -> None:
    Path("broken").touch()
    run(flows.fails)


@leads_to(
    {
        "holdfast resume r --confirm": Then("queued", "completed", FORCED),
        "holdfast run MODULE:pays_or_fails r": Then(
            "completed", None, FORCED, after="holdfast resume r --confirm"
        ),
    }
)
def failed_with_an_unknown_outcome() -> None:
    run(flows.pays_or_fails)


def make_all(folder: Path) -> None:
    for each in SITUATIONS.values():
        place = folder / each.name
        place.mkdir()
        os.chdir(place)
        each.make()
        os.chdir(folder)
