"""Measures: what processes did, minute by minute."""

from __future__ import annotations

from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._features.measures.model import MINUTE_US
from tests.contract.ground import ODD_STRINGS, Ground, new_run

FULL = Counts(
    steps=3,
    attempts=5,
    errors=2,
    doubts=1,
    retries=1,
    traced=4,
    held=1,
    cost_nanos=10**15,
    tokens=2**40,
    ended={"completed": 2, "failed": 1},
    attempt_us={0: 1, 41: 4},
    run_us={192: 2},
)
PLACES = Counts(span_us=MINUTE_US, places_us=4 * MINUTE_US, busy_us=7, ready=9, samples=1)
ALWAYS = 1 << 60


class Measures(Ground):
    """Measures: what processes did, minute by minute."""

    def measured(self, after_us: int = 0, before_us: int = ALWAYS) -> list[Measure]:
        """Return measures, of which none is damaged."""
        found = self.store.measures(after_us, before_us)
        assert found.damaged == []
        return found.rows

    def test_measures_are_read_as_they_were_written(self) -> None:
        made = [Measure(MINUTE_US, "p", "", PLACES), Measure(MINUTE_US, "p", "f", FULL)]
        self.store.put_measures(made)
        assert self.measured() == made
        other = self.open_store()
        assert other.measures(0, ALWAYS).rows == made
        other.close()
        assert self.store.verify() == []

    def test_a_measure_that_is_written_again_is_replaced(self) -> None:
        self.store.put_measures([Measure(MINUTE_US, "p", "f", Counts(steps=1))])
        fuller = [Measure(MINUTE_US, "p", "f", Counts(steps=2, ended={"completed": 1}))]
        self.store.put_measures(fuller)
        other = self.open_store()
        other.put_measures(fuller)
        other.close()
        assert self.measured() == fuller

    def test_minute_process_and_flow_tell_measures_apart(self) -> None:
        made = [
            Measure(minute * MINUTE_US, process, flow, Counts(steps=minute))
            for minute in (1, 2)
            for process in ("p", "q")
            for flow in ("", "f", "g")
        ]
        self.store.put_measures(made[::-1])
        assert self.measured() == made

    def test_they_are_found_by_their_minutes(self) -> None:
        minutes = [at * MINUTE_US for at in (1, 2, 3, 4)]
        self.store.put_measures([Measure(at_us, "p", "f", Counts(steps=1)) for at_us in minutes])
        found = self.measured(minutes[1], minutes[3])
        assert [measure.at_us for measure in found] == minutes[1:3]
        assert self.measured(minutes[3] + 1) == []
        limited = self.store.measures(0, ALWAYS, 3).rows
        assert [measure.at_us for measure in limited] == minutes[:3]

    def test_names_may_hold_anything(self) -> None:
        made = [Measure(MINUTE_US, text, text, Counts(steps=1)) for text in ODD_STRINGS]
        self.store.put_measures(made)
        found = {measure.flow: measure for measure in self.measured()}
        assert found == {measure.flow: measure for measure in made}
        assert self.store.verify() == []

    def test_each_namespace_has_its_own(self) -> None:
        self.store.put_measures([Measure(MINUTE_US, "p", "f", Counts(steps=1))])
        other = self.open_store("other")
        assert other.measures(0, ALWAYS).rows == []
        other.put_measures([Measure(MINUTE_US, "p", "f", Counts(steps=2))])
        assert other.drop_measures(ALWAYS) == 1
        other.close()
        assert [measure.counts.steps for measure in self.measured()] == [1]

    def test_nothing_is_written_of_nothing(self) -> None:
        self.store.put_measures([])
        assert self.measured() == []

    def test_old_ones_are_dropped_a_thousand_at_a_time(self) -> None:
        old = [Measure(MINUTE_US, f"p{number:04}", "", PLACES) for number in range(1001)]
        new = [Measure(2 * MINUTE_US, "p", "", PLACES)]
        self.store.put_measures([*old, *new])
        dropped = [self.store.drop_measures(2 * MINUTE_US) for _ in range(3)]
        assert dropped == [1000, 1, 0]
        assert self.measured() == new

    def test_runs_know_nothing_of_them(self) -> None:
        row = self.store.start(new_run("r"), None).row
        self.store.put_measures([Measure(MINUTE_US, "p", "f", FULL)])
        assert self.store.get("r") == row
        assert self.store.regression() is None

    def test_they_wake_nobody(self) -> None:
        self.store.start(new_run("r"), None)
        while self.store.wait_for_change(0.2):
            pass
        self.store.put_measures([Measure(MINUTE_US, "p", "f", FULL)])
        self.store.drop_measures(ALWAYS)
        assert not self.store.wait_for_change(0.2)

    def test_what_was_read_is_the_readers_own(self) -> None:
        given = Measure(MINUTE_US, "p", "f", Counts(ended={"completed": 1}))
        self.store.put_measures([given])
        given.counts.ended["failed"] = 5
        self.measured()[0].counts.ended["held"] = 5
        assert self.measured()[0].counts.ended == {"completed": 1}
