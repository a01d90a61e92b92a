"""The spending of a run: its pace, its forecast, and whether each call costs more. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast._engine.journal.lifecycle import CLAIMABLE
from holdfast._engine.values.durations import as_text
from holdfast._engine.values.money import dollars, nanos
from holdfast._features.watchdog.model import Finding, Found, Severity
from holdfast._features.watchdog.subject import Subject

MINUTE_US = 60_000_000
LATEST = 20
"""How many calls the pace of now is worked out from."""
NEARLY = 0.8
"""The spent share of a budget from which its end counts as near. A run that is over in a few minutes
spends its whole budget at a pace that would use it up in fifteen, and nothing is wrong with it."""
AHEAD_US = 15 * MINUTE_US
"""How far ahead a limit is seen coming."""
SAMPLES = 12
"""The least number of calls from which a growing cost is reported."""
WORTH_NANOS, WORTH_TOKENS = 500_000_000, 100_000
"""Below this, growth is not reported."""


class Spent(msgspec.Struct, frozen=True):
    """The usage of one attempt."""

    seq: int
    at_us: int
    step: str
    usd_nanos: int
    tokens: int


def runaway_cost(subject: Subject) -> Iterator[Finding]:
    """The run spends faster than it may, will spend more than it should, or each call costs more."""
    if subject.row.status not in CLAIMABLE:
        return
    spent = spends(subject)
    if len(spent) < 2:
        return
    limits = subject.limits
    yield from _too_fast(subject, spent, "usd", limits.usd_nanos_per_minute)
    yield from _too_fast(subject, spent, "tokens", limits.tokens_per_minute)
    yield from _too_far(subject, spent, "usd", limits.usd_nanos)
    yield from _too_far(subject, spent, "tokens", limits.tokens)
    yield from _budget(subject, spent)
    yield from _grows(subject, spent)


def spends(subject: Subject) -> list[Spent]:
    """Return what was used since a person last took the run up again, in order."""
    found: list[Spent] = []
    since_seq = subject.since_seq
    for entry in subject.entries:
        if entry.seq <= since_seq or entry.step is None or b'"usage":' not in entry.body:
            continue
        raw = entry.data().get("usage")
        if raw is None:
            continue  # Those are words of the user.
        used = msgspec.json.decode(raw, type=dict[str, Any])
        tokens = int(used.get("input_tokens", 0)) + int(used.get("output_tokens", 0))
        cost = nanos(used.get("cost", 0), "record_usage(cost_usd=…)")
        if cost or tokens:
            found.append(Spent(entry.seq, entry.at_us, entry.step, cost, tokens))
    return found


_AMOUNT: dict[str, Callable[[Spent], int]] = {
    "usd": lambda it: it.usd_nanos,
    "tokens": lambda it: it.tokens,
}


def pace(spent: Sequence[Spent], what: str) -> float:
    """Return what is spent in a minute, by the latest calls. Less than a minute counts as one, so
    that a burst is no pace."""
    latest = spent[-LATEST:]
    amount = sum(map(_AMOUNT[what], latest[1:]))
    return amount * MINUTE_US / max(latest[-1].at_us - latest[0].at_us, MINUTE_US)


def _too_fast(
    subject: Subject, spent: Sequence[Spent], what: str, limit: int | None
) -> Iterator[Finding]:
    now = pace(spent, what)
    if limit is not None and now > limit:
        text = f"it spends {_said(now, what)} a minute, and may spend {_said(limit, what)}"
        yield _finding(subject, spent, f"{what}_per_minute", text)


def _too_far(
    subject: Subject, spent: Sequence[Spent], what: str, limit: int | None
) -> Iterator[Finding]:
    """The limit is passed, or will be soon if it goes on like this."""
    total = sum(map(_AMOUNT[what], spent))
    if limit is not None and total > limit:
        text = f"it has spent {_said(total, what)}, and should not spend more than"
        yield _finding(subject, spent, what, f"{text} {_said(limit, what)}")
    elif limit is not None and (text := _soon(spent, what, total, limit)):
        yield _finding(subject, spent, what, text)


def _budget(subject: Subject, spent: Sequence[Spent]) -> Iterator[Finding]:
    """The budget of the family will be used up soon: it stops the run by itself, so that is only
    said."""
    account = subject.account
    if account is None:
        return
    amounts = (
        ("usd", account.spent_usd_nanos, account.usd_nanos),
        ("tokens", account.spent_tokens, account.tokens),
    )
    for what, total, limit in amounts:
        if limit is None or total < NEARLY * limit:
            continue
        if text := _soon(spent, what, total, limit):
            text = f"of its budget, {text}"
            yield _finding(subject, spent, f"budget_{what}", text, Severity.INFO)


def _soon(spent: Sequence[Spent], what: str, total: int, limit: int) -> str:
    """Return a sentence if a limit is near at the pace of now, else an empty string."""
    now = pace(spent, what)
    if not now or (limit - total) / now * MINUTE_US >= AHEAD_US:
        return ""
    left = as_text(max(1_000_000, int((limit - total) / now * MINUTE_US)))
    return (
        f"{_said(total, what)} of {_said(limit, what)} is spent, and at {_said(now, what)} a minute "
        f"the rest is used up in {left}"
    )


def _grows(subject: Subject, spent: Sequence[Spent]) -> Iterator[Finding]:
    """One call costs many times what the first ones did."""
    if len(spent) < SAMPLES:
        return
    third = len(spent) // 3
    for what, worth in (("usd", WORTH_NANOS), ("tokens", WORTH_TOKENS)):
        amounts = [_AMOUNT[what](it) for it in spent]
        first, latest = statistics.median(amounts[:third]), statistics.median(amounts[-third:])
        if first and latest >= subject.limits.growth * first and sum(amounts) >= worth:
            yield _finding(
                subject,
                spent,
                "growth",
                f"one call costs {_said(latest, what)} by now, and the first ones cost "
                f"{_said(first, what)}: {latest / first:.0f} times as much",
            )
            return


def _finding(
    subject: Subject,
    spent: Sequence[Spent],
    why: str,
    text: str,
    severity: Severity = Severity.WARNING,
) -> Finding:
    latest = spent[-LATEST:]
    return subject.finding(
        Found.RUNAWAY_COST,
        severity,
        f"{subject.since_seq}:{why}",
        text,
        since_us=latest[0].at_us,
        steps=list(dict.fromkeys(it.step for it in latest[-3:])),
        entries=[it.seq for it in latest],
        actions=[subject.cmd("show"), *subject.stops()],
    )


def _said(amount: float, what: str) -> str:
    if what == "usd":
        # To a hundredth of a cent: what is estimated has no more places.
        return dollars(round(amount / 100_000) * 100_000)
    return f"{amount:,.0f} tokens"
