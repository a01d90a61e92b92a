"""Whether the model was asked through a recording transport: a ledger asks, transports report.

A ledger of a tool runner does not see the client. It calls `look` before a request, and afterwards
`recorded` tells whether a durable transport had that request, live or from the record.
"""

from __future__ import annotations

from contextvars import ContextVar


class Witness:
    """The report about one request."""

    recorded = False


_now: ContextVar[Witness | None] = ContextVar("holdfast_witness", default=None)


def look() -> Witness:
    """Return the witness of the next request that is made here."""
    witness = Witness()
    _now.set(witness)
    return witness


def tell() -> None:
    """Report that a request made here is recorded."""
    if witness := _now.get():
        witness.recorded = True
