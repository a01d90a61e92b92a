"""Exercise 1: a retry count for each step, so that one unstable step is not hidden in a total."""

import tempfile

import holdfast
from holdfast import Retry, flow, step

weather = iter(["busy", "busy", "fine"])


@step
def load_data() -> list[str]:
    return ["refund policy", "invoice policy"]


@step(retry=Retry(attempts=4, initial_wait_s=0.01))
def summarize(data: list[str]) -> str:
    if next(weather) == "busy":
        raise TimeoutError("the model is busy")
    return ";".join(data)


@flow
def report() -> str:
    return summarize(load_data())


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        holdfast.open(f"sqlite:///{folder}/runs.db") as store,
    ):
        print(report.run("report-1"))
        for s in store.get("report-1").steps:
            print(f"{s.name}: {s.status}, attempts {s.attempts}, retry_count {s.retry_count}")


if __name__ == "__main__":
    main()
