"""The pages: shells without any data, and the closed list of files that belong to them.

Everything is read and rendered once, when the server starts. What a request asks for is looked up by
its exact path; no path of a request ever reaches the file system.

A file is served under a path that names the content of all files: browsers keep it for good, and a
release that changes one of them has other paths. Modules import each other by relative paths, so a
page never mixes files of two releases.
"""

from __future__ import annotations

import functools
import hashlib
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
OPEN_ASSETS = frozenset({"pages/sign-in.js", "page.css", "icon.svg"})
"""What the sign-in page needs. Like the sign-in page itself, they hold no data."""
DIGEST_CHARS = 20
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
    kept: bool = False
    """Whether its path names its content, so that a browser may keep it for good."""


def pages() -> dict[str, Page]:
    """Return the page shells and their files, by path."""
    found = {path: Page(_rendered(name), _HTML, _PAGE) for path, name in PAGES.items()}
    for name, text in _files().items():
        opened = name in OPEN_ASSETS
        door = Door(None if opened else Role.VIEWER, empty=True, for_sign_in=opened)
        found[static(name)] = Page(text, _TYPES[Path(name).suffix], door, kept=True)
    return found


def static(name: str = "") -> str:
    """Return the path under which a file is served, or that of their folder."""
    folder = f"/static/{digest(_files())}"
    return f"{folder}/{name}" if name else folder


def digest(files: dict[str, bytes]) -> str:
    """Return what names these files, by their paths and contents."""
    found = hashlib.sha256()
    for name, text in sorted(files.items()):
        found.update(f"{name}\0{len(text)}\0".encode())
        found.update(text)
    return found.hexdigest()[:DIGEST_CHARS]


@functools.cache
def _files() -> dict[str, bytes]:
    return assets(HERE / "static")


def assets(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder and the folders in it, by their path below it. Links are not
    followed, and files of other kinds are left out."""
    found: dict[str, bytes] = {}
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink():
            continue
        if entry.is_dir():
            inside = assets(entry)
            found |= {f"{entry.name}/{name}": text for name, text in inside.items()}
        elif entry.suffix in _TYPES:
            found[entry.name] = entry.read_bytes()
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
        return shells.get_template(name).render(static=static()).encode()
    except TemplateNotFound:
        return b"<!doctype html><title>Holdfast</title><p>This page is not there."


_HTML = "text/html; charset=utf-8"
_PAGE = Door(Role.VIEWER, page=True, empty=True)
