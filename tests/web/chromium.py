"""Where the Chromium of this machine is; and `python -m tests.web.chromium`, which gets it.

The tests drive a browser of the distribution, not one that a package brings along. As root it is
installed; anybody else is told what to do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HELP = (
    "make test-web needs Chromium. As root it is installed from Debian by itself; else: "
    "apt-get install chromium, or HOLDFAST_CHROMIUM=/path/to/chromium"
)


def path() -> str | None:
    """Return the browser that HOLDFAST_CHROMIUM names, or the first that is on the PATH."""
    named = os.environ.get("HOLDFAST_CHROMIUM")
    if named:
        return shutil.which(named)
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def install() -> bool:
    """Install it, if we may; say whether it is there now."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    get = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium"]
    if subprocess.run(get, env=environment, check=False).returncode != 0:
        # The lists of packages may be old, or never have been read.
        subprocess.run(["apt-get", "update", "--quiet"], env=environment, check=False)
        subprocess.run(get, env=environment, check=False)
    return path() is not None


def main() -> int:
    """Get Chromium; 1 if there is none."""
    if path() is None and not install():
        print(HELP, file=sys.stderr)
        return 1
    print(f"Chromium: {path()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
