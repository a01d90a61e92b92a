"""The same random operations on the store in memory and on SQLite: every answer must be equal.

The store in memory is small enough to be believed; it is the model. Two "processes" work on each,
with one clock.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from holdfast._engine.journal.changes import (
    ClaimKey,
    CloseQuestion,
    OpenQuestion,
    PostMessage,
    PutMemo,
    SetKey,
    Spend,
    TakeMessage,
)
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.lifecycle import ENDED, Status
from holdfast._engine.journal.rows import Account, Lease, Memo, Message, Question, Write
from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._features.retention import store as sweeping
from holdfast._stores.contract import Broken, Limits, NewRun, Query, ScheduleRow, Wanted
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.contract.store_contract import FakeClock
from tests.model.memory_store import MemoryStore, MemoryWorld

DIGESTS = (b"a" * 16, b"b" * 16)
IDS = ("a", "ü'\"\n", "c", "d", "e")
KEYS = ("k1", "k2")
STATES = ("in_progress", "completed", "in_doubt", "not_done", "undone")
KINDS = [
    Kind.STEP_STARTED,
    Kind.STEP_COMPLETED,
    Kind.STEP_FAILED,
    Kind.STATE_SAVED,
    Kind.VALUE_EMITTED,
    Kind.RUN_WAITING,
    Kind.RUN_RELEASED,
    Kind.RUN_HELD,
    Kind.RUN_RESUMED,
    Kind.RUN_COMPLETED,
    Kind.RUN_FAILED,
]

drafts = st.lists(
    st.builds(
        lambda kind, name, at_us, joined: Draft(
            kind, at_us, name, 1, 0, DIGESTS[0], at_us if joined else None
        ),
        st.sampled_from(KINDS),
        st.sampled_from([None, "s", "t#2"]),
        st.integers(0, 10**15),
        st.booleans(),
    ),
    max_size=3,
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "waiting_on": st.sampled_from([None, "child:x", "child:y"]),
        "wake_us": st.none() | st.integers(1_699_999_990_000_000, 1_700_000_090_000_000),
        "usage": st.sampled_from(["{}", '{"tokens":5}']),
        "tags": st.sampled_from(["{}", '{"team":"a"}']),
        "owner": st.none(),
        "heard": st.sampled_from([None, 1, 2]),
    },
)
ENDS = {Kind.RUN_COMPLETED, Kind.RUN_FAILED}
names = st.sampled_from(["p", "q", "ü'"])
memos = st.builds(
    Memo,
    st.sampled_from(["s", "t"]),
    names,
    st.sampled_from([b"1", b'{"a":2}', None]),
    st.sampled_from([None, None, 1_700_000_020_000_000, 5]),
    run_id=st.sampled_from([None, "a"]),
)
accounts = st.builds(
    Account,
    st.sampled_from(IDS),
    st.sampled_from([5, 1_700_000_000_000_000]),
    usd_nanos=st.sampled_from([None, 5]),
    steps=st.sampled_from([None, 0, 2]),
    wall_us=st.sampled_from([None, None, 31_000_000]),
)
beside = st.fixed_dictionaries(
    {},
    optional={
        "posts": st.lists(
            st.builds(
                PostMessage,
                st.sampled_from([*IDS, "nobody"]),
                st.builds(Message, names, st.just("s"), st.just("me"), st.just(1), st.just(b"{}")),
            ),
            max_size=3,
        ),
        "opens": st.lists(
            st.builds(
                Question,
                st.just(""),
                names,
                st.integers(1, 3),
                st.sampled_from(["question", "approval"]),
                st.sampled_from([None, "ops"]),
                st.just(b"{}"),
                st.integers(1, 3),
                st.sampled_from([None, 9]),
            ),
            max_size=2,
            unique_by=lambda question: question.name,
        ),
        "closes": st.lists(names | st.just("*"), max_size=2),
        "spend": st.builds(
            Spend,
            st.sampled_from(IDS),
            usd_nanos=st.sampled_from([0, 3, -3]),
            steps=st.sampled_from([0, 1]),
            checks=st.booleans(),
        ),
        "memos": st.lists(
            st.builds(
                lambda memo, expected: msgspec.structs.replace(memo, expected=expected),
                memos,
                st.sampled_from([None, None, 0, 1, 2]),
            ),
            max_size=2,
        ),
    },
)
processes = st.integers(0, 1)
queues = st.sampled_from([None, "default", "mail", "z"])
limits = st.builds(
    Limits,
    st.sampled_from(["default", "mail"]),
    concurrency=st.sampled_from([None, 0, 1, 2]),
    concurrency_per_key=st.sampled_from([None, 1]),
    rate=st.sampled_from([None, 1, 2]),
    rate_per_key=st.sampled_from([None, 1]),
    paused=st.sampled_from([False, False, True]),
)


class Stores(RuleBasedStateMachine):
    leases = Bundle("leases")

    @initialize()
    def open(self):
        self.clock = FakeClock()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-model-"))
        self.world = MemoryWorld(self.clock)
        self.pairs = [self._pair(), self._pair()]
        self.owners = [self._registered(pair) for pair in self.pairs]

    def _pair(self):
        file = SqliteStore(str(self.folder / "a.db"), clock=self.clock, page_size=1024)
        return MemoryStore(self.world), file

    def _registered(self, pair):
        numbers = {store.register_owner() for store in pair}
        assert len(numbers) == 1
        return numbers.pop()

    def both(self, process, ask):
        """Ask both stores; an error is an answer too."""
        model, file = (_answer(ask, store) for store in self.pairs[process])
        assert _plain(model) == _plain(file)
        return model, file

    # -- writes ----------------------------------------------------------------------------------

    @rule(
        target=leases,
        process=processes,
        run_id=st.sampled_from(IDS),
        digest=st.sampled_from(DIGESTS),
        owned=st.booleans(),
        at_us=st.integers(0, 10),
        queue=queues,
        priority=st.sampled_from([None, 0, 5, -5]),
        limit_key=st.sampled_from([None, "k"]),
    )
    def start(self, process, run_id, digest, owned, at_us, queue, priority, limit_key):
        new = NewRun(run_id, "f", "1", digest, [Draft(Kind.RUN_STARTED, at_us)], [(1, b"{}")])
        new.queue, new.priority, new.limit_key = queue, priority, limit_key
        owner = self.owners[process] if owned else None

        def started(store):
            found = store.start(new, owner)
            found.entries = None  # A store may say them, and need not.
            return found

        model, file = self.both(process, started)
        return multiple() if model.lease is None else (process, model.lease, file.lease)

    @rule(target=leases, process=processes, run_id=st.sampled_from(IDS))
    def claim(self, process, run_id):
        owner, at_us = self.owners[process], self.clock()
        model, file = self.both(process, lambda store: store.claim(run_id, owner, at_us))
        return (process, model, file) if isinstance(model, Lease) else multiple()

    @rule(
        target=leases,
        process=processes,
        limit=st.integers(1, 4),
        names=st.sampled_from([None, ["mail", "default"], ["z"]]),
        known=st.sampled_from([None, None, {"f": ["1"]}, {"g": ["1"]}]),
        forgets=st.booleans(),
        suspects=st.booleans(),
    )
    def take(self, process, limit, names, known, forgets, suspects):
        """Take from the queues; a process that forgets has lost track of what it owns."""
        owner, at_us = self.owners[process], self.clock()
        rows = self.world.rows.values()
        working = [row.run_no for row in rows if row.owner == owner and not forgets]
        asked = [Wanted(owner, limit, at_us, known, names, working, suspects) for _ in range(2)]
        pair = [
            sorted(store.take(wanted), key=lambda lease: lease.row.run_no)
            for store, wanted in zip(self.pairs[process], asked, strict=True)
        ]
        assert _plain(pair[0]) == _plain(pair[1])
        assert asked[0] == asked[1]
        return multiple(*((process, *both) for both in zip(*pair, strict=True)))

    @rule(process=processes, told=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4))))
    def pulse(self, process, told):
        owner = self.owners[process]
        self.both(process, lambda store: store.pulse(owner, "{}", told))

    @rule(process=processes, chosen=limits)
    def set_limits(self, process, chosen):
        self.both(process, lambda store: store.set_limits(chosen))

    @rule(
        process=processes,
        cursor_us=st.integers(0, 2),
        expected=st.none() | st.integers(0, 2),
        paused=st.booleans(),
    )
    def put_schedule(self, process, cursor_us, expected, paused):
        row = ScheduleRow("s", "f", "{}", cursor_us, paused)
        self.both(process, lambda store: store.put_schedule(row, expected))

    @rule(target=leases, process=processes, run_id=st.sampled_from(IDS))
    def act(self, process, run_id):
        model, file = self.both(process, lambda store: store.get(run_id))
        if model is None:
            return multiple()
        return process, Lease(model, acting=True), Lease(file, acting=True)

    @rule(
        writes=st.lists(
            st.tuples(
                leases,
                drafts,
                changes,
                st.none() | st.sampled_from(KEYS),
                st.sampled_from(DIGESTS),
                st.none() | st.tuples(st.sampled_from(KEYS), st.sampled_from(STATES)),
                st.lists(st.sampled_from(["m1", "m2"]), max_size=1),
                beside,
            ),
            min_size=1,
            max_size=3,
        )
    )
    def append(self, writes):
        """One batch by one process; the leases of the other are left out."""
        process = writes[0][0][0]
        batches: tuple[list[Write], list[Write]] = ([], [])
        ends = any(draft.kind in ENDS for _, entries, *_ in writes for draft in entries)
        for (whose, *pair), entries, changed, claimed, digest, key, took, more in writes:
            if whose != process:
                continue
            row = pair[0].row
            asked = [msgspec.structs.replace(it, run_id=row.run_id) for it in more.get("opens", [])]
            closes = ["*"] if ends else more.get("closes", [])
            opens = [] if ends or row.status in ENDED else asked  # Who ends asks nothing.
            others = [
                *more.get("posts", []),
                *map(CloseQuestion, closes),
                *map(OpenQuestion, opens),
                *([more["spend"]] if more.get("spend") else []),
                *map(PutMemo, more.get("memos", [])),
            ]
            takes = [TakeMessage(message_id) for message_id in took]
            claims = [] if claimed is None else [ClaimKey("pay", claimed, "s", digest)]
            keys = [] if key is None else [SetKey("pay", key[0], key[1], result=True)]
            for batch, lease in zip(batches, pair, strict=True):
                batch.append(Write(lease, entries, [], changed, [*claims, *keys, *takes, *others]))
        if not batches[0]:
            return
        stores = self.pairs[process]
        model, file = (
            _answer(lambda store, batch=batch: store.append(batch), store)
            for store, batch in zip(stores, batches, strict=True)
        )
        assert _plain(model) == _plain(file)
        for ours, theirs in zip(*batches, strict=True):
            assert ours.lease == theirs.lease

    @rule(process=processes, run_id=st.sampled_from(IDS), message=st.sampled_from(["m1", "m2"]))
    def post(self, process, run_id, message):
        self.both(process, lambda store: store.post(run_id, Message(message, "s", "me", 1, b"{}")))

    @rule(process=processes, account=accounts, only_new=st.booleans())
    def put_account(self, process, account, only_new):
        self.both(process, lambda store: store.put_account(account, only_new=only_new))

    @rule(process=processes, memo=memos, expected=st.sampled_from([None, 0, 1, 2]))
    def put_memo(self, process, memo, expected):
        self.both(process, lambda store: store.put_memo(memo, expected))

    @rule(process=processes, space=st.sampled_from([None, "s"]))
    def end_memos(self, process, space):
        self.both(process, lambda store: sweeping.end_memos(store, space))

    @rule(process=processes, seconds=st.sampled_from([0, 30]))
    def drop_memos(self, process, seconds):
        before_us = self.clock() - seconds * 1_000_000
        self.both(process, lambda store: store.drop_memos(before_us))

    @rule(
        process=processes,
        minute=st.integers(0, 2),
        flow=st.sampled_from(["", *IDS]),
        steps=st.integers(0, 9),
    )
    def put_measures(self, process, minute, flow, steps):
        measure = Measure(minute, f"p{process}", flow, Counts(steps=steps, ended={"failed": steps}))
        self.both(process, lambda store: store.put_measures([measure]))

    @rule(process=processes, after=st.integers(0, 2), before=st.integers(1, 3))
    def measures(self, process, after, before):
        self.both(process, lambda store: store.measures(after, before, 3))

    @rule(process=processes, before=st.integers(0, 2))
    def drop_measures(self, process, before):
        self.both(process, lambda store: store.drop_measures(before))

    @rule(process=processes, run_id=st.sampled_from(IDS))
    def forget(self, process, run_id):
        model, _ = self.both(process, lambda store: store.get(run_id))
        if model is not None:
            self.both(process, lambda store: store.forget(model, 7))

    # -- the world -------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 31, 100]))
    def time_passes(self, seconds):
        self.clock.advance_s(seconds)
        self.both(0, lambda store: store.now_us())
        self.both(1, lambda store: store.now_us())

    @rule(process=processes)
    def dies(self, process):
        """A process dies; another takes its place. Its leases stay with those who have them."""
        self.pairs[process][1].close()
        self.world.kill(self.owners[process])
        self.pairs[process] = self._pair()
        self.owners[process] = self._registered(self.pairs[process])

    # -- reads -----------------------------------------------------------------------------------

    @rule(process=processes, limit=st.integers(1, 3), status=st.sampled_from([None, *Status]))
    def look(self, process, limit, status):
        wanted = None if status is None else [status]
        self.both(process, lambda store: store.list(Query(status=wanted, limit=limit)))
        self.both(process, lambda store: store.list(Query(tag=("team", "a"), limit=limit)))
        self.both(process, lambda store: store.claimable(self.clock(), limit))
        self.both(process, lambda store: store.waiting_on("child:x"))
        self.both(process, lambda store: store.queues())
        self.both(process, lambda store: store.queues(counted=False))
        self.both(process, lambda store: store.schedules())
        self.both(process, lambda store: [(it.owner, it.until_us) for it in store.pulses()])
        for key in KEYS:
            self.both(process, lambda store, key=key: store.key("pay", key))
        self.both(process, lambda store: store.news(range(1, 7)))
        self.both(process, lambda store: store.questions(limit=limit))
        self.both(process, lambda store: store.memos("s", limit=limit))
        self.both(process, lambda store: store.memos("t", "p"))
        self.both(process, lambda store: store.expired_memos(limit=limit))
        self.both(process, lambda store: store.expired_memos("s"))
        self.both(process, lambda store: store.spaces())

    @rule(process=processes, run_id=st.sampled_from(IDS), skip=st.integers(0, 4))
    def read(self, process, run_id, skip):
        model, _ = self.both(process, lambda store: store.get(run_id))
        if model is None:
            return
        self.both(process, lambda store: store.messages(model.run_no))
        self.both(process, lambda store: store.questions(run_id))
        self.both(process, lambda store: store.account(run_id))
        whole, _ = self.both(process, lambda store: store.load(model))
        if model.deleted_us is not None:
            assert whole == []
            return
        edge = whole[min(skip, len(whole) - 1)].seq
        self.both(process, lambda store: store.load(model, [(1, edge)]))
        self.both(process, lambda store: store.entry(model.run_no, skip))
        self.both(process, lambda store: store.inbox(model.run_no))
        self.both(process, lambda store: store.chunks(model.run_no, 1))
        self.both(process, lambda store: store.whole(model))

    @invariant()
    def is_sound(self):
        if hasattr(self, "pairs"):
            assert self.pairs[0][0].verify() == []

    def teardown(self):
        if hasattr(self, "pairs"):
            assert self.pairs[0][1].verify() == []
            for pair in self.pairs:
                pair[1].close()
            shutil.rmtree(self.folder)


def _answer(ask, store) -> Any:
    try:
        return ask(store)
    except Exception as error:
        return error


def _plain(answer):
    """Make answers comparable: an error is its type, a struct its parts."""
    if isinstance(answer, Broken):
        return "broken", _plain(answer.error)
    if isinstance(answer, Exception):
        return type(answer).__name__
    if isinstance(answer, list):
        return [_plain(part) for part in answer]
    if isinstance(answer, tuple):
        return tuple(_plain(part) for part in answer)
    if isinstance(answer, msgspec.Struct):
        left_out = {"owner"} if type(answer).__name__ == "Busy" else set()
        fields = answer.__struct_fields__
        return type(answer), [_plain(getattr(answer, f)) for f in fields if f not in left_out]
    return answer


pytestmark = pytest.mark.timeout(600)  # Two minutes of work for one core.
TestStores = Stores.TestCase
TestStores.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    derandomize=True,
)
