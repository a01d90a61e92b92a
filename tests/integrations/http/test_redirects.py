"""Addresses whose secret is not in the record: asked for again where that is safe, or not sent."""

from __future__ import annotations

from collections.abc import Generator
from types import ModuleType
from typing import Any

import pytest

import holdfast
from holdfast import testing
from holdfast.errors import RunFailed, RunHeld
from holdfast.integrations.http import DurableTransport
from holdfast.integrations.http.asked import has_mask, shown_url
from tests.integrations.http.lives import runner, stumbles

BASE = "https://files.test"
REFUSED = "was not sent: the record has this address without its secret"


def is_no_file(request: Any) -> bool:
    return bool(request.url.path != "/file")


class Files:
    """Signs addresses: each time anew, and only the latest one is good. Breaks down when told to."""

    def __init__(self, library: ModuleType, status: int = 302) -> None:
        self.library = library
        self.status = status
        self.host = ""
        self.sent: list[str] = []
        self.breaks_at = "/file"
        self.signed = 0
        self.inner = library.MockTransport(self._answer)

    def _answer(self, request: Any) -> Any:
        self.sent.append(f"{request.method} {request.url}".replace(BASE, ""))
        path = request.url.path
        if path == self.breaks_at:
            self.breaks_at = ""
            raise self.library.ReadError("cut")
        if path == "/file":
            good = request.url.params["X-Amz-Signature"] == f"s{self.signed}"
            return self.library.Response(200 if good else 403, content=b"the file")
        self.signed += 1
        signed = f"X-Amz-Signature=s{self.signed}&X-Amz-Date={self.signed}"
        if path == "/hop":
            return self._redirect(f"/between?{signed}")
        if path == "/first":
            link = f"<{BASE}/file?{signed}>; rel=next"
            return self.library.Response(200, headers={"link": link}, content=b"page 1")
        return self._redirect(f"{self.host}/file?{signed}")

    def _redirect(self, location: str) -> Any:
        if self.status == 200:
            return self.library.Response(200, content=b"here it is")
        return self.library.Response(self.status, headers={"location": location})


def follow(path: str, method: str = "GET") -> Any:
    def script() -> Generator[Any, Any, Any]:
        response = yield {"method": method, "url": BASE + path}
        return [response.status_code, response.text]

    return script


def next_page() -> Generator[Any, Any, Any]:
    response = yield {"method": "GET", "url": BASE + "/first"}
    response = yield {"method": "GET", "url": response.links["next"]["url"]}
    return [response.status_code, response.text]


FOLLOWS = {"follow_redirects": True}


def test_a_redirect_is_asked_for_again_if_its_target_was_not_recorded(
    library: ModuleType, colour: str
) -> None:
    files = Files(library)
    run = runner(library, colour, follow("/go"), files.inner, client=FOLLOWS)
    with testing.store() as store:
        with pytest.raises(RunFailed):
            run("r")
        stumbles[0] = True
        with pytest.raises(RunFailed):
            run("r")
        again = ["GET /go", "GET /file?X-Amz-Signature=s2&X-Amz-Date=2"]
        assert files.sent == ["GET /go", "GET /file?X-Amz-Signature=s1&X-Amz-Date=1", *again]
        # Both are recorded now, and found although the address would be another one today.
        assert run("r") == [200, "the file"]
        assert len(files.sent) == 4
        told = repr([it.body for it in store.history("r")])
        assert "Signature=***" in told
        assert "Signature=s" not in told


def test_redirects_behind_redirects_are_asked_for_from_the_first_one(
    library: ModuleType, colour: str
) -> None:
    files = Files(library)
    run = runner(library, colour, follow("/hop"), files.inner, client=FOLLOWS)
    with testing.store():
        with pytest.raises(RunFailed):
            run("r")
        assert run("r") == [200, "the file"]
    assert [it.partition("?")[0] for it in files.sent] == [
        "GET /hop",
        "GET /between",
        "GET /file",
    ] * 2
    assert not any("***" in it for it in files.sent)


def test_a_redirect_that_is_none_any_more_gives_the_answer(
    library: ModuleType, colour: str
) -> None:
    files = Files(library)
    run = runner(library, colour, follow("/go"), files.inner, client=FOLLOWS)
    with testing.store():
        with pytest.raises(RunFailed):
            run("r")
        files.status = 200
        assert run("r") == [200, "here it is"]


