"""What the API shows: the read model and nothing else, described as it is, inert, and a page at a
time."""

from __future__ import annotations

import html.parser
import re
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.journal.rows import etag_of
from holdfast._features.watchdog.model import Found
from holdfast._operator.read import run_views
from holdfast._operator.web import app, event_streams, journals, limits, openapi, request_models
from holdfast._operator.web.access_tokens import Tokens
from holdfast._operator.web.routes import Ask, Route
from holdfast._stores.contract import Store
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import StoreFailed
from tests.ops.journals import Journal
from tests.tidy.source import ROOT
from tests.web_api.served import Person, Site, address, kept_in

QUERIES: dict[str, dict[str, Any]] = {
    "/api/v1/run/preview-fork": {"id": "done", "before": "look"},
    "/api/v1/run/state": {"id": "loop"},
    "/api/v1/run/state-diff": {"id": "loop", "from": 5, "to": 8},
}


@pytest.fixture
def loop(store: Store) -> Journal:
    from holdfast._engine.journal.entries import Kind
    from tests.ops.journals import node

    journal = Journal(store, "loop")
    for turn in (1, 2):
        journal.step(f"turns[{turn - 1}]/look")
        state = {"messages": ["hello"] * turn}
        journal.write(journal.draft(Kind.STATE_SAVED, "turns", turn=turn, state=node(state)))
    return journal


def readable() -> list[Route]:
    return [route for route in app.routes() if route.method == "GET" and route.kind == "json"]


# -- every route, as it is described -----------------------------------------------------------


@pytest.mark.parametrize("route", readable(), ids=lambda route: route.path)
def test_a_real_answer_fits_its_description(operator: Person, loop: Journal, route: Route):
    needs_id = any(field.name == "id" for field in msgspec.structs.fields(route.query))
    query = QUERIES.get(route.path, {"id": "in-doubt"} if needs_id else {})
    reply = operator.get(route.path, **query)
    assert reply.status == 200, reply
    told = msgspec.json.decode(reply.body, type=route.answer, strict=True)
    assert told is not None
    if route.path not in ("/health", openapi.PATH):
        assert reply.data["version"] == 1
    head = operator.client.ask("HEAD", address(route.path, **query), operator.headers)
    assert (head.status, head.body) == (200, b"")


def test_metrics_are_text_for_prometheus(operator: Person):
    reply = operator.get("/metrics")
    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"# HELP holdfast_" in reply.body


def test_every_route_is_described_and_nothing_else(operator: Person):
    told = operator.get(openapi.PATH).data
    described = {(method.upper(), path) for path, item in told["paths"].items() for method in item}
    assert described == {(route.method, route.path) for route in app.routes()}
    assert told["openapi"] == "3.1.0"
    names = [item["operationId"] for path in told["paths"].values() for item in path.values()]
    assert len(set(names)) == len(names)


def test_the_page_names_the_fields_of_every_decision():
    page = (
        (ROOT / "docs" / "reference" / "http-api.md")
        .read_text()
        .partition("| POST, role operator | body |")[2]
    )
    bodies = {route.path.removeprefix("/api/v1/"): route.body for route in app.routes()}
    rows = [row.split("|")[1:3] for row in page.partition("\n\n")[0].splitlines() if "`" in row]
    for paths, fields in rows:
        said = set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", fields))) - {"null"}
        known: set[str] = set()
        for path in re.findall(r"`([\w/-]+)(?:\?\w+=)?`", paths):
            body = bodies[path]
            assert body is not None, path
            known |= set(body.__struct_fields__)
        assert said <= known, (paths, said - known)
        assert known - said <= {"reason"}, (paths, known - said)


def test_the_description_refers_to_nothing_that_is_not_there(operator: Person):
    told = operator.get(openapi.PATH).data
    used = set(
        re.findall(r'"#/components/schemas/([^"]+)"', operator.get(openapi.PATH).body.decode())
    )
    assert used <= set(told["components"]["schemas"])
    for item in told["paths"].values():
        for one in item.values():
            assert one["summary"].endswith(".")
            assert one.get("security") == [] or one["x-role"] in ("viewer", "operator", "admin")


