"""The reference of the Python API is what the signatures and docstrings say."""

import subprocess
import sys

from tests.docs.page import ROOT


def test_the_reference_of_the_python_api_is_what_the_code_says():
    script = ROOT / "docs" / "generate_api.py"
    done = subprocess.run([sys.executable, str(script), "--check"], check=False, timeout=60)
    assert done.returncode == 0, "write it again: python docs/generate_api.py"
