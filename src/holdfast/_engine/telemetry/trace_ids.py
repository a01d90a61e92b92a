"""Derived IDs of traces and spans, so that a run has one trace in any number of processes. Pure.

The trace ID follows from store, namespace and run ID. A span ID follows from its subject: the run;
an execution, by its epoch; a step, by execution, generation and key; an attempt, also by its
number. The process that resumes a run can therefore link to a span of another process, and end the
span of a process that died.
"""

from __future__ import annotations

import functools
import hashlib

TRACE_BYTES, SPAN_BYTES = 16, 8


@functools.lru_cache(maxsize=1024)
def trace_id_of(store_id: str, namespace: str, run_id: str) -> str:
    """Return the trace ID of a run: 32 hexadecimal digits."""
    return _derived(TRACE_BYTES, (store_id, namespace, run_id))


def span_id_of(trace_id: str, *of: object) -> str:
    """Return the ID of a span in a trace, by its subject: 16 hexadecimal digits."""
    return _derived(SPAN_BYTES, (trace_id, *map(str, of)))


def _derived(size: int, parts: tuple[str, ...]) -> str:
    made = hashlib.blake2b(digest_size=size, person=b"holdfast-trace")
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        made.update(len(data).to_bytes(4, "big"))
        made.update(data)
    found = made.hexdigest()
    return found if found.strip("0") else f"{1:0{2 * size}x}"  # All zeros mean no trace.
