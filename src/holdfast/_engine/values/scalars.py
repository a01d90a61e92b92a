"""Values without parts that JSON cannot express: how each is written as plain JSON and read back.

Reading checks the form before it calls a constructor: stored text reaches only the constructors
named in this file.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
import math
import re
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._engine.values.class_codecs import class_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

INT_DIGITS_MAX = 4_300
INT_BITS_MAX = int(INT_DIGITS_MAX * math.log2(10))
_INTEGER = re.compile(r"-?[1-9][0-9]*", re.ASCII)


class Unfit(Exception):
    """This value cannot be a leaf, or this record is none; the text says why."""


class Leaf(NamedTuple):
    """`pack(unpack(p)) == p` for every result of `pack`: the writer verifies that."""

    tag: str
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], object]


def as_list(tree: Any) -> list[Any] | None:
    """Return the decoded JSON, if it is a list."""
    found: list[Any] | None = tree if class_of(tree) is list else None
    return found


def as_dict(tree: Any) -> dict[str, Any] | None:
    """Return the decoded JSON, if it is an object."""
    found: dict[str, Any] | None = tree if class_of(tree) is dict else None
    return found


def _text(payload: object) -> str:
    if type(payload) is not str:
        raise Unfit(f"a text was expected, not {type(payload).__name__}")
    return payload


def _row(payload: object, length: int) -> list[Any]:
    row = as_list(payload)
    if row is None or len(row) != length:
        raise Unfit(f"a list of {length} was expected")
    return row


def _pack_int(value: int) -> str:
    if value.bit_length() > INT_BITS_MAX:
        raise Unfit(f"integers are limited to {INT_DIGITS_MAX} digits")
    return str(value)


def _unpack_int(payload: object) -> int:
    digits = _text(payload)
    if len(digits) > INT_DIGITS_MAX + 1 or not _INTEGER.fullmatch(digits):
        raise Unfit("it is no integer")
    return int(digits)


def _unpack_float(payload: object) -> float:
    if payload not in {"nan", "inf", "-inf"}:
        raise Unfit("it is no special float")
    return float(_text(payload))


def _pack_bytes(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode("ascii")


def _unpack_bytes(payload: object) -> bytes:
    return base64.b64decode(_text(payload), validate=True)


def _unpack_bytearray(payload: object) -> bytearray:
    return bytearray(_unpack_bytes(payload))


def _pack_date(value: dt.date) -> str:
    return value.isoformat()


def _unpack_date(payload: object) -> dt.date:
    return dt.date.fromisoformat(_text(payload))


def _pack_timedelta(value: dt.timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _unpack_timedelta(payload: object) -> dt.timedelta:
    days, seconds, micros = (_integer(n) for n in _row(payload, 3))
    return dt.timedelta(days, seconds, micros)


def _integer(payload: object) -> int:
    if type(payload) is not int:
        raise Unfit("an integer was expected")
    return payload


def _pack_clock(value: dt.datetime | dt.time) -> list[object]:
    """Wall time, zone, fold: the parts of a datetime or a time, apart from its class."""
    wall = value.replace(tzinfo=None, fold=0).isoformat()
    return [wall, _pack_zone(value.tzinfo), value.fold]


def _unpack_datetime(payload: object) -> dt.datetime:
    wall, zone, fold = _row(payload, 3)
    bare = dt.datetime.fromisoformat(_text(wall))
    return bare.replace(tzinfo=_unpack_zone(zone), fold=_integer(fold))


def _unpack_time(payload: object) -> dt.time:
    wall, zone, fold = _row(payload, 3)
    bare = dt.time.fromisoformat(_text(wall))
    return bare.replace(tzinfo=_unpack_zone(zone), fold=_integer(fold))


def _pack_zone(zone: dt.tzinfo | None) -> object:
    if zone is None:
        return None
    if type(zone) is dt.timezone:
        offset = zone.utcoffset(None)
        # Only a timezone that was given a name has one that its offset does not imply.
        name = zone.tzname(None)
        implied = dt.timezone(offset).tzname(None) == name
        return ["fixed", _pack_timedelta(offset), None if implied else name]
    if type(zone) is _pydantic_zone():
        return ["pydantic", _pack_timedelta(zone.utcoffset(None) or dt.timedelta()), None]
    from zoneinfo import ZoneInfo  # Loads much.

    if type(zone) is ZoneInfo:
        return _zone_key(zone)
    raise Unfit(
        f"its time zone is a {type(zone).__module__}.{type(zone).__qualname__}; "
        "use zoneinfo.ZoneInfo or datetime.timezone"
    )


def _zone_key(zone: ZoneInfo) -> str:
    if zone.key not in _zones():
        raise Unfit(f"its time zone {zone.key!r} cannot be found again by name")
    return zone.key


def _unpack_zone(payload: object) -> dt.tzinfo | None:
    if payload is None:
        return None
    if type(payload) is str:
        if payload not in _zones():
            raise Unfit(f"this machine has no time zone {payload!r}: install tzdata")
        from zoneinfo import ZoneInfo

        return ZoneInfo(payload)
    kind, parts, name = _row(payload, 3)
    offset = _unpack_timedelta(parts)
    if kind == "pydantic" and name is None:
        made = _pydantic_zone()
        return dt.timezone(offset) if made is None else made(offset.total_seconds())
    if kind != "fixed":
        raise Unfit("it has an unknown kind of time zone")
    return dt.timezone(offset) if name is None else dt.timezone(offset, _text(name))


@functools.cache
def _zones() -> frozenset[str]:
    """Return all zones of this machine. An unknown key never reaches ZoneInfo, which would try to
    import a module by that name."""
    from zoneinfo import available_timezones

    return frozenset(available_timezones())


def _pydantic_zone() -> Any:
    """Return the class of fixed offsets that pydantic gives to parsed datetimes, if it is
    loaded."""
    return getattr(sys.modules.get("pydantic_core"), "TzInfo", None)


def _unpack_uuid(payload: object) -> uuid.UUID:
    return uuid.UUID(_text(payload))


def _unpack_decimal(payload: object) -> Decimal:
    return Decimal(_text(payload))


LEAVES: dict[type, Leaf] = {
    int: Leaf("int", _pack_int, _unpack_int),
    float: Leaf("float", str, _unpack_float),
    bytes: Leaf("bytes", _pack_bytes, _unpack_bytes),
    bytearray: Leaf("bytearray", _pack_bytes, _unpack_bytearray),
    Decimal: Leaf("decimal", str, _unpack_decimal),
    uuid.UUID: Leaf("uuid", str, _unpack_uuid),
    dt.datetime: Leaf("datetime", _pack_clock, _unpack_datetime),
    dt.date: Leaf("date", _pack_date, _unpack_date),
    dt.time: Leaf("time", _pack_clock, _unpack_time),
    dt.timedelta: Leaf("timedelta", _pack_timedelta, _unpack_timedelta),
}
"""By exact type. `int` and `float` cover what JSON cannot express: long ones, NaN, infinity."""

LEAF_BY_TAG = {leaf.tag: leaf for leaf in LEAVES.values()}
