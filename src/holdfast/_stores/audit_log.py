"""The audit log of changes that belong to no run: queues, schedules, tokens, accepted losses.

A decision about a run is an entry of the run. What holds for many runs has no journal, so it is kept
here, in a memory of the store: who, when, from where, and what became different. The newest comes
first, and each is kept for ninety days.
"""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Any

import msgspec

from holdfast._engine.journal.rows import Memo
from holdfast._engine.values import codec
from holdfast._engine.values.moments import at
from holdfast._stores.contract import Store

SPACE = "holdfast:audit"
KEPT_US = 90 * 86_400_000_000
LISTED_MAX = 1000
PAGE = 100
LAST_US = 10**17
"""Keys count down from here, so that the newest is the first."""


class AuditView(msgspec.Struct, frozen=True):
    """One change, as it was recorded."""

    at: dt.datetime
    actor: str
    """The user of a terminal, or a token's name with the way and the address."""
    what: str
    """The thing that was changed: `queue mail`, `schedule nightly`, `token kim`, `store`."""
    did: str
    """The change: set, paused, resumed, created, revoked, rotated, accepted."""
    detail: dict[str, Any] = {}


def record(store: Store, actor: str, what: str, did: str, **detail: Any) -> None:
    """Keep who did what."""
    now_us = store.now_us()
    told = {"actor": actor, "what": what, "did": did, "detail": detail, "at_us": now_us}
    key = f"{LAST_US - now_us:018d}-{secrets.token_hex(4)}"
    store.put_memo(Memo(SPACE, key, codec.encode(told), now_us + KEPT_US))


def recorded_changes(store: Store, limit: int = PAGE) -> list[AuditView]:
    """Return what was changed, the newest first."""
    found: list[AuditView] = []
    after = ""
    while len(found) < limit:
        page = store.memos(SPACE, "", after, min(PAGE, limit - len(found)))
        found += [_view(memo) for memo in page if memo.value is not None]
        if len(page) < PAGE:
            break
        after = page[-1].key
    return found


def _view(memo: Memo) -> AuditView:
    told: Any = codec.decode(memo.value or b"")
    return AuditView(at(told["at_us"]), told["actor"], told["what"], told["did"], told["detail"])
