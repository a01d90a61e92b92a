"""The commands of `holdfast`: the module, help section and short help of each."""

from __future__ import annotations

SECTIONS: dict[str, tuple[str, ...]] = {
    "Execute and serve": ("run", "worker", "demo", "ui", "mcp", "completion"),
    "Inspect": (
        "runs",
        "show",
        "explain",
        "history",
        "state",
        "top",
        "trends",
        "questions",
        "doctor",
    ),
    "Decide": (
        "resume",
        "pause",
        "cancel",
        "settle",
        "answer",
        "approve",
        "reject",
        "signal",
        "set-budget",
        "rollback",
        "fork",
    ),
    "Manage": ("queues", "schedules", "memory", "tokens", "store"),
}
OTHERS = "More"
SHORT = {
    "run": "Execute a run until it ends or is held.",
    "worker": "Execute runs of the flows in these modules.",
    "demo": "Kill an agent twice, and watch it continue.",
    "ui": "Serve the operator page and the HTTP API.",
    "mcp": "Serve the runs of a store to an assistant.",
    "completion": "Print a script that completes commands in a shell.",
    "runs": "List runs, newest first.",
    "show": "Show a run's input, steps and result.",
    "explain": "Explain a run's status and the safe next actions.",
    "history": "Show the entries of a run's journal.",
    "state": "Show the saved state of a run's loop.",
    "top": "Watch workers, queues and runs on one screen.",
    "trends": "Show latency, cost and errors over time.",
    "questions": "List open questions and approvals, oldest first.",
    "doctor": "Find problems of a store or of a run.",
}
"""The short help of commands whose first sentence does not fit on a line of the command list."""


COMMANDS: dict[str, tuple[str, ...]] = {
    "demo_command": ("demo",),
    "run_command": ("run",),
    "worker_command": ("worker",),
    "run_list": ("runs",),
    "run_details": ("show", "history", "explain"),
    "state_command": ("state",),
    "top_command": ("top",),
    "doctor_command": ("doctor",),
    "queue_commands": ("queues", "schedules"),
    "trends_command": ("trends",),
    "decision_commands": ("settle", "resume", "set-budget", "cancel", "pause", "rollback"),
    "question_commands": ("questions", "answer", "approve", "reject", "signal"),
    "fork_command": ("fork",),
    "store_commands": ("store",),
    "memory_commands": ("memory",),
    "server_commands": ("ui", "tokens", "mcp"),
    "completion": ("completion",),
}
"""The commands that the `add_to` of each module adds."""
