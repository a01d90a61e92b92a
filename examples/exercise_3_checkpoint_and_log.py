"""Exercise 3: why a checkpoint and an event log, both.

The checkpoint (what is completed, with its results) says where to go on. The log says how it came
to be so: here, that the search was empty twice, which no state at the end would show.
"""

import tempfile

import holdfast
from holdfast import Retry, flow, step

hits = iter([0, 0, 1])


@step(retry=Retry(attempts=3, initial_wait_s=0.01))
def search(topic: str) -> list[str]:
    if not next(hits):
        raise LookupError("nothing found")
    return [f"{topic} policy"]


@step
def summarize(found: list[str]) -> str:
    return ";".join(found)


@flow
def report(topic: str) -> str:
    return summarize(search(topic))


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        holdfast.open(f"sqlite:///{folder}/runs.db") as store,
    ):
        report.run("report-1", "refund")

        print("the checkpoint: where to go on")
        for entry in store.history("report-1"):
            if entry.kind == "step_completed":
                print(f"  {entry.step} = {entry.body['result']!r}")

        print("the log: how it came to be so")
        for entry in store.history("report-1"):
            if entry.step is not None:
                error = entry.body.get("error")
                why = f": {error['message']}" if error else ""
                print(f"  {entry.seq:2} {entry.kind} {entry.step} (attempt {entry.attempt}){why}")


if __name__ == "__main__":
    main()
