"""The tests of LangGraph itself are run at the newest edge, which has its sources."""

import sys
from pathlib import Path

from tests.integrations.environments import SOURCES

collect_ignore = [] if (Path(sys.prefix) / SOURCES).exists() else ["test_upstream.py"]
