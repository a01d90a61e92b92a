"""Streams: every entry once, in order, across reconnects; ended when they have to be."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import msgspec
import pytest

from holdfast._operator.read import run_views
from holdfast._operator.web import browser_sessions, event_streams, limits
from holdfast._operator.web.access_tokens import Tokens
from holdfast._stores.contract import Store
from tests.ops.journals import Journal
from tests.web_api.served import Browser, Person, Site

Event = tuple[str, int | None, Any]


class Stream:
    """One open stream, read event by event."""

    def __init__(self, site: Site, person: Person | Browser, path: str, **headers: str) -> None:
        self._wire = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
        own = person.headers if isinstance(person, Person) else person.headers()
        self._wire.request("GET", f"/api/v1/{path}", headers={**own, **headers})
        self.answer = self._wire.getresponse()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.answer.close()
        self._wire.close()

    def events(self) -> Iterator[Event]:
        """Yield events until the server ends the stream; comments are events without a name."""
        name, number, data = "", None, b""
        for raw in self.answer:
            line = raw.rstrip(b"\n")
            if line.startswith(b"event: "):
                name = line[7:].decode()
            elif line.startswith(b"id: "):
                number = int(line[4:])
            elif line.startswith(b"data: "):
                data = line[6:]
            elif not line and name:
                yield name, number, msgspec.json.decode(data)
                name, number, data = "", None, b""


def written(store: Store, run_id: str) -> list[int]:
    return [entry.seq for entry in run_views.history(store, run_id)]


def test_a_tail_gives_every_entry_once_and_ends_with_the_run(
    site: Site, operator: Person, store: Store
):
    journal = Journal(store, "live").step("one")
    with Stream(site, operator, "run/history/stream?id=live") as stream:
        assert stream.answer.status == 200
        assert stream.answer.headers["Content-Type"].startswith("text/event-stream")
        assert stream.answer.headers["Cache-Control"] == "no-store"
        events = stream.events()
        first = [next(events) for _ in range(4)]
        assert [number for name, number, _ in first if name == "entry"] == [1, 2, 3, 4]
        assert next(events)[0] == "run"
        journal.step("two").completed("ok")
        rest = list(events)
    assert [(name, number) for name, number, _ in rest] == [
        ("entry", 5),
        ("entry", 6),
        ("entry", 7),
        ("run", None),
        ("end", None),
    ]
    assert rest[2][2]["body"] == {"result": "ok"}
    assert rest[3][2]["run"]["status"] == "completed"
    assert rest[4][2]["last"] == 7


@pytest.mark.parametrize("cursor", [0, 1, 2, 3, 4, 5, 6, 7])
def test_a_cursor_goes_on_behind_any_entry(site: Site, operator: Person, store: Store, cursor: int):
    Journal(store, "over").step("one").step("two").completed()
    for path, headers in (
        (f"run/history/stream?id=over&after={cursor}", {}),
        ("run/history/stream?id=over", {"Last-Event-ID": str(cursor)}),
    ):
        with Stream(site, operator, path, **headers) as stream:
            found = [number for name, number, _ in stream.events() if name == "entry"]
        assert found == list(range(cursor + 1, 8))


def test_reconnecting_loses_nothing_and_repeats_nothing(site: Site, operator: Person, store: Store):
    """A run writes all the time; the reader is cut off again and again, and comes back."""
    journal = Journal(store, "cut")
    steps = 120

    def write() -> None:
        for number in range(steps):
            journal.step(f"work#{number}" if number else "work")
        journal.completed()

    writer = threading.Thread(target=write)
    writer.start()
    found: list[int] = []
    ended = False
    cuts = 0
    while not ended:
        headers = {"Last-Event-ID": str(found[-1])} if found else {}
        with Stream(site, operator, "run/history/stream?id=cut", **headers) as stream:
            for at, (name, number, _) in enumerate(stream.events()):
                if name == "entry":
                    assert number is not None
                    found.append(number)
                ended = ended or name == "end"
                if at >= 6 and not ended:
                    cuts += 1
                    break
    writer.join()
    assert found == written(store, "cut") == list(range(1, 2 * steps + 4))
    assert cuts > 10


def test_all_streams_hear_of_a_change_by_one_thread(site: Site, operator: Person, store: Store):
    streams = [Stream(site, operator, "changes") for _ in range(5)]
    try:
        listening = [thread for thread in threading.enumerate() if thread.name == "changes"]
        assert len(listening) == 1
        Journal(store, "new").completed()
        for stream in streams:
            name, _, data = next(stream.events())
            assert name == "change"
            assert data["count"] >= 1
    finally:
        for stream in streams:
            stream.__exit__()


def test_changes_are_told_at_most_once_a_second(site: Site, operator: Person, store: Store):
    with Stream(site, operator, "changes") as stream:
        events = stream.events()
        journal = Journal(store, "busy")
        next(events)
        begun = time.monotonic()
        done = threading.Event()

        def write() -> None:
            number = 0
            while not done.wait(0.02):
                number += 1
                journal.step(f"work#{number}")

        writer = threading.Thread(target=write)
        writer.start()
        next(events)
        next(events)
        took = time.monotonic() - begun
        done.set()
        writer.join()
    assert took > 1.5 * event_streams.CHANGE_S


def test_a_stream_says_that_it_is_still_there(
    site: Site, operator: Person, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_streams, "KEEP_ALIVE_S", 0.1)
    with Stream(site, operator, "run/history/stream?id=asking&after=100") as stream:
        seen = [stream.answer.readline() for _ in range(8)]
    assert seen.count(event_streams.STILL_HERE.rstrip(b"\n") + b"\n") >= 2


def test_a_stream_ends_when_its_token_does(
    site: Site, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_streams, "KEEP_ALIVE_S", 0.1)
    person = Person(site, tokens.create("short", "viewer"))
    with Stream(site, person, "run/history/stream?id=asking") as stream:
        assert next(stream.events())[0] == "entry"
        Tokens(tokens.path).revoke("short")
        list(stream.events())  # It comes to an end.


@pytest.mark.parametrize("path", ["changes", "run/history/stream?id=asking"])
@pytest.mark.parametrize("how", ["signed out", "pushed out", "revoked", "not readable"])
def test_a_stream_ends_with_its_session_also_if_nothing_happens(
    site: Site, tokens: Tokens, monkeypatch: pytest.MonkeyPatch, path: str, how: str
):
    monkeypatch.setattr(browser_sessions, "SESSIONS_EACH", 1)
    # It waits for no sign of life; and if the session has ended here, for no look either.
    monkeypatch.setattr(event_streams, "KEEP_ALIVE_S", 3600.0)
    if how in ("signed out", "pushed out"):
        monkeypatch.setattr(event_streams, "CHECK_S", 3600.0)
    secret = tokens.create("lee", "operator")
    browser = Browser(site, secret)
    kim = Person(site, tokens.create("kim", "viewer"))
    with Stream(site, browser, path) as stream, Stream(site, kim, "changes") as other:
        assert stream.answer.status == 200
        stream.answer.readline()
        if how == "signed out":
            assert (
                browser.client.ask("DELETE", "/api/v1/session", browser.headers(), {}).status == 200
            )
        elif how == "pushed out":
            Browser(site, secret)
        elif how == "revoked":
            Tokens(tokens.path).revoke("lee")
        else:
            assert tokens.path is not None
            tokens.path.chmod(0o666)
        list(stream.events())  # It comes to an end.
        if how != "not readable":
            assert next(other.events())[0] == "change" if how != "revoked" else True


def test_too_many_streams_are_refused_and_closed_ones_do_not_count(
    site: Site, operator: Person, viewer: Person, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "STREAMS_EACH", 2)
    one, two = (Stream(site, operator, "changes") for _ in range(2))
    try:
        third = operator.get("changes")
        assert (third.status, third.error) == (429, "TooMany")
        with Stream(site, viewer, "changes") as other:
            assert other.answer.status == 200
        one.__exit__()
        until = time.monotonic() + 30
        while True:
            with Stream(site, operator, "changes") as again:
                if again.answer.status == 200:
                    break
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        one.__exit__()
        two.__exit__()


def test_the_server_stops_although_streams_are_open(store: Store, tokens: Tokens):
    with Site(store, tokens) as site:
        person = Person(site, tokens.create("kim", "viewer"))
        streams = [
            Stream(site, person, path) for path in ("changes", "run/history/stream?id=asking")
        ]
        begun = time.monotonic()
    assert time.monotonic() - begun < 10
    for stream in streams:
        stream.__exit__()


def test_a_store_that_fails_ends_the_stream_and_says_why(
    site: Site, operator: Person, store: Store, monkeypatch: pytest.MonkeyPatch
):
    from holdfast.errors import StoreFailed

    with Stream(site, operator, "run/history/stream?id=asking") as stream:
        events = stream.events()
        while next(events)[0] != "run":
            pass

        def gone(*_: Any) -> Any:
            raise StoreFailed("the disk is gone")

        monkeypatch.setattr(store, "get", gone)
        Journal(store, "poke")
        assert list(events)[-1] == (
            "trouble", None, {"type": "StoreFailed", "message": "the disk is gone"},
        )  # fmt: skip
