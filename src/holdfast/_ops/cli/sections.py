"""The help of `holdfast` itself: commands by what one wants to do, and not by their first letter."""

from __future__ import annotations

import click

SECTIONS: dict[str, tuple[str, ...]] = {
    "Execute": ("demo", "run", "worker"),
    "Look": (
        "runs",
        "show",
        "explain",
        "history",
        "state",
        "tail",
        "top",
        "questions",
        "queues",
        "schedules",
        "trends",
        "doctor",
        "verify",
        "preflight",
    ),
    "Decide": (
        "resume",
        "pause",
        "cancel",
        "settle",
        "answer",
        "approve",
        "signal",
        "raise-budget",
        "rollback",
        "fork",
    ),
    "Set up": ("ui", "token", "queue", "schedule", "memory", "completion"),
    "Keep": ("backup", "restore", "adopt", "copy", "gc", "export", "import"),
}
OTHERS = "More"


class Sections(click.Group):
    """A group whose help has its commands in sections."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands into the help."""
        known = {name for names in SECTIONS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in known)
        for title, names in {**SECTIONS, OTHERS: others}.items():
            there = [self.commands[name] for name in names if name in self.commands]
            width = formatter.width - 6 - max(map(len, self.commands))
            rows = [(each.name or "", each.get_short_help_str(width)) for each in there]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
