"""Exercise 2: `write_report` changes the outside world, so it must not happen twice.

Its intent is recorded before it is called, under a key of its own. When an error leaves it open
whether it happened, the library asks `find_report`, and only repeats what was not done.
"""

import tempfile
from pathlib import Path
from typing import Any

import holdfast
from holdfast import NOT_DONE, Done, effect, flow, step

shelf = Path()
network_is_down_after_the_write = True


@step
def summarize() -> str:
    return "refund policy;invoice policy"


@effect(key="report:{report_id}")
def write_report(report_id: str, text: str) -> str:
    path = shelf / f"{report_id}.txt"
    path.write_text(text)
    print("written")
    if network_is_down_after_the_write:
        raise ConnectionError("no answer")
    return path.name


@write_report.on_doubt
def find_report(report_id: str, text: str) -> Any:
    path = shelf / f"{report_id}.txt"
    there = path.exists() and path.read_text() == text
    print("looking:", "it is there" if there else "it is not there")
    return Done(path.name) if there else NOT_DONE


@flow
def report(report_id: str) -> str:
    return write_report(report_id, summarize())


def main() -> None:
    global shelf
    with (
        tempfile.TemporaryDirectory() as folder,
        holdfast.open(f"sqlite:///{folder}/runs.db") as store,
    ):
        shelf = Path(folder)
        print("result:", report.run("report-1", "42"))
        print([str(e.kind) for e in store.history("report-1") if e.step == "write_report"])


if __name__ == "__main__":
    main()
