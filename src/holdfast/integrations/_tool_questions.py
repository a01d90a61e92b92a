"""Questions about a tool call, with arguments of any length.

A person can approve only what was shown. A question has the whole call, up to the length limit of a
question. A longer one is recorded in a step of its own; the question then says so first, and only
an answer with the digest of that record approves.
"""

from __future__ import annotations

import hashlib
import shlex
from typing import Any, Literal, TypedDict, cast

import holdfast
from holdfast.adapters import as_step, step_key

TEXT_MAX_CHARS = 100_000
"""The length limit of a question."""
SHOWN = "shown"
"""The step with the whole text of a longer question."""

_made = cast("Any", TypedDict)
_one_of = cast("Any", Literal)


async def ask_about(text: str, name: str) -> bool:
    """Ask a person whether a call may be made; a refusal raises Rejected."""
    if len(text) <= TEXT_MAX_CHARS:
        return await holdfast.aio.ask(text, name=name, type=bool)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    place = await _record(text, name, digest)
    approval = _made("Approval", {"sha256": _one_of[digest]})
    await holdfast.aio.ask(_shortened(text, place, digest), name=name, type=approval)
    return True


def cut(text: str, chars: int) -> str:
    """Return the beginning of a text, and how much is left out."""
    return (
        text if len(text) <= chars else f"{text[:chars]}… ({len(text) - chars:,} more characters)"
    )


async def _record(text: str, name: str, digest: str) -> str:
    """Record the whole question; returns the command that prints it."""

    async def question() -> dict[str, Any]:
        run = holdfast.context.current_run()
        assert run is not None
        return {"sha256": digest, "asked": text, "step": run.step}

    with step_key(name):  # That of the question may be the same for all calls.
        step = (await as_step(question, name=SHOWN)())["step"]
    run = holdfast.context.current_run()
    assert run is not None
    return shlex.join(["holdfast", "history", run.run_id, "--step", step, "--json"])


def _shortened(text: str, place: str, digest: str) -> str:
    head = (
        f"CUT, too long to be shown here. All of it: {place}. "
        f'To approve all of it, answer {{"sha256":"{digest}"}}; to reject, refuse. '
    )
    return head + cut(text, TEXT_MAX_CHARS - len(head) - 50)
