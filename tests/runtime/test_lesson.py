"""The examples, executed as a reader would: the lesson's task, its e-mail, and its exercises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ENDS_WITHIN_S = 60

LESSON = """\
first run crashed: crash_on_summarize
checkpoint after crash: {'current_index': 1, 'completed_steps': ['load_data']}

restored final state:
{'completed_steps': ['load_data', 'summarize', 'write_report'], \
'report': 'Final report: refund policy;invoice policy;address change policy'}

event types:
['step_started', 'step_completed', 'step_started', 'step_failed', \
'step_started', 'step_completed', 'step_started', 'step_completed']
"""

EMAIL = """\
{'ok': True, 'status': 'sent_to:ada@example.com'}
{'ok': True, 'status': 'skipped_duplicate'}
sent: ['task-001 to ada@example.com']
"""

RETRY_COUNT = """\
refund policy;invoice policy
load_data: completed, attempts 1, retry_count 0
summarize: completed, attempts 3, retry_count 2
"""

WRITE_REPORT = """\
written
looking: it is there
result: 42.txt
['step_started', 'step_in_doubt', 'step_settled']
"""

CHECKPOINT_AND_LOG = """\
the checkpoint: where to go on
  search = ['refund policy']
  summarize = 'refund policy'
the log: how it came to be so
   N step_started search (attempt 1)
   N step_failed search (attempt 1): nothing found
   N step_started search (attempt 2)
   N step_failed search (attempt 2): nothing found
   N step_started search (attempt 3)
   N step_completed search (attempt 3)
   N step_started summarize (attempt 1)
   N step_completed summarize (attempt 1)
"""

EVERY_FEW_STEPS = """\
careful: 2646700, 200 steps recorded
  (N ms per step)
relaxed: 2646700, 200 steps recorded
  (N ms per step)
"""

AGENT_LOOP = """\
first try
  thinking about 1 messages
  calling search-1
  thinking about 3 messages
stopped in the second turn
run again
  calling search-2
  thinking about 5 messages
Refunds take 14 days.
"""

PAYMENTS = """\
ask: held (in_doubt) at charge_or_ask
ask: ch-1; 1 requests, 1 charges
retry: ch-1; 2 requests, 1 charges
fail: not charged, as far as we know; 1 requests, 1 charges
function: ch-1; 1 requests, 1 charges
"""

EXPECTED = {
    "lesson_report.py": LESSON,
    "send_email_once.py": EMAIL,
    "exercise_1_retry_count.py": RETRY_COUNT,
    "exercise_2_write_report.py": WRITE_REPORT,
    "exercise_3_checkpoint_and_log.py": CHECKPOINT_AND_LOG,
    "exercise_4_every_few_steps.py": EVERY_FEW_STEPS,
    "agent_loop.py": AGENT_LOOP,
    "payments_on_doubt.py": PAYMENTS,
}


def printed(example: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("example", EXPECTED)
def test_example(example: str, tmp_path: Path) -> None:
    assert without_numbers(example, printed(example, tmp_path)) == EXPECTED[example]


def without_numbers(example: str, text: str) -> str:
    """Leave out what differs from run to run, or says nothing: times and sequence numbers."""
    if example.startswith("exercise_4"):
        return re.sub(r"\([\d.]+ ms", "(N ms", text)
    if example.startswith("exercise_3"):
        return re.sub(r"^ +\d+ ", "   N ", text, flags=re.MULTILINE)
    return text


def test_every_example_is_executed() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)
