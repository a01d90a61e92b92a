"""Everything that a store says to the server to have something committed, one class for each.

Each is played with the connection cut after a certain byte. `prepare` makes what it needs, `act` is
the exchange, and `check` compares what the caller was told with what another handle sees: the truth,
all of it, once. `check_unknown` is for a caller who was told that it is not known: then it happened
once or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg

from holdfast._engine.journal.changes import (
    ClaimKey,
    OpenQuestion,
    PostMessage,
    PutMemo,
    SetKey,
    Spend,
    TakeMessage,
)
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Account, Lease, Memo, Message, Question, RunRow, Write
from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._features.measures.model import MINUTE_US
from holdfast._stores.contract import (
    Committed,
    Fenced,
    Limits,
    NewRun,
    Posted,
    ScheduleRow,
    Started,
    Store,
    Wanted,
)
from holdfast.errors import StoreFailed
from tests.contract.store_contract import entry, intent, new_run, step
from tests.postgres.proxy import Cut, Proxy

A = b"a" * 16


PATIENCE_S = 30.0


class Bench:
    """A store whose connections go through a proxy, and one that sees the truth."""

    def __init__(self, store: Store, truth: Store, proxy: Proxy) -> None:
        self.store = store
        self.truth = truth
        self.proxy = proxy
        self.owner = store.register_owner()
        self._number = 0
        self.warm = self.started("warm")

    def name(self) -> str:
        """Return a name that nobody has."""
        self._number += 1
        return f"r{self._number}"

    def started(self, run_id: str) -> Lease:
        """Start a run that the store owns."""
        lease = self.store.start(new_run(run_id), self.owner).lease
        assert lease is not None
        return lease

    def steady(self) -> None:
        """Have a connection that is up, whatever happened to the one before."""
        assert isinstance(self.store.append([Write(self.warm, [])])[0], Committed)

    def row(self, run_id: str) -> RunRow:
        """Return the row of a run, as it really is."""
        row = self.truth.get(run_id)
        assert row is not None
        return row

    def kinds(self, run_id: str) -> list[str]:
        """Return what the journal of a run says, without what every run begins with."""
        loaded = self.truth.load(self.row(run_id))
        found = [part.kind.value for item in loaded for part in item.expand()]
        return found[2:] if found[:2] == ["run_started", "run_claimed"] else found[1:]


class Exchange:
    """One kind of exchange; made anew for each case."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.run_id = bench.name()

    def prepare(self) -> None:
        raise NotImplementedError

    def act(self) -> Any:
        raise NotImplementedError

    def check(self, told: Any) -> None:
        raise NotImplementedError

    def check_unknown(self) -> None:
        raise NotImplementedError


class Appending(Exchange):
    """A write to one run."""

    before: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()

    def prepare(self) -> None:
        self.lease = self.bench.started(self.run_id)
        self.bench.steady()

    def write(self) -> Write:
        raise NotImplementedError

    def act(self) -> Any:
        return self.bench.store.append([self.write()])

    def check(self, told: Any) -> None:
        (outcome,) = told
        assert isinstance(outcome, Committed), outcome
        assert self.bench.kinds(self.run_id) == [*self.before, *self.adds]
        row = self.bench.row(self.run_id)
        assert self.lease.row == row
        entries = self.bench.truth.load(row)
        assert not outcome.entries or entries[-len(outcome.entries) :] == outcome.entries
        # Whoever was told so goes on from there.
        if row.owner is not None:
            again = self.bench.store.append([Write(self.lease, [step("next")])])[0]
            assert isinstance(again, Committed), again

    def check_unknown(self) -> None:
        found = self.bench.kinds(self.run_id)
        assert found in ([*self.before], [*self.before, *self.adds]), found


class PlainStep(Appending):
    adds = ("step_started", "step_completed")

    def write(self) -> Write:
        return Write(self.lease, [step()], [(1, b'"chunk"')])


class Intent(Appending):
    adds = ("step_started",)

    def write(self) -> Write:
        return Write(self.lease, [intent()])