def test_a_redirect_that_leads_to_another_host_is_not_followed(
    library: ModuleType, colour: str
) -> None:
    files = Files(library)
    run = runner(library, colour, follow("/go"), files.inner, client=FOLLOWS)
    with testing.store():
        with pytest.raises(RunFailed):
            run("r")
        files.host = "https://elsewhere.test"
        with pytest.raises(RunFailed, match="now leads to another host"):
            run("r")
    assert files.sent[2:] == ["GET /go"]


def test_a_target_that_is_not_to_be_recorded_gets_its_own_address(
    library: ModuleType, colour: str
) -> None:
    files = Files(library)
    files.breaks_at = ""
    run = runner(library, colour, follow("/go"), files.inner, client=FOLLOWS, record=is_no_file)
    with testing.store():
        stumbles[0] = True
        with pytest.raises(RunFailed):
            run("r")
        assert run("r") == [200, "the file"]
    assert not any("***" in it for it in files.sent)


def test_a_redirected_post_is_not_repeated(library: ModuleType, colour: str) -> None:
    files = Files(library, 303)
    run = runner(library, colour, follow("/go", "POST"), files.inner, client=FOLLOWS)
    with testing.store():
        with pytest.raises(RunFailed):
            run("r")
        with pytest.raises(RunFailed, match=REFUSED):
            run("r")
    assert len(files.sent) == 2


def test_a_masked_link_is_not_sent_and_a_fork_asks_anew(library: ModuleType, colour: str) -> None:
    files = Files(library)
    run = runner(library, colour, next_page, files.inner)
    with testing.store() as store:
        with pytest.raises(RunFailed):
            run("r")
        for _ in range(2):
            with pytest.raises(RunFailed, match=REFUSED) as failed:
                run("r")
        assert "GET https://files.test/file?X-Amz-Signature=***&X-Amz-Date=1" in str(failed.value)
        assert "holdfast fork r NEW --before STEP" in str(failed.value)
        assert len(files.sent) == 2
        store.fork("r", "anew", before="http:GET files.test.first")
        assert run("anew") == [200, "the file"]


def test_an_effect_to_a_masked_address_did_not_happen(library: ModuleType, colour: str) -> None:
    files = Files(library)
    run = runner(library, colour, next_page, files.inner, effects=lambda it: not is_no_file(it))
    with testing.store() as store:
        with pytest.raises(RunHeld):
            run("r")
        store.settle("r", "http:GET files.test.file", holdfast.NOT_DONE, actor="ana")
        with pytest.raises(RunFailed, match=REFUSED):
            run("r")
        assert len(files.sent) == 2


def test_outside_a_run_everything_is_sent(library: ModuleType) -> None:
    files = Files(library)
    files.breaks_at = ""
    with library.Client(transport=DurableTransport(files.inner)) as client:
        assert client.get(BASE + "/file?X-Amz-Signature=***").status_code == 403


@pytest.mark.parametrize(
    "name",
    "page_token next_token pageToken nextPageToken NextToken continuation-token continuation_token"
    " pagination_token sync_token nextSyncToken $skiptoken cursor cursor_key resumptionToken".split(),
)
def test_what_leads_from_page_to_page_is_no_secret(name: str) -> None:
    assert shown_url(f"{BASE}/?{name}=abc") == f"{BASE}/?{name}=abc"
    assert not has_mask(f"{BASE}/?{name}=***")


@pytest.mark.parametrize(
    "name", "token access_token page_access_token code jwt pwd user_pwd sig X-Amz-Signature".split()
)
@pytest.mark.parametrize("separator", "&;")
def test_what_looks_like_a_secret_is_masked(name: str, separator: str) -> None:
    shown = f"{BASE}/?a=b{separator}{name}=***{separator}c=d;e"
    assert shown_url(shown.replace("***", "hunter2")) == shown
    assert shown_url(shown) == shown
    assert has_mask(shown)
    assert not has_mask(shown.replace("***", "hunter2"))


@pytest.mark.parametrize("name", ["zipcode", "codes", "page"])
def test_other_names_are_shown(name: str) -> None:
    assert shown_url(f"{BASE}/?{name}=12") == f"{BASE}/?{name}=12"


def test_a_registered_secret_in_an_address_is_a_mask(library: ModuleType) -> None:
    url = library.URL(f"{BASE}/[secret bank]/x")
    assert has_mask(str(url))
    assert not has_mask(f"{BASE}/secret/x")
