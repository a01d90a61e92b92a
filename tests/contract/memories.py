"""Memories: durable values outside any journal, with versions and times."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast._engine.journal.changes import Outdated, PutMemo
from holdfast._engine.journal.rows import Lease, Memo, Write
from holdfast._stores.contract import Broken, Committed, Fenced
from tests.contract.ground import ODD_STRINGS, Ground, new_run, started, step


class Remembering(Ground):
    """Memories: durable values outside any journal, with versions and times."""

    def put(self, key: str, value: bytes | None = b"1", space: str = "s", **more: Any) -> Memo:
        """Write a value and expect it to be written."""
        made = self.store.put_memo(Memo(space, key, value, **more))
        assert made is not None
        return made

    def keys(self, prefix: str = "", after: str = "", limit: int = 100) -> list[str]:
        """Return the keys of the space `s`."""
        return [memo.key for memo in self.store.memos("s", prefix, after, limit)]

    def value(self, key: str = "k") -> bytes | None:
        """Return a value of the space `s`."""
        memo = self.store.memo("s", key)
        return None if memo is None else memo.value

    # -- outside runs ------------------------------------------------------------------------------

    def test_a_value_is_read_as_it_was_written(self) -> None:
        made = self.put("k", b'{"plain":[1]}', run_id="r", expires_us=self.clock() + 5)
        clock_us = self.clock()
        assert made == Memo("s", "k", b'{"plain":[1]}', clock_us + 5, 1, clock_us, "r")
        assert self.store.memo("s", "k") == made
        assert self.store.memos("s") == [made]
        assert self.store.verify() == []

    def test_what_was_never_written_is_none(self) -> None:
        self.put("k", space="t")
        assert self.store.memo("s", "k") is None
        assert self.store.memos("s") == []

    def test_memories_are_listed_by_name(self) -> None:
        assert self.store.spaces() == []
        for space in ("t", "Z", "s"):
            self.put("k", space=space)
            self.put("l", space=space)
        assert self.store.spaces() == ["Z", "s", "t"]

    def test_versions_grow_over_removal_and_time(self) -> None:
        assert self.put("k", b"1").version == 1
        assert self.put("k", b"2").version == 2
        assert self.put("k", None).version == 3
        assert self.store.memo("s", "k") is None
        assert self.put("k", b"4", expires_us=self.clock() + 1_000_000).version == 4
        self.clock.advance_s(1)
        assert self.store.memo("s", "k") is None
        assert self.keys() == []
        again = self.put("k", b"5")
        assert (again.version, again.updated_us) == (5, self.clock())

    def test_given_versions_and_times_count_for_nothing(self) -> None:
        made = self.put("k", version=77, updated_us=5)
        assert (made.version, made.updated_us) == (1, self.clock())

    def test_only_who_saw_the_last_version_writes(self) -> None:
        memo = Memo("s", "k", b"1")
        assert self.store.put_memo(memo, 1) is None
        assert self.store.put_memo(memo, 0) is not None
        assert self.store.put_memo(memo, 0) is None
        second = self.store.put_memo(Memo("s", "k", b"2"), 1)
        assert second is not None
        assert second.version == 2
        assert self.store.put_memo(memo, 1) is None
        assert self.value() == b"2"

    @pytest.mark.parametrize("how", ["removed", "its time is over"])
    def test_what_cannot_be_seen_is_expected_as_none(self, how: str) -> None:
        if how == "removed":
            self.put("k")
            self.put("k", None)
        else:
            self.put("k", expires_us=self.clock() + 1)
            self.put("k", expires_us=self.clock() + 1)
            self.clock.advance_s(1)
        assert self.store.put_memo(Memo("s", "k", b"9"), 2) is None
        made = self.store.put_memo(Memo("s", "k", b"9"), 0)
        assert made is not None
        assert made.version == 3

    def test_several_are_written_and_removed_together(self) -> None:
        self.put("old")
        self.put("k", b"1")
        self.store.put_memos(
            [
                Memo("s", "k", b"2"),
                Memo("s", "new", b"3"),
                Memo("s", "old", None),
                Memo("t", "k", b"4"),
            ]
        )
        assert self.keys() == ["k", "new"]
        assert (self.value("k"), self.value("new")) == (b"2", b"3")
        found = self.store.memo("s", "k")
        assert found is not None
        assert found.version == 2
        assert self.store.put_memos([])
        assert self.store.verify() == []

    def test_several_are_written_only_if_all_versions_are_as_expected(self) -> None:
        self.put("seen")
        self.put("seen")
        self.put("gone")
        self.put("gone", None)
        memos = [Memo("s", "new", b"1"), Memo("s", "seen", b"2")]

        def put(**versions: int) -> bool:
            expected = [Memo("s", key, None, expected=it) for key, it in versions.items()]
            return self.store.put_memos(memos, expected)

        for refused in ({"seen": 1}, {"seen": 0}, {"new": 1}, {"gone": 2}, {"seen": 2, "new": 1}):
            assert not put(**refused)
            assert (self.keys(), self.value("seen")) == (["seen"], b"1")
        assert put(seen=2, new=0, gone=0)
        assert (self.keys(), self.value("seen")) == (["new", "seen"], b"2")
        assert not put(seen=2)
        assert self.put("gone").version == 3
        assert self.store.verify() == []

    def test_a_listing_is_in_order_by_prefix_and_by_pages(self) -> None:
        for key in ("b", "a/2", "a/10", "a", "ä", "aa", "A", "a/\U0001f600", "a/\uffff"):
            self.put(key)
        self.put("gone")
        self.put("gone", None)
        ordered = ["A", "a", "a/10", "a/2", "a/\uffff", "a/\U0001f600", "aa", "b", "ä"]
        assert self.keys() == ordered
        assert self.keys("a/") == ordered[2:6]
        assert self.keys("a/", after="a/10", limit=2) == ordered[3:5]
        assert self.keys(after="b") == ["ä"]
        assert self.keys(limit=2) == ["A", "a"]
        assert self.keys("zz") == []

    def test_a_page_is_full_though_some_were_removed(self) -> None:
        for number in range(20):
            self.put(f"k{number:02}")
            if number % 3:
                self.put(f"k{number:02}", None)
        assert self.keys(limit=4) == ["k00", "k03", "k06", "k09"]
        assert self.keys(after="k09", limit=4) == ["k12", "k15", "k18"]

    def test_odd_names_are_only_names(self) -> None:
        for number, text in enumerate(ODD_STRINGS):
            self.put(text, str(number).encode(), space=text)
        for number, text in enumerate(ODD_STRINGS):
            found = self.store.memos(text, text)
            assert [(memo.key, memo.value) for memo in found] == [(text, str(number).encode())]
            assert self.store.memo(text, text) == found[0]
        assert self.store.verify() == []

    def test_memories_stay_in_their_namespace(self) -> None:
        self.put("k")
        other = self.open_store("other")
        assert (other.memo("s", "k"), other.memos("s")) == (None, [])
        made = other.put_memo(Memo("s", "k", b"2"), 0)
        assert made is not None
        assert self.value() == b"1"
        other.close()

    def test_another_handle_sees_it(self) -> None:
        other = self.open_store()
        self.put("k")
        found = other.memo("s", "k")
        assert found is not None
        assert other.put_memo(Memo("s", "k", b"2"), found.version) is not None
        assert self.value() == b"2"
        other.close()

    def test_what_is_over_is_listed_until_it_is_removed(self) -> None:
        self.put("late", expires_us=self.clock() + 2)
        self.put("early", expires_us=self.clock() + 1)
        self.put("early", space="t", expires_us=self.clock() + 1)
        self.put("gone", expires_us=self.clock() + 1)
        self.put("gone", None)
        self.put("stays")
        self.put("later", expires_us=self.clock() + 60_000_000)
        assert self.store.expired_memos() == []
        self.clock.advance_s(10)
        over = self.store.expired_memos()
        assert [(memo.space, memo.key) for memo in over] == [
            ("s", "early"),
            ("t", "early"),
            ("s", "late"),
        ]
        assert [memo.key for memo in self.store.expired_memos("s", limit=1)] == ["early"]
        other = self.open_store("other")
        assert other.expired_memos() == []
        other.close()
        assert self.put("early").version == 2  # Written anew: it is not over.
        assert [memo.key for memo in self.store.expired_memos("s")] == ["late"]

    def test_what_is_over_is_removed_if_it_is_over_still(self) -> None:
        for key in ("a", "b"):
            self.put(key, expires_us=self.clock() + 1)
        self.clock.advance_s(10)
        gone = [Memo("s", key, None) for key in ("a", "b")]
        still = [Memo("s", key, None, expected=0) for key in ("a", "b")]
        self.put("b", b"anew")
        assert not self.store.put_memos(gone, still)
        assert self.store.put_memo(gone[1], 0) is None
        assert self.store.put_memos(gone[:1], still[:1])
        assert self.store.expired_memos() == []
        assert self.value("b") == b"anew"
        assert self.put("a").version == 3
        assert self.store.verify() == []

    def test_what_is_over_for_long_can_be_dropped(self) -> None:
        self.put("removed")
        self.put("removed", None)
        self.put("over", expires_us=self.clock() + 1)
        self.put("stays")
        self.put("later", expires_us=self.clock() + 60_000_000)
        self.clock.advance_s(10)
        self.put("removed now")
        self.put("removed now", None)
        assert self.store.drop_memos(self.clock() - 20_000_000) == 0
        other = self.open_store("other")
        assert other.drop_memos(self.clock()) == 0
        other.close()
        assert self.store.drop_memos(self.clock()) == 2
        assert self.store.drop_memos(self.clock()) == 0
        assert self.keys() == ["later", "stays"]
        assert self.put("over").version == 1
        assert self.put("removed now").version == 3
        assert self.store.verify() == []

    # -- inside a write ----------------------------------------------------------------------------

    def test_a_step_writes_a_memory_with_its_outcome(self) -> None:
        self.put("old")
        lease = self.started_run()
        memos = [Memo("s", "k", b"1", run_id="r"), Memo("s", "old", None, run_id="r")]
        (outcome,) = self.store.append([Write(lease, [step()], changes=[*map(PutMemo, memos)])])
        assert isinstance(outcome, Committed)
        found = self.store.memo("s", "k")
        assert found == Memo("s", "k", b"1", None, 1, lease.row.updated_us, "r")
        assert self.keys() == ["k"]
        assert self.put("old").version == 3
        assert self.store.verify() == []

    def test_the_last_of_several_writes_of_one_key_stands(self) -> None:
        leases = [self.started_run(name) for name in "abc"]
        writes = [
            Write(
                lease,
                [step()],
                changes=[*map(PutMemo, [Memo("s", "k", str(number).encode()) for number in pair])],
            )
            for lease, pair in zip(leases, ((1, 2), (3, 4), (5, 6)), strict=True)
        ]
        assert all(isinstance(it, Committed) for it in self.store.append(writes))
        found = self.store.memo("s", "k")
        assert found is not None
        assert (found.value, found.version) == (b"6", 6)

    def test_a_fenced_or_broken_write_remembers_nothing(self) -> None:
        lease = self.started_run()
        stale = Lease(lease.row)
        lease = self.claimed("r")
        memos = [Memo("s", "k", b"1")]
        assert isinstance(
            self.store.append([Write(stale, [step()], changes=[*map(PutMemo, memos)])])[0], Fenced
        )
        other = self.store.start(new_run("other"), self.owner).lease
        assert other is not None
        outcomes = self.store.append(
            [Write(lease, [started()], changes=[*map(PutMemo, memos)]), Write(other, [step()])]
        )
        assert [type(it) for it in outcomes] == [Broken, Committed]
        assert self.keys() == []

    def test_a_write_that_expects_another_version_is_refused_as_a_whole(self) -> None:
        self.put("k")
        lease = self.started_run()
        before = self.row()
        memos = [Memo("s", "new", b"1"), Memo("s", "k", b"2", expected=0)]
        assert isinstance(
            self.store.append([Write(lease, [step()], changes=[*map(PutMemo, memos)])])[0], Outdated
        )
        assert (self.row(), lease.row, self.keys(), self.value()) == (before, before, ["k"], b"1")
        memos[1].expected = 1
        assert isinstance(
            self.store.append([Write(lease, [step()], changes=[*map(PutMemo, memos)])])[0],
            Committed,
        )
        found = self.store.memo("s", "k")
        assert found == Memo("s", "k", b"2", None, 2, lease.row.updated_us)
        assert self.store.verify() == []

    def test_one_batch_gives_a_version_once(self) -> None:
        leases = [self.started_run(name) for name in "abc"]
        writes = [
            Write(lease, [step()], changes=[PutMemo(Memo("s", "k", number, expected=0))])
            for lease, number in zip(leases, (b"1", b"2", b"3"), strict=True)
        ]
        outcomes = self.store.append(writes)
        assert [type(it) for it in outcomes] == [Committed, Outdated, Outdated]
        assert self.value() == b"1"
        assert [self.row(name).last_seq for name in "abc"] == [4, 2, 2]

    def test_a_stale_owner_is_fenced_before_it_is_told_of_a_version(self) -> None:
        self.put("k")
        stale = Lease(self.started_run().row)
        self.claimed("r")
        memos = [Memo("s", "k", b"2", expected=0)]
        assert isinstance(
            self.store.append([Write(stale, [step()], changes=[*map(PutMemo, memos)])])[0], Fenced
        )

    def test_a_version_of_something_that_cannot_be_seen_is_none(self) -> None:
        self.put("k")
        self.put("k", None)
        lease = self.started_run()
        memos = [Memo("s", "k", b"2", expected=2)]
        assert isinstance(
            self.store.append([Write(lease, [step()], changes=[*map(PutMemo, memos)])])[0], Outdated
        )
        memos[0].expected = 0
        assert isinstance(
            self.store.append([Write(lease, [step()], changes=[*map(PutMemo, memos)])])[0],
            Committed,
        )

    def test_a_transaction_of_a_user_with_an_old_version_leaves_nothing(self) -> None:
        self.put("k")
        lease = self.started_run()

        def work(connection: Any) -> Write:
            self.users_write(connection, "tea")
            return Write(lease, [step()], changes=[PutMemo(Memo("s", "k", b"2", expected=0))])

        assert isinstance(self.store.append_within(lease, work), Outdated)
        assert (self.users_lines(), self.value()) == ([], b"1")

    def test_a_memory_goes_with_a_transaction_of_the_user(self) -> None:
        lease = self.started_run()

        def work(_connection: Any) -> Write:
            return Write(lease, [step()], changes=[PutMemo(Memo("s", "k", b"1"))])

        assert isinstance(self.store.append_within(lease, work), Committed)
        assert self.value() == b"1"
