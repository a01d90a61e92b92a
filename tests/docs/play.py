"""Plays one program of a page, in the current folder: `python play.py page.md`, or `page.md 2`.

The page is the main module, as if its Python blocks were one script. Code is compiled under the
name and the line numbers of the page itself, so that a traceback, and whatever asks for the source
of a function, finds it there.
"""

import os
import subprocess
import sys
import traceback
import types
from pathlib import Path

from tests.docs.page import Block, blocks, programs

COMMAND_S = 60


def play(path: Path, number: int = 1) -> None:
    page = types.ModuleType("__main__")
    page.__file__ = str(path)
    sys.modules["__main__"] = page
    for block in blocks(programs(path.read_text(encoding="utf-8"))[number - 1]):
        if block.language == "python":
            _python(path, block, page)
        elif block.run:
            _console(path, block)


def _python(path: Path, block: Block, page: types.ModuleType) -> None:
    code = compile("\n" * (block.line - 1) + block.text, str(path), "exec", dont_inherit=True)
    if not block.run:
        return
    try:
        exec(code, vars(page))
    except BaseException as error:
        if type(error).__name__ != block.raises:
            raise
    else:
        if block.raises:
            sys.exit(f"{path.name}:{block.line}: {block.raises} was not raised")


def _console(path: Path, block: Block) -> None:
    commands = block.commands
    for number, command in enumerate(commands, 1):
        expected = block.exit_code if number == len(commands) else 0
        done = subprocess.run(
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        if done.returncode != expected:
            sys.exit(
                f"{path.name}:{block.line}: `{command}` ended with {done.returncode}, "
                f"expected {expected}\n{done.stdout}{done.stderr}"
            )


if __name__ == "__main__":
    # Commands of the page are those that were installed beside this interpreter.
    sys.path[0] = os.getcwd()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        play(Path(sys.argv[1]), *map(int, sys.argv[2:]))
    except BaseException:
        # Swapping the main module has taken away the interpreter's own way of reporting.
        if not isinstance(sys.exc_info()[1], SystemExit):
            traceback.print_exc()
            sys.exit(1)
        raise
