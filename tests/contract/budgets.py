"""Accounts: what a family of runs may spend, and has spent."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast._engine.journal.changes import ClaimKey, Exhausted, KeyTaken, Spend
from holdfast._engine.journal.rows import Account, Lease, Write
from holdfast._stores.contract import Broken, Committed, Fenced, Outcome
from tests.contract.ground import ODD_STRINGS, A, Ground, intent, started, step

NANOS = 1_000_000_000


class Spending(Ground):
    """Accounts: what a family of runs may spend, and has spent."""

    def account(self, root: str = "r", **limits: int) -> Account:
        """Open an account with these limits."""
        return self.store.put_account(Account(root, self.clock(), **limits))

    def spends(self, lease: Lease, root: str = "r", **amounts: Any) -> Outcome:
        """Write a step that spends; it is checked unless told otherwise."""
        spend = Spend(root, **{"checks": True, **amounts})
        return self.store.append([Write(lease, [step()], changes=[spend])])[0]

    def left(self, root: str = "r") -> tuple[int, int, int]:
        """Return what was spent of an account."""
        account = self.store.account(root)
        assert account is not None
        return account.spent_usd_nanos, account.spent_tokens, account.spent_steps

    # -- the account itself ----------------------------------------------------------------------------

    def test_a_account_that_nobody_opened_is_none(self) -> None:
        self.account("other", steps=1)
        assert self.store.account("r") is None

    def test_a_account_is_read_as_it_was_opened(self) -> None:
        made = self.store.put_account(Account("r", 7, 1, 2, 3, 4))
        assert made == Account("r", 7, 1, 2, 3, 4)
        assert self.store.account("r") == made
        none = self.store.put_account(Account("none", 8))
        assert self.store.account("none") == none == Account("none", 8)
        assert self.store.verify() == []

    def test_sums_are_exact_however_large(self) -> None:
        large = 2**62
        lease = self.started_run()
        self.account(usd_nanos=large, tokens=large)
        assert isinstance(self.spends(lease, usd_nanos=large - 1, tokens=large), Committed)
        assert self.left() == (large - 1, large, 0)

    def test_new_limits_leave_what_was_spent(self) -> None:
        lease = self.started_run()
        self.account(steps=2, tokens=100)
        self.spends(lease, steps=1, tokens=40, usd_nanos=5)
        raised = self.store.put_account(Account("r", 999, usd_nanos=NANOS, steps=5, spent_steps=77))
        assert raised == Account("r", self.clock(), NANOS, None, 5, None, 5, 40, 1)
        assert self.store.account("r") == raised

    def test_only_new_leaves_one_that_is_there_alone(self) -> None:
        first = self.account(steps=2)
        same = self.store.put_account(Account("r", 999, steps=5), only_new=True)
        assert same == first == self.store.account("r")
        other = self.store.put_account(Account("s", 999, steps=5), only_new=True)
        assert other == Account("s", 999, steps=5) == self.store.account("s")

    def test_accounts_stay_in_their_namespace(self) -> None:
        self.account(steps=1)
        other = self.open_store("other")
        assert other.account("r") is None
        other.put_account(Account("r", 1, steps=9))
        assert self.store.account("r") == Account("r", self.clock(), steps=1)
        other.close()

    def test_odd_roots_are_only_strings(self) -> None:
        for number, text in enumerate(ODD_STRINGS):
            self.account(text, steps=number)
        for number, text in enumerate(ODD_STRINGS):
            found = self.store.account(text)
            assert found is not None
            assert (found.root, found.steps) == (text, number)
        assert self.store.verify() == []

    # -- spending ----------------------------------------------------------------------------------

    def test_spending_is_counted_and_given_back(self) -> None:
        lease = self.started_run()
        self.account(usd_nanos=NANOS)
        assert isinstance(self.spends(lease, usd_nanos=300, tokens=20, steps=1), Committed)
        assert isinstance(self.spends(lease, usd_nanos=-100, checks=False), Committed)
        assert self.left() == (200, 20, 1)

    def test_a_account_gives_up_to_its_limit_and_no_more(self) -> None:
        lease = self.started_run()
        account = self.account(usd_nanos=1000)
        for _ in range(3):
            assert isinstance(self.spends(lease, usd_nanos=300), Committed)
        before, entries = self.row(), self.kinds()
        refused = self.spends(lease, usd_nanos=300)
        assert isinstance(refused, Exhausted)
        assert refused.account == msgspec.structs.replace(account, spent_usd_nanos=900)
        assert (self.row(), self.kinds()) == (before, entries)
        assert lease.row == before
        assert isinstance(self.spends(lease, usd_nanos=100), Committed)
        assert self.left() == (1000, 0, 0)
        assert self.store.verify() == []

    def test_each_limit_counts_for_itself(self) -> None:
        lease = self.started_run()
        self.account(tokens=10, steps=2)
        assert isinstance(self.spends(lease, tokens=11), Exhausted)
        assert isinstance(self.spends(lease, steps=3), Exhausted)
        assert isinstance(self.spends(lease, usd_nanos=10**15, tokens=10), Committed)
        assert isinstance(self.spends(lease, tokens=1), Exhausted)

    def test_what_is_used_up_refuses_a_step_that_costs_nothing(self) -> None:
        lease = self.started_run()
        self.account(tokens=10)
        assert isinstance(self.spends(lease), Committed)
        self.spends(lease, tokens=10)
        assert isinstance(self.spends(lease), Exhausted)

    def test_without_checks_more_is_spent_than_there_is(self) -> None:
        lease = self.started_run()
        self.account(steps=1)
        assert isinstance(self.spends(lease, steps=5, checks=False), Committed)
        assert self.left() == (0, 0, 5)
        assert isinstance(self.spends(lease, steps=-5), Exhausted)
        assert isinstance(self.spends(lease, steps=-4, checks=False), Committed)
        assert self.left() == (0, 0, 1)

    def test_time_is_a_limit_too(self) -> None:
        lease = self.started_run()
        self.account(wall_us=5_000_000)
        self.clock.advance_s(4)
        assert isinstance(self.spends(lease, steps=1), Committed)
        self.clock.advance_s(1)
        assert isinstance(self.spends(lease, steps=1), Exhausted)
        self.store.put_account(Account("r", 0, wall_us=9_000_000))
        assert isinstance(self.spends(lease, steps=1), Committed)

    def test_where_there_is_no_account_everything_is_given(self) -> None:
        lease = self.started_run()
        assert isinstance(self.spends(lease, "nobody", usd_nanos=10**15), Committed)
        assert self.store.account("nobody") is None

    def test_a_family_spends_from_one_account(self) -> None:
        leases = [self.started_run(name) for name in "abc"]
        self.account("root", steps=2)
        spend = Spend("root", steps=1, checks=True)
        writes = [Write(lease, [step()], changes=[spend]) for lease in leases]
        outcomes = self.store.append(writes)
        assert [type(it) for it in outcomes] == [Committed, Committed, Exhausted]
        assert isinstance(outcomes[2], Exhausted)
        assert outcomes[2].account.spent_steps == 2
        assert self.left("root") == (0, 0, 2)
        assert self.row("c").last_seq == 2
        self.account("root", steps=3)
        assert isinstance(self.spends(leases[2], "root", steps=1), Committed)

    def test_one_run_spends_several_times_in_one_batch(self) -> None:
        lease = self.started_run()
        self.account(steps=2)
        spend = Spend("r", steps=1, checks=True)
        writes = [Write(lease, [step(name)], changes=[spend]) for name in "abc"]
        outcomes = self.store.append(writes)
        assert [type(it) for it in outcomes] == [Committed, Committed, Exhausted]
        assert lease.row == self.row()
        assert self.left() == (0, 0, 2)

    def test_a_fenced_or_broken_write_spends_nothing(self) -> None:
        lease = self.started_run()
        self.account(steps=5)
        stale = Lease(lease.row)
        lease = self.claimed("r")
        assert isinstance(self.spends(stale, steps=1), Fenced)
        spend = Spend("r", steps=1, checks=True)
        outcomes = self.store.append(
            [Write(lease, [started()], changes=[spend]), Write(lease, [step()], changes=[spend])]
        )
        assert [type(it) for it in outcomes] == [Broken, Committed]
        assert self.left() == (0, 0, 1)

    def test_a_stale_owner_is_fenced_before_it_is_told_of_a_account(self) -> None:
        stale = Lease(self.started_run().row)
        self.account(steps=0)
        self.claimed("r")
        assert isinstance(self.spends(stale, steps=1), Fenced)

    def test_a_key_that_another_has_is_told_first_and_spends_nothing(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        self.claim_key(first)
        self.account(steps=5)
        claim = ClaimKey("pay", "k", "e", A)
        write = Write(second, [intent()], changes=[claim, Spend("r", steps=9, checks=True)])
        assert isinstance(self.store.append([write])[0], KeyTaken)
        assert self.left() == (0, 0, 0)

    def test_a_refused_write_claims_no_key(self) -> None:
        lease = self.started_run()
        self.account(steps=0)
        claim = ClaimKey("pay", "k", "e", A)
        spend = Spend("r", steps=1, checks=True)
        write = Write(lease, [intent()], [(1, b"1")], changes=[claim, spend])
        assert isinstance(self.store.append([write])[0], Exhausted)
        assert self.store.key("pay", "k") is None
        assert isinstance(self.append(lease, step()), Committed)
        assert self.store.verify() == []

    def test_a_transaction_of_a_user_that_is_refused_leaves_nothing(self) -> None:
        lease = self.started_run()
        self.account(steps=1)
        before = self.row()

        def work(connection: Any) -> Write:
            self.users_write(connection, "tea")
            return Write(lease, [step()], changes=[Spend("r", steps=2, checks=True)])

        assert isinstance(self.store.append_within(lease, work), Exhausted)
        assert (self.users_lines(), self.row(), lease.row) == ([], before, before)
        assert self.left() == (0, 0, 0)
