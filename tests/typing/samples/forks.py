"""Forks, as users write them."""

from __future__ import annotations

from typing import assert_type

import holdfast
from holdfast.errors import ConfirmationRequired


def fork(store: holdfast.types.Store) -> str:
    try:
        made = store.fork("r", "f", before="turns[3]", input={"topic": "x"}, results={"search": []})
    except ConfirmationRequired as error:
        assert_type(error.effects, tuple[str, ...])
        made = store.fork("r", "f", before="turns[3]", state=None, actor="kim", confirm=True)
    store.fork("r", "f")  # error
    store.fork("r", "f", before=3)  # error
    assert_type(made.borrowed, int)
    return made.run_id
