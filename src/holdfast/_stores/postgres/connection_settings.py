"""Convert a URL to parameters of the driver, with defaults that end every call."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from holdfast._stores.addresses import without_password
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
    """The address of the server, and the size of the connection pool."""

    conninfo: str
    url: str
    """The URL as given, with its secrets."""
    shown: str
    """The URL without its password."""
    pool_size: int = POOL_SIZE
    partitions: int = 0
    """The number of partitions of journal, chunks and inbox when the schema is created."""


def parse(url: str) -> Place:
    """Parse a URL; unknown options are passed to libpq."""
    parts = urlsplit(url)
    if parts.fragment:
        raise StoreUnusable(f"{without_password(url)} has a '#', which must be written as %23")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    size = _number(url, options, "pool", POOL_SIZE)
    partitions = _number(url, options, "partitions", 0)
    given = {name: value for name, value in options.items() if name not in _OWN}
    if "," in parts.netloc:  # Several hosts: use the one that accepts writes.
        given.setdefault("target_session_attrs", "read-write")
    for name, value in _DEFAULTS.items():
        given.setdefault(name, value)
    conninfo = f"{parts.scheme}://{parts.netloc}{parts.path}?{urlencode(given)}"
    return Place(conninfo, url, without_password(url), size, partitions)


def _number(url: str, options: dict[str, str], name: str, default: int) -> int:
    if name not in options:
        return default
    if not options[name].isdecimal() or int(options[name]) < 1:
        raise StoreUnusable(
            f"{without_password(url)}: {name}={options[name]!r} is not a number from 1 on"
        )
    return int(options[name])
