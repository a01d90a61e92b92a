"""Three bookings, each with an undo: `python undoing.py MODE`, killed while they are taken back.

MODE: "wait" waits for a signal that never comes, "raise" asks for the rollback in the flow, "complete" ends without it, "ask" is as "raise" with
undos that ask a person.
"""

from __future__ import annotations

import sys
from typing import Any

import holdfast
from holdfast import Retry, effect, flow
from holdfast.errors import Rollback
from tests.crash import probe


def pay(name: str, amount: int) -> dict[str, Any]:
    probe.executed(name)
    probe.point(f"before {name}")
    paid = probe.payments().charge(holdfast.idempotency_key(), amount)
    probe.point(f"after {name}")
    return paid


@effect
def book_flight(trip: str) -> dict[str, Any]:
    return pay("flight", 1)


@effect
def book_hotel(trip: str) -> dict[str, Any]:
    return pay("hotel", 2)


@effect
def book_car(trip: str, kind: str) -> dict[str, Any]:
    return pay("car", 3)


AGAIN: dict[str, Any] = {"on_doubt": "retry", "retry": Retry(attempts=3, initial_wait_s=0.01)}
OPTIONS: dict[str, Any] = {} if sys.argv[1] == "ask" else AGAIN


@book_flight.undo(**OPTIONS)
def no_flight(paid: dict[str, Any], trip: str) -> None:
    pay("no flight", -paid["amount"])


@book_hotel.undo(**OPTIONS)
def no_hotel(paid: dict[str, Any], trip: str) -> None:
    pay("no hotel", -paid["amount"])


@book_car.undo(**OPTIONS)
def no_car(paid: dict[str, Any], trip: str, kind: str) -> None:
    pay("no car", -paid["amount"])


@flow
def travel(trip: str, *, back: bool) -> str:
    book_flight(trip)
    book_hotel(trip)
    book_car(trip, kind="small")
    if back:
        raise Rollback("it rains")
    if sys.argv[1] == "wait":
        probe.mark("waiting")
        holdfast.wait_for_signal("never")
    return "booked"


if __name__ == "__main__":
    with probe.open_store():
        probe.end(lambda: travel.run("r", "rome", back=sys.argv[1] in ("raise", "ask")))
