"""Logs of flows without repetition: a filter that knows the run.

    handler.addFilter(holdfast.observers.logging.RunFilter())

Records that replayed flow code writes are dropped, since they were written before. The others get
`run_id` and `step` (empty outside a run), for a format such as "%(run_id)s %(step)s %(message)s".
"""

from __future__ import annotations

import logging

from holdfast import current_run, mask_record, replaying


class RunFilter(logging.Filter):
    """Drops what a replay repeats, and adds the run and the step to the rest."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a record is to be written."""
        if replaying():
            return False
        run = current_run()
        record.run_id = run.run_id if run is not None else ""
        record.step = (run.step or "") if run is not None else ""
        return mask_record(record)
