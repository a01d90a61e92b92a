"""The numbers of the house: how large, tangled and long the code is. `make house` prints them.

`house.toml` holds the largest value that each number may have; `test_house.py` compares. A change that
makes a number smaller lowers its bound (`python -m tests.tidy.house --tighten`), so that it stays small.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, cast

import grimp
import msgspec

from tests.tidy.source import PACKAGE, ROOT, modules, parse

BOUNDS = Path(__file__).with_name("house.toml")
SMALL_LINES = 120
FEATURES = {
    "approvals": "approv",
    "budgets": "budget",
    "children": "child",
    "forks": "fork",
    "memory": r"\bmemos?\b|\bmemor(y|ies)\b",
    "questions": "question",
    "rollback": "rollback|roll back",
    "schedules": "schedule",
    "watchdog": "watchdog|suspicion",
}
"""Features, and the words by which code names one."""

OTHER_MEANINGS = {
    "children": [
        ("", r"child process|in child$"),
        ("_operator/cli/demo_command", r"^child$"),
        ("_operator/cli/run_command", r"^child$"),
        ("_operator/cli/supervisor", r"^child$"),
    ],
    "forks": [("", r"\b(after|before|at|has) fork(ed)?\b")],
    "memory": [
        ("", r"^:?memory:|memory error|(out of|in) memory"),
        ("_stores/", r"^holdfast-memory-$"),
        ("_operator/web/", r"^failure memory s$"),
    ],
    "rollback": [("_stores/", r"^(rollback( journal)?|roll back)$|\|rollback\(")],
}
"""Names with the same words that mean something else, by folder: processes of the operating system, the
memory of the machine and stores in it, for how long failed logins count, the SQL statement."""

FORMAT_AND_FRONT = (
    "_engine/journal/",
    "_api/",
    "__init__.py",
    "aio.py",
    "errors.py",
    "pricing.py",
    "schedules.py",
    "types.py",
)
"""Where features are named by design: the format is central and closed, and the typed front is what users
import (docs/decisions/0048-a-feature-is-a-folder.md)."""


# --- the source tree ----------------------------------------------------------------------------


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph() -> dict[str, set[str]]:
    """Return the modules that each module imports, lazily and for types too."""
    graph = grimp.build_graph("holdfast", cache_dir=None)
    return {name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}


def cycles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules that import each other in a circle, the largest first."""
    order: list[str] = []
    seen: set[str] = set()
    for root in graph:
        _post_order(graph, root, seen, order)
    back: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph.items():
        for target in targets:
            back[target].add(name)
    found: list[set[str]] = []
    seen = set()
    for root in reversed(order):
        group: list[str] = []
        _post_order(back, root, seen, group)
        if len(group) > 1:
            found.append(set(group))
    return sorted(found, key=len, reverse=True)


def _post_order(graph: Mapping[str, set[str]], root: str, seen: set[str], order: list[str]) -> None:
    stack = [(root, iter(sorted(graph.get(root, ()))))] if root not in seen else []
    seen.add(root)
    while stack:
        name, targets = stack[-1]
        following = next((target for target in targets if target not in seen), None)
        if following is None:
            stack.pop()
            order.append(name)
        else:
            seen.add(following)
            stack.append((following, iter(sorted(graph.get(following, ())))))


def shared_base_names(paths: Iterable[Path]) -> dict[str, int]:
    """Return the base names that more than one module has."""
    stems = Counter(path.stem.strip("_") for path in paths)
    return {stem: count for stem, count in stems.items() if count > 1 and stem not in PACKAGE_FILES}


PACKAGE_FILES = {"init", "main", "model", "store", "runtime", "operator"}
"""Names with one meaning everywhere: a package, a program, and the chapters of a feature."""