def test_a_description_names_what_must_be_sent(operator: Person):
    told = operator.get(openapi.PATH).data["paths"]["/api/v1/run/cancel"]["post"]
    needed = {it["name"] for it in told["parameters"] if it["required"]}
    assert needed == {"id", "If-Match"}
    assert "409" in told["responses"]


# -- one run -----------------------------------------------------------------------------------


def test_a_run_that_needs_a_person_is_explained(operator: Person, store: Store):
    told = operator.get("run", id="in-doubt").data
    row = store.get("in-doubt")
    assert row is not None
    assert told["etag"] == etag_of(row)
    assert "may or may not have happened" in told["explanation"]["case"]
    [doubt] = told["doubts"]
    assert (doubt["step"], doubt["args"], doubt["etag"]) == ("charge", {"amount": 12}, told["etag"])
    assert len(told["trace_id"]) == 32
    assert operator.get("run", id="done").data["explanation"] is None


def test_only_the_last_steps_are_shown_and_the_others_can_be_asked_for(
    operator: Person, store: Store
):
    journal = Journal(store, "many")
    for number in range(30):
        journal.step(f"work#{number}" if number else "work")
    told = operator.get("run", id="many", steps=10).data
    assert told["steps_total"] == 30
    assert [step["key"] for step in told["run"]["steps"]] == [f"work#{n}" for n in range(20, 30)]
    first = operator.get("run/steps", id="many", limit=25).data
    assert (len(first["steps"]), first["total"], first["next"]) == (25, 30, 25)
    rest = operator.get("run/steps", id="many", after=first["next"], limit=25).data
    assert (len(rest["steps"]), rest["next"]) == (5, None)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 200])
def test_a_journal_is_read_by_pages_without_loss_or_repetition(
    operator: Person, store: Store, limit: int
):
    journal = Journal(store, "paged")
    for number in range(8):
        journal.step(f"work#{number}" if number else "work")
    journal.effect("charge").completed()
    whole = [entry.seq for entry in run_views.history(store, "paged")]
    found: list[int] = []
    after: int | None = 0
    while after is not None:
        told = operator.get("run/history", id="paged", after=after, limit=limit).data
        page = [entry["seq"] for entry in told["entries"]]
        assert 1 <= len(page) <= limit + 1
        found += page
        after = told["next"]
    assert found == whole
    for after in whole:
        told = operator.get("run/history", id="paged", after=after, limit=2).data
        assert [entry["seq"] for entry in told["entries"]][:2] == whole[after : after + 2]


def test_only_that_range_of_a_journal_is_read(
    store: Store, operator: Person, monkeypatch: pytest.MonkeyPatch
):
    journal = Journal(store, "long")
    for number in range(100):
        journal.step(f"work#{number}" if number else "work")
    read: list[int] = []
    real = SqliteStore.load

    def counting(self: SqliteStore, row: Any, skips: Any = ()) -> Any:
        found = real(self, row, skips)
        read.append(len(found))
        return found

    monkeypatch.setattr(SqliteStore, "load", counting)
    assert operator.get("run/history", id="long", after=100, limit=10).status == 200
    assert read == [5]  # Rows of two entries each.


def test_entries_of_one_step(operator: Person, store: Store):
    told = operator.get("run/history", id="in-doubt", step="charge").data
    assert [entry["kind"] for entry in told["entries"]] == ["step_started", "step_in_doubt"]
    assert told["next"] is None
    one = operator.get("run/history", id="in-doubt", step="charge", limit=1).data
    assert [entry["kind"] for entry in one["entries"]] == ["step_started"]
    assert one["next"] is not None


def test_a_large_value_is_clipped_unless_it_is_asked_for(operator: Person, store: Store):
    Journal(store, "large", input={"text": "x" * 100_000}).step("look", "y" * 100_000)
    told = operator.get("run", id="large").data
    assert told["run"]["input"] == {"…clipped": 100_011}
    entry = operator.get("run/history", id="large", after=3, limit=1).data["entries"][0]
    assert entry["body"]["result"] == {"…clipped": 100_002}
    whole = operator.get("run/history", id="large", after=3, limit=1, full=1).data["entries"][0]
    assert whole["body"]["result"] == "y" * 100_000


