"""What a worker with `--otel` executes."""

from holdfast import flow, step, wait_for_signal


@step(name="otw-add")
def add(number: int) -> int:
    return number + 1


@flow(name="otw-sum")
def total(number: int) -> int:
    first = add(number)
    wait_for_signal("otw-go-on")
    return add(first)
