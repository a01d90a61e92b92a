"""A child is forked while another thread is inside the store: its locks must not stay locked."""

from __future__ import annotations

import os
import signal
import traceback
from typing import Any

import pytest

import holdfast as hf
from holdfast import flow

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
DEADLY_S = 20


@flow(name="forked one")
def one() -> int:
    return 1


def test_a_child_does_not_wait_for_threads_that_are_not_there(postgres_url: str):
    with hf.open(postgres_url, default=False) as store:
        chosen = one.with_options(store=store)
        chosen.run("before")
        kept: Any = store._backend
        with kept._clock._lock, kept._remembered._lock, kept._notices._changed:
            pid = os.fork()
            if pid == 0:
                signal.alarm(DEADLY_S)
                try:
                    kept.now_us()
                    kept._notices.tell()
                    assert chosen.run("in-the-child") == 1
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert chosen.run("after") == 1
