"""The page cannot be reached, or a token leaked: it is started, and a token that leaked ends at once."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

from tests.handbook.world import World
from tests.postgres.server import free_port

PROGRAM = """
@flow
def plain():
    return wait_for_signal("more")


if __name__ == "__main__":
    plain.submit("r")
"""


def answer(
    port: int, path: str, token: str = "", body: object = None, etag: str = ""
) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if etag:
        headers["If-Match"] = f'"{etag}"'
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError:
        return 0, ""


def test_it_is_started_and_a_leaked_token_ends_at_once(world: World):
    world.program(PROGRAM)
    assert world.shell("python agent.py").returncode == 0
    port = free_port()
    made = world.shell("holdfast tokens create ops --role operator --json")
    leaked = json.loads(made.stdout)["token"]
    with world.background("ui", PORT=str(port)):
        world.wait(lambda: answer(port, "/health")[0] == 200)
        assert '{"ok": true}' in world.page.text
        assert json.loads(answer(port, "/health")[1])["ok"] is True
        assert answer(port, "/api/v1/runs")[0] == 401
        assert answer(port, "/api/v1/runs", leaked)[0] == 200
        etag = json.loads(answer(port, "/api/v1/run?id=r", leaked)[1])["etag"]
        told = answer(port, "/api/v1/run/pause?id=r", leaked, {"reason": "mine"}, etag)
        assert told[0] == 200, told
        assert "ops" in world.paste("tokens list")
        world.paste("tokens revoke", NAME="ops")
        assert answer(port, "/api/v1/runs", leaked)[0] == 401
        world.paste("tokens create", NAME="other")
        world.paste("tokens rotate", OTHER="other")
    world.paste("history", RUN="r")
    assert world.actors("r") == {"ops (api, 127.0.0.1)"}
