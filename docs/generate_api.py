"""Writes the reference of the Python API from signatures and docstrings: `python docs/generate_api.py`.

`--check` writes nothing, and ends with 1 if the page is not what the code says.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_overloads

import msgspec

import holdfast
import holdfast.testing

PAGE = Path(__file__).parent / "reference" / "python-api.md"

MODULES = ["context", "aio", "versioning", "schedules", "pricing", "redaction"]
MODULES += ["adapters", "observers", "testing", "types"]

RECEIVED = {"holdfast.adapters", "holdfast.observers", "holdfast.testing"}
"""Modules whose structs users receive; those of the others they make. Of `types` they make none."""

# What users look up first, by what it is for; a test of public names knows that there are 25.
GROUPS = {
    "Define": ["step", "effect", "flow", "plan", "resource"],
    "Run": ["open", "run", "run_step"],
    "Options": ["Retry", "Budget", "Queue", "Watchdog", "Approval"],
    "Effects": ["idempotency_key", "Done", "NOT_DONE", "UNKNOWN"],
    "Inside a flow": [
        "turns",
        "each",
        "gather",
        "sleep",
        "wait_for_signal",
        "ask",
        "memory",
        "emit",
    ],
}

INTRODUCTION = """\
# Python API and errors

Generated from signatures and docstrings by `python docs/generate_api.py`. The how-to pages explain
the same names with examples; [Errors](#errors) are at the end.

`Duration` stands for seconds, a `timedelta`, or a string such as `"90s"`, `"2h"` or `"3d"`. A
parameter whose name ends in `_s` takes a number of seconds.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([INTRODUCTION, *_holdfast(), *_modules(), *_errors()]).rstrip("\n") + "\n"


def _holdfast() -> Iterator[str]:
    yield "## holdfast"
    yield ""
    missing = _names(holdfast) | {"open"}
    for group, names in GROUPS.items():
        yield f"### {group}"
        yield ""
        for name in names:
            missing.remove(name)
            yield from _thing("holdfast", name, getattr(holdfast, name))
    assert not missing, f"name a group for {missing}"


def _names(module: ModuleType) -> set[str]:
    return {name for name in module.__all__ if not inspect.ismodule(getattr(module, name))}


def _modules() -> Iterator[str]:
    for name in MODULES:
        module = getattr(holdfast, name)
        yield f"## holdfast.{name}"
        yield ""
        yield _text(module)
        yield ""
        for one in sorted(_names(module), key=str.lower):
            yield from _thing(f"holdfast.{name}", one, getattr(module, one))


def _thing(where: str, name: str, thing: Any) -> Iterator[str]:
    yield f"#### {where}.{name}"
    yield ""
    ours = str(getattr(thing, "__module__", "")).startswith("holdfast")
    if not callable(thing) or not ours:
        yield _text(type(thing) if ours else None) or f"`{thing!r}`"
        yield ""
        return
    if where != "holdfast.types" and not (_is_struct(thing) and where in RECEIVED):
        yield from _signature(name, thing)
    if text := _text(thing):
        yield text
        yield ""
    if inspect.isclass(thing) and not issubclass(thing, str):
        yield from _methods(thing)


def _is_struct(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, msgspec.Struct)


def _methods(kind: type) -> Iterator[str]:
    rows = []
    for name in sorted(dir(kind)):
        method = inspect.getattr_static(kind, name)
        is_property = isinstance(method, property)
        if name.startswith("_") or not (inspect.isfunction(method) or is_property):
            continue
        if not (text := _text(method)):
            continue
        shown = name if is_property else f"{name}{_arguments(method, method=True)}"
        first = text.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        rows.append(f"| `{shown.replace('|', chr(92) + '|')}` | {first} |")
    if rows:
        yield from ("| member | |", "|---|---|", *rows, "")


def _signature(name: str, thing: Any) -> Iterator[str]:
    if inspect.isclass(thing) and not _is_struct(thing):
        if issubclass(thing, str) or thing.__init__ is object.__init__:
            return
    try:
        text = _arguments(thing)
    except ValueError:
        return
    if len(text) > 80:
        text = text.replace("(", "(\n    ", 1).replace(", ", ",\n    ")
        head, _, tail = text.rpartition(")")
        text = f"{head}\n){tail}"
    yield from ("```text", f"{name}{text}", "```", "")


def _arguments(thing: Callable[..., Any], *, method: bool = False) -> str:
    """The parameters of a function; of one with overloads those of the last, which names all options."""
    signature = inspect.signature((get_overloads(thing) or [thing])[-1])
    parameters = list(signature.parameters.values())
    if method and parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
    return re.sub(r"Ellipsis|<object object at \w+>", "…", str(inspect.Signature(plain)))


def _text(thing: Any) -> str:
    """A docstring as Markdown."""
    text = inspect.getdoc(thing) or "" if thing is not None else ""
    return text.replace("<", "&lt;") if "`" not in text else text


def _errors() -> Iterator[str]:
    yield "## Errors"
    yield ""
    yield "All errors are in `holdfast.errors` and derive from `HoldfastError`."
    yield ""
    tree = (inspect.getdoc(holdfast.errors) or "").partition("\n\n")[2]
    yield from ("```text", tree, "```", "")
    yield "| error | meaning |"
    yield "|---|---|"
    for name, error in sorted(vars(holdfast.errors).items()):
        if inspect.isclass(error) and issubclass(error, holdfast.errors.HoldfastError):
            first = (inspect.getdoc(error) or "").replace("\n\n", " ").replace("\n", " ")
            yield f"| `{name}` | {first} |"


def main() -> int:
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text else 1


if __name__ == "__main__":
    sys.exit(main())
