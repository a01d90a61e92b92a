"""Rename identifiers, modules and files over the whole repository.

    python -m tests.tidy.codemod renames.toml [PATH …]

The rules stand in a TOML file:

    [names]         # a public name, followed through imports; a new module is imported
    "holdfast.wait" = "holdfast.wait_for_signal"
    "holdfast.now" = "holdfast.context.now"

    [words]         # an identifier that means one thing: in code, strings, prose, SQL, JavaScript
    failed_on = "not_done_on"

    [modules]       # a module: its file, its imports and its dotted path in strings
    "holdfast._runtime.gap" = "holdfast._runtime.drift"

    [[attributes]]  # `store.list` and `self.store.list`, not `html.list`
    was = "list"
    becomes = "runs"
    on = ["store", "*_store"]
    keywords_only = true    # optional: not `store.list(query)`

    [[keywords]]    # `turns(…, limit=3)`, `aio.turns(…, limit=3)`, not `store.runs(limit=3)`
    was = "limit"
    becomes = "max_turns"
    of = ["turns"]
    in = ["src/holdfast/_runtime/loops.py"]    # optional: where `def turns(limit)` stands

    [[definitions]] # a method, a field or a nested function, where it stands
    was = "list"
    becomes = "runs"
    in = ["src/holdfast/_opened.py"]

    [[values]]      # `effect(on_doubt="ask")`, not `ask("ask")`
    was = "ask"
    becomes = "hold"
    keywords = ["on_doubt", "on_change"]

    [spans]         # a name that `code spans` may have without an import: `use`, `usage(…)`
    use = "resource"
    "usage(" = "record_usage("

    [[texts]]       # a regular expression, for messages and prose
    was = '\\bWatch\\('
    becomes = "Watchdog("
    in = ["src/holdfast/_core/findings.py"]

    [keep]          # texts that only look like a name, by the files where they stand
    "src/holdfast/observers/*" = ['"holdfast.wait"']

Attributes, too, may be limited to files by `in`. Paths are patterns. Python is read as a syntax tree, so that a common word such as `wait` is renamed only where it is the
identifier of the rule. Strings that are themselves Python (scripts of tests, planted patches), fenced
Python of Markdown pages and `code spans` of docstrings, comments and pages follow the same rules.
Local variables that shadow a name are left alone. Look at `git diff` afterwards, and let
`ruff check --fix --select I,F401` sort the imports.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import textwrap
import tokenize
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.tidy.source import PACKAGE, ROOT, repository_files

TEXTS = {".py", ".md", ".sql", ".js", ".json", ".toml", ".html", ".txt", ".pyi", ".css", ""}
TREES = ("src", "tests", "docs", "examples", "benchmarks", "README.md", "ARCHITECTURE.md")
FENCE = re.compile(
    r"^(?P<indent> *)```(?:python|py)[^\n]*\n(?P<code>.*?)^(?P=indent)```", re.M | re.S
)
ELLIPSIS = "ǂǂ"
"""What stands for `…` while a code span is parsed."""
SCRIPT = re.compile(r"holdfast|^ *@(?:flow|step|effect)\b", re.M)
"""What a string has that is a script, or a part of one."""
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


@dataclass
class Rules:
    """The renames of one file of rules."""

    names: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    attributes: list[dict[str, Any]] = field(default_factory=list)
    keywords: list[dict[str, Any]] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)
    definitions: list[dict[str, Any]] = field(default_factory=list)
    spans: dict[str, str] = field(default_factory=dict)
    texts: list[dict[str, Any]] = field(default_factory=list)
    keep: dict[str, list[str]] = field(default_factory=dict)
    path: str = ""
    """The file at hand, for rules that are limited to files."""

    @classmethod
    def read(cls, path: Path) -> Rules:
        """Return the rules of a TOML file."""
        return cls(**tomllib.loads(path.read_text(encoding="utf-8")))

    def attribute(self, receiver: str, name: str, *, keywords_only: bool = False) -> str | None:
        """Return the new name of an attribute of this receiver."""
        return next(
            (
                rule["becomes"]
                for rule in self.attributes
                if rule["was"] == name
                and _matches(receiver, rule["on"])
                and _matches(self.path, rule.get("in", ["*"]))
                and (keywords_only or not rule.get("keywords_only"))
            ),
            None,
        )

    def definition(self, name: str) -> str | None:
        """Return the new name of what is defined in the file at hand."""
        return next(
            (
                rule["becomes"]
                for rule in self.definitions
                if rule["was"] == name and _matches(self.path, rule["in"])
            ),
            None,
        )

    def parameter(self, function: str, name: str) -> str | None:
        """Return the new name of a parameter of a function that the file at hand defines."""
        return next(
            (
                rule["becomes"]
                for rule in self.keywords
                if rule["was"] == name
                and _matches(function, rule["of"])
                and _matches(self.path, rule.get("in", []))
            ),
            None,
        )

    def keyword(self, function: str, name: str) -> str | None:
        """Return the new name of a keyword argument of this function."""
        return next(
            (
                rule["becomes"]
                for rule in self.keywords
                if rule["was"] == name and _matches(function, rule["of"])
            ),
            None,
        )

    def value(self, keyword: str, text: object) -> str | None:
        """Return the new string that this keyword argument takes."""
        return next(
            (
                rule["becomes"]
                for rule in self.values
                if rule["was"] == text and keyword in rule["keywords"]
            ),
            None,
        )


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


# --- Python -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edit:
    """Replace the text between two places (line from 1, column in bytes)."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def rename_python(text: str, rules: Rules, known: dict[str, str] | None = None) -> str:
    """Return Python source with the renames; `known` are names that are bound elsewhere."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return rename_words(text, rules)
    walk = _Renames(text, rules, known or {})
    walk.visit(tree)
    edited = _apply(text, [*walk.edits, *_strings(text, rules, walk)])
    return rename_words(_modules(edited, rules), rules)


class _Renames(ast.NodeVisitor):
    """Collects the edits of one file."""

    def __init__(self, text: str, rules: Rules, known: dict[str, str]) -> None:
        self.rules = rules
        self.lines = [line.encode() for line in text.splitlines(keepends=True)]
        self.edits: list[Edit] = []
        self.known = known
        self.bound = dict(known)  # A name of this file -> what it is called in the package.
        self.shadows: list[set[str]] = []
        self.parameters: list[dict[str, str]] = []
        self.classes: list[str] = []
        self.called_by_keywords: set[int] = set()

    # - imports

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.partition(".")[0] == "holdfast":
                self.bound[alias.asname or "holdfast"] = alias.name if alias.asname else "holdfast"

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module or node.module.partition(".")[0] != "holdfast":
            return
        lines: dict[str, list[str]] = {}
        for alias in node.names:
            was = f"{node.module}.{alias.name}"
            home, _, name = self.rules.names.get(was, was).rpartition(".")
            exported = self._exported(alias.asname)
            if not exported:
                self.bound[alias.asname or alias.name] = was
            asname = exported or alias.asname
            kept = asname and asname != name
            lines.setdefault(home, []).append(f"{name} as {asname}" if kept else name)
        if any(
            f"{node.module}.{alias.name}" in self.rules.names or self._exported(alias.asname)
            for alias in node.names
        ):
            indent = "\n" + " " * node.col_offset
            self._replace(
                node,
                indent.join(f"from {home} import {', '.join(all)}" for home, all in lines.items()),
            )

    def _exported(self, alias: str | None) -> str | None:
        """Return the new name of an alias under which this module exports something."""
        was = self.known.get(alias or "", "")
        if was.rpartition(".")[2] != alias:
            return None
        becomes = self.rules.names.get(was)
        return becomes.rpartition(".")[2] if becomes else None

    # - scopes

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        arguments = node.args
        all = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        all += [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
        outside: list[ast.expr] = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
        outside += [argument.annotation for argument in all if argument.annotation]
        if not isinstance(node, ast.Lambda):
            outside += [*node.decorator_list, *([node.returns] if node.returns else [])]
            self._definition(node)
        for expression in outside:
            self.visit(expression)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        self.shadows.append({argument.arg for argument in all} | _assigned(body))
        self.parameters.append({} if isinstance(node, ast.Lambda) else self._renamed(node, all))
        for argument in all:
            if name := self.parameters[-1].get(argument.arg):
                start = (argument.lineno, argument.col_offset)
                self._replace_at(start, argument.arg, name)
        for part in body:
            self.visit(part)
        self.parameters.pop()
        self.shadows.pop()

    def _renamed(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, arguments: list[ast.arg]
    ) -> dict[str, str]:
        """Return the parameters of a definition that get new names, and rename their defaults."""
        names = [node.name, *(f"{name}.{node.name}" for name in self.classes[-1:])]
        plain = [*node.args.posonlyargs, *node.args.args]
        with_default = [
            *zip(reversed(plain), reversed(node.args.defaults), strict=False),
            *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
        ]
        for argument, default in with_default:
            if isinstance(default, ast.Constant) and (
                value := self.rules.value(argument.arg, default.value)
            ):
                self._replace(default, f'"{value}"')
        return {
            argument.arg: new
            for argument in arguments
            for name in names
            if (new := self.rules.parameter(name, argument.arg))
        }

    visit_FunctionDef = _function
    visit_AsyncFunctionDef = _function
    visit_Lambda = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._definition(node)
        self.classes.append(node.name)
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                target = part.target
                if name := self.rules.definition(target.id):
                    self._replace_at((target.lineno, target.col_offset), target.id, name)
        self.generic_visit(node)
        self.classes.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        """Rename the names in `__all__`."""
        named = [it.id for it in node.targets if isinstance(it, ast.Name)]
        if named == ["__all__"] and isinstance(node.value, ast.List):
            for item in node.value.elts:
                text = item.value if isinstance(item, ast.Constant) else None
                was = self.bound.get(str(text), "")
                if becomes := self.rules.names.get(was):
                    self._replace(item, f'"{becomes.rpartition(".")[2]}"')
        self.generic_visit(node)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        """Rename what a module defines, which is bound by `known`."""
        becomes = self.rules.names.get(self.bound.get(node.name, ""))
        if not becomes or node.col_offset:
            becomes = self.rules.definition(node.name)
        if becomes:
            line = self.lines[node.lineno - 1]
            found = re.match(rb" *(?:async +)?(?:def|class) +", line)
            assert found
            start, length = found.end(), len(node.name.encode())
            name = becomes.rpartition(".")[2]
            self.edits.append(Edit((node.lineno, start), (node.lineno, start + length), name))

    # - uses

    def visit_Name(self, node: ast.Name) -> None:
        for shadow, renamed in zip(reversed(self.shadows), reversed(self.parameters), strict=True):
            if node.id in shadow:
                if node.id in renamed:
                    self._replace(node, renamed[node.id])
                return
        was = self.bound.get(node.id)
        if was is None:
            return
        becomes = self.rules.names.get(was)
        if becomes and node.id == was.rpartition(".")[2]:
            self._replace(node, becomes.rpartition(".")[2])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        dotted = self._dotted(node)
        becomes = self.rules.names.get(dotted) if dotted else None
        if becomes and dotted:
            root = _dots(node).partition(".")[0]
            if not becomes.startswith(f"{self.bound[root]}."):
                raise ValueError(f"{_dots(node)} becomes {becomes}, which needs another import")
            self._replace(node, root + becomes[len(self.bound[root]) :])
            return
        keywords_only = id(node) in self.called_by_keywords
        if name := self.rules.attribute(
            _last_name(node.value), node.attr, keywords_only=keywords_only
        ):
            self._replace_end(node, node.attr, name)
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        function = _last_name(node.func)
        if not node.args:
            self.called_by_keywords.add(id(node.func))
        for keyword in node.keywords:
            if keyword.arg is None:
                continue
            if name := self.rules.keyword(function, keyword.arg):
                start = (keyword.lineno, keyword.col_offset)
                end = (keyword.lineno, keyword.col_offset + len(keyword.arg.encode()))
                self.edits.append(Edit(start, end, name))
            if isinstance(keyword.value, ast.Constant) and (
                value := self.rules.value(keyword.arg, keyword.value.value)
            ):
                self._replace(keyword.value, f'"{value}"')
            if isinstance(keyword.value, ast.Dict):
                for item in keyword.value.values:
                    if isinstance(item, ast.Constant) and (
                        value := self.rules.value(keyword.arg, item.value)
                    ):
                        self._replace(item, f'"{value}"')
        self.generic_visit(node)

    def _dotted(self, node: ast.Attribute) -> str | None:
        """Return the name in the package that `holdfast.aio.wait` or `hf.wait` means."""
        root, _, rest = _dots(node).partition(".")
        if root not in self.bound or any(root in shadow for shadow in self.shadows):
            return None
        return f"{self.bound[root]}.{rest}"

    def _replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        self.edits.append(Edit(start, end, text))

    def _replace_at(self, start: tuple[int, int], was: str, name: str) -> None:
        self.edits.append(Edit(start, (start[0], start[1] + len(was.encode())), name))

    def _replace_end(self, node: ast.Attribute, was: str, name: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        end = (node.end_lineno, node.end_col_offset)
        self.edits.append(Edit((end[0], end[1] - len(was.encode())), end, name))


def _assigned(body: Iterable[ast.AST]) -> set[str]:
    """Return the names that these statements bind, without those of functions inside them."""
    found: set[str] = set()
    stack = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif not isinstance(node, ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))
    return found


def _dots(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dots(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _last_name(node: ast.expr) -> str:
    """Return `store` for `store`, `self.store`, `store()` and `stores[0].store`."""
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _apply(text: str, edits: Iterable[Edit]) -> str:
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    applied: list[Edit] = []
    for edit in sorted(set(edits), key=lambda edit: (edit.start, edit.end), reverse=True):
        if applied and edit.end > applied[-1].start:
            continue  # Inside one that was applied.
        applied.append(edit)
        (first, begin), (last, end) = edit.start, edit.end
        head, tail = lines[first - 1][:begin], lines[last - 1][end:]
        lines[first - 1 : last] = [head + edit.text.encode() + tail]
    return b"".join(lines).decode()


def _strings(text: str, rules: Rules, walk: _Renames) -> Iterator[Edit]:
    """Yield the edits inside strings and comments: scripts, and code spans."""
    lines = text.splitlines(keepends=True)

    def place(line: int, column: int) -> tuple[int, int]:
        return line, len(lines[line - 1][:column].encode())

    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in {tokenize.STRING, tokenize.COMMENT}:
            continue
        changed = _inside(token.string, rules, walk.bound)
        if changed != token.string:
            yield Edit(place(*token.start), place(*token.end), changed)


def _inside(literal: str, rules: Rules, bound: dict[str, str]) -> str:
    quoted = re.fullmatch(r'([A-Za-z]*)("""|\'\'\'|"|\')(.*)\2', literal, re.S)
    if quoted and "\n" in quoted[3] and SCRIPT.search(quoted[3]):
        prefix, quote, body = quoted.groups()
        dedented = textwrap.dedent(body)
        try:
            ast.parse(dedented)
        except (SyntaxError, ValueError):
            pass
        else:
            indents = [
                line[: len(line) - len(line.lstrip())] for line in body.splitlines() if line.strip()
            ]
            margin = min(indents, key=len, default="")
            # A part of a script: what it imports stands in another string.
            own = _assigned(ast.parse(dedented).body)
            known = {} if "import " in dedented else _top_level(rules, own)
            renamed = rename_python(dedented, rules, known)
            if renamed == dedented:
                return literal
            return f"{prefix}{quote}{textwrap.indent(renamed, margin)}{quote}"
    return rename_spans(literal, rules, bound)


