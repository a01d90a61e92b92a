"""Find the store that user modules open on import: `python -m …default_store FD`.

User modules are imported in child processes only, never in the process that supervises them. So a
command without a store address starts such a child first, which reports the address.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from holdfast._operator.cli import child_process
from holdfast._stores.addresses import without_password


class Query(msgspec.Struct):
    """The modules to import, and the pipe for the answer."""

    modules: list[str]
    report_fd: int


class Opened(msgspec.Struct, frozen=True):
    """The default store that was opened."""

    url: str
    namespace: str


def of(modules: Sequence[str]) -> Opened | None:
    """Return the store that importing these modules opens as the default, if other processes can
    reach it. The output and the errors of the modules are shown later, when they are imported to
    work."""
    reads, writes = os.pipe()
    try:
        process = child_process.start(
            __name__,
            Query(list(modules), writes),
            (writes,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    finally:
        os.close(writes)
    try:
        with os.fdopen(reads, "rb") as pipe:
            told = pipe.read()
        process.wait()
    finally:
        process.kill()  # Ctrl-C, or it has ended.
    return msgspec.json.decode(told, type=Opened) if told else None


def main(argv: list[str]) -> None:
    """Import the modules, and report which store they opened."""
    asked = msgspec.json.decode(child_process.read_order(argv), type=Query)
    sys.argv = [asked.modules[0]]
    for module in asked.modules:
        child_process.module_named(module)
    opened = _opened_default()
    if opened is not None and not opened.url.startswith("memory:"):
        os.write(asked.report_fd, msgspec.json.encode(opened))


def warn(url: str, namespace: str) -> None:
    """Warn if the imported module opened another store than the one in use."""
    from holdfast._runtime import log as logs

    opened = _opened_default()
    if opened is not None and _same(opened.url) != _same(url):
        logs.warning(
            "the module opened %s; its runs are here: %s",
            without_password(opened.url),
            without_password(url),
        )
    elif opened is not None and opened.namespace != namespace:
        words = "the module opened namespace %r of the store; its runs are here: %r"
        logs.warning(words, opened.namespace, namespace)


def _opened_default() -> Opened | None:
    from holdfast._runtime import engine

    default = engine.opened_default()
    if default is None or default.address is None:
        return None
    return Opened(default.address, default.backend.namespace)


def _same(url: str) -> str:
    """Normalize an address, so that two addresses of one file are equal."""
    form = "sqlite:///"
    return form + os.path.abspath(url[len(form) :]) if url.startswith(form) else url  # noqa: PTH100


if __name__ == "__main__":
    with contextlib.suppress(Exception):  # The process that imports them to work reports the error.
        main(sys.argv)
