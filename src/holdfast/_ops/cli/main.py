"""The command `holdfast`: see what runs did, and decide what only a person can decide."""

from __future__ import annotations

import click

from holdfast._ops.cli import (
    acting,
    checking,
    completing,
    copying,
    demo,
    doctoring,
    forking,
    housekeeping,
    keeping,
    listing,
    looking,
    queues,
    remembering,
    running,
    saying,
    scheduling,
    serving,
    spending,
    stating,
    stopping,
    tailing,
    tokens,
    topping,
    trending,
    undoing,
    working,
)
from holdfast._ops.cli.sections import Sections
from holdfast._ops.cli.session import EXIT_CODES, no_pager_option, store_options


@click.group(
    cls=Sections,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES,
)
@click.version_option(package_name="holdfast", message="holdfast %(version)s")
@no_pager_option
@store_options
def main(url: str | None, namespace: str | None, as_json: bool, no_pager: bool) -> None:
    """Durable runs for AI agents.

    Commands read the store of a program while it runs, or after it died. Decisions are recorded with
    their actor; a process that has the flow carries them out.
    """


for module in (
    demo,
    running,
    working,
    listing,
    looking,
    stating,
    tailing,
    topping,
    checking,
    doctoring,
    queues,
    trending,
    scheduling,
    acting,
    saying,
    spending,
    stopping,
    undoing,
    forking,
    keeping,
    copying,
    housekeeping,
    remembering,
    serving,
    tokens,
    completing,
):
    module.add_to(main)