class Outcome(Appending):
    before = ("step_started",)
    adds = ("step_completed",)

    def prepare(self) -> None:
        super().prepare()
        self.bench.store.append([Write(self.lease, [intent()])])

    def write(self) -> Write:
        return Write(self.lease, [Draft(Kind.STEP_COMPLETED, 3, "e", 1, 0, A, body=b"{}")])


class KeyedIntent(Appending):
    adds = ("step_started",)

    def write(self) -> Write:
        claim = ClaimKey("pay", f"key of {self.run_id}", "e", A)
        return Write(self.lease, [intent()], changes=[claim])

    def check(self, told: Any) -> None:
        super().check(told)
        key = self.bench.truth.key("pay", f"key of {self.run_id}")
        assert key is not None
        assert (key.state, key.run_id, key.step) == ("in_progress", self.run_id, "e")

    def check_unknown(self) -> None:
        super().check_unknown()
        key = self.bench.truth.key("pay", f"key of {self.run_id}")
        assert (key is not None) == bool(self.bench.kinds(self.run_id))


class KeyedOutcome(Outcome):
    def prepare(self) -> None:
        Appending.prepare(self)
        claim = ClaimKey("pay", f"key of {self.run_id}", "e", A)
        self.bench.store.append([Write(self.lease, [intent()], changes=[claim])])

    def write(self) -> Write:
        write = super().write()
        write.changes = [SetKey("pay", f"key of {self.run_id}", "completed", result=True)]
        return write

    def check(self, told: Any) -> None:
        super().check(told)
        key = self.bench.truth.key("pay", f"key of {self.run_id}")
        assert key is not None
        assert key.state == "completed"


class TakenMessage(Appending):
    adds = ("value_emitted",)

    def prepare(self) -> None:
        super().prepare()
        self.bench.truth.post(self.run_id, Message("m", "signal", "me", 1, b"{}"))

    def write(self) -> Write:
        return Write(self.lease, [entry(Kind.VALUE_EMITTED)], changes=[TakeMessage("m")])

    def check(self, told: Any) -> None:
        super().check(told)
        assert self.bench.truth.inbox(self.lease.row.run_no) == []


class Renewal(Appending):
    def write(self) -> Write:
        return Write(self.lease, [])


class End(Appending):
    adds = ("run_completed",)

    def write(self) -> Write:
        return Write(self.lease, [entry(Kind.RUN_COMPLETED)])


class Acting(Appending):
    adds = ("run_held",)

    def prepare(self) -> None:
        self.bench.store.start(new_run(self.run_id), None)
        self.lease = Lease(self.bench.row(self.run_id), acting=True)
        self.bench.steady()

    def write(self) -> Write:
        return Write(self.lease, [entry(Kind.RUN_HELD)], row={"held_reason": "paused"})


class Several(Exchange):
    """Writes of several runs at once; one of them has been taken over meanwhile."""

    def prepare(self) -> None:
        names = [f"{self.run_id}-{part}" for part in ("first", "lost", "last")]
        self.leases = [self.bench.started(name) for name in names]
        self.stale = self.leases[1]
        again = self.bench.store.claim(names[1], self.bench.owner, self.bench.store.now_us())
        assert isinstance(again, Lease), again
        self.names = names
        self.bench.steady()

    def act(self) -> Any:
        return self.bench.store.append([Write(lease, [step()]) for lease in self.leases])

    def check(self, told: Any) -> None:
        assert [type(outcome) for outcome in told] == [Committed, Fenced, Committed]
        for name in (self.names[0], self.names[2]):
            assert self.bench.kinds(name) == ["step_started", "step_completed"]
        assert self.bench.kinds(self.names[1]) == ["run_claimed"]

    def check_unknown(self) -> None:
        assert self.bench.kinds(self.names[1]) == ["run_claimed"]
        first, last = (self.bench.kinds(name) for name in (self.names[0], self.names[2]))
        assert first == last


