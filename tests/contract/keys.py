"""What runs share: business keys, and messages."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast._engine.journal.changes import ClaimKey, KeyTaken, TakeMessage
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import Lease, Message, Write
from holdfast._stores.contract import Committed, Fenced, Posted
from holdfast.errors import HoldfastError
from tests.contract.ground import (
    A,
    B,
    Ground,
    entry,
    intent,
)


class Sharing(Ground):
    """What runs share: business keys, and messages."""

    # -- keys --------------------------------------------------------------------------------------

    def test_a_key_is_claimed_with_its_intent(self) -> None:
        assert self.store.key("pay", "k") is None
        lease = self.started_run()
        assert isinstance(self.claim_key(lease), Committed)
        key = self.store.key("pay", "k")
        assert key is not None
        assert (key.state, key.run_id, key.step, key.result_seq) == ("in_progress", "r", "e", None)
        assert (key.run_no, key.generation, key.args_digest) == (lease.row.run_no, 1, A)
        self.set_key(lease, "completed", result=True)
        key = self.store.key("pay", "k")
        assert key is not None
        assert (key.state, key.result_seq) == ("completed", lease.row.last_seq)

    @pytest.mark.parametrize("state", ["in_progress", "completed", "in_doubt", "undone"])
    def test_a_key_of_another_run_is_taken(self, state: str) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        self.claim_key(first)
        self.set_key(first, state)
        before = self.row("b")
        taken = self.claim_key(second)
        assert isinstance(taken, KeyTaken)
        assert (taken.key.run_id, taken.key.state) == ("a", state)
        assert self.row("b") == before
        assert self.kinds("b") == ["run_started", "run_claimed"]

    def test_a_key_that_is_known_not_to_have_happened_may_be_claimed(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        self.claim_key(first)
        self.set_key(first, "not_done")
        assert isinstance(self.claim_key(second), Committed)
        key = self.store.key("pay", "k")
        assert key is not None
        assert (key.run_id, key.state) == ("b", "in_progress")

    def test_other_arguments_never_get_a_key(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        self.claim_key(first)
        self.set_key(first, "not_done")
        assert isinstance(self.claim_key(second, B), KeyTaken)

    def test_a_call_keeps_its_own_key_over_attempts(self) -> None:
        lease = self.started_run()
        self.claim_key(lease)
        assert isinstance(self.claim_key(lease), Committed)
        self.set_key(lease, "in_doubt")
        assert isinstance(self.claim_key(lease), Committed)
        assert isinstance(self.claim_key(lease, name="e#2"), KeyTaken)

    def test_a_run_does_not_change_the_key_of_another(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        self.claim_key(first)
        with pytest.raises(HoldfastError, match="has it now"):
            self.set_key(second, "completed")
        assert self.kinds("b") == ["run_started", "run_claimed"]
        key = self.store.key("pay", "k")
        assert key is not None
        assert key.state == "in_progress"

    def test_a_stale_owner_is_fenced_before_it_is_told_of_a_key(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        self.claim_key(first)
        stale = Lease(second.row)
        self.claimed("b")
        assert isinstance(self.claim_key(stale), Fenced)

    def test_one_batch_gives_a_key_once(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        claim = ClaimKey("pay", "k", "e", A)
        writes = [Write(lease, [intent()], changes=[claim]) for lease in (first, second)]
        assert [type(outcome) for outcome in self.store.append(writes)] == [Committed, KeyTaken]

    # -- inbox -------------------------------------------------------------------------------------

    def test_a_message_is_taken_once(self) -> None:
        lease = self.started_run()
        first = Message("m1", "signal", "me", 5, b'{"a":1}')
        second = Message("m2", "cancel", "you", 4, b"{}")
        assert self.store.post("r", first) is Posted.ACCEPTED
        assert self.store.post("r", second) is Posted.ACCEPTED
        assert self.store.post("r", first) is Posted.DUPLICATE
        run_no = lease.row.run_no
        first, second = (replace(it, number=at) for at, it in enumerate((first, second), 1))
        assert self.store.inbox(run_no) == [first, second]
        self.store.append([Write(lease, [entry(Kind.VALUE_EMITTED)], changes=[TakeMessage("m1")])])
        assert self.store.inbox(run_no) == [second]
        assert self.store.post("r", first) is Posted.DUPLICATE
        with pytest.raises(AssertionError):
            self.store.append(
                [Write(lease, [entry(Kind.VALUE_EMITTED)], changes=[TakeMessage("m1")])]
            )
        assert self.kinds() == ["run_started", "run_claimed", "value_emitted"]

    def test_a_fenced_write_takes_no_message(self) -> None:
        stale = Lease(self.started_run().row)
        self.store.post("r", Message("m", "signal", "me", 1, b"{}"))
        self.claimed("r")
        assert isinstance(
            self.store.append([Write(stale, [], changes=[TakeMessage("m")])])[0], Fenced
        )
        assert len(self.store.inbox(stale.row.run_no)) == 1

    def test_the_same_message_id_may_be_used_for_two_runs(self) -> None:
        for run_id in ("a", "b"):
            self.started_run(run_id)
            message = Message("m", "signal", "me", 1, b"{}")
            assert self.store.post(run_id, message) is Posted.ACCEPTED
