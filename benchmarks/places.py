"""Where a subject keeps its store: in a folder, or in a database of its own on one server."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from benchmarks.disk import stored_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.server import Server


@dataclass(frozen=True, slots=True)
class Place:
    """`url` is "" where the store is a file in `directory`."""

    directory: Path
    url: str = ""
    server: Server | None = None

    def stored_bytes(self) -> int:
        if self.server is None:
            return stored_bytes(self.directory)
        return self.server.stored_bytes(self.url)


class Places:
    """New places for one measurement, removed when it is over."""

    def __init__(self, directory: Path, server: Server | None) -> None:
        self._directory = directory
        self._server = server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._server is not None:
            self._server.drop_databases()

    def make(self, name: str = "store") -> Place:
        directory = self._directory / name
        directory.mkdir(parents=True)
        if self._server is None:
            return Place(directory)
        return Place(directory, self._server.fresh_database(name), self._server)

    @property
    def server(self) -> Server | None:
        return self._server
