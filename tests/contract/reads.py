"""What was written is read back, and the store as a whole."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import (
    Message,
    Write,
)
from holdfast._stores.contract import (
    Broken,
    Committed,
    NewRun,
    Query,
)
from holdfast.errors import Corrupt, HoldfastError, StoreLostData
from tests.contract.ground import (
    A,
    Ground,
    entry,
    intent,
    new_run,
    started,
    step,
)


class Reading(Ground):
    """What was written is read back, and the store as a whole."""

    def test_a_store_says_what_it_is_kept_in(self) -> None:
        path, version = self.store.path, self.store.schema_version()
        assert path is None or Path(path).is_file()
        assert version is None or version > 0

    # -- reading back ------------------------------------------------------------------------------

    def test_a_load_leaves_out_what_is_skipped(self) -> None:
        lease = self.started_run()
        for name in "abcd":
            self.append(lease, step(name))
        row = self.row()
        everything = self.store.load(row)
        assert self.store.load(row, [(3, 6)]) == [*everything[:2], *everything[4:]]
        assert self.store.load(row, [(1, 2), (5, 8)]) == [everything[2], everything[5]]
        assert self.store.load(row, [(3, row.last_seq)]) == everything[:2]
        assert self.store.load(row, [(1, row.last_seq)]) == []

    def test_a_load_ends_where_the_row_ended(self) -> None:
        lease = self.started_run()
        before = self.row()
        self.append(lease, step())
        assert len(self.store.load(before)) == 2
        assert len(self.store.load(self.row())) == 3

    def test_one_entry_by_number(self) -> None:
        lease = self.started_run()
        self.append(lease, step("a"), step("b"))
        loaded = self.store.load(self.row())
        for item in loaded:
            for seq in range(item.first_seq, item.seq + 1):
                assert self.store.entry(lease.row.run_no, seq) == item
        assert self.store.entry(lease.row.run_no, 0) is None
        assert self.store.entry(lease.row.run_no, lease.row.last_seq + 1) is None
        assert self.store.entry(99, 1) is None

    def test_chunks_come_back_with_some_before_them(self) -> None:
        made = self.store.start(
            NewRun("r", "f", "1", A, [started()], [(1, b'"one"'), (2, b'"two"')]), self.owner
        )
        assert made.lease is not None
        assert made.row.next_chunk == 3
        self.store.append([Write(made.lease, [step()], [(3, b'"\xc3\xbc"')])])
        found = self.store.chunks(made.row.run_no, 3)
        assert found[3] == b'"\xc3\xbc"'
        assert set(found) <= {1, 2, 3}
        assert self.row().next_chunk == 4
        with pytest.raises(Corrupt):
            self.store.chunks(made.row.run_no, 9)

    def test_lists_are_filtered_and_paged_newest_first(self) -> None:
        for number in range(5):
            tags = f'{{"n":"{number % 2}"}}'
            self.store.start(new_run(f"r{number}", f"f{number % 2}", tags=tags), None)
        self.append(self.claimed("r0"), entry(Kind.RUN_COMPLETED, 9))

        def ids(**filters: object) -> list[str]:
            return [row.run_id for row in self.store.list(Query(**filters))]  # type: ignore[arg-type]

        assert ids() == ["r4", "r3", "r2", "r1", "r0"]
        assert ids(status=[Status.COMPLETED]) == ["r0"]
        assert ids(status=[Status.QUEUED, Status.COMPLETED], limit=2) == ["r4", "r3"]
        assert ids(status=[]) == []
        assert ids(flow="f1") == ["r3", "r1"]
        assert ids(tag=("n", "0")) == ["r4", "r2", "r0"]
        assert ids(tag=("m", "0")) == []
        assert ids(tag=("n", "")) == ids(tag=("n", "n")) == ids(tag=("n", '"')) == []
        assert ids(run_id_prefix="r3") == ["r3"]
        assert ids(run_id_part="3") == ["r3"]
        assert ids(run_id_part="r") == ["r4", "r3", "r2", "r1", "r0"]
        assert ids(run_id_part="%") == ids(run_id_part="R") == []
        assert ids(updated_before_us=5) == ["r4", "r3", "r2", "r1"]
        assert ids(updated_after_us=9) == ["r0"]
        assert ids(updated_after_us=2**62) == []
        page = self.store.list(Query(limit=2))
        assert ids(limit=2, before_run_no=page[-1].run_no) == ["r2", "r1"]

    def test_lists_by_version_and_by_tags_of_any_text(self) -> None:
        texts = ["plain", "two words", 'a "quote"', "back\\slash", "umlaut ü", "a/b", "<&>", ""]
        for number, text in enumerate(texts):
            new = new_run(f"r{number}", tags=msgspec.json.encode({"t": text}).decode())
            new.version = text
            self.store.start(new, None)
        for number, text in enumerate(texts):
            assert [row.run_id for row in self.store.list(Query(tag=("t", text)))] == [f"r{number}"]
            assert [row.run_id for row in self.store.list(Query(version=text))] == [f"r{number}"]
        assert self.store.list(Query(version="none")) == []

    # -- the store as a whole ----------------------------------------------------------------------

    def test_namespaces_are_apart(self) -> None:
        lease = self.started_run()
        self.claim_key(lease)
        other = self.open_store("other")
        assert other.get("r") is None
        assert other.list(Query()) == []
        assert other.key("pay", "k") is None
        assert other.start(new_run("r", "g"), None).created
        assert [row.flow for row in other.list(Query())] == ["g"]
        assert [row.run_id for row in other.claimable(self.clock(), 9)] == ["r"]
        assert self.claimable() == []
        assert self.row().flow == "f"
        other.close()

    def test_the_clock_never_runs_backwards(self) -> None:
        now_us = self.store.now_us()
        self.clock.advance_s(-1000)
        assert self.store.now_us() >= now_us
        self.started_run()
        other = self.open_store()
        assert other.now_us() >= now_us
        self.clock.advance_s(2000)
        assert other.now_us() >= self.clock()
        other.close()

    def test_the_clock_never_stands_still(self) -> None:
        self.clock.advance_s(3600)
        self.started_run()
        self.clock.advance_s(-3600)
        other = self.open_store()
        for store in (self.store, other):
            now_us = store.now_us()
            self.clock.advance_s(5)
            assert store.now_us() == now_us + 5_000_000
        other.close()

    def test_owners_have_numbers_and_names(self) -> None:
        other = self.open_store()
        assert other.register_owner() != self.owner
        assert self.store.owner_name(None) == "nobody"
        assert self.store.owner_name(self.owner) not in {"", "nobody"}
        other.close()

    def test_a_closed_handle_gives_its_runs_free(self) -> None:
        other = self.open_store()
        other.start(new_run("r"), other.register_owner())
        other.close()
        other.close()
        assert self.claimable() == ["r"]
        with pytest.raises(HoldfastError):
            other.start(new_run("s"), None)

    def test_another_handle_sees_every_commit(self) -> None:
        other = self.open_store()
        other.wait_for_change(0)
        assert not other.wait_for_change(0)
        lease = self.started_run()
        assert other.wait_for_change(5)
        self.append(lease, step())
        row = other.get("r")
        assert row == self.row()
        assert row is not None
        assert other.load(row) == self.store.load(row)
        other.close()

    def test_a_sound_store_verifies(self) -> None:
        lease = self.started_run()
        self.claim_key(lease)
        self.store.post("r", Message("m", "signal", "me", 1, b"{}"))
        self.append(lease, step(), entry(Kind.RUN_COMPLETED))
        self.store.start(new_run("s"), None)
        assert self.store.verify() == []
        assert self.store.verify(["r", "s"]) == []

    def test_a_store_that_lost_commits_refuses_effects_until_adopted(self) -> None:
        self.store.start(new_run("r"), None)
        assert self.store.regression() is None
        assert self.store.accepted_through() == 0
        store = self.lose_commits("r")
        assert store.regression()
        owner = store.register_owner()
        lease = self.claimed("r", owner, store)
        assert isinstance(store.append([Write(lease, [step()])])[0], Committed)
        with pytest.raises(StoreLostData, match="accept-data-loss"):
            store.append([Write(lease, [intent()])])
        outcomes = store.append([Write(lease, [step("t")]), Write(lease, [intent()])])
        assert [type(outcome) for outcome in outcomes] == [Committed, Broken]
        store.accept_data_loss("me")
        assert store.regression() is None
        assert store.accepted_through() >= lease.row.run_no
        assert isinstance(store.append([Write(lease, [intent()])])[0], Committed)
        store.close()
