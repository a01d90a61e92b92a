"""Words that a stranger would stumble over stand in no page, docstring, help, error or comment.

Each pattern has the better word beside it. The rules are those of the style guide: report instead of
"is told", current words, and the names that Python gives its types.
"""

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from typing import Any

import click
import pytest

import holdfast
from holdfast._operator.cli.main import main
from tests.tidy.source import PACKAGE, modules, name_of, parse, repository_files
from tests.tidy.test_public_names import MODULES, public_functions

BE = r"(?:is|are|was|were|be|been|being|gets?)"

# What must not be written -> what to write.
WORDS = {
    # Report, not "is told".
    rf"{BE} (?:not )?told(?! apart)": "is reported, is notified, receives",
    rf"{BE} (?:not )?said": "is reported, is stated",
    r"(?:it|and|that) (?:tells|told) of": "reports",
    r"say what is the case": "explain the status",
    r"what is the case": "the state, the facts",
    # Words of today.
    r"nought": "zero",
    r"too dear": "too expensive",
    r"oftener": "more often",
    r"belongs? into": "belongs in",
    r"reckon(?:s|ed|ing)?": "estimate, count",
    r"whilst": "while",
    r"amongst": "among",
    r"upon": "on",
    r"hence|whence|thither|hither": "from there, so, to it",
    r"lest": "so that … not",
    r"ere|anon|betimes": "before, soon",
    r"whosoever|whatsoever": "anybody, anything",
    # Python's types.
    rf"{BE} (?:a|no) text(?= |[.,;:)]|$)": "is a string",
    r"a text such as": "a string such as",
    r"(?:must|has to|have to|should) be texts?": "must be a string",
}
PATTERN = re.compile("|".join(rf"(?P<w{n}>\b(?:{p})\b)" for n, p in enumerate(WORDS)), re.I)
BETTER = list(WORDS.values())

FENCE = re.compile(r"^ *(```|~~~).*?^ *\1|<!--.*?-->", re.M | re.S)
CODE = re.compile(r"`[^`\n]+`")

Texts = Iterator[tuple[str, str]]


def unusual(text: str) -> list[str]:
    """The words of a text for which there is a better one."""
    found = PATTERN.finditer(" ".join(CODE.sub("`code`", text).split()))
    return [f"{one[0]!r}: {BETTER[int(str(one.lastgroup)[1:])]}" for one in found]


def pages() -> Texts:
    for path in repository_files():
        name = name_of(path)
        if name == "README.md" or (name.startswith("docs/") and path.suffix == ".md"):
            yield name, FENCE.sub("", path.read_text(encoding="utf-8"))


def docstrings() -> Texts:
    """What `help()` and editors show of public names."""
    for module in (holdfast, *(getattr(holdfast, name) for name in MODULES)):
        yield module.__name__, module.__doc__ or ""
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                yield f"{module.__name__}.{name}", thing.__doc__ or ""
    for name, function in public_functions():
        yield name, function.__doc__ or ""
    for name, error in vars(holdfast.errors).items():
        if inspect.isclass(error):
            yield f"holdfast.errors.{name}", error.__doc__ or ""
    for folder in ("integrations", "observers", "testing"):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            if not any(part.startswith("_") and part != "__init__.py" for part in path.parts):
                tree = parse(path)
                yield name_of(path), ast.get_docstring(tree) or ""
                for node in ast.walk(tree):
                    named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                    if named and not node.name.startswith("_"):  # type: ignore[attr-defined]
                        yield f"{name_of(path)}: {node.name}", ast.get_docstring(node) or ""  # type: ignore[attr-defined, arg-type]


def helps(command: click.Command = main, name: str = "holdfast") -> Texts:
    """What `--help` prints of every command."""
    yield name, command.help or ""
    for parameter in command.params:
        yield f"{name} {parameter.name}", str(getattr(parameter, "help", None) or "")
    if isinstance(command, click.Group):
        for sub in command.commands.values():
            yield from helps(sub, f"{name} {sub.name}")


