"""A thread has one run at a time: claims on threads, beside their checkpoints.

A claim is a row that names the run. It is removed when the turn is done. A run that has ended, or that
the store does not know, left its claim behind; the next run takes it over.
"""

from __future__ import annotations

import holdfast
from holdfast.errors import RunNotFound, UsageError
from holdfast.integrations.langgraph.keys import thread_digest

NAMESPACE = "langgraph-claims"
"""The memory of the store that says which run works on a thread."""
ENDED = frozenset({"completed", "failed", "cancelled", "rolled_back"})


class Claims:
    """Which run works on which thread; in the store that has the checkpoints."""

    def __init__(self, store: holdfast.types.Store) -> None:
        self._store = store
        self._memory = store.memory(NAMESPACE, recorded=False)

    def take(self, thread_id: str, run_id: str) -> None:
        """Claim a thread for a run, or say which run has it.

        Its own claim is written anew: so nobody takes it over who saw the run failed just before.
        """
        key = thread_digest(thread_id)
        while True:
            claim = self._memory.item(key)
            if claim is not None and claim.value != run_id:
                self._check_ended(thread_id, claim.value)
            version = 0 if claim is None else claim.version
            if self._memory.set(key, run_id, if_version=version):
                return

    def release(self, thread_id: str, run_id: str) -> None:
        """Give a thread back, unless another run has taken it over."""
        key = thread_digest(thread_id)
        claim = self._memory.item(key)
        if claim is not None and claim.value == run_id:
            self._memory.delete(key, if_version=claim.version)

    def _check_ended(self, thread_id: str, other: str) -> None:
        try:
            status = self._store.handle(other).status()
        except RunNotFound:
            return
        if status not in ENDED:
            raise UsageError(
                f"thread {thread_id!r} belongs to run {other!r}, which is {status}, and would mix it "
                f"with this input; let that run end first, or cancel it"
            )