def _top_level(rules: Rules, own: set[str]) -> dict[str, str]:
    """Return the names with a rule that `from holdfast import …` would have bound."""
    found = {was.rpartition(".")[2]: was for was in rules.names if was.count(".") == 1}
    return {name: was for name, was in found.items() if name not in own}


# --- other texts --------------------------------------------------------------------------------


def rename_spans(text: str, rules: Rules, known: dict[str, str]) -> str:
    """Return a text whose `code spans` have the renames."""

    def renamed(span: re.Match[str]) -> str:
        at = "@" if span[1].startswith("@") else ""
        code = span[1].removeprefix("@").replace("…", ELLIPSIS)
        try:
            ast.parse(code)
        except (SyntaxError, ValueError):
            return span[0]
        bound = {"holdfast": "holdfast"} | known
        code = rename_python(code, rules, bound).replace(ELLIPSIS, "…")
        if rules.spans:
            pattern = "|".join(
                re.escape(it) if it.endswith("(") else rf"{re.escape(it)}(?=\(|$)"
                for it in rules.spans
            )
            code = re.sub(rf"(?<![\w.\"'])(?:{pattern})", lambda it: rules.spans[it[0]], code)
        return f"`{at}{code}`"

    return SPAN.sub(renamed, text)


def rename_markdown(text: str, rules: Rules, known: dict[str, str] | None = None) -> str:
    """Return a page whose Python blocks and code spans have the renames."""
    known = {"holdfast": "holdfast"} | (known or {})
    for block in FENCE.finditer(text):
        known |= _bound(textwrap.dedent(block["code"]), rules)

    def renamed(block: re.Match[str]) -> str:
        code = rename_python(textwrap.dedent(block["code"]), rules, known)
        head, _, _ = block[0].partition("\n")
        return f"{head}\n{textwrap.indent(code, block['indent'])}{block['indent']}```"

    pieces: list[str] = []
    at = 0
    for block in FENCE.finditer(text):
        pieces += [rename_spans(text[at : block.start()], rules, known), renamed(block)]
        at = block.end()
    pieces.append(rename_spans(text[at:], rules, known))
    return rename_words(_modules("".join(pieces), rules), rules)


