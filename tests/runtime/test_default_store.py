"""Where runs are kept when nobody says so, and when somebody does."""

from __future__ import annotations

import os
import threading

import pytest

import holdfast
from holdfast import flow
from holdfast._runtime import engine as engines
from holdfast.errors import RunNotFound, UsageError


@flow
def doubled(x: int) -> int:
    return 2 * x


@pytest.fixture(autouse=True)
def _no_default_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engines, "_default", None)
    yield
    if engines._default is not None:
        engines._default.close()


def test_without_a_word_it_is_a_file_here_and_that_is_said_once(tmp_path, capsys):
    assert doubled.run("a", 2) == 4
    assert doubled.run("b", 3) == 6
    assert capsys.readouterr().err == f"holdfast: runs are kept in {tmp_path}/holdfast.db\n"
    assert (tmp_path / "holdfast.db").exists()


def test_the_environment_says_where(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/there.db")
    assert doubled.run("a", 2) == 4
    assert capsys.readouterr().err == ""
    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["there.db"]


def test_the_store_is_looked_up_when_a_run_starts_and_never_before(tmp_path):
    assert os.listdir(tmp_path) == []
    doubled.with_options(tags={"a": "b"})
    assert os.listdir(tmp_path) == []


def test_open_makes_it_the_default_and_a_second_one_is_refused(tmp_path):
    with holdfast.open("memory:") as store:
        doubled.run("a", 2)
        assert store.get("a").result == 4
        with pytest.raises(UsageError, match="default=False"):
            holdfast.open("memory:")
        with holdfast.open("memory:", default=False) as other:
            doubled.with_options(store=other).run("b", 2)
            with pytest.raises(RunNotFound):
                store.get("b")
            assert other.get("b").result == 4
    with holdfast.open("memory:"):  # The first is closed: there may be a next one.
        pass


def test_namespaces_do_not_see_each_other(tmp_path):
    url = f"sqlite:///{tmp_path}/shared.db"
    with (
        holdfast.open(url, namespace="one", default=False) as one,
        holdfast.open(url, namespace="two", default=False) as two,
    ):
        doubled.with_options(store=one).run("a", 1)
        assert doubled.with_options(store=two).run("a", 2) == 4
        assert one.get("a").result == 2


@pytest.mark.parametrize("url", ["", "sqlite:", "mysql://x", "holdfast.db"])
def test_a_url_that_is_none(url):
    with pytest.raises(holdfast.errors.HoldfastError):
        holdfast.open(url)


def test_close_twice_and_use_after():
    store = holdfast.open("memory:")
    store.close()
    store.close()
    with pytest.raises(UsageError, match="closed"):
        doubled.with_options(store=store).run("a", 1)


def test_threads_that_need_the_default_at_the_same_moment_share_it():
    gate = threading.Barrier(6)
    out: list[object] = []

    def run(i: int) -> None:
        gate.wait()
        try:
            out.append(doubled.run(f"r-{i}", i))
        except Exception as error:
            out.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, out)) == ["0", "10", "2", "4", "6", "8"]
