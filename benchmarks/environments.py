"""A virtual environment for each peer, made once and kept until its pins change."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

HERE = Path(__file__).parent


def python_of(peer: str) -> Path:
    return HERE / ".venvs" / peer / "bin" / "python"


def prepare(peer: str) -> None:
    requirements = HERE / "requirements" / f"{peer}.txt"
    directory = HERE / ".venvs" / peer
    installed = directory / "installed.txt"
    pins = requirements.read_text()
    if installed.exists() and installed.read_text() == pins:
        return
    venv.create(directory, clear=True, with_pip=True, symlinks=True)
    subprocess.run(
        [python_of(peer), "-m", "pip", "install", "--quiet", "--requirement", requirements],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    installed.write_text(pins)