def _bound(code: str, rules: Rules) -> dict[str, str]:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return {}
    walk = _Renames(code, rules, {})
    walk.visit(tree)
    return walk.bound


def rename_words(text: str, rules: Rules) -> str:
    """Return a text whose whole words have the renames."""
    if not rules.words:
        return text
    pattern = "|".join(map(re.escape, sorted(rules.words, key=len, reverse=True)))
    return re.sub(
        rf"(?<![\w]){'(?:' + pattern + ')'}(?![\w])", lambda found: rules.words[found[0]], text
    )


def _modules(text: str, rules: Rules) -> str:
    """Return a text whose dotted paths of names and modules have the renames, in prose too."""
    if rules.names:
        text = re.sub(
            r"(?<![\w.])holdfast\.[\w.]*\w", lambda found: rules.names.get(found[0], found[0]), text
        )
    for was, becomes in rules.modules.items():
        text = re.sub(rf"\b{re.escape(was)}\b", becomes, text)
        text = re.sub(rf"\b{re.escape(_file(was))}\b", _file(becomes), text)
        (parent, _, name), (home, _, new) = was.rpartition("."), becomes.rpartition(".")
        if parent == home:
            text = re.sub(
                rf"^(\s*from {re.escape(parent)} import [^\n]*)\b{name}\b",
                rf"\1{new} as {name}",
                text,
                flags=re.M,
            )
    return text