def test_what_cannot_be_said_is_an_error_with_its_name(operator: Person, store: Store):
    for status, error, path, query in (
        (404, "RunNotFound", "run", {"id": "nobody"}),
        (404, "RunNotFound", "run/history/stream", {"id": "nobody"}),
        (400, "UsageError", "run", {}),
        (400, "UsageError", "run", {"id": ""}),
        (400, "UsageError", "run", {"id": "done", "what": "1"}),
        (400, "UsageError", "run", {"id": ["done", "done"]}),
        (400, "UsageError", "runs", {"limit": 0}),
        (400, "UsageError", "runs", {"limit": 501}),
        (400, "UsageError", "runs", {"limit": "ten"}),
        (400, "UsageError", "runs", {"status": "brilliant"}),
        (400, "UsageError", "runs", {"tag": "no-value"}),
        (400, "UsageError", "runs", {"older_than": "yesterday"}),
        (400, "UsageError", "runs", {"finding": "treasure"}),
        (400, "UsageError", "runs", {"before": -1}),
        (400, "UsageError", "run/state", {"id": "done"}),
        (400, "UsageError", "trends", {"since": "-1"}),
    ):
        reply = operator.get(path, **query)
        assert (reply.status, reply.error) == (status, error), (path, query)
        assert reply.data["error"]["message"]
        assert reply.data["version"] == 1


def test_a_damaged_run_says_so_and_is_explained(operator: Person, store: Store, tmp_path: Path):
    connection = apsw.Connection(str(tmp_path / "runs.db"))
    row = store.get("done")
    assert row is not None
    connection.execute(
        "UPDATE journal SET body = replace(body, '3', '4') WHERE id >> 32 = ?", (row.run_no,)
    )
    connection.close()
    reply = operator.get("run", id="done")
    assert (reply.status, reply.error) == (500, "Corrupt")
    assert reply.data["error"]["run_id"] == "done"
    assert "damaged" in reply.data["error"]["explanation"]["case"]


def test_a_store_that_cannot_be_asked_is_said_to(
    operator: Person, store: Store, monkeypatch: pytest.MonkeyPatch
):
    def gone(*_: Any) -> Any:
        raise StoreFailed("the disk is gone")

    monkeypatch.setattr(store, "get", gone)
    reply = operator.get("run", id="done")
    assert (reply.status, reply.error) == (503, "StoreFailed")
    assert reply.data["error"]["message"] == "the disk is gone"


def test_a_store_that_takes_its_time_keeps_nobody_waiting(
    site: Site, operator: Person, viewer: Person, store: Store, monkeypatch: pytest.MonkeyPatch
):
    """Blocking calls are made in threads: the event loop answers while the store does not."""
    import threading

    asked, go_on = threading.Event(), threading.Event()
    real = store.get

    def slow(run_id: str) -> Any:
        asked.set()
        assert go_on.wait(30)
        return real(run_id)

    monkeypatch.setattr(store, "get", slow)
    replies: list[int] = []
    thread = threading.Thread(target=lambda: replies.append(operator.get("run", id="done").status))
    thread.start()
    assert asked.wait(30)
    assert viewer.get("me").status == 200
    assert site.client().ask("GET", "/health").status == 200
    assert not replies
    go_on.set()
    thread.join()
    assert replies == [200]


# -- the list ----------------------------------------------------------------------------------


def test_the_list_comes_in_pages(operator: Person, store: Store):
    for number in range(25):
        Journal(store, f"run-{number:02}", flow="paging").completed()
    found: list[str] = []
    query: dict[str, Any] = {"flow": "paging", "limit": 10}
    while True:
        told = operator.get("runs", **query).data
        found += [run["run_id"] for run in told["runs"]]
        if told["next"] is None:
            break
        query["before"] = told["next"]
    assert found == [f"run-{number:02}" for number in range(24, -1, -1)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"status": "held"}, ["paused", "in-doubt"]),
        ({"status": ["held", "failed"]}, ["paused", "failed", "in-doubt"]),
        ({"held_reason": "in_doubt"}, ["in-doubt"]),
        ({"held_reason": "paused"}, ["paused"]),
        ({"held_reason": "moved"}, []),
        ({"flow": "pay", "status": "completed"}, ["paid", "done"]),
        ({"version": "1", "status": "completed"}, ["paid", "done"]),
        ({"version": "9"}, []),
        ({"queue": "mail"}, []),
        ({"parent": "done"}, []),
        ({"tag": "customer=7"}, []),
        ({"older_than": "1d"}, []),
        ({"search": "doubt"}, ["in-doubt"]),
        ({"finding": "stuck", "status": "completed"}, []),
    ],
)
def test_the_filters(operator: Person, query: dict[str, Any], expected: list[str]):
    told = operator.get("runs", **query).data
    assert [run["run_id"] for run in told["runs"]] == expected


