"""Makes all situations, each in a folder of its own: `python -m tests.ops.make_situations FOLDER`.

This process opens no store and starts no thread, so that it can fork: each thing is done, and each
death is died, in a child.
"""

import sys
from pathlib import Path

from tests.ops import situations_open
from tests.ops.situations import make_all

assert situations_open  # It adds to the situations.

if __name__ == "__main__":
    make_all(Path(sys.argv[1]).resolve())
