"""Start a run in the background, say so, and stay until killed: `python background.py`."""

from __future__ import annotations

from holdfast import flow, step
from tests.crash import probe


@step
def never_ends() -> None:
    probe.wait("nothing that anybody says")


@flow
def background(topic: str) -> None:
    never_ends()


if __name__ == "__main__":
    with probe.open_store():
        background.start("started", "refunds")
        background.submit("submitted", "refunds")
        probe.point("returned")
