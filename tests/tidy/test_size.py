"""Small: a function over 70 lines wants a reason, written here. A module is as long as its idea."""

import ast

import pytest

from tests.tidy.source import functions, modules, name_of, parse

FUNCTION_LINES = 70

# "src/holdfast/x.py:Class.method" -> why it is better in one piece.
EXCUSED: dict[str, str] = {}


def too_long() -> dict[str, int]:
    found: dict[str, int] = {}
    for path in modules():
        found |= {
            f"{name_of(path)}:{name}": lines
            for name, lines in functions(parse(path))
            if lines > FUNCTION_LINES
        }
    return found


def test_functions_are_small():
    unexcused = {name: lines for name, lines in too_long().items() if name not in EXCUSED}
    assert not unexcused, "split these, or say in EXCUSED why not"


def test_no_excuse_is_left_over():
    assert set(EXCUSED) <= set(too_long())


@pytest.mark.parametrize(("body", "lines"), [(69, 70), (70, 71)])
def test_a_function_is_measured_without_its_docstring(body, lines):
    text = 'def f():\n    """One.\n\n    Two.\n    """\n' + "    x = 1\n" * body
    assert list(functions(ast.parse(text))) == [("f", lines)]
