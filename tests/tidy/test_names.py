"""A file is one noun of ours, and where one of our words is meant, no other stands."""

import ast

import pytest

from tests.tidy.source import PACKAGE, definitions, modules, name_of, parse, words

# A file of this name takes in whatever has no home.
HOMELESS = {"base", "common", "handler", "helpers", "manager", "service", "types", "utils"}

# What others call it -> what we call it.
FOREIGN = {
    "activity": "step",
    "activities": "steps",
    "checkpoint": "snapshot, or step_completed",
    "checkpoints": "snapshots",
    "task": "run or step",
    "tasks": "runs or steps",
    "workflow": "flow",
    "workflows": "flows",
}

# Where a foreign word means the thing of somebody else.
AT_HOME = {
    "_stores": {"checkpoint"},  # SQLite's word for moving the WAL into the database.
    "_api": {"task", "tasks"},  # asyncio's word.
    "_runtime": {"task", "tasks"},
    "testing": {"task", "tasks"},  # asyncio's word.
    "integrations": set(FOREIGN),  # The words of the frameworks.
}


def foreign_words(tree: ast.Module, allowed: set[str]) -> dict[str, str]:
    """Functions, classes and their parameters that use a word of others -> the word to use."""
    found: dict[str, str] = {}
    for name, node in definitions(tree):
        names = [node.name]
        if not isinstance(node, ast.ClassDef):
            arguments = node.args
            names += [
                argument.arg
                for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            ]
        for word in set().union(*map(words, names)) & (set(FOREIGN) - allowed):
            found[f"{name}: {word}"] = FOREIGN[word]
    return found


def test_no_file_is_a_home_for_everything():
    named = {
        name_of(path): {path.stem.strip("_"), path.parent.name.strip("_")}
        for path in modules()
        if path != PACKAGE / "types.py"  # Public: the classes that users' annotations name.
    }
    assert not {name for name, stems in named.items() if stems & HOMELESS}


def test_no_word_of_others_is_used_for_a_thing_of_ours():
    found: dict[str, dict[str, str]] = {}
    for path in modules():
        folder = path.relative_to(PACKAGE).parts[0]
        if foreign := foreign_words(parse(path), AT_HOME.get(folder, set())):
            found[name_of(path)] = foreign
    assert not found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def start_workflow(): ...", {"start_workflow: workflow": "flow"}),
        ("class TaskQueue: ...", {"TaskQueue: task": "run or step"}),
        ("def save(*, checkpoint): ...", {"save: checkpoint": "snapshot, or step_completed"}),
        ("def multitasking(flow): ...", {}),
    ],
)
def test_a_word_of_others_is_found(text, found):
    assert foreign_words(ast.parse(text), set()) == found


# A participle does not say what a function returns.
PARTICIPLES = {"found", "given", "seen", "shown", "taken", "told"}


def participles(tree: ast.Module) -> list[str]:
    """Return the functions that are named by a participle alone."""
    return [
        name
        for name, node in definitions(tree)
        if not isinstance(node, ast.ClassDef) and node.name.strip("_") in PARTICIPLES
    ]


def test_functions_are_named_by_what_they_return():
    assert not {name_of(path): names for path in modules() if (names := participles(parse(path)))}


def test_a_participle_is_found():
    tree = ast.parse(
        "def told(): ...\nclass A:\n    def _given(self): ...\n    def is_taken(self): ...\n"
    )
    assert participles(tree) == ["told", "A._given"]
