"""Check the requirements of an integration, with one error text for all of them.

The versions are in one place: the extras of Holdfast, which its installed metadata repeats.
"""

from __future__ import annotations

import re
from importlib import metadata

_REQUIRED = re.compile(r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?(?P<range>[^;]*);(?P<marker>.*)")
_LOWEST = re.compile(r">=\s*(?P<version>[\w.]+)")
_EXTRA = re.compile(r"""extra\s*==\s*['"](?P<extra>[^'"]+)['"]""")
_RELEASE = re.compile(r"\d+(?:\.\d+)*")


def needs(package: str, *, extra: str) -> None:
    """Raise an ImportError that says what to install, unless the package is present and not too
    old.

    An integration calls it before it imports its framework. `package` is the name to install, as in
    the extra. The integration has the name of the extra.
    """
    lowest = _lowest(package, extra)
    try:
        installed = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(_text(package, lowest, extra), name=package) from None
    if lowest and _numbers(installed) < _numbers(lowest):
        raise ImportError(f"{_text(package, lowest, extra)} (found {installed})", name=package)


def _text(package: str, lowest: str | None, extra: str) -> str:
    module = f"holdfast.integrations.{extra.replace('-', '_')}"
    version = f" {lowest} or later" if lowest else ""
    return f"{module} needs {package}{version}: pip install -e '.[{extra}]' in a clone"


def _lowest(package: str, extra: str) -> str | None:
    """The lowest version in the extra's range, if Holdfast is installed as a distribution."""
    try:
        required = metadata.requires("holdfast") or []
    except metadata.PackageNotFoundError:
        return None
    for line in required:
        parts = _REQUIRED.match(line)
        if parts is None or _normal(parts["name"]) != _normal(package):
            continue
        named, lowest = _EXTRA.search(parts["marker"]), _LOWEST.search(parts["range"])
        if named and lowest and _normal(named["extra"]) == _normal(extra):
            return lowest["version"]
    return None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _numbers(version: str) -> list[int]:
    """1.10.0rc1 -> 1, 10: a candidate counts as its release, and 1.0 is 1."""
    found = _RELEASE.match(version.rpartition("!")[2])
    numbers = [int(number) for number in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers
