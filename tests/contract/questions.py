"""Questions of runs to people, while they are open."""

from __future__ import annotations

from typing import Any

from holdfast._engine.journal.changes import CloseQuestion, OpenQuestion
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import Lease, Question, Write
from holdfast._stores.contract import Broken, Committed, Fenced, Outcome
from tests.contract.ground import (
    ODD_STRINGS,
    Ground,
    entry,
    started,
    step,
)


def question(run_id: str, name: str, asked_us: int = 10, **more: Any) -> Question:
    """Return a question of a run."""
    values: dict[str, Any] = {
        "number": 1,
        "kind": "question",
        "to": None,
        "body": b'{"text":"?"}',
        "until_us": None,
        **more,
    }
    return Question(run_id=run_id, name=name, asked_us=asked_us, **values)


class Asking(Ground):
    """Questions of runs to people, while they are open."""

    def asks(self, lease: Lease, *names: str, **more: Any) -> Outcome:
        """Let a run ask under these names."""
        opens = [question(lease.row.run_id, name, **more) for name in names]
        return self.store.append([Write(lease, [step()], changes=[*map(OpenQuestion, opens)])])[0]

    def asked(self, run_id: str | None = None, limit: int = 1000) -> list[tuple[str, str]]:
        """Return run and name of what is open."""
        return [(it.run_id, it.name) for it in self.store.questions(run_id, limit)]

    def test_an_open_question_is_read_as_it_was_asked(self) -> None:
        lease = self.started_run()
        plain = question("r", "plain", 30, body=b'{"text":"why?","plain":[1,2]}')
        full = question("r", "full", 20, kind="approval", to="ops", number=3, until_us=99)
        opens = [plain, full]
        assert isinstance(
            self.store.append([Write(lease, [step()], changes=[*map(OpenQuestion, opens)])])[0],
            Committed,
        )
        assert self.store.questions() == [full, plain]
        assert self.store.questions("r") == [full, plain]
        assert self.store.questions("other") == []
        assert self.store.verify() == []

    def test_the_oldest_question_comes_first_and_a_limit_holds(self) -> None:
        leases = {name: self.started_run(name) for name in ("b", "a")}
        self.asks(leases["b"], "y", "x", asked_us=5)
        self.asks(leases["a"], "z", asked_us=5)
        self.asks(leases["b"], "w", asked_us=4)
        assert self.asked() == [("b", "w"), ("a", "z"), ("b", "x"), ("b", "y")]
        assert self.asked(limit=2) == [("b", "w"), ("a", "z")]
        assert self.asked("b", 2) == [("b", "w"), ("b", "x")]

    def test_asking_again_replaces_the_question_of_that_name(self) -> None:
        lease = self.started_run()
        self.asks(lease, "q")
        again = question("r", "q", 50, number=2, until_us=60)
        self.store.append([Write(lease, [step()], changes=[OpenQuestion(again)])])
        assert self.store.questions() == [again]

    def test_a_question_is_closed_by_name_or_all_at_once(self) -> None:
        first, second = self.started_run("a"), self.started_run("b")
        for lease in (first, second):
            self.asks(lease, "x", "y", "z")
        self.store.append(
            [Write(first, [step()], changes=[CloseQuestion("y"), CloseQuestion("never asked")])]
        )
        assert self.asked("a") == [("a", "x"), ("a", "z")]
        self.store.append(
            [Write(second, [entry(Kind.RUN_COMPLETED)], changes=[CloseQuestion("*")])]
        )
        assert self.asked() == [("a", "x"), ("a", "z")]
        assert self.store.verify() == []

    def test_what_is_closed_and_opened_in_one_write_is_open(self) -> None:
        lease = self.started_run()
        self.asks(lease, "x", "y")
        opens = [question("r", "y", 77, number=2)]
        self.store.append(
            [Write(lease, [step()], changes=[CloseQuestion("*"), *map(OpenQuestion, opens)])]
        )
        assert self.store.questions() == opens

    def test_a_fenced_or_broken_write_opens_and_closes_nothing(self) -> None:
        lease = self.started_run()
        self.asks(lease, "x")
        stale = Lease(lease.row)
        lease = self.claimed("r")
        opens = [question("r", "y")]
        write = Write(stale, [step()], changes=[CloseQuestion("*"), *map(OpenQuestion, opens)])
        assert isinstance(self.store.append([write])[0], Fenced)
        assert self.asked() == [("r", "x")]
        outcomes = self.store.append(
            [
                Write(lease, [started()], changes=[CloseQuestion("*"), *map(OpenQuestion, opens)]),
                Write(lease, [step()]),
            ]
        )
        assert [type(it) for it in outcomes] == [Broken, Committed]
        assert self.asked() == [("r", "x")]

    def test_many_questions_of_one_batch(self) -> None:
        leases = [self.started_run(f"r{number}") for number in range(4)]
        writes = [
            Write(lease, [step()], changes=[OpenQuestion(question(lease.row.run_id, "q"))])
            for lease in leases
        ]
        closing = [Write(lease, [step()], changes=[CloseQuestion("q")]) for lease in leases[:2]]
        assert all(isinstance(it, Committed) for it in self.store.append([*writes, *closing]))
        assert self.asked() == [("r2", "q"), ("r3", "q")]

    def test_questions_stay_in_their_namespace(self) -> None:
        self.asks(self.started_run(), "q")
        other = self.open_store("other")
        assert other.questions() == []
        other.close()

    def test_odd_names_are_only_names(self) -> None:
        lease = self.started_run()
        odd = [text for text in ODD_STRINGS if text != "*"]
        for text in odd:
            self.asks(lease, text, to=text)
        assert sorted(name for _, name in self.asked()) == sorted(odd)
        self.store.append([Write(lease, [step()], changes=[*map(CloseQuestion, odd[1:])])])
        assert self.asked() == [("r", odd[0])]

    def test_a_question_goes_with_a_transaction_of_the_user(self) -> None:
        lease = self.started_run()

        def work(_connection: Any) -> Write:
            return Write(lease, [step()], changes=[OpenQuestion(question("r", "q"))])

        assert isinstance(self.store.append_within(lease, work), Committed)
        assert self.asked() == [("r", "q")]

    def test_an_open_question_of_an_ended_run_is_found_by_verify(self) -> None:
        """A run that ends closes what it asked; one that did not is a bug of ours."""
        lease = self.started_run()
        self.asks(lease, "q")
        self.append(lease, entry(Kind.RUN_COMPLETED))
        (finding,) = self.store.verify()
        assert finding.run_id == "r"
        assert "q" in finding.what
