"""Writes the pages that are made from the commands themselves: `python docs/generate_cli.py`.

cli.md, json.md and json.schema.json. `--check` writes nothing, and ends with 1 if one of them is not
what the commands say.
"""

import sys
from pathlib import Path

from holdfast._operator.cli.reference import json_page, json_schema, reference

FOLDER = Path(__file__).parent / "reference"
PAGES = {
    "cli.md": reference,
    "json.md": json_page,
    "json.schema.json": json_schema,
}


def main() -> int:
    check = "--check" in sys.argv
    right = True
    for name, make in PAGES.items():
        page = FOLDER / name
        said = make()
        if not check:
            page.write_text(said, encoding="utf-8")
        right = right and page.exists() and page.read_text(encoding="utf-8") == said
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