class Start(Exchange):
    """A new run, claimed by its maker."""

    owned = True

    def prepare(self) -> None:
        self.bench.steady()
        self.bench.store.start(new_run(self.bench.name()), self.bench.owner)

    def new(self) -> NewRun:
        new = new_run(self.run_id)
        new.chunks = [(1, b'"chunk"')]
        return new

    def act(self) -> Any:
        return self.bench.store.start(self.new(), self.bench.owner if self.owned else None)

    def check(self, told: Started) -> None:
        assert told.created
        assert told.row == self.bench.row(self.run_id)
        assert (told.lease is not None) == self.owned
        assert self.bench.kinds(self.run_id) == []
        if told.lease is not None:
            assert told.lease.row == told.row
            assert isinstance(self.bench.store.append([Write(told.lease, [])])[0], Committed)

    def check_unknown(self) -> None:
        if self.bench.truth.get(self.run_id) is not None:
            assert self.bench.kinds(self.run_id) == []


class Submit(Start):
    owned = False


class Fork(Start):
    """A new run that stands on another one."""

    owned = False

    def prepare(self) -> None:
        self.origin = f"{self.run_id}-origin"
        self.bench.store.start(new_run(self.origin), None)
        super().prepare()

    def new(self) -> NewRun:
        new = super().new()
        told = {"from": self.origin, "from_seq": 0, "before": "s", "actor": "me", "parts": []}
        told |= {"differences": [], "repeats": [], "given": ""}
        new.drafts.append(Draft(Kind.RUN_FORKED, 1, body=msgspec.json.encode(told)))
        new.origin = msgspec.json.encode({"run": self.origin, "base": 1}).decode()
        return new

    def check(self, told: Started) -> None:
        assert told.created
        assert told.row == self.bench.row(self.run_id)
        assert self.bench.kinds(self.run_id) == [Kind.RUN_FORKED]

    def check_unknown(self) -> None:
        if self.bench.truth.get(self.run_id) is not None:
            assert self.bench.kinds(self.run_id) == [Kind.RUN_FORKED]


class StartAll(Exchange):
    """Several new runs, and one that is there already."""

    def prepare(self) -> None:
        self.bench.steady()
        self.names = [f"{self.run_id}-{part}" for part in ("a", "there", "b")]
        self.bench.store.start(new_run(self.names[1]), None)

    def act(self) -> Any:
        return self.bench.store.start_all([(new_run(name), None) for name in self.names])

    def check(self, told: list[Started]) -> None:
        assert [made.created for made in told] == [True, False, True]
        assert [made.row for made in told] == [self.bench.row(name) for name in self.names]

    def check_unknown(self) -> None:
        here = [self.bench.truth.get(name) is not None for name in self.names]
        assert here in ([True, True, True], [False, True, False])


class Claim(Exchange):
    """A run that was waiting for somebody."""

    def prepare(self) -> None:
        self.bench.store.start(new_run(self.run_id), None)
        self.bench.steady()

    def act(self) -> Any:
        store = self.bench.store
        return store.claim(self.run_id, self.bench.owner, store.now_us())

    def check(self, told: Any) -> None:
        assert isinstance(told, Lease), told
        row = self.bench.row(self.run_id)
        assert (row.epoch, row.owner, row.claims) == (1, self.bench.owner, 1)
        assert told.row == row
        assert self.bench.kinds(self.run_id) == []
        assert isinstance(self.bench.store.append([Write(told, [step()])])[0], Committed)

    def check_unknown(self) -> None:
        assert self.bench.row(self.run_id).epoch in {0, 1}


class Take(Exchange):
    """Runs of a queue."""

    def prepare(self) -> None:
        self.names = [f"{self.run_id}-{part}" for part in "ab"]
        for name in self.names:
            new = new_run(name)
            new.queue = self.run_id
            self.bench.store.start(new, None)
        self.bench.steady()

    def act(self, working: Sequence[int] = ()) -> list[Lease]:
        store = self.bench.store
        at_us, queues = store.now_us(), [self.run_id]
        return store.take(Wanted(self.bench.owner, 10, at_us, queues=queues, working=working))

    def check(self, told: list[Lease]) -> None:
        # What it has without having been told, the same process gets at one of its next looks: as
        # soon as the server has noticed that the cut session is gone, and let go of its locks.
        deadline_s = time.monotonic() + PATIENCE_S
        while len(told) < len(self.names) and time.monotonic() < deadline_s:
            told = told + self.act([lease.row.run_no for lease in told])
        assert sorted(lease.row.run_id for lease in told) == self.names
        for lease in told:
            assert lease.row == self.bench.row(lease.row.run_id)
            assert lease.row.epoch in {1, 2}
            assert isinstance(self.bench.store.append([Write(lease, [step()])])[0], Committed)

    def check_unknown(self) -> None:
        assert {self.bench.row(name).epoch for name in self.names} in ({0}, {1})
        self.check([])


