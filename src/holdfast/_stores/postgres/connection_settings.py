"""From a URL to what the driver is given, with defaults that let no call hang for ever."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from holdfast._stores.addresses import shown
from holdfast.errors import StoreUnusable

POOL_SIZE = 4
_OWN = ("pool", "partitions")
_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "application_name": "holdfast",
}


class Place(msgspec.Struct, frozen=True):
    """Where the server is, and how many connections may be open to it beside the fixed ones."""

    conninfo: str
    url: str
    """As it was given, with whatever secret it has."""
    shown: str
    """The URL without its password."""
    pool_size: int = POOL_SIZE
    partitions: int = 0
    """Into how many parts journal, chunks and inbox are divided when the schema is made."""


def parse(url: str) -> Place:
    """Take a URL apart; what is not ours is libpq's."""
    parts = urlsplit(url)
    if parts.fragment:
        raise StoreUnusable(f"{shown(url)} has a '#', which must be written as %23")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    size = _number(url, options, "pool", POOL_SIZE)
    partitions = _number(url, options, "partitions", 0)
    given = {name: value for name, value in options.items() if name not in _OWN}
    if "," in parts.netloc:  # Several hosts: the one that may be written to.
        given.setdefault("target_session_attrs", "read-write")
    for name, value in _DEFAULTS.items():
        given.setdefault(name, value)
    conninfo = f"{parts.scheme}://{parts.netloc}{parts.path}?{urlencode(given)}"
    return Place(conninfo, url, shown(url), size, partitions)


def _number(url: str, options: dict[str, str], name: str, default: int) -> int:
    if name not in options:
        return default
    if not options[name].isdecimal() or int(options[name]) < 1:
        raise StoreUnusable(f"{shown(url)}: {name}={options[name]!r} is not a number from 1 on")
    return int(options[name])
