"""A wrong argument is refused by its name, with what is expected; and what `import *` brings."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Retry, each, flow, step
from holdfast._stores.sqlite.backups import restore
from holdfast.errors import HoldfastError, RunFailed, UsageError
from tests.tidy.source import ROOT

opened: Any = holdfast.open
retry: Any = Retry
spread: Any = each
"""Without their types: what a type checker would refuse is what is tried here."""


@step
def wrong_echo(number: int) -> int:
    return number


@flow
def wrong_function() -> list[int]:
    return spread(3, [1, 2])


@flow
def wrong_items() -> list[int]:
    return spread(wrong_echo, 3)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "open url": (lambda: opened(3), "open(3): the store is a string such as"),
    "open lease_s": (lambda: opened(lease_s="x"), "lease_s is seconds above 0"),
    "open lease_s nan": (lambda: opened(lease_s=float("nan")), "lease_s is seconds above 0"),
    "open lease_s inf": (lambda: opened(lease_s=float("inf")), "lease_s is seconds above 0"),
    "open lease_s bool": (lambda: opened(lease_s=True), "lease_s is seconds above 0"),
    "open namespace": (lambda: opened(namespace=3), "namespace is a string"),
    "Retry attempts": (lambda: retry(attempts="3"), "Retry(attempts='3'): attempts is a whole"),
    "Retry attempts bool": (lambda: retry(attempts=True), "attempts is a whole number"),
    "Retry initial_wait_s": (
        lambda: retry(initial_wait_s="1"),
        "initial_wait_s is seconds, 0 or more",
    ),
    "Retry initial_wait_s nan": (
        lambda: retry(initial_wait_s=float("nan")),
        "initial_wait_s is seconds, 0 or more",
    ),
    "Retry max_wait_s inf": (
        lambda: retry(max_wait_s=float("inf")),
        "max_wait_s is seconds, 0 or more",
    ),
    "Retry backoff nan": (lambda: retry(backoff=float("nan")), "backoff is a number from 1 on"),
    "Retry max_wait_s": (lambda: retry(max_wait_s=-1), "max_wait_s is seconds, 0 or more"),
    "Retry backoff": (lambda: retry(backoff=0.5), "backoff is a number from 1 on"),
    "Retry jitter": (lambda: retry(jitter=2), "jitter is a number from 0 to 1"),
    "Retry max_elapsed_s": (lambda: retry(max_elapsed_s="1"), "max_elapsed_s is seconds above 0"),
    "Retry retry_on": (lambda: retry(retry_on=OSError), "a tuple of classes of exceptions"),
    "Retry give_up_on": (lambda: retry(give_up_on=[OSError]), "a tuple of classes of exceptions"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named_with_what_is_expected(case: str):
    call, told = WRONG[case]
    with pytest.raises(HoldfastError) as raised:
        call()
    assert told in str(raised.value)


@pytest.mark.parametrize("drain_s", ["1m", -1, True, float("nan"), float("inf")])
def test_a_worker_drains_for_a_number_of_seconds(holdfast_store: Any, drain_s: Any):
    with pytest.raises(UsageError, match="drain_s=.*: seconds, not less than 0"):
        holdfast_store.worker(drain_s=drain_s)


@pytest.mark.usefixtures("holdfast_store")
def test_each_names_the_argument_that_it_cannot_use():
    with pytest.raises(RunFailed, match="the function to call for each item"):
        wrong_function.run("wrong-1")
    with pytest.raises(RunFailed, match="a list, or another iterable"):
        wrong_items.run("wrong-2")


def test_restore_says_that_a_file_is_no_backup(tmp_path: Path):
    source = tmp_path / "bad.py"
    source.write_text("x = 1")
    source.chmod(0o644)  # What is wrong with it is not who may read it.
    with pytest.raises(HoldfastError, match="bad.py is no backup of a store"):
        restore(str(source), str(tmp_path / "new.db"))


def test_importing_everything_shadows_nothing():
    assert not set(holdfast.__all__) & set(dir(builtins))
    assert holdfast.open.__module__ == "holdfast._api.opened_store"


def test_no_text_installs_the_package_of_another_project():
    """The name `holdfast` on the package index belongs to somebody else."""
    roots = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    roots += (ROOT / "examples").rglob("*.py")
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in roots
        for line in path.read_text().splitlines()
        if "install" in line and ("holdfast[" in line or "install holdfast" in line)
    ]
    assert wrong == []
