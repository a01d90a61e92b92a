"""The source tree as the tidy tests see it: files, syntax trees, and what is measured on them.

Each measure is a plain function of a text or a tree, so that a test can plant the fault that the
measure is there to find.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "holdfast"

_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def modules() -> list[Path]:
    """Every Python file of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def repository_files() -> list[Path]:
    """What is tracked, and what would be with the next `git add`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return sorted(path for path in paths if path.is_file())


def name_of(path: Path) -> str:
    """A file as it is called in a table of a test."""
    return path.relative_to(ROOT).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Qualified name and length of each function, without its docstring."""
    for name, node in definitions(tree):
        if not isinstance(node, ast.ClassDef):
            assert node.end_lineno is not None
            yield name, node.end_lineno - node.lineno + 1 - _docstring_lines(node)


def definitions(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Qualified name and node of each function and class, nested ones included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _DEFINITION):
            name = f"{prefix}{node.name}"
            yield name, node
            yield from definitions(node, f"{name}.")
        else:
            yield from definitions(node, prefix)


def imports(tree: ast.Module) -> set[str]:
    """Top-level names of all modules imported absolutely, wherever in the file it happens."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def words(name: str) -> set[str]:
    """`save_RunState` -> save, run, state."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return {word.lower() for word in spaced.split("_") if word}


def _docstring_lines(
    node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
) -> int:
    if ast.get_docstring(node, clean=False) is None:
        return 0
    first = node.body[0]
    assert first.end_lineno is not None
    return first.end_lineno - first.lineno + 1
