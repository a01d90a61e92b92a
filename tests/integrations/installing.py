"""Environments are filled by uv, from the places that pip is told to use on this machine."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

# What pip calls it -> the variable that tells uv the same.
TOLD: Mapping[str, str] = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
# A later one wins.
SECTIONS = ("global", "install", ":env:")
YES = {"1", "on", "t", "true", "y", "yes"}

VERSIONS = """
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""


def install(folder: Path, root: Path, extras: Iterable[str], requirements: Iterable[str]) -> None:
    """Make the environment anew, with Holdfast in it as it stands in the checkout."""
    ours = f"{root}[{','.join(extras)}]"
    python = folder / "bin" / "python"
    told = _pip_config()
    _uv(told, "venv", "--clear", "--python", sys.executable, str(folder))
    into = ("pip", "install", "--python", str(python), *flags(told))
    _uv(told, *into, *requirements, "--editable", ours)


def versions(python: Path, packages: Iterable[str]) -> dict[str, str]:
    done = subprocess.run(
        [python, "-c", VERSIONS, *packages], check=True, capture_output=True, text=True
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def unpack_sources(folder: Path, releases: Mapping[str, str]) -> None:
    """Download the source distributions of releases, which have their tests, and unpack them."""
    for name, version in releases.items():
        with tempfile.TemporaryDirectory() as downloads:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", downloads]
            only_this = ["--no-deps", "--no-binary", name, f"{name}=={version}"]
            done = subprocess.run([*pip, *only_this], check=False, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"pip download {name} failed:\n{done.stderr.strip()}")
            (archive,) = Path(downloads).glob("*.tar.gz")
            with tarfile.open(archive) as unpacked:
                unpacked.extractall(folder, filter="data")


def settings(pip_config: str) -> dict[str, str]:
    """The variables for uv that mean what `pip config list` printed."""
    said = _said(pip_config)
    return {
        variable: ("," if name == "find-links" else " ").join(said[name].split())
        for name, variable in TOLD.items()
        if name in said
    }


def flags(pip_config: str) -> list[str]:
    """What uv has no variable for."""
    return ["--no-index"] if _said(pip_config).get("no-index", "").lower() in YES else []


def _said(pip_config: str) -> dict[str, str]:
    said: dict[str, str] = {}
    lines = [line.partition("=") for line in pip_config.splitlines() if "=" in line]
    for section in SECTIONS:
        for key, _, value in lines:
            of, _, name = key.rpartition(".")
            if of == section:
                said[name] = str(ast.literal_eval(value))
    return said


def _pip_config() -> str:
    return subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout


def _uv(pip_config: str, *words: str) -> None:
    from uv import find_uv_bin

    env = {
        **settings(pip_config),
        # As pip does: the newest release of all places, not of the first that has one.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        **os.environ,
    }
    done = subprocess.run(
        [find_uv_bin(), "--quiet", "--no-config", *words],
        env=env,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"uv {words[0]} failed:\n{done.stderr.strip()}")
