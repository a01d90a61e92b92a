"""The command `holdfast`: see what runs did, and decide what only a person can decide.

The module of a command is imported when the command is used: who lists runs does not wait for what a
worker or the page needs. Help loads them all.
"""

from __future__ import annotations

import click

from holdfast._ops.cli.sections import Commands, Sections
from holdfast._ops.cli.session import EXIT_CODES, no_pager_option, store_options

COMMANDS: dict[str, tuple[str, ...]] = {
    "demo": ("demo",),
    "running": ("run",),
    "working": ("worker",),
    "listing": ("runs",),
    "looking": ("show", "history", "explain"),
    "stating": ("state",),
    "tailing": ("tail",),
    "topping": ("top",),
    "checking": ("preflight",),
    "doctoring": ("doctor",),
    "queues": ("queues", "queue"),
    "trending": ("trends",),
    "scheduling": ("schedules", "schedule"),
    "acting": ("settle", "resume"),
    "saying": ("questions", "answer", "approve", "signal"),
    "spending": ("raise-budget",),
    "stopping": ("cancel", "pause"),
    "undoing": ("rollback",),
    "forking": ("fork",),
    "keeping": ("verify", "backup", "restore", "adopt"),
    "copying": ("copy",),
    "housekeeping": ("gc", "export", "import"),
    "remembering": ("memory",),
    "serving": ("ui",),
    "assisting": ("mcp",),
    "tokens": ("token",),
    "auditing": ("audit",),
    "completing": ("completion",),
}
"""By module, the commands that its `add_to` adds."""


@click.group(
    cls=Sections,
    commands=Commands("holdfast._ops.cli", COMMANDS),
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