class Post(Exchange):
    """A message to a run."""

    def prepare(self) -> None:
        self.bench.store.start(new_run(self.run_id), None)
        self.bench.steady()

    def act(self) -> Any:
        return self.bench.store.post(self.run_id, Message("m", "signal", "me", 1, b"{}"))

    def check(self, told: Posted) -> None:
        assert told is Posted.ACCEPTED
        assert self.there() == ["m"]

    def check_unknown(self) -> None:
        assert self.there() in ([], ["m"])

    def there(self) -> list[str]:
        inbox = self.bench.truth.inbox(self.bench.row(self.run_id).run_no)
        return [message.message_id for message in inbox]


class Within(Exchange):
    """An effect in the same database: the user's own row and the outcome, together."""

    def prepare(self) -> None:
        self.lease = self.bench.started(self.run_id)
        self.bench.steady()

    def act(self) -> Any:
        def work(connection: psycopg.Connection) -> Write:
            connection.execute("INSERT INTO public.paid VALUES (%s)", (self.run_id,))
            return Write(self.lease, [step("pay")])

        try:
            return self.bench.store.append_within(self.lease, work)
        except StoreFailed:  # It is not done a second time by itself: the user's code is in it.
            return None

    def check(self, told: Any) -> None:
        if told is None:
            self.check_unknown()
            return
        assert isinstance(told, Committed), told
        assert self.bench.kinds(self.run_id) == ["step_started", "step_completed"]
        assert self.paid() == 1
        assert self.lease.row == self.bench.row(self.run_id)

    def check_unknown(self) -> None:
        assert self.paid() == self.bench.kinds(self.run_id).count("step_completed")

    def paid(self) -> int:
        with psycopg.connect(self.bench.truth.url) as direct:
            query = "SELECT count(*) FROM public.paid WHERE run_id = %s"
            found = direct.execute(query, (self.run_id,)).fetchone()
            assert found is not None
            return found[0]


class Pulse(Exchange):
    """A sign of life."""

    def prepare(self) -> None:
        self.lease = self.bench.started(self.run_id)
        self.bench.store.pulse(self.bench.owner, "{}")

    def act(self) -> Any:
        at = [(self.lease.row.run_no, self.lease.row.epoch), (self.lease.row.run_no, 99)]
        return self.bench.store.pulse(self.bench.owner, '{"a": 1}', at)

    def check(self, told: list[int]) -> None:
        assert told == [self.lease.row.run_no]
        [mine] = [pulse for pulse in self.bench.truth.pulses() if pulse.owner == self.bench.owner]
        assert mine.until_us > self.bench.truth.now_us()

    def check_unknown(self) -> None:
        pass


class Schedule(Exchange):
    """The cursor of a schedule."""

    def prepare(self) -> None:
        self.row = ScheduleRow(self.run_id, "f", "{}", 1)
        assert self.bench.store.put_schedule(self.row, None)
        self.bench.steady()

    def act(self) -> Any:
        return self.bench.store.put_schedule(ScheduleRow(self.run_id, "f", "{}", 2), 1)

    def check(self, told: bool) -> None:
        assert told
        assert self.cursor() == 2

    def check_unknown(self) -> None:
        assert self.cursor() in {1, 2}

    def cursor(self) -> int:
        [mine] = [row for row in self.bench.truth.schedules() if row.name == self.run_id]
        return mine.cursor_us


