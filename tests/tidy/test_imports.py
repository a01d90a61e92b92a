"""What is imported, and when."""

import ast
import subprocess
import sys

import pytest

from tests.tidy.source import imports, modules, name_of, parse

# They run code that the data names. A reader of ours imports nothing and calls nothing.
UNSAFE = {"cloudpickle", "dill", "jsonpickle", "marshal", "pickle", "shelve"}

# They are imported where they are used, so that `import holdfast` stays cheap.
HEAVY = {
    "apsw",
    "asyncio",
    "click",
    "jinja2",
    "opentelemetry",
    "psycopg",
    "psycopg_pool",
    "pydantic",
    "rich",
    "sqlite3",
    "starlette",
    "uvicorn",
}


def test_nothing_imports_a_reader_that_runs_code():
    found = {name_of(path): imports(parse(path)) & UNSAFE for path in modules()}
    assert not {name: unsafe for name, unsafe in found.items() if unsafe}


@pytest.mark.parametrize(
    "text", ["import pickle", "from pickle import loads", "def f():\n    import pickle as p"]
)
def test_a_reader_that_runs_code_is_found(text):
    assert imports(ast.parse(text)) & UNSAFE == {"pickle"}


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after the statement, and not before."""
    script = (
        "import sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


def test_import_holdfast_is_cheap():
    assert not loaded_by("import holdfast") & HEAVY


def test_a_heavy_module_is_found():
    assert "sqlite3" in loaded_by("import sqlite3")
