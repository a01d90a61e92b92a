"""Exercise 4: a checkpoint after every step, or every few steps?

After every step that is dear or cannot be undone; low-risk steps may share one. A step with
`commit="grouped"` does not wait for the disk: it is durable at the next step that does. A crash
before that repeats a few cheap steps, and never the dear one.
"""

import tempfile
import time

import holdfast
from holdfast import flow, step

STEPS = 200


@step
def every_step(i: int) -> int:
    return i * i


@step(commit="grouped")
def every_few_steps(i: int) -> int:
    return i * i


@flow
def careful() -> int:
    return sum(every_step(i) for i in range(STEPS))


@flow
def relaxed() -> int:
    return sum(every_few_steps(i) for i in range(STEPS))


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        holdfast.open(f"sqlite:///{folder}/runs.db") as store,
    ):
        for task in (careful, relaxed):
            begun = time.perf_counter()
            result = task.run(task.name)
            took_ms = (time.perf_counter() - begun) * 1000
            recorded = len(store.get(task.name).steps)
            print(f"{task.name}: {result}, {recorded} steps recorded")
            print(f"  ({took_ms / STEPS:.2f} ms per step)")


if __name__ == "__main__":
    main()
