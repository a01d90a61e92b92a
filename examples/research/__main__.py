"""Run the desk: `python -m examples.research demo`, or `run RUN_ID TOPIC` and answer by yourself."""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack, nullcontext
from pathlib import Path

import holdfast
from holdfast.errors import RunBusy, RunHeld, RunRolledBack

from . import servers
from .desk import research
from .person import ANSWERS, somebody

GUIDE = Path(__file__).parent / "style_guide.md"


def main() -> None:
    options = _options()
    with ExitStack() as stack:
        if "RESEARCH_WORLD" not in os.environ:
            os.environ["RESEARCH_WORLD"] = stack.enter_context(servers.serving())
        if options.command == "demo":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            _run(f"sqlite:///{folder}/research.db", options, attended=True)
        else:
            _run(options.url, options, attended=options.demo)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.research", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="a store that is thrown away, and a person who answers")
    demo.set_defaults(run_id="report-1", topic="tidal power")
    run = commands.add_parser("run", help="start a report, or take it up where it stopped")
    run.add_argument("run_id")
    run.add_argument("topic")
    run.add_argument("--url", default="sqlite:///research.db")
    run.add_argument("--demo", action="store_true", help="let the person answer by itself")
    for command in (demo, run):
        command.add_argument(
            "--withdraw", action="store_true", help="have it taken back at the end"
        )
        command.add_argument(
            "--guide", default=str(GUIDE), help="the style guide, which is watched"
        )
    return parser.parse_args()


def _run(url: str, options: argparse.Namespace, *, attended: bool) -> None:
    answers = ANSWERS | ({"keep": "withdraw"} if options.withdraw else {})
    with holdfast.open(url) as store:
        if not attended:
            print(f"It will ask. Answer in another terminal: holdfast --url {url} questions")
        person = somebody(store, options.run_id, answers, tell=True) if attended else nullcontext()
        try:
            with person:
                done = research.run(options.run_id, options.run_id, options.topic, options.guide)
        except RunRolledBack as told:
            print(f"rolled back: {told.reason}")
        except (RunBusy, RunHeld) as stopped:
            print(stopped)
        else:
            print(f"published at {done.url}: {done.text}")
        _tell(store, options.run_id)


def _tell(store: holdfast.types.Store, run_id: str) -> None:
    run = store.get(run_id)
    budget = run.budget
    assert budget is not None
    print(f"{run.status}; {len(store.history(run_id))} entries; ${budget.spent_usd:.4f} spent")
    for each in run.steps:
        print(f"  {each.key}: {each.status}")


if __name__ == "__main__":
    main()
