"""Fingerprints: of values, of files, and of code. Two are equal if what they stand for is the same."""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from holdfast._core.digest import digest

SHOWN_MAX_CHARS = 80
"""A version that is a short text is recorded as it is, so that people can read it."""
BLOCK_BYTES = 1 << 20


def fingerprint(value: object) -> str:
    """Return a short digest of any value that could be stored: a prompt, tool schemas, a row."""
    return digest(value, path="fingerprint").hex()[:16]


class File:
    """A file to be watched: by its contents, not by its times."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def __repr__(self) -> str:
        return f"holdfast.file({self.path!r})"

    def __call__(self) -> str:
        """Return the fingerprint of what stands in it now, or "absent"."""
        found = hashlib.blake2b(digest_size=8)
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123 - a path of the user's, as given
                while block := file.read(BLOCK_BYTES):
                    found.update(block)
        except FileNotFoundError:
            return "absent"
        return found.hexdigest()


def file(path: str | os.PathLike[str]) -> File:
    """Return what `watch` needs to look at a file: `watch("prices", holdfast.file("prices.csv"))`."""
    return File(path)


def version_text(value: object) -> str:
    """Return a declared version as it is recorded: a short text as it is, else a fingerprint."""
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, str) and len(value) <= SHOWN_MAX_CHARS and value.isprintable():
        return value
    return fingerprint(value)


def of_code(fn: Callable[..., Any]) -> str:
    """Return a digest of a function as it was compiled, with the version of Python before it.

    Not of its source: a file may be edited while a process goes on with what it loaded from it.
    Comments, names of files and the docstring are no part of it.
    """
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return _of_code(code, getattr(fn, "__doc__", None)) if isinstance(code, CodeType) else ""


@functools.lru_cache(maxsize=4096)
def _of_code(code: CodeType, doc: str | None) -> str:
    # By code, not by function: what closures hold on to is not kept alive here.
    found = hashlib.blake2b(digest_size=6)
    _feed(found, code, skips=doc)
    return f"{sys.version_info[0]}.{sys.version_info[1]}:{found.hexdigest()}"


def _feed(found: Any, code: CodeType, skips: object = None) -> None:
    for part in (code.co_code, code.co_names, code.co_varnames, code.co_argcount):
        found.update(repr(part).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _feed(found, constant)
        elif constant is None or constant is not skips:
            found.update(_told(constant).encode())


def _told(constant: object) -> str:
    """Return a constant as text; sets have no order of their own."""
    if isinstance(constant, frozenset):
        return f"{{{','.join(sorted(map(repr, constant)))}}}"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return repr(constant)