class QueueLimits(Exchange):
    """The limits of a queue."""

    def prepare(self) -> None:
        self.bench.steady()

    def act(self) -> Any:
        self.bench.store.set_limits(Limits(self.run_id, concurrency=3))

    def check(self, told: None) -> None:
        [mine] = [q for q in self.bench.truth.queues() if q.limits.queue == self.run_id]
        assert mine.limits.concurrency == 3

    def check_unknown(self) -> None:
        pass


class Letters(Appending):
    """A write that changes something beside its run: all of it with the entry, or nothing."""

    adds: tuple[str, ...] = ("step_started", "step_completed")

    def prepare(self) -> None:
        super().prepare()
        self.bench.store.start(new_run(f"{self.run_id}-other"), None)
        self.bench.store.put_account(Account(self.run_id, 1, steps=10))
        self.bench.steady()

    def write(self) -> Write:
        return Write(
            self.lease,
            [step()],
            changes=[
                PostMessage(f"{self.run_id}-other", Message("m", "signal", "me", 1, b"{}")),
                OpenQuestion(Question(self.run_id, "q", 1, "question", None, b"{}", 1, None)),
                Spend(self.run_id, steps=1, checks=True),
                PutMemo(Memo("s", self.run_id, b"1", expected=0)),
            ],
        )

    def check(self, told: Any) -> None:
        super().check(told)
        assert self.beside() == (1, 1, 1, 1)

    def check_unknown(self) -> None:
        super().check_unknown()
        there = len(self.bench.kinds(self.run_id)) // 2
        assert self.beside() == (there, there, there, there)

    def beside(self) -> tuple[int, int, int, int]:
        """Return how often each part of the write is there."""
        truth = self.bench.truth
        memo, account = truth.memo("s", self.run_id), truth.account(self.run_id)
        assert account is not None
        return (
            len(truth.inbox(self.bench.row(f"{self.run_id}-other").run_no)),
            len(truth.questions(self.run_id)),
            account.spent_steps,
            0 if memo is None else memo.version,
        )


class SpendAlone(Letters):
    """The same without an entry: only the row of the run says whether it was committed."""

    adds = ()

    def write(self) -> Write:
        write = super().write()
        write.drafts = []
        return write

    def check_unknown(self) -> None:
        assert self.beside() in ((0, 0, 0, 0), (1, 1, 1, 1))


class AccountLimits(Exchange):
    """What a family may spend."""

    def prepare(self) -> None:
        self.bench.store.put_account(Account(self.run_id, 1, steps=1, spent_steps=1))
        self.bench.steady()

    def act(self) -> Any:
        return self.bench.store.put_account(Account(self.run_id, 9, steps=5))

    def check(self, told: Account) -> None:
        assert told == self.bench.truth.account(self.run_id)
        assert told == Account(self.run_id, 1, steps=5, spent_steps=1)

    def check_unknown(self) -> None:
        account = self.bench.truth.account(self.run_id)
        assert account is not None
        assert account.steps in {1, 5}


class Memory(Exchange):
    """A value of a memory, for whoever saw the version before."""

    def prepare(self) -> None:
        self.bench.store.put_memo(Memo("s", self.run_id, b"1"))
        self.bench.steady()

    def act(self) -> Any:
        return self.bench.store.put_memo(Memo("s", self.run_id, b"2"), 1)

    def check(self, told: Memo | None) -> None:
        assert told is not None
        assert (told.version, told.value) == (2, b"2")
        assert told == self.bench.truth.memo("s", self.run_id)

    def check_unknown(self) -> None:
        memo = self.bench.truth.memo("s", self.run_id)
        assert memo is not None
        assert memo.version in {1, 2}


