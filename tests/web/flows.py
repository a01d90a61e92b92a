"""Flows that the browser tests submit, and that worker processes execute.

What the world does is said by files in the folder of the stage, which a test writes: a mark that a
step waits for, an amount that changes, a charge that breaks off.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path

import holdfast
from holdfast import Budget, ask, each, effect, flow, step, wait_for_signal
from holdfast.context import record_usage
from holdfast.versioning import depends_on

PATIENCE_S = 60.0


def mark(name: str) -> Path:
    """Return the file that states a fact."""
    return Path(os.environ["HOLDFAST_STAGE"]) / name


def wait_for_mark(name: str) -> None:
    """Wait until the test has stated a fact."""
    deadline = time.monotonic() + PATIENCE_S
    while not mark(name).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# -- effects of the outside world --------------------------------------------------------------


@step(name="web-look-up")
def look_up(topic: str) -> list[str]:
    record_usage(model="test-writer", input_tokens=1200, output_tokens=300, cost_usd=0.004)
    return [f"{topic}: first note", f"{topic}: second note"]


@effect(name="web-charge", key="order:{order}")
def charge(order: str, cents: int) -> str:
    """Takes money, or breaks off: nobody knows then."""
    if mark(f"breaks-{order}").exists():
        raise TimeoutError("no answer from the bank after 30 s")
    return f"charged {cents}"


@charge.undo
def refund(charged: str, order: str, cents: int) -> None:
    mark(f"refunded-{order}").touch()


@effect(name="web-mail")
def mail(to: str, text: str) -> str:
    """Nobody can take a letter back."""
    return f"sent to {to}"


@effect(name="web-pay", needs_approval=True)
def pay(amount: int, to: str) -> str:
    mark(f"paid-{to}-{amount}").touch()
    return f"paid {amount}"


# -- flows -------------------------------------------------------------------------------------


@flow(name="web-order")
def order(order: str, cents: int = 4200) -> str:
    """A charge; it is in doubt if the test says that it breaks off."""
    look_up(order)
    return charge(order, cents)


@flow(name="web-parent")
def parent(name: str) -> None:
    """Calls one child that ends and one that waits."""
    look_up_child(f"{name}-ends")
    waiting_child(f"{name}-waits")


@flow(name="web-child-ends")
def look_up_child(topic: str) -> int:
    return len(look_up(topic))


@flow(name="web-child-waits")
def waiting_child(topic: str) -> None:
    wait_for_signal("go")


@flow(name="web-payment")
def payment(to: str) -> str:
    """A payment that a person approves, of the amount that stands in a file."""
    return pay(int(mark(f"amount-{to}").read_text()), to)


@flow(name="web-question")
def question(topic: str) -> str:
    """Asks three people, of three kinds."""
    colour = ask("Which colour?", name="colour", choices=["red", "green"], to="design")
    size = ask(f"How many copies of {topic}?", name="copies", type=int)
    return f"{size} {colour}"


@flow(name="web-trip")
def trip(name: str) -> str:
    """Something that can be undone, something that cannot, and then it waits for a word."""
    charge(name, 999)
    mail(name, "your trip is booked")
    said: str = wait_for_signal("go", type=str)
    look_up(said)
    return f"went: {said}"


@step(name="web-work")
def work(name: str, number: int) -> int:
    """Takes as long as the test wants."""
    record_usage(model="test-writer", input_tokens=900, output_tokens=150, cost_usd=0.25)
    if number == 2:
        mark(f"inside-{name}").touch()
        wait_for_mark(f"go-on-{name}")
    return number


@flow(name="web-long")
def long(name: str, steps: int = 4) -> int:
    """Some steps; the third waits until it is told."""
    return sum(work(name, number) for number in range(steps))


@flow(name="web-budgeted", budget=Budget(usd=0.4))
def budgeted(name: str) -> int:
    """Four steps at 0.25: too much for its budget."""
    return sum(work(name, number) for number in (0, 1, 3, 4))


@flow(name="web-member")
def member(number: int) -> int:
    """Two steps at 0.25, paid by its family."""
    return work("member", number * 10) + work("member", number * 10 + 1)


@flow(name="web-family", budget=Budget(usd=0.4))
def family(members: int) -> list[int]:
    """Children that share a budget, which is too small for any two of them."""
    return each(member, range(members))


@step(name="web-fails")
def fails(name: str) -> str:
    if mark(f"mended-{name}").exists():
        return "mended"
    raise RuntimeError(f"the tool of {name} is broken")


@flow(name="web-failing")
def failing(name: str) -> str:
    """Fails, until the test says that it is mended."""
    mail(name, "hello")
    return fails(name)


@step(name="web-quote")
def quote(name: str) -> str:
    return mark(f"prices-{name}").read_text()


@flow(name="web-quoted")
def quoted(name: str) -> str:
    """Relies on a file, and waits for a word; meanwhile the file may change."""
    depends_on("prices", mark(f"prices-{name}"))
    text = quote(name)
    wait_for_signal("go", type=str)
    return text


holdfast.schedules.schedule("web-nightly", order, every=dt.timedelta(days=1), args=("nightly",))
