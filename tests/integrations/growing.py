"""500 turns of an SDK with a growing conversation: what is kept grows with what is said."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import flow
from holdfast.errors import RunFailed
from holdfast.integrations.http import DurableTransport
from holdfast.integrations.tools import Tools, tool
from tests.integrations.sizes import bytes_of

httpx2: Any = importlib.import_module("httpx2")
TURNS = 500
Answer = Callable[[int, dict[str, Any]], dict[str, Any]]
"""The answer of a model to its n-th question, which calls the tool `search`."""


def said(number: int) -> str:
    """About a kilobyte, no two alike."""
    return " ".join(f"{number * 7919 + place * 104729:x}" for place in range(150))


@tool(name="search")
def search(number: int) -> str:
    """Search."""
    return said(-number)


tools = Tools([search])


def check_growth(
    folder: Path, answer: Answer, talk: Callable[[Any, int], list[dict[str, Any]]]
) -> None:
    """Talk for a half, and then for all of the turns; `talk` returns the conversation at its end."""
    asked: list[int] = []

    def reply(request: Any) -> Any:
        asked.append(len(asked) + 1)
        return httpx2.Response(200, json=answer(len(asked), json.loads(request.content)))

    conversation: list[dict[str, Any]] = []

    @flow(name="growing")
    def grows() -> None:
        with httpx2.Client(transport=DurableTransport(httpx2.MockTransport(reply))) as client:
            conversation[:] = talk(client, end)
        if end < TURNS:
            raise RuntimeError("the process is in trouble")

    sizes: list[int] = []
    for end in (0, TURNS // 2, TURNS):
        with holdfast.open(f"sqlite:///{folder}/runs.db", default=False) as store:
            with pytest.raises(RunFailed) if end < TURNS else contextlib.nullcontext():
                grows.with_options(store=store).run("r")
            steps = [it.name for it in store.get("r").steps]
            assert (steps.count("http"), steps.count("search")) == (end, end)
        sizes.append(bytes_of(folder / "runs.db"))
    assert len(asked) == TURNS, "nothing was asked twice"
    begun, middle, whole = sizes
    assert whole - begun <= 2 * len(json.dumps(conversation))
    assert whole - middle <= 1.5 * (middle - begun)
