"""The files of the page: served under a path that names their content, and kept by browsers."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast._operator.web import app
from holdfast._operator.web.headers import HEADERS, KEPT
from tests.web_api.served import Browser, Client, Person, Site

FILES = {"a.js": b"one", "lib/b.js": b"two"}


@pytest.mark.parametrize(
    "changed",
    [
        {"a.js": b"other"},
        {"lib/b.js": b"two "},
        {"c.js": b""},
        {"a.js": b"onelib", "lib/b.js": b"two"},
    ],
)
def test_a_change_of_any_file_changes_the_path_of_all(changed: dict[str, bytes]):
    assert app.digest(FILES | changed) != app.digest(FILES)


def test_the_path_is_that_of_names_and_contents():
    assert app.digest(dict(reversed(FILES.items()))) == app.digest(FILES)
    assert app.digest({"b.js": b"one", "lib/b.js": b"two"}) != app.digest(FILES)
    assert app.digest({"a.js": b"two", "lib/b.js": b"one"}) != app.digest(FILES)


def test_a_changed_file_on_disk_changes_the_path(tmp_path: Path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text)
    before = app.digest(app.assets(tmp_path))
    assert app.digest(app.assets(tmp_path)) == before == app.digest(FILES)
    (tmp_path / "lib" / "b.js").write_bytes(b"three")
    assert app.digest(app.assets(tmp_path)) != before


def test_links_and_files_of_other_kinds_are_not_served(tmp_path: Path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "a.js").write_bytes(b"")
    (tmp_path / "inside" / "b.css").write_bytes(b"")
    for name in ("types.d.ts", "notes.txt", "inside/.hidden"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "linked.js").symlink_to(tmp_path / "a.js")
    (tmp_path / "linked").symlink_to(tmp_path / "inside")
    assert set(app.assets(tmp_path)) == {"a.js", "inside/b.css"}


def test_a_page_names_only_paths_that_are_served(browser: Browser):
    found = app.pages()
    for path in app.PAGES:
        text = found[path].text.decode()
        loaded = [part.partition('"')[0] for part in text.split('"/static/')[1:]]
        assert loaded
        assert {f"/static/{name}" for name in loaded} <= set(found), path


def test_a_file_is_kept_for_good_and_nothing_else_is(browser: Browser):
    signed_in = {"Cookie": browser.cookie}
    reply = browser.client.ask("GET", app.static("lib/dom.js"), signed_in)
    assert (reply.status, reply.headers["Cache-Control"]) == (200, KEPT.decode())
    for path in ("/", "/run?id=done", "/api/v1/me"):
        assert browser.client.ask("GET", path, signed_in).headers["Cache-Control"] == "no-store"


def test_what_is_refused_is_not_kept(site: Site, browser: Browser):
    path = app.static("lib/dom.js")
    foreign = {"Cookie": browser.cookie, "Origin": "https://evil.example"}
    replies = [
        Client(site).ask("GET", path),
        browser.client.ask("GET", path, foreign),
        browser.client.ask("POST", path, {"Cookie": browser.cookie}),  # Half of a session.
    ]
    assert [reply.status for reply in replies] == [401, 403, 401]
    assert {reply.headers["Cache-Control"] for reply in replies} == {"no-store"}


@pytest.mark.parametrize("folder", ["/static", "/static/" + "0" * app.DIGEST_CHARS])
def test_a_path_without_a_version_or_with_another_is_not_there(operator: Person, folder: str):
    for name in ("lib/dom.js", "page.css", "pages/sign-in.js"):
        reply = operator.client.ask("GET", f"{folder}/{name}", operator.headers)
        assert (reply.status, reply.headers["Cache-Control"]) == (404, "no-store")


def test_no_answer_with_data_can_ask_to_be_kept():
    from holdfast._operator.web.headers import _with_ours

    said = [(b"content-type", b"application/json"), (b"cache-control", b"public, max-age=1")]
    assert dict(_with_ours(200, said))[b"cache-control"] == HEADERS[b"cache-control"]
    assert dict(_with_ours(404, [(b"cache-control", KEPT)]))[b"cache-control"] == b"no-store"
