"""The pages: shells without any data, and the closed list of files that belong to them.

Everything is read and rendered once, when the server starts. What a request asks for is looked up by
its exact path; no path of a request ever reaches the file system.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast._ops.tokens import Role
from holdfast._ops.web.gate import Door

HERE = Path(__file__).parent
PAGES = {
    "/": "runs.html",
    "/run": "run.html",
    "/inbox": "inbox.html",
    "/fleet": "fleet.html",
    "/signals": "signals.html",
    "/findings": "findings.html",
}
SIGN_IN = "sign-in.html"
OPEN_ASSETS = frozenset({"/static/sign-in.js", "/static/page.css", "/static/icon.svg"})
"""What the sign-in page needs. Like the sign-in page itself, they hold no data."""
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Page(msgspec.Struct, frozen=True):
    """Something that is the same for everybody."""

    text: bytes
    type: str
    door: Door


def pages() -> dict[str, Page]:
    """Return the page shells and their files, by path."""
    found = {path: Page(_rendered(name), _HTML, _PAGE) for path, name in PAGES.items()}
    for file in sorted((HERE / "static").iterdir()):
        kind = _TYPES.get(file.suffix)
        if kind is not None and not file.is_symlink():
            path = f"/static/{file.name}"
            opened = path in OPEN_ASSETS
            door = Door(None if opened else Role.VIEWER, empty=True, for_sign_in=opened)
            found[path] = Page(file.read_bytes(), kind, door)
    return found


def sign_in() -> bytes:
    """Return the page that asks for a token."""
    return _rendered(SIGN_IN)


def _rendered(name: str) -> bytes:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateNotFound

    shells = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined
    )
    try:
        return shells.get_template(name).render().encode()
    except TemplateNotFound:
        return b"<!doctype html><title>Holdfast</title><p>This page is not there."


_HTML = "text/html; charset=utf-8"
_PAGE = Door(Role.VIEWER, page=True, empty=True)
