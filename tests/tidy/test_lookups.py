"""A reader who searches for a term of the field finds the module where the idea lives.

`git grep -il TERM -- src`, or a look at the file names, leads there: the expected file is among the
hits, and there are few enough of them to open, or its name alone says the term. Write the term into the
docstring of the module, as prose; a list of keywords helps nobody.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.source import PACKAGE, name_of, repository_files

FEW = 12

LOOKUPS = {
    # recovery and ownership
    "lease renewal": "_runtime/commit/heartbeat.py",
    "heartbeat": "_runtime/commit/heartbeat.py",
    "fencing token": "_stores/claim_rules.py",
    "split brain": "_stores/claim_rules.py",
    "optimistic locking": "_engine/journal/rows.py",
    "leader election": "_features/schedules/runtime.py",
    "recovery service": "_runtime/worker/recovery_pass.py",
    "poison pill": "_runtime/worker/suspects.py",
    "dead letter": "_engine/journal/lifecycle.py",
    "orphan run": "_operator/explain/stranded_runs.py",
    "graceful shutdown": "_runtime/worker/worker.py",
    "backpressure": "_runtime/worker/slots.py",
    # the journal
    "event log": "_engine/journal/entries.py",
    "event sourcing": "_engine/journal/history.py",
    "state machine": "_engine/journal/lifecycle.py",
    "replay": "_engine/journal/history.py",
    "non-determinism": "_engine/journal/history.py",
    "checkpoint": "_engine/scripts/step_script.py",
    "snapshot": "_operator/read/snapshots.py",
    "continue-as-new": "_api/loops.py",
    "serialization": "_engine/values/codec.py",
    "deduplication": "_engine/values/chunks.py",
    # steps, effects and flows
    "durable workflow": "_api/flows.py",
    "workflow": "_api/flows.py",
    "activity": "_api/steps.py",
    "side effect": "_engine/scripts/effect_script.py",
    "idempotency key": "_engine/journal/step_keys.py",
    "retry backoff": "_engine/scripts/retry.py",
    "timeout": "_runtime/execution/attempt.py",
    "durable timer": "_engine/scripts/waits.py",
    "fan-out": "_api/fanout.py",
    "child workflow": "_engine/scripts/child_run.py",
    "cancel a child": "_engine/scripts/child_run.py",
    # people and operation
    "human in the loop": "_features/questions/runtime.py",
    "human approval": "_features/approvals/model.py",
    "webhook": "_operator/act/message_actions.py",
    "compensation": "_features/rollback/model.py",
    "saga": "_features/rollback/model.py",
    "time travel": "_operator/act/fork.py",
    "dry run": "_operator/read/resume_preview.py",
    "rolling deploy": "_runtime/execution/version_rules.py",
    "cron": "_features/schedules/model.py",
    "rate limit": "_stores/queue_limits.py",
    "concurrency limit": "_stores/queue_limits.py",
    "garbage collection": "_operator/act/garbage_collection.py",
    "prometheus": "observers/metrics.py",
    # stores
    "group commit": "_runtime/commit/committer.py",
    "write-ahead log": "_stores/sqlite/sqlite_database.py",
    "schema migration": "_stores/sqlite/migrations.py",
    "data loss": "_stores/sqlite/witness_file.py",
    "clock skew": "_stores/store_clock.py",
    "advisory lock": "_stores/postgres/postgres_append.py",
    "failover": "_stores/postgres/regression.py",
}

COMMON = {
    # Everyday words of the code: a search finds many files, so their definitions must say them first.
    "checkpoint",
    "replay",
    "timeout",
}


def hits(term: str, texts: dict[str, str]) -> list[str]:
    """Return the files that `git grep -il` would list."""
    return [name for name, text in texts.items() if term.lower() in text.lower()]


def is_named_after(path: str, term: str) -> bool:
    """Return whether the name of a file says a term."""
    words = re.findall(r"[a-z]+", term.lower())
    return all(word in Path(path).stem for word in words)


def first_paragraph(text: str) -> str:
    """Return how a module's docstring begins."""
    return text.split('"""')[1] if text.startswith('"""') else ""


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    found = [path for path in repository_files() if PACKAGE in path.parents]
    return {
        name_of(path): path.read_text(encoding="utf-8")
        for path in found
        if path.suffix in {".py", ".sql"}
    }


@pytest.mark.parametrize("term", LOOKUPS)
def test_a_term_leads_to_its_module(term: str, texts: dict[str, str]) -> None:
    expected = f"src/holdfast/{LOOKUPS[term]}"
    assert expected in texts, "moved? name its new place"
    found = hits(term, texts)
    if is_named_after(expected, term):
        return
    assert expected in found, f"say {term!r} in its docstring"
    if term in COMMON:
        assert term in first_paragraph(texts[expected]).lower()
    else:
        assert len(found) <= FEW, f"{len(found)} files say {term!r}: too many to open"


def test_there_are_at_least_thirty() -> None:
    assert len(LOOKUPS) - len(COMMON) >= 30
    assert set(LOOKUPS) >= COMMON


def test_a_term_is_found_as_git_grep_finds_it() -> None:
    texts = {"a.py": "The Fencing Token", "b.py": "fencing", "c.py": ""}
    assert hits("fencing token", texts) == ["a.py"]
    assert is_named_after("x/garbage_collection.py", "garbage collection")
    assert not is_named_after("x/heartbeat.py", "lease renewal")
