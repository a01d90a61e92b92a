"""A run to explain, with the sentences on its progress that all explanations share."""

from __future__ import annotations

from holdfast._features.operator_side import Case
from holdfast._operator.explain import doubts
from holdfast._operator.read.step_views import counts_of, running_of


class RunCase(Case):
    """A run to explain: its progress, its steps at work, and the effects that a crash left open."""

    def progress(self) -> None:
        """Add the progress, and that nothing recorded is executed again."""
        counts = counts_of(self.past)
        steps = "1 step has" if counts.done == 1 else f"{counts.done:,} steps have"
        if not counts.done:
            self.said.known.append("No step has a recorded outcome yet.")
        elif counts.left_behind:
            self.said.known.append(
                f"{steps} a recorded outcome; {counts.left_behind:,} of an earlier generation will be "
                "executed again."
            )
        else:
            self.said.known.append(f"{steps} a recorded outcome, and will not be executed again.")

    def where(self) -> None:
        """Report the current step."""
        step = self.row.current_step
        if step is not None:
            record = self.past.records.get(step)
            again = record is not None and record.attempts > 1
            tries = f", attempt {record.attempts}" if record is not None and again else ""
            self.said.known.append(f"The last step that wrote to its journal is {step}{tries}.")

    def at_work(self) -> None:
        """Report the steps at work, as far as the journal says."""
        running = running_of(self.past)
        for step in running:
            since = self.since(round(step.since.timestamp() * 1e6))
            tries = f", attempt {step.attempt}" if step.attempt > 1 else ""
            self.said.known.append(f"{step.key} is being executed{tries}, since {since}.")
        if not running:
            self.where()

    def open_effects(self, *, owner_died: bool = False) -> None:
        """Report the effects that a crash has left open, and what will be done about each."""
        for record in self.past.open_doubts():
            self.said.known += doubts.about_effect(
                self.store, self.row, record, self.now_us, owner_died=owner_died
            )
            self.said.unknown.append(
                f"Whether {record.key} happened. {doubts.what_will_be_done(record)}"
            )
