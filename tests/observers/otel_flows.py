"""What a worker with `--otel` executes."""

from holdfast import flow, step, wait


@step(name="otw-add")
def add(number: int) -> int:
    return number + 1


@flow(name="otw-sum")
def total(number: int) -> int:
    first = add(number)
    wait("otw-go-on")
    return add(first)
