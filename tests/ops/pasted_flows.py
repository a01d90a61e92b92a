"""Flows whose runs get into trouble, for commands that are pasted: all they do stands in a file.

What happens outside is a line in `done.log` of the current folder. What is wrong with the world is
a file there too: `broken`, `changed`, `prices`.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from holdfast import (
    UNKNOWN,
    Budget,
    Retry,
    Watchdog,
    ask,
    effect,
    flow,
    gather,
    sleep,
    step,
    wait_for_signal,
)
from holdfast.context import record_usage
from holdfast.versioning import depends_on


def did(what: str) -> int:
    """Note something that happened in the world; returns how often it has."""
    with Path("done.log").open("a") as out:
        out.write(f"{what}\n")
    return Path("done.log").read_text().split("\n").count(what)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# -- effects in doubt --------------------------------------------------------------------------


@step
def pasted_quote(order: str) -> int:
    did("quote")
    return 10


@effect
def pasted_charge(order: str) -> str:
    """The first time the process dies, after the money is gone."""
    if did("charge") == 1:
        die()
    return "charged again"


@effect
def pasted_error(order: str) -> str:
    if did("charge") == 1:
        raise ConnectionResetError("the other side hung up")
    return "charged again"


@effect(timeout=0.05)
def pasted_slow(order: str) -> str:
    if did("charge") == 1:
        time.sleep(0.2)
    return "charged again"


@effect
def pasted_interrupted(order: str) -> str:
    if did("charge") == 1:
        raise KeyboardInterrupt
    return "charged again"


@effect
def pasted_lost(order: str) -> str:
    """What it returns cannot be stored."""
    did("charge")
    return object()  # type: ignore[return-value]


@effect(key_ttl=0.05)
def pasted_old_key(order: str) -> str:
    if did("charge") == 1:
        raise ConnectionResetError("the other side hung up")
    return "charged again"


@effect
def pasted_anew(order: str) -> str:
    did("charge")
    return "charged"


@effect
def pasted_asked(order: str) -> str:
    if did("charge") == 1:
        raise ConnectionResetError("the other side hung up")
    return "charged again"


@pasted_asked.on_doubt
def pasted_look(order: str) -> object:
    return UNKNOWN


@effect(on_doubt="fail")
def pasted_given_up(order: str) -> str:
    if did("charge") == 1:
        raise ConnectionResetError("the other side hung up")
    return "charged again"


@effect(key="pasted:{order}")
def pasted_once(order: str) -> str:
    if did("charge") == 1:
        raise ConnectionResetError("the other side hung up")
    return "charged again"


@flow
def pays(order: str = "42") -> str:
    pasted_quote(order)
    return pasted_charge(order)


@flow
def pays_anew(order: str = "42") -> str:
    """After a crash the model, which nobody records, gives its call another id."""
    asked = Path("asked")
    first = not asked.exists()
    asked.touch()
    paid = pasted_anew.with_options(step_key="call_1" if first else "call_2")(order)
    if first:
        die()
    return paid


@flow
def pays_error(order: str = "42") -> str:
    return pasted_error(order)


@flow
def pays_slow(order: str = "42") -> str:
    return pasted_slow(order)


@flow
def pays_interrupted(order: str = "42") -> str:
    return pasted_interrupted(order)


@flow
def pays_lost(order: str = "42") -> str:
    return pasted_lost(order)


@flow
def pays_old_key(order: str = "42") -> str:
    return pasted_old_key(order)


@flow
def pays_asked(order: str = "42") -> str:
    return pasted_asked(order)


@flow
def pays_or_fails(order: str = "42") -> str:
    return pasted_given_up(order)


def when_both_have_begun(name: str) -> str:
    """The first of two effects that fails would keep the other from beginning."""
    first = did(name) == 1
    while not {"left", "right"} <= set(Path("done.log").read_text().split()):
        time.sleep(0.01)
    if first:
        raise ConnectionResetError("the other side hung up")
    return name


@effect
def pasted_left() -> str:
    return when_both_have_begun("left")


@effect
def pasted_right() -> str:
    return when_both_have_begun("right")


@flow
def pays_twice() -> tuple[str, str]:
    return gather(pasted_left, pasted_right)


@flow
def pays_once(order: str = "42") -> str:
    return pasted_once(order)


@effect
def pasted_mail(text: str) -> str:
    did("mail")
    return "sent"


@flow
def adopts(order: str = "42") -> str:
    pasted_quote(order)
    wait_for_signal("go")
    return pasted_mail(order)


# -- changed code, changed world ---------------------------------------------------------------


@step
def pasted_search(topic: str) -> str:
    did("search")
    return topic


@step
def pasted_stops(topic: str) -> str:
    """The first time the process dies."""
    if did("stops") == 1:
        die()
    return topic


@flow
def diverges(topic: str = "tea") -> str:
    if Path("changed").exists():
        pasted_quote(topic)
    pasted_search(topic)
    return pasted_stops(topic)


@flow
def leaves_out(topic: str = "tea") -> str:
    pasted_search(topic)
    if Path("changed").exists():
        return topic
    pasted_mail(topic)
    return pasted_stops(topic)


@flow
def drifts(topic: str = "tea") -> str:
    depends_on("prices", Path("prices"))
    pasted_search(topic)
    return pasted_stops(topic)


@step
def pasted_poison(topic: str) -> str:
    did("poison")
    if not Path("mended").exists():
        die()
    return topic


@flow
def poisons(topic: str = "tea") -> str:
    return pasted_poison(pasted_search(topic))


# -- limits ------------------------------------------------------------------------------------


@step(reserve_usd=0.30)
def pasted_think(number: int) -> int:
    did("think")
    return number


@flow(budget=Budget(usd=0.50))
def spends() -> int:
    return sum(pasted_think(number) for number in range(2))


@step(retry=Retry(attempts=2, initial_wait_s=0.01))
def pasted_broken() -> str:
    did("broken")
    if Path("broken").exists():
        raise ValueError("it is broken")
    return "mended"


@effect
def pasted_book(what: str) -> str:
    did("book")
    return "booked"


@pasted_book.undo
def pasted_unbook(result: str, what: str) -> None:
    did("unbook")


@flow
def fails(topic: str = "tea") -> str:
    pasted_book(topic)
    return pasted_broken()


# -- waiting -----------------------------------------------------------------------------------


@flow
def naps(seconds: float = 1.5) -> str:
    pasted_search("tea")
    sleep(seconds)
    return "rested"


@step(retry=Retry(attempts=2, initial_wait_s=2, jitter=0))
def pasted_second_time() -> str:
    if did("attempt") == 1:
        raise ValueError("not yet")
    return "now"


@flow
def tries_again() -> str:
    return pasted_second_time()


@flow
def listens() -> int:
    return wait_for_signal("paid", type=int)


@flow
def asks() -> str:
    return ask("Shall it be sent?", name="send", choices=["yes", "no"], to="kim")


@effect(needs_approval=True)
def pasted_approved(order: str) -> str:
    did("approved")
    return "done"


@flow
def approves(order: str = "42") -> str:
    return pasted_approved(order)


@flow
def has_child(order: str = "42") -> str:
    return pays_error(order)


@flow(timeout=3600)
def has_deadline() -> int:
    return wait_for_signal("paid", type=int)


@flow
def plain(topic: str = "tea") -> str:
    return pasted_search(topic)


# -- findings ----------------------------------------------------------------------------------


@flow(watchdog=Watchdog(loop_after=3))
def circles() -> int:
    for _ in range(3):
        pasted_search("tea")
    return wait_for_signal("paid", type=int)


@flow
def mails_twice() -> str:
    pasted_mail("hello")
    return pasted_mail("hello")


@step
def pasted_dear(number: int) -> int:
    record_usage(model="m", cost_usd=0.4)
    return number


@flow(watchdog=Watchdog(usd=1))
def costs() -> int:
    for number in range(3):
        pasted_dear(number)
    return wait_for_signal("paid", type=int)


@flow(watchdog=Watchdog(stuck_after=0.05))
def left_alone(topic: str = "tea") -> str:
    return pasted_search(topic)
