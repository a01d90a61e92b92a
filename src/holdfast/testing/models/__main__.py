"""`python -m holdfast.testing.models --port 8123 script.json`: the server as a process of its own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from holdfast.errors import UsageError
from holdfast.testing.models.fake_model_server import FakeModelServer
from holdfast.testing.models.script import script_from_json


def main(arguments: list[str] | None = None) -> int:
    """Serve a script until interrupted; one line per request. Returns 1 if one was refused."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.models")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    parser.add_argument("script", type=Path, help="a JSON file: a list of turns")
    chosen = parser.parse_args(arguments)
    try:
        script = script_from_json(chosen.script.read_text(encoding="utf-8"))
    except (OSError, UsageError) as error:
        parser.error(str(error))
    with FakeModelServer(script, port=chosen.port) as server:
        _say(f"{len(script)} turns at {server.url}")
        try:
            _tell(server)
        except KeyboardInterrupt:
            _say(f"{server.count} requests, {len(server.problems)} problems")
        return int(bool(server.problems))


def _tell(server: FakeModelServer) -> None:
    told, problems = 0, 0
    while True:
        server.until(told + 1, timeout_s=None)
        for request in server.requests[told:]:
            told += 1
            _say(f"{told} {request.protocol} turn {request.turn}")
        for problem in server.problems[problems:]:
            problems += 1
            _say(f"refused: {problem}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
