"""How many distributions an install without extras brings, itself included."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import Distribution, distributions
from typing import TYPE_CHECKING

try:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name
except ImportError:  # Only development tools bring it; pip, which made the environment, has a copy.
    from pip._vendor.packaging.requirements import Requirement  # type: ignore[assignment]
    from pip._vendor.packaging.utils import canonicalize_name  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def installed_with(python: Path, roots: Iterable[str]) -> set[str]:
    """The closure of the requirements, read from the metadata of an environment."""
    known = _installed(python)
    found: set[tuple[str, str]] = set()
    pending = [Requirement(root) for root in roots]
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) not in found:
                found.add((name, extra))
                pending += _required_by(known[name], extra)
    return {name for name, _ in found}


def _required_by(distribution: Distribution, extra: str) -> list[Requirement]:
    requirements = map(Requirement, distribution.requires or ())
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra})
    ]


def _installed(python: Path) -> dict[str, Distribution]:
    show = "import json, sys; print(json.dumps([p for p in sys.path if p]))"
    answer = subprocess.run([python, "-c", show], check=True, capture_output=True)
    path = json.loads(answer.stdout)
    return {canonicalize_name(found.metadata["Name"]): found for found in distributions(path=path)}
