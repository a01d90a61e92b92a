"""Start child processes that import user modules, and import those modules in them.

User modules are imported in child processes only, never in the process that supervises them.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import subprocess
import sys
import threading
import typing
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import msgspec

from holdfast.errors import UsageError

FLOWS_SHOWN = 20


def start(
    module: str, order: msgspec.Struct, pass_fds: tuple[int, ...], **options: Any
) -> subprocess.Popen[bytes]:
    """Start a child process, and pass it its order through a pipe. Every user of the machine can
    read the arguments of a process, and a store address may contain a password."""
    reads, writes = os.pipe()
    try:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, and a module of ours
            [sys.executable, "-m", module, str(reads)], pass_fds=(*pass_fds, reads), **options
        )
    except BaseException:
        os.close(writes)
        raise
    finally:
        os.close(reads)
    # A child that has already died does not read the order; the code that waits for the child
    # reports it.
    with contextlib.suppress(BrokenPipeError), os.fdopen(writes, "wb") as pipe:
        pipe.write(msgspec.json.encode(order))
    return cast("subprocess.Popen[bytes]", process)


def read_order(argv: list[str]) -> bytes:
    """Return the order that this process was started with."""
    with os.fdopen(int(argv[1]), "rb") as pipe:
        return pipe.read()


def outlives(life_fd: int, alone: threading.Event) -> None:
    """Set `alone` when the other end of the pipe is closed, which means that its process has
    ended."""
    with contextlib.suppress(OSError):
        while os.read(life_fd, 64):
            pass
    alone.set()


def find_flow(target: str) -> Any:
    """Return the flow that MODULE:FLOW names; MODULE may be a file."""
    where, colon, path = target.rpartition(":")
    if not colon or not where or not path:
        raise UsageError(
            f"{target!r} is not MODULE:FLOW, as in agent:research or agent.py:research"
        )
    found: Any = (module := module_named(where))
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            raise UsageError(f"{where} has no {path!r}; {_flows_of(module)}")
    if not _is_flow(found):
        raise UsageError(f"{target} is no flow; decorate it with @holdfast.flow")
    return found


def _is_flow(found: Any) -> bool:
    return callable(getattr(found, "with_options", None)) and hasattr(found, "submit")


def _flows_of(module: ModuleType) -> str:
    names = sorted(name for name, found in vars(module).items() if _is_flow(found))
    if not names:
        return "it has no flows"
    more = ", …" if len(names) > FLOWS_SHOWN else ""
    return f"its flows: {', '.join(names[:FLOWS_SHOWN])}{more}"


def module_named(where: str) -> ModuleType:
    """Import a module by its name, as from this folder, or by its file."""
    if where.endswith(".py"):
        return _module_of_file(Path(where))
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{where}.".startswith(f"{error.name}."):
            raise  # The module exists; a module that it imports does not.
        raise UsageError(
            f"there is no module {where!r} here; give its name as you would import it, or its file"
        ) from None


def _module_of_file(file: Path) -> ModuleType:
    try:
        there = file.is_file()
    except PermissionError:  # A folder above it cannot be searched.
        there = True
    if not there:
        raise UsageError(f"there is no file {file}")
    if not os.access(file, os.R_OK):
        raise UsageError(
            f"{file} cannot be read by this user; look at its permissions: namei -l {file}"
        )
    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def typed_arguments(flow: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Convert JSON arguments, by name, to the types of the flow's annotations."""
    hints = hints_of(flow.fn)
    return {
        str(name): typed_argument(hints.get(name), value, name) for name, value in given.items()
    }


def hints_of(fn: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn)
    except Exception:
        return {}


def typed_argument(hint: Any, value: Any, name: Any) -> Any:
    """Convert JSON data to the type of the flow's annotation."""
    try:
        if hasattr(hint, "model_validate"):
            return hint.model_validate(value)
        return value if hint is None else msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise UsageError(f"--input: {name}: {error}") from None
    except TypeError:
        return value  # The annotation does not describe data.
