"""The repository speaks of itself alone: not of the machine on which it was written."""

import re
import socket
from pathlib import Path

import pytest

from tests.tidy.source import ROOT, name_of, repository_files

# Places to which a reader may be sent. Add one here when a text needs it.
HOSTS = {
    "127.0.0.1",
    "docs.python.org",
    "github.com",
    "keepachangelog.com",
    "localhost",
    "name",  # What a person puts in the place of https://NAME.
    "peps.python.org",
    "pypi.org",
    "semver.org",
    "www.apache.org",
    "www.postgresql.org",
    "www.sqlite.org",
    "www.w3.org",
}
RESERVED = re.compile(r"(^|\.)(example|example\.(com|net|org)|test|invalid)$")
URL = re.compile(r"https?://(?:[^\s/@\"'`<>]*@)?(\[[^]]*\]|[\w.-]+)")

# Homes of people, on any machine.
HOMES = re.compile(r"(?<![\w.~])(?:/home/\w+/|/Users/\w+/|/root/|[A-Z]:\\Users\\)")


def own_traces() -> set[str]:
    """How this very machine would show up: where the checkout is, where we live, our name."""
    traces = {str(ROOT), str(Path.home()), socket.gethostname()}
    too_common = {"/", "localhost", "/root", "/tmp", "/app", "/src", "/repo", "/workspace"}
    return {trace for trace in traces - too_common if len(trace) > 4}


def strangers(text: str) -> set[str]:
    """Hosts in addresses of the web that nobody has allowed."""
    hosts = {host.lower().rstrip(".") for host in URL.findall(text)}
    return {host for host in hosts - HOSTS if not RESERVED.search(host)}


def texts() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in repository_files():
        try:
            found[name_of(path)] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # A stored fixture; its words are nobody's address.
    return found


def test_no_path_of_a_machine():
    own = re.compile("|".join(map(re.escape, own_traces())) or r"(?!)")
    this_file = name_of(Path(__file__).resolve())
    found = {
        name: [*HOMES.findall(text), *own.findall(text)]
        for name, text in texts().items()
        if name != this_file
    }
    assert not {name: paths for name, paths in found.items() if paths}


def test_no_host_that_nobody_allowed():
    found = {name: strangers(text) for name, text in texts().items()}
    assert not {name: hosts for name, hosts in found.items() if hosts}


@pytest.mark.parametrize("text", ["/home/kim/x", "see /Users/kim/x", r"C:\Users\kim", "(/root/x)"])
def test_a_path_of_a_machine_is_found(text):
    assert HOMES.search(text)


@pytest.mark.parametrize("text", ["sqlite:////var/lib/x.db", "~/home/kim/", "docs/home/page/"])
def test_a_path_of_nobody_is_left_alone(text):
    assert not HOMES.search(text)


def test_a_stranger_is_found():
    text = "http" + "://mirror.corp.internal:8080/simple and https://api.example.com/v1"
    assert strangers(text) == {"mirror.corp.internal"}
