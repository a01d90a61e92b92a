"""Users' code passes mypy and pyright in strict mode, and a wrong line in it is found by both."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "samples"

Lines = set[tuple[str, int]]


def marked(folder: Path) -> Lines:
    """The lines that are wrong on purpose."""
    return {
        (path.name, number)
        for path in sorted(folder.glob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.endswith("# error")
    }


def run(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return done.stdout


def mypy(folder: Path, scratch: Path) -> dict[tuple[str, int], str]:
    output = run(
        *("mypy", "--strict", "--output=json", "--config-file="),
        *(f"--cache-dir={scratch / 'mypy'}", "."),
        folder=folder,
    )
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {
        (Path(error["file"]).name, error["line"]): error["message"]
        for error in found
        if error["severity"] == "error"
    }


def pyright(folder: Path, scratch: Path) -> dict[tuple[str, int], str]:
    project = scratch / "pyright"
    shutil.copytree(folder, project)
    (project / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    output = json.loads(
        run("pyright", "--outputjson", "--pythonpath", sys.executable, folder=project)
    )
    assert output["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py")))
    return {
        (Path(error["file"]).name, error["range"]["start"]["line"] + 1): error["message"]
        for error in output["generalDiagnostics"]
        if error["severity"] == "error"
    }


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_users_code_is_typed(checker, tmp_path):
    found = checker(SAMPLES, tmp_path)
    expected = marked(SAMPLES)
    refused = [
        f"{name}:{line}: {found[name, line]}" for name, line in sorted(set(found) - expected)
    ]
    accepted = [f"{name}:{line}" for name, line in sorted(expected - set(found))]
    assert not refused, "\n".join(["good lines are refused:", *refused])
    assert not accepted, "\n".join(["wrong lines are accepted:", *accepted])


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_wrong_line_is_found(checker, tmp_path):
    folder = tmp_path / "samples"
    folder.mkdir()
    (folder / "sample.py").write_text("x: int = 1\ny: str = x\n")
    assert set(checker(folder, tmp_path)) == {("sample.py", 2)}
