"""Open the store of a URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from holdfast._stores.addresses import NoStore, without_password
from holdfast._stores.contract import Store
from holdfast._stores.sqlite import filesystem
from holdfast._stores.temporary_folders import TemporaryFolder
from holdfast.errors import StoreUnusable

FORMS = "sqlite:///relative.db, sqlite:////absolute.db, postgresql://… or memory:"
_OPTIONS = ("mode", "force_fs")


class SqlitePlace(msgspec.Struct, frozen=True):
    """A file, and the options for opening it."""

    path: str
    read_only: bool = False
    force_fs: bool = False


def open_store(
    url: str,
    *,
    namespace: str = "default",
    clock: Callable[[], int] | None = None,
    lease_s: float = 30.0,
    create: bool = True,
) -> Store:
    """Open the store that a URL names; a missing store is an error unless `create` is true."""
    if url in {"memory:", "memory://"}:
        return open_temporary(TemporaryFolder(), namespace=namespace, clock=clock, lease_s=lease_s)
    if _parts(url).scheme in {"postgresql", "postgres"}:
        return _open_postgres(url, namespace=namespace, clock=clock, lease_s=lease_s, create=create)
    place = parse(url)
    if not create and not filesystem.is_there(place.path):
        raise NoStore(url)
    from holdfast._stores.sqlite.sqlite_store import SqliteStore

    return SqliteStore(
        place.path,
        namespace=namespace,
        clock=clock,
        read_only=place.read_only,
        lease_s=lease_s,
        force_fs=place.force_fs,
    )


def check_new(url: str) -> None:
    """Refuse the URL of a store that is not there and could not be made, as making it would."""
    if _parts(url).scheme != "sqlite":
        return  # What a server allows is known when it is asked.
    place = parse(url)
    path = filesystem.resolved(place.path)
    filesystem.check_file_system(path, force=place.force_fs)
    filesystem.check_new(path, read_only=place.read_only)


def open_temporary(folder: TemporaryFolder, **options: Any) -> Store:
    """Open a handle on the store in a temporary folder, as another process would."""
    from holdfast._stores.sqlite.sqlite_store import SqliteStore

    return SqliteStore(folder.file, temporary=folder, **options)


def _open_postgres(url: str, **options: Any) -> Store:
    try:
        from holdfast._stores.postgres.postgres_store import PostgresStore
    except ImportError as missing:
        if not (missing.name or "").startswith("psycopg"):
            raise
        raise StoreUnusable(
            f"PostgreSQL needs the driver, and {missing.name} is not installed: "
            "pip install -e '.[postgres]' in a clone"
        ) from missing
    return PostgresStore(url, **options)


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # The error's text has the address, which may have a password.
        raise StoreUnusable(
            f"{without_password(url)!r} is not the URL of a store; write {FORMS}; in a user, a password or a "
            "path, what is not a letter or a digit is written as %XX"
        ) from None


def parse(url: str) -> SqlitePlace:
    """Parse a SQLite URL; refuse anything else, and name the valid forms."""
    parts = _parts(url)
    if parts.scheme != "sqlite":
        raise StoreUnusable(f"{without_password(url)!r} is not the URL of a store; write {FORMS}")
    if parts.netloc or not parts.path.startswith("/") or len(parts.path) < 2:
        raise StoreUnusable(
            f"{without_password(url)!r} names no file; three slashes for a relative path, four for an absolute "
            f"one: {FORMS}"
        )
    if parts.fragment:
        raise StoreUnusable(f"{without_password(url)!r} has a '#', which must be written as %23")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise StoreUnusable(
            f"{without_password(url)!r} has an unknown option {unknown[0]!r}; known: mode, force_fs"
        )
    if options.get("mode", "rw") not in {"ro", "rw"}:
        raise StoreUnusable(f"{without_password(url)!r}: mode is ro or rw")
    return SqlitePlace(
        unquote(parts.path[1:]),
        read_only=options.get("mode") == "ro",
        force_fs=options.get("force_fs") == "1",
    )
