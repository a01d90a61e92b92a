"""The outside world on one local port: a model, a search engine, and a place to publish.

    POST   /v1/chat/completions   the OpenAI chat protocol: a scripted model that calls tools
    GET    /search?q=…            findings; those of the archive are always out of order (503)
    POST   /reports/ID            publishes a report, and a second copy if it is asked twice
    GET    /reports/ID            the report, or 404
    DELETE /reports/ID            takes all copies back
    GET    /books                 what all of these were asked for, and how often

It does not honour idempotency keys, on purpose: whatever publishes twice is seen in its books.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

MODEL = "local-writer-1"


class Books:
    """What was asked and what is published; every method is called under the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        self.chats: Counter[str] = Counter()
        self.searches: Counter[str] = Counter()
        self.posts: Counter[str] = Counter()
        self.deletes: Counter[str] = Counter()
        self.reports: dict[str, list[dict[str, Any]]] = {}

    def told(self) -> dict[str, Any]:
        return {
            "chats": self.chats,
            "searches": self.searches,
            "posts": self.posts,
            "deletes": self.deletes,
            "reports": self.reports,
        }

    def publish(self, name: str, text: str) -> dict[str, Any]:
        self.posts[name] += 1
        copies = self.reports.setdefault(name, [])
        copies.append({"url": f"/reports/{name}", "copy": len(copies) + 1, "text": text})
        return copies[-1]


def prompt_of(messages: list[dict[str, Any]]) -> str:
    """Return a short name for a conversation: two that differ in anything have two names."""
    digest = hashlib.sha256(json.dumps(messages, sort_keys=True).encode()).hexdigest()[:12]
    return f"{len(messages)} messages, {digest}"


def reply_to(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Stands for a model: it plans, looks two things up, writes, and revises."""
    task = str(messages[-1]["content"])
    if task.startswith("Outline"):
        topic = task.partition(":")[2].strip()
        return {"content": f"{topic}: causes\n{topic}: figures\n{topic}: outlook"}
    if task.startswith("Make it"):
        wish = task.removeprefix("Make it").strip(" .")
        return {"content": f"{messages[-2]['content']} ({wish})"}
    looked_up = sum(message["role"] == "tool" for message in messages)
    if looked_up < 2:
        call = {
            "id": f"call-{looked_up + 1}",
            "type": "function",
            "function": {
                "name": "look_up",
                "arguments": json.dumps({"query": f"detail {looked_up + 1}"}),
            },
        }
        return {"content": "", "tool_calls": [call]}
    sources = sum(str(message["content"]).count("finding") for message in messages)
    return {"content": f"A report on {sources} findings."}


class Handler(BaseHTTPRequestHandler):
    books: Books

    def do_GET(self) -> None:
        at = urlsplit(self.path)
        with self.books.lock:
            if at.path == "/books":
                self._answer(200, self.books.told())
            elif at.path == "/search":
                self._search(parse_qs(at.query)["q"][0])
            else:
                copies = self.books.reports.get(self._name(), [])
                self._answer(200 if copies else 404, copies[0] if copies else {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "null")
        with self.books.lock:
            if self.path == "/v1/chat/completions":
                self._chat(body)
            elif self.path == "/clear":
                self.books.clear()
                self._answer(200, {})
            else:
                self._answer(201, self.books.publish(self._name(), body["text"]))

    def do_DELETE(self) -> None:
        with self.books.lock:
            self.books.deletes[self._name()] += 1
            found = self.books.reports.pop(self._name(), None)
        self._answer(200 if found else 404, {})

    def _chat(self, body: dict[str, Any]) -> None:
        messages = body["messages"]
        self.books.chats[prompt_of(messages)] += 1
        reply = reply_to(messages)
        finish = "tool_calls" if reply.get("tool_calls") else "stop"
        said = sum(len(str(message["content"])) for message in messages)
        self._answer(
            200,
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "model": body["model"],
                "choices": [
                    {"index": 0, "message": {"role": "assistant", **reply}, "finish_reason": finish}
                ],
                "usage": {
                    "prompt_tokens": said // 4 + 1,
                    "completion_tokens": len(reply["content"]) // 4 + 1,
                },
            },
        )

    def _search(self, query: str) -> None:
        self.books.searches[query] += 1
        if query.startswith("archive:"):
            self._answer(503, {"error": "the archive is out of order"})
        else:
            self._answer(200, {"found": [f"finding on {query}"]})

    def _name(self) -> str:
        return unquote(urlsplit(self.path).path.removeprefix("/reports/"))

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        with contextlib.suppress(ConnectionError):  # who asked may have been killed meanwhile
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """The books are the log."""


@contextlib.contextmanager
def serving(port: int = 0) -> Iterator[str]:
    """Serve on a port of this machine; gives the address, and leaves no thread behind."""
    handler = type("Handler", (Handler,), {"books": Books()})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="servers")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    """Print the address, and serve until stdin is closed."""
    with serving(int(sys.argv[1]) if len(sys.argv) > 1 else 0) as url:
        print(url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
