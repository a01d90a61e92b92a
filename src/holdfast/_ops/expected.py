"""By which names a run waits for something now, so that a misspelt one is noticed."""

from __future__ import annotations

import difflib

from holdfast._core.approvals import APPROVE
from holdfast._core.entries import Kind
from holdfast._core.record import facts
from holdfast._ops.inspect import fold, found
from holdfast._ops.waits import waiting
from holdfast._store.contract import Store

_NOUNS = {Kind.SIGNAL_AWAITED: "signal", Kind.QUESTION_ASKED: "question"}


def expected(store: Store, run_id: str) -> list[tuple[str, str]]:
    """Return what people can send a run now, sorted: "signal", "question" or "approval", and its name."""
    names: list[tuple[str, str]] = []
    for _, begun in waiting(fold(store, found(store, run_id))):
        noun = _NOUNS.get(begun.kind)
        if noun is not None:
            name = str(facts(begun)["name"])
            names.append(
                ("approval", name.removeprefix(APPROVE))
                if name.startswith(APPROVE)
                else (noun, name)
            )
    return sorted(names)


def other_names(store: Store, run_id: str, noun: str, name: str) -> str | None:
    """Say what a run waits for now, if that is something else than this."""
    names = expected(store, run_id)
    if not names or (noun, name) in names:
        return None
    told = ", ".join(f"{noun} {name!r}" for noun, name in names)
    return f"The run waits for {told} now"


def meant(store: Store, run_id: str, name: str) -> list[str]:
    """Return the question that may have been meant by a name that a run does not ask: the only one
    that is open, or the one that is spelt most like it."""
    names = [asked for noun, asked in expected(store, run_id) if noun == "question"]
    return names if len(names) == 1 else difflib.get_close_matches(name, names, 1)
