"""Addresses of stores without secrets, and the errors for a missing store and a full disk."""

from __future__ import annotations

import re

from holdfast.errors import StoreFull, StoreUnusable

_SECRET = frozenset({"password", "sslpassword"})
_QUERY = re.compile(r"\?[A-Za-z_]+=")
_PAIR = re.compile(r"(\b(?:ssl)?password\s*=\s*)('[^']*'|[^\s&]*)", re.IGNORECASE)


class NoStore(StoreUnusable):
    """There is no store at this address yet."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"there is no store at {without_password(url)} yet; it is made when a first run is started "
            "(`holdfast demo` shows one), or say where it is: --url, or HOLDFAST_URL"
        )


def full(place: str) -> StoreFull:
    """Return the error for a disk with no space left for a store, or for a file of one."""
    return StoreFull(
        f"the disk is full: no space left for {place}. Nothing recorded was lost: free some space "
        "there, then do the same again, and runs go on where they stopped"
    )


def without_password(url: str) -> str:
    """Return an address without any password, even if the address is invalid."""
    if url.startswith(("sqlite:", "memory:")):
        return url
    head, options = _divided(url)
    scheme, slashes, rest = head.partition("//")
    if not slashes:
        return _PAIR.sub(r"\1…", url)
    user, at, place = rest.rpartition("@")
    if not at and "@" in options:
        return f"{scheme}//…"  # The part before the @ may be a password.
    kept = [part for part in options[1:].split("&") if not _is_secret(part)]
    more = "?" + "&".join(kept) if options and kept != [""] and kept else ""
    return f"{scheme}//{user.partition(':')[0]}{at}{place}{more}"


def place(url: str, namespace: str) -> str:
    """Return a description of the store's place for people; `url` has no password."""
    return url if namespace == "default" else f"namespace {namespace!r} of {url}"


def without_secrets(text: str, url: str) -> str:
    """Remove all parts of an address's password from a foreign text."""
    for secret in _secrets(url):
        text = text.replace(secret, "…")
    return text


def _divided(url: str) -> tuple[str, str]:
    found = _QUERY.search(url)
    return (url, "") if found is None else (url[: found.start()], url[found.start() :])


def _is_secret(option: str) -> bool:
    return option.partition("=")[0].lower() in _SECRET


def _secrets(url: str) -> list[str]:
    """Return the passwords in an address and, if it is malformed, their parts."""
    from urllib.parse import unquote  # Slow to import, and most addresses have no password.

    head, options = _divided(url)
    user, _, _ = head.partition("//")[2].rpartition("@")
    found = [user.partition(":")[2]]
    found += [part.partition("=")[2] for part in options[1:].split("&") if _is_secret(part)]
    parts = [part for secret in found for part in re.split(r"[/@:?#&%]", secret)]
    every = {*found, *map(unquote, found), *parts} - {""}
    return sorted(every, key=len, reverse=True)
