"""Writes docs/cli.md from the commands themselves: `python docs/generate_cli.py`.

`--check` writes nothing, and ends with 1 if the page is not what the commands say.
"""

import sys
from pathlib import Path

from holdfast._ops.cli.reference import reference

PAGE = Path(__file__).with_name("cli.md")


def main() -> int:
    said = reference()
    if "--check" in sys.argv:
        return 0 if PAGE.read_text(encoding="utf-8") == said else 1
    PAGE.write_text(said, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
