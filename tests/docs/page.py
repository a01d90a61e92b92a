"""A page of the documentation as a list of blocks to be played, in the order of the page.

What a reader can copy is executed:

* a fenced block marked `python`, unless it says `python {.no-run}`;
* in a fenced block marked `console`, the lines that begin with `$ holdfast `.

An HTML comment directly above a block changes what is expected of it:

    <!-- docs: skip needs a model -->     it is compiled, not executed; the reason is required
    <!-- docs: raises RunHeld -->         the Python block ends with this exception
    <!-- docs: exit 3 -->                 the last command of the block ends with this code
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
RUNBOOK = ROOT / "docs" / "operate" / "runbook.md"

_NOTE = re.compile(r"<!--\s*docs:\s*(skip|raises|exit)\s+(.+?)\s*-->")
_ANY_NOTE = re.compile(r"<!--\s*docs:")
_NEW_PROGRAM = re.compile(r"^<!-- docs: new program -->$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block; `line` is where its first line stands in the page, counted from 1."""

    language: str
    text: str
    line: int
    run: bool = True
    raises: str = ""
    exit_code: int = 0

    @property
    def commands(self) -> list[str]:
        """Command lines of ours in a console block; a line that ends in `\\` goes on."""
        joined = self.text.replace("\\\n", " ")
        lines = [line.strip() for line in joined.splitlines()]
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ holdfast ")]


def pages() -> list[Path]:
    """Pages with code to play. The README is the first that anybody reads. The runbook is played by
    `tests/handbook`, each section in its own situation; pages of integrations by
    `tests/integrations`, each beside its framework."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    integrations = ROOT / "docs" / "integrations"
    here = [page for page in found if page != RUNBOOK and page.parent != integrations]
    return [*here, integrations / "writing.md"]


def pages_with_links() -> list[Path]:
    """All pages: what stands beside the README, and the documentation."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def programs(markdown: str) -> list[str]:
    """The programs of a page, each with empty lines before it, so that line numbers stay true."""
    starts = [0, *(found.start() for found in _NEW_PROGRAM.finditer(markdown)), len(markdown)]
    return [
        "\n" * markdown.count("\n", 0, start) + _NEW_PROGRAM.sub("", markdown[start:end])
        for start, end in zip(starts, starts[1:], strict=False)
    ]


def blocks(markdown: str) -> Iterator[Block]:
    """The blocks of a page that are looked at."""
    note = ""
    for token in MarkdownIt("commonmark").parse(markdown):
        if token.type == "html_block" and _ANY_NOTE.match(token.content.lstrip()):
            note = token.content.strip()
        elif token.type == "fence":
            language, _, rest = token.info.strip().partition(" ")
            if language in {"python", "console"}:
                yield _block(token, language, rest, note)
            note = ""
        else:
            note = ""


def _block(token: Token, language: str, rest: str, note: str) -> Block:
    assert token.map is not None
    found = _NOTE.fullmatch(note)
    assert found or not note, f"not understood: {note}"
    what, value = found.groups() if found else ("", "")
    return Block(
        language=language,
        text=token.content,
        line=token.map[0] + 2,
        run=what != "skip" and ".no-run" not in rest,
        raises=value if what == "raises" else "",
        exit_code=int(value) if what == "exit" else 0,
    )


def links(markdown: str) -> Iterator[str]:
    """Targets of links and images that stay inside the repository."""
    for token in MarkdownIt("commonmark").parse(markdown):
        for child in token.children or []:
            target = child.attrGet("href") or child.attrGet("src")
            if target and not re.match(r"[a-z][a-z0-9+.-]*:", str(target)):
                yield str(target)


def anchors(markdown: str) -> set[str]:
    """What a link can point to inside a page: its headings, as hosting platforms spell them."""
    tokens = MarkdownIt("commonmark").parse(markdown)
    found: set[str] = set()
    for opening, inline in zip(tokens, tokens[1:], strict=False):
        if opening.type == "heading_open":
            plain = "".join(child.content for child in inline.children or [])
            slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
            found.add(slug)
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', markdown))
