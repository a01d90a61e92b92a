"""Sealed rows of measures. A damaged row is omitted and named: it must not prevent trends, and is
never counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast._engine.journal.rows import GENESIS
from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._engine.values.digest import seal
from holdfast._stores.structs import Measured
from holdfast.errors import Corrupt

DROPPED_AT_ONCE = 1000
"""How many measures one transaction drops."""

_counts = msgspec.json.Decoder(Counts)


def measure_values(namespace: str, measure: Measure) -> tuple[Any, ...]:
    """Return the values to insert into measures; the digest comes last."""
    body = msgspec.json.encode(measure.counts)
    values = (namespace, measure.at_us, measure.process, measure.flow, body)
    return (*values, seal(GENESIS, values))


def in_order(measures: Iterable[Measure]) -> list[Measure]:
    """Return measures in the order in which stores return them."""
    return sorted(measures, key=lambda it: (it.at_us, it.process, it.flow))


def measure_of(values: Sequence[Any]) -> Measure:
    """Return a verified measure."""
    namespace, at_us, process, flow, body, digest = (_text(values[0]), *values[1:])
    process, flow = _text(process), _text(flow)
    what = f"the measure of {flow or 'a process'!r} at {at_us}"
    if digest != seal(GENESIS, (namespace, at_us, process, flow, body)):
        raise Corrupt(what, why="the digest does not match")
    try:
        return Measure(at_us, process, flow, _counts.decode(body))
    except msgspec.MsgspecError as error:
        raise Corrupt(what, why=str(error)) from None


def measured(rows: Iterable[Sequence[Any]]) -> Measured:
    """Return the measures of these rows, and the damaged ones."""
    found = Measured()
    for values in rows:
        try:
            found.rows.append(measure_of(values))
        except Corrupt as damage:
            found.damaged.append(damage.what)
    return found


def _text(value: Any) -> Any:
    """Return a name as a string; SQLite returns it as bytes, which may be damaged."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
