"""Secret texts and their replacements."""

from __future__ import annotations

_texts: dict[str, str] = {}
"""The secrets of this process, by name."""
registered: list[tuple[str, str]] = []
"""The masked texts, the longest first, and their replacements. Empty: there is no secret."""
_in_json: list[tuple[bytes, bytes]] = []
"""The same inside encoded JSON."""


def mask(name: str, text: str) -> None:
    """Mask a text from now on, by its name; an older text of the name stays masked."""
    import json
    import urllib.parse

    _texts[name] = text
    found = dict(registered)
    for form in (text, json.dumps(text)[1:-1], repr(text)[1:-1], urllib.parse.quote(text, safe="")):
        found[form] = f"[secret {name}]"
    registered[:] = sorted(found.items(), key=lambda pair: -len(pair[0]))
    _in_json[:] = [
        (json.dumps(form, ensure_ascii=False)[1:-1].encode(), json.dumps(shown)[1:-1].encode())
        for form, shown in registered
    ]


def text_of(name: str) -> str | None:
    """Return the text that was registered under a name."""
    return _texts.get(name)


def any_masked() -> bool:
    """Return whether this process has any secret."""
    return bool(registered)


def masked(text: str) -> str:
    """Return a text with every registered secret replaced by its name."""
    for form, shown in registered:
        if form in text:
            text = text.replace(form, shown)
    return text


def holds_secret(text: str) -> bool:
    """Return whether a registered secret is part of a text."""
    return any(form in text for form, _ in registered)


def masked_json(body: bytes) -> bytes:
    """Return encoded JSON with every registered secret replaced by its name."""
    for form, shown in _in_json:
        if form in body:
            body = body.replace(form, shown)
    return body