class MeasuresKept(Exchange):
    """What a process did in a minute: the same rows, however often they are sent."""

    def prepare(self) -> None:
        first = Measure(MINUTE_US, self.run_id, "f", Counts(steps=1))
        self.bench.store.put_measures([first])
        self.bench.steady()

    def act(self) -> Any:
        fuller = Counts(steps=2, ended={"completed": 1})
        flows = ("", "f", "g")
        self.bench.store.put_measures([Measure(MINUTE_US, self.run_id, it, fuller) for it in flows])

    def check(self, told: None) -> None:
        assert self.steps() == {"": 2, "f": 2, "g": 2}

    def check_unknown(self) -> None:
        assert self.steps() in ({"f": 1}, {"": 2, "f": 2, "g": 2})

    def steps(self) -> dict[str, int]:
        """Return what is there, by flow."""
        found = self.bench.truth.measures(0, 2 * MINUTE_US).rows
        return {it.flow: it.counts.steps for it in found if it.process == self.run_id}


class Forget(Exchange):
    """The removal of a run that has ended."""

    def prepare(self) -> None:
        lease = self.bench.started(self.run_id)
        store = self.bench.store
        store.post(self.run_id, Message("m", "signal", "me", 1, b"{}"))
        store.put_account(Account(self.run_id, 1))
        claim = ClaimKey("pay", f"key of {self.run_id}", "e", A)
        store.append([Write(lease, [intent()], [(1, b'"chunk"')], changes=[claim])])
        store.append([Write(lease, [entry(Kind.RUN_COMPLETED)])])
        self.row = lease.row
        self.bench.steady()

    def act(self) -> Any:
        return self.bench.store.forget(self.row, 99)

    def check(self, told: bool) -> None:
        assert told
        assert self.bench.row(self.run_id).deleted_us == 99
        assert self.left() == [False] * 4
        assert self.bench.store.regression() is None

    def check_unknown(self) -> None:
        there = self.bench.row(self.run_id).deleted_us is None
        assert self.left() == [there] * 4

    def left(self) -> list[bool]:
        """Tell which parts of the run are there."""
        truth, row = self.bench.truth, self.bench.row(self.run_id)
        return [
            bool(truth.load(row)),
            bool(truth.messages(row.run_no)),
            truth.account(self.run_id) is not None,
            truth.key("pay", f"key of {self.run_id}") is not None,
        ]


EXCHANGES: dict[str, type[Exchange]] = {
    "plain step": PlainStep,
    "effect intent": Intent,
    "effect outcome": Outcome,
    "intent with key": KeyedIntent,
    "outcome with key": KeyedOutcome,
    "taken message": TakenMessage,
    "renewal": Renewal,
    "end": End,
    "actor's entry": Acting,
    "several runs": Several,
    "start": Start,
    "submit": Submit,
    "fork": Fork,
    "start all": StartAll,
    "claim": Claim,
    "take": Take,
    "post": Post,
    "transaction": Within,
    "pulse": Pulse,
    "schedule": Schedule,
    "limits": QueueLimits,
    "letters and more": Letters,
    "letters without an entry": SpendAlone,
    "limits of an account": AccountLimits,
    "memory": Memory,
    "measures": MeasuresKept,
    "forget": Forget,
}


def play(bench: Bench, name: str, way: str, after: int, *, anywhere: bool = False) -> bool:
    """Play one exchange with a cut; what is told is the truth. Returns whether there was a cut.

    The bytes are counted on the connection that speaks first, or `anywhere`: an exchange of two
    transactions may use two connections of the pool.
    """
    exchange = EXCHANGES[name](bench)
    exchange.prepare()
    cut = bench.proxy.cut(way, after, anywhere=anywhere)
    told = exchange.act()
    bench.proxy.mend()
    exchange.check(told)
    return cut.fired


def play_late(bench: Bench, name: str, way: str, after: int) -> bool:
    """The same, and what was cut off reaches the server when all is long over. Until then the
    server may keep what it has locked, and the caller is told that nothing is known. Returns whether
    there was a cut: another connection than that of the exchange may have spoken first."""
    exchange = EXCHANGES[name](bench)
    exchange.prepare()
    cut: Cut = bench.proxy.cut(way, after, late=True)
    try:
        told = [exchange.act()]
    except StoreFailed:
        told = []
    bench.proxy.mend()
    if cut.fired:
        cut.deliver()
    if told:
        exchange.check(told[0])
    else:
        assert cut.fired
        exchange.check_unknown()
    return cut.fired