def test_counts_say_what_wants_somebody(operator: Person):
    counts = operator.get("runs", limit=1).data["counts"]
    assert counts == {
        "ready": 0, "delayed": 3, "running": 0, "abandoned": 0, "failed": 1, "held": 2,
        "quarantined": 0,
    }  # fmt: skip


FILTERS = {
    "status": [*Status],
    "held_reason": [*HeldReason],
    "finding": [*Found],
}
"""The filters of the list that have a closed list of values."""


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_with_an_unknown_value_is_refused_with_the_known_ones(operator: Person, name: str):
    for value in FILTERS[name]:
        assert operator.get("runs", **{name: str(value)}).status == 200
    refused = operator.get("runs", **{name: "bogus"})
    assert (refused.status, refused.error) == (400, "UsageError")
    said = refused.data["error"]["message"]
    assert all(str(value) in said for value in FILTERS[name]), said


def test_the_inbox_has_questions_approvals_and_doubts(operator: Person):
    told = operator.get("pending").data
    assert [(it["kind"], it["run_id"]) for it in told["questions"]] == [
        ("question", "asking"),
        ("approval", "approving"),
    ]
    approval = told["questions"][1]
    assert (approval["args"], approval["digest"]) == ({"amount": 12}, "61" * 16)
    assert [(it["run_id"], it["step"]) for it in told["doubts"]] == [("in-doubt", "charge")]
    assert operator.get("pending", to="nobody").data["questions"] == []


# -- fault 96: nothing that somebody stored becomes anything else ------------------------------

CORPUS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]><script>",
    "javascript:alert(1)",
    "' onmouseover='alert(1)",
    "{{7*7}}{% raw %}",
    "${alert(1)}",
    "&lt;script&gt;&#x3c;b&#x3e;",
    "\u2028alert(1)\u2029",
    "\u202egnp.exe",
    "a\x00b\x1b[31mred\x07",
    "=cmd|' /C calc'!A0",
    "\ufeff<b>",
    "%3Cscript%3E",
]