def small_with_one_importer(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the short modules that exactly one other module imports; users import public ones."""
    importers = Counter(target for targets in graph.values() for target in targets)
    return sorted(
        name
        for path in modules()
        if path.stem != "__init__"
        and (path.parent != PACKAGE or path.stem.startswith("_"))
        and importers[name := module_name(path)] == 1
        and path.read_text(encoding="utf-8").count("\n") < SMALL_LINES
    )


def names_in(tree: ast.Module) -> Iterator[str]:
    """Yield what a file names, as words: what it imports, its names, attributes, parameters and keywords,
    and its constants without a space (kinds, columns, commands).

    A docstring, a comment or a message may use the word of a feature without knowing the feature.
    """
    for node in ast.walk(tree):
        for name in _names_of(node):
            yield " ".join(part for word in name.split(".") for part in _in_words(word))


def _names_of(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.alias(name=name, asname=other):
            return [name, other or ""]
        case ast.ImportFrom(module=str(name)) | ast.keyword(arg=str(name)):
            return [name]
        case ast.Constant(value=str(text)) if " " not in text and "\n" not in text:
            return [text]
    return []


def _in_words(name: str) -> list[str]:
    """`save_RunState` -> save, run, state."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("_", " ").split()


def is_named(feature: str, path: str, names: Iterable[str]) -> bool:
    """Tell whether a file that has these names names a feature."""
    wanted = re.compile(FEATURES[feature])
    other = [
        pattern for under, pattern in OTHER_MEANINGS.get(feature, ()) if path.startswith(under)
    ]
    return any(
        wanted.search(name) and not any(re.search(pattern, name) for pattern in other)
        for name in names
    )


@functools.cache
def _names_in_file(path: Path) -> frozenset[str]:
    return frozenset(names_in(parse(path)))


def files_that_name(feature: str) -> list[str]:
    """Return the files outside the folder of a feature that name it: its imports, its identifiers, its
    constants. `make house` prints beside it how many files have the word anywhere in their text."""
    folder = PACKAGE / "_features" / feature
    paths = {
        path.relative_to(PACKAGE).as_posix(): path
        for path in modules()
        if folder not in path.parents
    }
    return [name for name, path in paths.items() if is_named(feature, name, _names_in_file(path))]


def files_that_know(feature: str) -> list[str]:
    """Return the files outside the folder of a feature that name it, but for the format and the front."""
    return [name for name in files_that_name(feature) if not name.startswith(FORMAT_AND_FRONT)]


def files_with_the_word(feature: str) -> int:
    """Return how many files outside the folder of a feature have its word, in prose too."""
    word = re.compile(FEATURES[feature].replace(" ", "_"), re.IGNORECASE)
    folder = PACKAGE / "_features" / feature
    paths = [path for path in modules() if folder not in path.parents]
    return sum(1 for path in paths if word.search(path.read_text(encoding="utf-8")))


def source_numbers() -> dict[str, int]:
    """Return what is counted in the files."""
    paths = modules()
    graph = import_graph()
    tangled = cycles(graph)
    return {
        "modules": sum(1 for path in paths if path.stem != "__init__"),
        "modules_with_one_importer_below_120_lines": len(small_with_one_importer(graph)),
        "base_names_of_several_modules": len(shared_base_names(paths)),
        "modules_named_by_a_gerund": sum(1 for path in paths if path.stem.endswith("ing")),
        "modules_in_import_cycles": sum(map(len, tangled)),
        "modules_in_the_largest_cycle": max(map(len, tangled), default=0),
        **{f"files_that_name_{name}": len(files_that_name(name)) for name in FEATURES},
        **{f"files_that_know_{name}": len(files_that_know(name)) for name in FEATURES},
    }


# --- structs of the main path -------------------------------------------------------------------


def struct_numbers() -> dict[str, int]:
    """Return how wide the structs are that every feature passes through."""
    from holdfast._engine.journal.rows import RunRow, Write
    from holdfast._engine.scripts.requests import Append, StepCall
    from holdfast._runtime.execution.execution import Execution
    from holdfast._stores.contract import Store
    from holdfast._stores.postgres.postgres_store import PostgresStore
    from holdfast._stores.sqlite.sqlite_store import SqliteStore

    def fields(kind: type) -> int:
        return len(msgspec.structs.fields(kind))

    operations = [name for name in dir(Store) if not name.startswith("_")]
    dialects = (SqliteStore, PostgresStore)
    return {
        "fields_of_StepCall": fields(StepCall),
        "fields_of_Append": fields(Append),
        "fields_of_Write": fields(Write),
        "fields_of_RunRow": fields(RunRow),
        "attributes_of_Execution": len(attributes_assigned_by(Execution)),
        "operations_of_the_store_contract": len(operations),
        "operations_of_a_dialect": max(
            sum(name in vars(dialect) for name in operations) for dialect in dialects
        ),
    }


def attributes_assigned_by(kind: type) -> set[str]:
    """Return the attributes that the methods of a class assign to `self`."""
    import inspect

    return set(
        re.findall(r"^ +self\.(\w+)(?:: [^=\n]+)? = ", inspect.getsource(kind), re.MULTILINE)
    )


# --- walks --------------------------------------------------------------------------------------


class Walk:
    """The Python calls into the package that one operation makes, counted by a profiler."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.depth = 0
        self._base = _frames_of_package(sys._getframe())

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(str(PACKAGE)):
            return
        self.calls.append((path[len(str(PACKAGE)) + 1 :], frame.f_code.co_qualname))
        self.depth = max(self.depth, _frames_of_package(frame) - self._base)

    def length(self) -> int:
        """Return the number of calls; another thread that commits meanwhile makes it longer."""
        return len(self.calls)

    @property
    def files(self) -> list[str]:
        """The files in the order in which they are met first."""
        return list(dict.fromkeys(path for path, _ in self.calls))


def _frames_of_package(frame: FrameType | None) -> int:
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith(str(PACKAGE))
        frame = frame.f_back
    return count


def walked(operation: Callable[[], Any]) -> Walk:
    """Return the walk of one call, in this thread."""
    walk = Walk()
    sys.setprofile(walk)
    try:
        operation()
    finally:
        sys.setprofile(None)
    return walk


def step_walks() -> dict[str, Walk]:
    """Return the walks of a plain step: live, and replayed."""
    import holdfast

    walks: dict[str, Walk] = {}

    @holdfast.step(name="house_step")
    def double(number: int) -> int:
        return 2 * number

    def at(name: str) -> None:
        for number in range(5):
            double(number)  # What is made once is made now.
        walks[name] = min((walked(lambda: double(7)) for _ in range(3)), key=Walk.length)

    @holdfast.flow(name="house_flow")
    def work(stop: bool) -> None:
        at(phase[0])
        if stop and phase[0] == "live":
            raise KeyboardInterrupt

    phase = ["warm"]
    with (
        tempfile.TemporaryDirectory() as folder,
        holdfast.open(f"sqlite:///{folder}/house.db", default=False) as store,
    ):
        bound = work.with_options(store=store)
        bound.run("warm", False)
        phase[0] = "live"
        try:
            bound.run("house", True)
        except KeyboardInterrupt:
            phase[0] = "replayed"
        bound.run("house", True)
    return walks


@functools.cache
def doubtful_flow(watched: bool) -> Any:
    """Return a flow whose effect ends in doubt; if watched, it sets a profiler before the effect."""
    import holdfast

    @holdfast.effect(name=f"house_effect_{watched}")
    def charge(cents: int) -> int:
        raise TimeoutError

    @holdfast.flow(name=f"house_doubt_{watched}")
    def pay() -> int:
        if watched:
            sys.setprofile(Walk())
        return charge(1999)

    return pay


@contextlib.contextmanager
def doubtful(*, watched: bool = False) -> Iterator[tuple[Any, Any]]:
    """A new store, and the flow whose effect ends in doubt, which runs there."""
    import holdfast

    with (
        tempfile.TemporaryDirectory() as folder,
        holdfast.open(f"sqlite:///{folder}/house.db", default=False) as store,
    ):
        yield store, doubtful_flow(watched).with_options(store=store)


def doubt_walk() -> Walk:
    """Return the walk of an effect whose outcome is unknown: from its call until its run is held."""
    import holdfast

    walks: list[Walk] = []
    with doubtful(watched=True) as (_, pay):
        for number in range(4):
            try:
                pay.run(f"house-{number}")
            except holdfast.errors.RunHeld:
                walks.append(cast("Walk", sys.getprofile()))
            finally:
                sys.setprofile(None)
    return min(walks[1:], key=Walk.length)  # What is made once is made in the first.


def walk_numbers() -> dict[str, int]:
    """Return how long the main path is, and the path of an effect in doubt."""
    walks = step_walks()
    live, replayed, doubt = walks["live"], walks["replayed"], doubt_walk()
    return {
        "files_of_a_live_step": len(live.files),
        "calls_of_a_live_step": len(live.calls),
        "frames_of_a_live_step": live.depth,
        "calls_of_a_replayed_step": len(replayed.calls),
        "modules_of_features_on_a_live_step": sum(
            path.startswith("_features/") for path in live.files
        ),
        "files_of_a_step_held_in_doubt": len(doubt.files),
        "calls_of_a_step_held_in_doubt": len(doubt.calls),
        "folds_of_explain": sum(name == "History.fold" for _, name in explain_walk().calls),
        "loads_of_explain": sum(name.endswith("Store.load") for _, name in explain_walk().calls),
    }


ARCHITECTURE = ROOT / "ARCHITECTURE.md"
WALK = re.compile(r"(<!-- walk (\w+): [^>]*-->\n```text\n)(.*?)(```\n)", re.DOTALL)


def explain_walk() -> Walk:
    """Return the walk of `explain` for a run that is held because of an effect in doubt."""
    import holdfast

    with doubtful() as (store, pay):
        with contextlib.suppress(holdfast.errors.RunHeld):
            pay.run("house")
        store.explain("house")  # What is made once is made now.
        return walked(lambda: store.explain("house"))


def by_stay(walk: Walk) -> str:
    """Return a walk as text: a line for each stay in a file, with the functions called there."""
    lines: list[tuple[str, list[str]]] = []
    for path, name in walk.calls:
        short = name.replace(".<locals>", "")
        if not lines or lines[-1][0] != path:
            lines.append((path, []))
        if short not in lines[-1][1]:
            lines[-1][1].append(short)
    return "".join(f"{path:42} {', '.join(names)}\n" for path, names in lines)


def by_folder(walk: Walk) -> str:
    """Return the files of a walk as text: a line for each folder, in the order of the first visit."""
    folders: dict[str, list[str]] = {}
    for path in walk.files:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name.removesuffix(".py"))
    return "".join(f"{folder + '/':24} {' '.join(names)}\n" for folder, names in folders.items())


def walk_texts() -> dict[str, str]:
    """Return the walks as ARCHITECTURE.md shows them, by the name of their block."""
    steps = step_walks()
    return {
        "live": by_stay(steps["live"]),
        "replayed": by_stay(steps["replayed"]),
        "explain": by_folder(explain_walk()),
    }


def with_walks(document: str, walks: Mapping[str, str]) -> str:
    """Return a document with each walk in its marked block."""
    return WALK.sub(lambda found: found[1] + walks[found[2]] + found[4], document)


# --- import -------------------------------------------------------------------------------------


NEEDED = "import msgspec, inspect"
"""What no form of the library does without: the measure of what it costs to import it."""


def import_numbers() -> dict[str, int]:
    """Return how many modules `import holdfast` loads: ours, and others beyond what it needs anyway."""
    text = (
        f"import sys; {NEEDED}; before = set(sys.modules); import holdfast; "
        "new = set(sys.modules) - before; ours = {name for name in new if name.startswith('holdfast')}; "
        "print(len(ours), len(new - ours))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], check=True, capture_output=True, text=True, cwd=ROOT
    )
    ours, others = map(int, done.stdout.split())
    return {
        "modules_loaded_by_import_holdfast": ours,
        "other_modules_loaded_by_import_holdfast": others,
    }


def import_cpu_s(text: str, times: int = 10) -> float:
    """Return the CPU time of a Python process that executes this, in seconds: the least of some. The
    first of them writes the bytecode."""
    used: list[float] = []
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", text], check=True, cwd=ROOT, env=env)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(used)


def import_cost() -> str:
    """Return what `import holdfast` costs beside what it needs anyway, as text. Shown and not bounded:
    a time is no fact about the code."""
    ours, needed = import_cpu_s("import holdfast"), import_cpu_s(NEEDED)
    return (
        f"CPU of import holdfast: {1000 * ours:.0f} ms, {ours / needed:.2f} times that of {NEEDED} "
        "(the aim: at most 2)"
    )


# --- the command --------------------------------------------------------------------------------


def bounds() -> dict[str, int]:
    """Return the largest value that each number may have."""
    return {name: int(value) for name, value in tomllib.loads(BOUNDS.read_text()).items()}


def numbers() -> dict[str, int]:
    """Return all numbers."""
    return source_numbers() | struct_numbers() | walk_numbers() | import_numbers()


def lines_by_package() -> dict[str, int]:
    """Return the lines of each package of the source tree."""
    counted: Counter[str] = Counter()
    for path in modules():
        parts = path.relative_to(PACKAGE).parts
        counted[parts[0] if len(parts) > 1 else "."] += path.read_text().count("\n")
    return dict(sorted(counted.items()))


def main(arguments: list[str]) -> None:
    """Print the numbers beside their bounds; `--tighten` lowers the bounds, `--walk` prints the walk,
    `--document` writes all walks into ARCHITECTURE.md."""
    if "--walk" in arguments:
        for path, name in step_walks()["live"].calls:
            print(f"{path:40} {name}")
        return
    if "--document" in arguments:
        ARCHITECTURE.write_text(with_walks(ARCHITECTURE.read_text(), walk_texts()))
        return
    measured = numbers()
    if "--json" in arguments:
        print(json.dumps(measured))
        return
    allowed = bounds() if BOUNDS.exists() else {}
    for name, value in measured.items():
        print(f"{name:48} {value:>6}   at most {allowed.get(name, '-')}")
    for feature in FEATURES:
        print(f"files with the word of {feature:25} {files_with_the_word(feature):>6}")
    for package, lines in lines_by_package().items():
        print(f"lines of {package:39} {lines:>6}")
    print(import_cost())
    if "--tighten" in arguments:
        kept = {name: min(value, allowed.get(name, value)) for name, value in measured.items()}
        BOUNDS.write_text("".join(f"{name} = {value}\n" for name, value in kept.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
