"""Orders, as they are deployed next: checked before they are charged, and a letter afterwards."""

from __future__ import annotations

import os

from holdfast import Retry, effect, flow, step
from holdfast.versioning import patched
from tests.crash.scripts.deploy import process

VERSION = "2"
ACCEPTS = tuple(os.environ.get("CRASH_ACCEPTS", "1").split())


@step
def reserve(order: str) -> str:
    return process.done(order, "reserve", VERSION)


@step
def check(order: str) -> str:
    return process.done(order, "check", VERSION)


@effect(on_doubt="retry", retry=Retry(attempts=9))
def charge(order: str) -> str:
    return process.done(order, "charge", VERSION)


@step
def write_letter(order: str) -> str:
    return process.done(order, "letter", VERSION)


@flow(version=VERSION, accepts_versions=ACCEPTS)
def handle_order(order: str) -> list[str]:
    found = [reserve(order)]
    if patched("check before charge"):
        found.append(check(order))
    return [*found, charge(order), write_letter(order)]


if __name__ == "__main__":
    process.main(handle_order)