class _Tags(html.parser.HTMLParser):
    """Counts what a browser would take for a tag, if it took the answer for HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)


@pytest.fixture
def hostile(store: Store) -> list[str]:
    ids: list[str] = []
    for number, text in enumerate(CORPUS):
        run_id = f"{text} {number}".replace("\x00", "").replace("\x1b", "").replace("\x07", "")
        ids.append(run_id)
        journal = Journal(
            store, run_id, flow=text, input={text: text}, tags={text: text}, version=text
        )
        journal.step(f"{text}", {text: [text]})
        journal.asks(f"ask {text}", f"q{number}", text, to=text, choices=[text])
        journal.failing(f"work {text}", error={"type": text, "message": text}, final=False)
        journal.held("paused", text, text, actions=(text,))
    return ids


def answers(person: Person, ids: list[str]) -> Iterator[bytes]:
    yield person.get("runs").body
    yield person.get("pending").body
    yield person.get("findings").body
    for run_id in ids:
        for path in ("run", "run/history", "run/steps", "run/timeline", "run/preview-resume"):
            reply = person.get(path, id=run_id)
            assert reply.status == 200, reply
            assert reply.headers["Content-Type"] == "application/json"
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
            yield reply.body
        yield person.get("run", id=run_id + "?").body  # An error that tells the id.
        yield person.get("runs", flow=run_id, status=run_id).body


def test_fault_96_stored_text_is_inert_in_every_answer(
    patient: None, operator: Person, hostile: list[str]
):
    for body in answers(operator, hostile):
        assert not re.search(rb"[<>&]", body)
        assert "\u2028".encode() not in body
        assert "\u2029".encode() not in body
        parser = _Tags()
        parser.feed(body.decode())
        assert parser.tags == []
        msgspec.json.decode(body)


def test_fault_96_and_it_is_still_the_same_text(
    patient: None, operator: Person, hostile: list[str], store: Store
):
    for run_id, text in zip(hostile, CORPUS, strict=True):
        told = operator.get("run", id=run_id).data["run"]
        assert (told["run_id"], told["flow"], told["input"]) == (run_id, text, {text: text})


def test_fault_96_shells_hold_no_data(patient: None, operator: Person, hostile: list[str]):
    for path in ("/", "/run", "/pending", "/fleet", "/trends", "/findings"):
        body = operator.client.ask("GET", path, operator.headers).body
        assert not any(text.encode() in body for text in CORPUS if text != "<!--<script>")


# -- fault 95: what is asked for never becomes part of a statement -----------------------------

INJECTIONS = [
    "' OR 1=1 --",
    "x'; DROP TABLE runs; --",
    "%",
    "_",
    '"',
    "a=b' UNION SELECT 1",
    ") OR (1",
]


def test_fault_95_filters_are_parameters(patient: None, store: Store, tmp_path: Path):
    """The statements that reach SQLite are the same, whatever is asked for."""
    traced: set[str] = set()

    def trace(_: Any, sql: str, __: Any) -> bool:
        traced.add(sql)
        return True

    def traces(connection: apsw.Connection) -> None:
        connection.exec_trace = trace

    apsw.connection_hooks.append(traces)
    try:
        with kept_in(tmp_path / "runs.db") as other, Site(other, Tokens.of(other)) as site:
            person = Person(site, site.tokens.create("sql", "viewer"))
            names = ("flow", "queue", "version", "parent", "search")
            for name in names:
                person.get("runs", **{name: "x"})
            person.get("runs", tag="a=x")
            person.get("run", id="x")
            plain = set(traced)
            assert len(plain) > 3
            for text in INJECTIONS:
                for name in names:
                    assert person.get("runs", **{name: text}).data["runs"] == [], (name, text)
                assert person.get("runs", tag=f"{text}={text}").status in (200, 400)
                assert person.get("run", id=text).status == 404
                assert person.get("runs", status=text).status == 400
            assert traced == plain
            assert len(person.get("runs").data["runs"]) == 8
    finally:
        apsw.connection_hooks.remove(traces)


def test_a_part_of_an_id_is_text_and_no_pattern(operator: Person, store: Store):
    Journal(store, "100% sure_thing").completed()
    for part, expected in (("%", ["100% sure_thing"]), ("_", ["100% sure_thing"]), ("*", [])):
        found = operator.get("runs", search=part).data["runs"]
        assert [run["run_id"] for run in found] == expected, part


def test_fault_110_a_registered_secret_is_in_no_answer(patient: None, tmp_path: Path):
    import holdfast

    canary = "sk-canary-4711-swordfish"
    holdfast.redaction.register_secret("canary", canary)

    @holdfast.step
    def web_api_leaks(text: str) -> str:
        raise ValueError(f"{text} is not valid")

    @holdfast.flow
    def web_api_leaky(text: str) -> str:
        return web_api_leaks(text)

    url = f"sqlite:///{tmp_path}/leaky.db"
    with holdfast.open(url, default=False) as opened:
        with pytest.raises(holdfast.errors.RunFailed):
            web_api_leaky.with_options(store=opened).run("leaky", canary)
        kept = opened._backend
        with Site(kept, Tokens.of(kept)) as site:
            person = Person(site, site.tokens.create("kim", "admin"))
            seen = 0
            for route in app.routes():
                if route.method == "GET" and route.kind != "stream":
                    query = QUERIES.get(route.path, {}) | {"id": "leaky"}
                    known = {field.encode_name for field in msgspec.structs.fields(route.query)}
                    reply = person.get(
                        route.path, **{name: it for name, it in query.items() if name in known}
                    )
                    seen += reply.body.count(b"is not valid")
                    assert canary.encode() not in reply.body, route.path
            assert seen >= 3, "its error is shown, without the secret"


def test_clipping_leaves_small_values_as_they_are():
    assert journals.clipped(None, full=False) is None
    assert journals.clipped(3, full=False) == 3
    assert msgspec.json.encode(journals.clipped({"a": [1]}, full=False)) == b'{"a":[1]}'


# -- what is decided about, exactly ------------------------------------------------------------

EXACT = {
    "big": 9007199254740993,
    "huge": 10**30,
    "float": 1.0,
    "tiny": 5e-324,
    "decimal": Decimal("1.10"),
    "text": "1.10",
}
EXACT_TEXT = """{
  "big": 9007199254740993,
  "huge": 1000000000000000000000000000000,
  "float": 1.0,
  "tiny": 5e-324,
  "decimal": {
    "decimal": "1.10"
  },
  "text": "1.10"
}"""


def test_arguments_are_told_as_one_exact_text(operator: Person, store: Store):
    """A browser has no numbers but floats: what it shows is what the server wrote."""
    Journal(store, "exact-approval").asks_approval("charge", EXACT).unloaded("answer:x")
    Journal(store, "exact-doubt").held_in_doubt("charge", args=EXACT)
    inbox = operator.get("pending").data
    [asked] = [it for it in inbox["questions"] if it["run_id"] == "exact-approval"]
    [doubt] = [it for it in inbox["doubts"] if it["run_id"] == "exact-doubt"]
    assert asked["args_text"] == doubt["args_text"] == EXACT_TEXT
    [again] = operator.get("run", id="exact-approval").data["questions"]
    assert again["args_text"] == EXACT_TEXT
    known = operator.get("run", id="exact-doubt").data["explanation"]["known"]
    assert any('"huge":1000000000000000000000000000000,"float":1.0' in it for it in known)


# -- one damaged run ---------------------------------------------------------------------------


def test_one_damaged_run_takes_no_list_away(operator: Person, store: Store, tmp_path: Path):
    """What waits for people is shown, with the damage beside it; nothing is said to the damaged."""
    Journal(store, "other").asks_approval("charge", {"amount": 13}).unloaded("answer:x")
    Journal(store, "doubtful").held_in_doubt("charge", args={"amount": 13})
    Journal(store, "stopped").held("paused", "13")
    numbers = [row.run_no for it in ("other", "doubtful", "stopped") if (row := store.get(it))]
    connection = apsw.Connection(str(tmp_path / "runs.db"))
    for number in numbers:
        connection.execute(
            "UPDATE journal SET body = replace(body, '13', '14') WHERE id >> 32 = ?", (number,)
        )
    connection.close()
    inbox = operator.get("pending")
    assert inbox.status == 200, inbox
    assert {it["run_id"] for it in inbox.data["questions"]} == {"asking", "approving"}
    assert [it["run_id"] for it in inbox.data["doubts"]] == ["in-doubt"]
    assert {it["run_id"] for it in inbox.data["troubles"]} == {"other", "doubtful"}
    listed = {it["run_id"]: it for it in operator.get("runs").data["runs"]}
    assert {"other", "doubtful", "stopped", "asking"} <= listed.keys()
    assert listed["stopped"]["held_reason"] == "paused"  # A list reads rows, and no journal.
    found = operator.get("findings")
    assert found.status == 200
    assert sum("cannot be read" in it for it in found.data["troubles"]) >= 3
    assert operator.get("fleet").status == 200
    approval = {"step": "charge", "digest": "61" * 16}
    for path, body in (("approve", approval), ("reject", {"name": "charge"})):
        reply = operator.act(f"run/{path}", body, id="other")
        assert (reply.status, reply.error) == (500, "Corrupt")
    row = store.get("other")
    assert row is not None
    assert store.messages(row.run_no) == []


def test_a_damaged_part_of_the_fleet_leaves_the_rest(
    operator: Person, store: Store, tmp_path: Path
):
    connection = apsw.Connection(str(tmp_path / "runs.db"))
    connection.execute("UPDATE queues SET concurrency = 99")
    connection.close()
    reply = operator.get("fleet")
    assert reply.status == 200, reply
    assert [it.partition(":")[0] for it in reply.data["troubles"]] == ["queues"]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("runs", {"older_than": "9" * 900 + "d"}),
        ("runs", {"older_than": "1e400d"}),
        ("runs", {"flow": "\x00"}),
        ("runs", {"before": 2**53}),
        ("run/state", {"id": "done", "seq": 10**30}),
        ("run/state", {"id": "done", "seq": -(10**30)}),
        ("run/state-diff", {"id": "done", "from": 10**30, "to": 1}),
        ("run/history", {"id": "done", "after": 2**63}),
        ("run/preview-fork", {"id": "paid", "before": "charge", "new_run_id": "\x00"}),
        ("trends", {"since": "nan"}),
        ("trends", {"since": "inf"}),
        ("trends", {"since": "9e99d"}),
        ("trends", {"since": "-5h"}),
        ("pending", {"to": "\x00"}),
    ],
)
def test_absurd_numbers_and_texts_are_no_accident_of_the_server(
    operator: Person, path: str, query: dict[str, Any]
):
    reply = operator.get(path, **query)
    assert reply.status in (200, 400, 404), reply
    assert query.get("before") or reply.status != 200


@pytest.mark.parametrize("raw", ["id=%ff%fe", "id=done&x=1", "id=%ED%A0%80", "id"])
def test_an_address_that_is_no_text_is_said_to(operator: Person, raw: str):
    reply = operator.client.ask("GET", f"/api/v1/run?{raw}", operator.headers)
    assert reply.status in (400, 404), reply


# -- much at one time --------------------------------------------------------------------------


def test_an_answer_ends_before_it_is_too_large_and_says_where_to_go_on(
    operator: Person, store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(journals, "ANSWER_BYTES", 200_000)
    journal = Journal(store, "wide")
    for number in range(8):
        journal.step(f"look#{number}" if number else "look", "x" * 90_000)
    found: list[int] = []
    pages, after = 0, 0
    while True:
        reply = operator.get("run/history", id="wide", after=after, full=1)
        assert len(reply.body) < 400_000
        found += [it["seq"] for it in reply.data["entries"]]
        pages += 1
        if (after := reply.data["next"]) is None:
            break
    assert found == [it.seq for it in run_views.history(store, "wide")]
    assert pages > 2


def test_a_stream_sends_no_more_than_so_much_at_one_time(
    operator: Person, site: Site, store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_streams, "BATCH_BYTES", 10_000)
    journal = Journal(store, "wide-tail")
    for number in range(8):
        journal.step(f"look#{number}" if number else "look", "x" * 9_000)
    tail = event_streams.Tail.__new__(event_streams.Tail)
    tail.cursor = 0
    query = request_models.HistoryStreamQuery(id="wide-tail")
    tail.ask = Ask(Any, None, query)  # type: ignore[arg-type]
    monkeypatch.setattr(Ask, "store", store)
    seen: list[int] = []
    while True:
        part = tail._read()
        assert sum(map(len, part.events)) < 30_000
        seen.append(len(part.events))
        tail.cursor = part.cursor
        if not part.more:
            break
    assert sum(seen) == len(run_views.history(store, "wide-tail"))
    assert len(seen) > 2


def test_a_visitor_has_few_heavy_reads_at_one_time(
    operator: Person, viewer: Person, site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "HEAVY_WAITING", 1)
    go_on = threading.Event()
    begun = threading.Semaphore(0)
    real = site.store.get

    def slow(run_id: str) -> Any:
        if run_id == "asking":
            begun.release()
            assert go_on.wait(30)
        return real(run_id)

    monkeypatch.setattr(site.store, "get", slow)
    statuses: list[int] = []

    def ask() -> None:
        person = Person.__new__(Person)
        person.client, person.headers = site.client(), operator.headers
        statuses.append(person.get("run/timeline", id="asking").status)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(limits.HEAVY_EACH):
            assert begun.acquire(timeout=30)
        until = time.monotonic() + 30
        while len(statuses) < 2:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert statuses == [429, 429]
        assert operator.get("me").status == 200, "what is light does not wait"
        assert viewer.get("run/timeline", id="done").status == 200, "nor do others"
    finally:
        go_on.set()
        for thread in threads:
            thread.join()
    assert sorted(statuses) == [200, 200, 200, 429, 429]
    assert operator.get("run/timeline", id="done").status == 200