def _file(module: str) -> str:
    return module.replace(".", "/") + ".py"


# --- the command --------------------------------------------------------------------------------


def renamer(path: Path) -> Callable[[str, Rules, dict[str, str]], str]:
    """Return the function that renames a file of this kind."""
    return {".py": rename_python, ".pyi": rename_python, ".md": rename_markdown}.get(
        path.suffix, lambda text, rules, known: rename_words(_modules(text, rules), rules)
    )


def defined_by(path: Path, rules: Rules) -> dict[str, str]:
    """Return the names with a rule that the module of this file defines."""
    if not path.is_relative_to(PACKAGE):
        return {}
    home = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )
    return {was.rpartition(".")[2]: was for was in rules.names if was.rpartition(".")[0] == home}


def files(trees: Iterable[str]) -> Iterator[Path]:
    """Yield the texts of the repository below these paths, without this command itself."""
    for path in repository_files():
        name = path.relative_to(ROOT).as_posix()
        if (
            path.suffix in TEXTS
            and any(name == tree or name.startswith(f"{tree}/") for tree in trees)
            and not name.startswith("tests/tidy/codemod")
            and name != "tests/tidy/test_codemod.py"
        ):
            yield path


def main(arguments: list[str]) -> int:
    """Rename over the repository, or the given paths of it; print the changed files."""
    if not arguments:
        print(__doc__)
        return 2
    rules = Rules.read(Path(arguments[0]))
    for path in files(arguments[1:] or TREES):
        text = path.read_text(encoding="utf-8")
        rules.path = path.relative_to(ROOT).as_posix()
        kept = [
            it for files, all in rules.keep.items() if _matches(rules.path, [files]) for it in all
        ]
        changed = text
        for number, it in enumerate(kept):
            changed = changed.replace(it, f'"kept{number}text"')
        changed = renamer(path)(changed, rules, defined_by(path, rules))
        for number, it in enumerate(kept):
            changed = changed.replace(f'"kept{number}text"', it)
        for rule in rules.texts:
            if _matches(rules.path, rule["in"]):
                changed = re.sub(rule["was"], rule["becomes"], changed, flags=re.M)
        if changed != text:
            path.write_text(changed, encoding="utf-8")
            print(path.relative_to(ROOT))
    for was, becomes in rules.modules.items():
        old, new = ROOT / "src" / _file(was), ROOT / "src" / _file(becomes)
        if old.exists():
            subprocess.run(["git", "mv", str(old), str(new)], check=True, cwd=ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