def errors() -> Texts:
    """The texts of what is raised, wherever that happens."""
    for path in modules():
        for line, text in raised(parse(path)):
            yield f"{name_of(path)}:{line}", text


OURS = {name for name, it in vars(holdfast.errors).items() if inspect.isclass(it)}


def internals() -> Texts:
    """Docstrings and comments of modules that are not public."""
    for path in modules():
        for line, text in written(path.read_text(encoding="utf-8")):
            yield f"{name_of(path)}:{line}", text


def written(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a source, its docstrings, and the strings that stand behind constants."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, str(node.value.value)


def raised(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The texts with which errors of ours are made."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in OURS | {"super"}:
            yield node.lineno, _text(node)


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        inner = function.value
        is_super = isinstance(inner, ast.Call) and _called(inner) == "super"
        return "super" if is_super else function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _text(node: ast.AST) -> str:
    parts: list[Any] = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return " ".join(part for part in parts if isinstance(part, str))


@pytest.mark.parametrize("texts", [pages, docstrings, helps, errors, internals])
def test_texts_are_in_plain_words(texts):
    found = {where: wrong for where, text in texts() if (wrong := unusual(text))}
    assert not found, "\n".join(f"{where}: {'; '.join(it)}" for where, it in found.items())


ASKS = "whether|what|which|who|how|why|when|where|of|so|that"
VAGUE = re.compile(rf"\bwhoever\b|^(?:say|tell)s? (?:{ASKS})\b", re.IGNORECASE)


def test_internal_texts_name_the_actor():
    """A docstring names the process, the thread or the caller. A function returns, reports, records or
    logs something; it does not say what, or tell of it."""
    assert not [where for where, text in internals() if VAGUE.search(text)]
    assert VAGUE.search("Wake whoever waits.")
    assert VAGUE.search("Say whether it has ended.")


FLOORS = (
    "_api",
    "_engine",
    "_features",
    "_runtime",
    "_operator/act",
    "_stores",
    "_operator/cli",
    "_operator/web",
    "integrations",
)
NOUNS_FIRST = tuple(f"src/holdfast/{it}/" for it in FLOORS)


def test_internal_texts_begin_with_a_noun_or_a_verb():
    """A free relative (what takes secrets out) hides the noun that a search needs: the redactor."""
    free = re.compile(r"(?:what|who)\b", re.IGNORECASE)
    texts = [(where, text) for where, text in internals() if where.startswith(NOUNS_FIRST)]
    assert not [where for where, text in texts if free.match(text)]
    assert len(texts) > 1000
    assert free.match("What takes out of values what must not be stored.")


@pytest.mark.parametrize(
    ("texts", "where"),
    [
        (pages, "docs/how-to/effects.md"),
        (pages, "README.md"),
        (docstrings, "holdfast.effect"),
        (docstrings, "holdfast.types.Store.runs"),
        (docstrings, "holdfast.errors.RunHeld"),
        (helps, "holdfast explain"),
        (internals, "src/holdfast/_runtime/engine.py:1"),
    ],
)
def test_what_users_read_is_looked_at(texts, where):
    assert any(name == where and text for name, text in texts())


def test_internal_texts_are_looked_at():
    source = '"""A."""\nB = 1  # C\n"""D."""\ndef f():\n    """E."""\n    return "F"\n'
    assert sorted(text for _, text in written(source)) == ["# C", "A.", "D.", "E."]


@pytest.mark.parametrize(
    "line",
    [
        'raise UsageError(f"{name} is a text")',
        'raise errors.UsageError("it is " + "told", name)',
        'super().__init__(run_id, f"run {run_id!r} is told")',
    ],
)
def test_messages_of_errors_are_looked_at(line):
    assert any(unusual(text) for _, text in raised(ast.parse(line)))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("A change is told once.", True),
        ("It stays where it is and is\nsaid.", True),
        ("Counters begin at nought.", True),
        ("A name is a text.", True),
        ("Texts are long; a text of 3 kB is stored.", False),
        ("`is told` is code.", False),
        ("Each change is reported once.", False),
    ],
)
def test_a_word_is_found(text, wrong):
    assert bool(unusual(text)) is wrong
