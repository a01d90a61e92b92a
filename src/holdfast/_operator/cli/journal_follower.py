"""The option `--follow` of `history` and `runs`: follow the journal of one run, or all runs.

It only reads. After the store was unavailable for a while, it continues where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import click
import msgspec
from rich.text import Text

from holdfast._engine.command_lines import command as command_line
from holdfast._engine.journal.lifecycle import ENDED, Status
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.text import visible
from holdfast._operator.cli.entry_lines import Days, entry_data, print_entry
from holdfast._operator.cli.exit_codes import CANCELLED, FAILED, HELD, INTERRUPTED, OK
from holdfast._operator.cli.reconnecting_store import WatchedStore
from holdfast._operator.cli.session import JSON_VERSION, Session, print_line
from holdfast._operator.cli.tables import STYLES, status_told
from holdfast._operator.read import run_views
from holdfast._operator.read.entry_views import EntryView
from holdfast._operator.read.run_views import RunSummary
from holdfast._stores.contract import Query, Store
from holdfast._stores.lookups import existing_row
from holdfast.errors import Corrupt, StoreError, StoreLostData, StoreTooNew

T = TypeVar("T")
P = ParamSpec("P")
LOOK_S = 1.0
FIRST = 10
"""How many existing entries are printed first."""
PAGE = 500
LATE_US = 10_000_000
"""How late a change may become visible after its time: commits are not in the order of their
times."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
CODES = {
    Status.COMPLETED: OK,
    Status.FAILED: FAILED,
    Status.HELD: HELD,
    Status.CANCELLED: CANCELLED,
    Status.ROLLED_BACK: CANCELLED,
}


def follow_run(
    session: Session,
    run_id: str,
    after: int | None,
    step: str | None,
    *,
    until_held: bool,
) -> int:
    """Print the entries of a run as they become durable, until it ends; return the exit code of its
    end."""
    teller = Teller(session)
    try:
        return _follow(Source(session, teller), teller, run_id, after, step, until_held=until_held)
    except KeyboardInterrupt:
        return INTERRUPTED


def follow_runs(session: Session, query: Query) -> int:
    """Print each change of the runs of a query, until Ctrl-C."""
    teller = Teller(session)
    try:
        _watch(Source(session, teller), teller, query)
    except KeyboardInterrupt:
        return INTERRUPTED


# -- one run -----------------------------------------------------------------------------------


def _follow(
    source: Source,
    teller: Teller,
    run_id: str,
    after: int | None,
    step: str | None,
    *,
    until_held: bool,
) -> int:
    row = source.ask(existing_row, run_id)
    seen = max(0, row.last_seq - FIRST) if after is None else after
    told = ""
    while True:
        row = source.ask(existing_row, run_id)
        if row.last_seq > seen:
            for entry in source.ask(_news, run_id, seen):
                if step in (None, entry.step):
                    teller.entry(run_id, entry)
                seen = entry.seq
            continue  # It may have continued meanwhile; its status is printed after its entries.
        if (now := f"{row.status}.{row.generation}.{row.held_reason}") != told:
            told = now
            teller.run(source.ask(run_views.summary_of, row))
        if row.status in ENDED or (until_held and row.status is Status.HELD):
            return teller.end(run_id, row.status)
        source.wait()


def _news(store: Store, run_id: str, after: int) -> list[EntryView]:
    return run_views.history(store, run_id, plain=True, after=after)


# -- all runs ----------------------------------------------------------------------------------


def _watch(source: Source, teller: Teller, query: Query) -> NoReturn:
    newest_us = begun_us = source.ask(lambda store: store.now_us())
    seen: dict[int, tuple[int, int]] = {}
    while True:
        changed = source.ask(_changed, max(begun_us, newest_us - LATE_US), query)
        for row in sorted(changed, key=lambda row: row.updated_us):
            if seen.get(row.run_no, (0, 0))[0] != row.last_seq:
                teller.run(source.ask(run_views.summary_of, row))
            seen[row.run_no] = row.last_seq, row.updated_us
            newest_us = max(newest_us, row.updated_us)
        seen = {no: it for no, it in seen.items() if it[1] >= newest_us - 2 * LATE_US}
        source.wait()


def _changed(store: Store, since_us: int, wanted: Query) -> list[RunRow]:
    query = msgspec.structs.replace(wanted, updated_after_us=since_us, limit=PAGE)
    found: list[RunRow] = []
    while page := store.list(query):
        found += page
        query.before_run_no = page[-1].run_no
        if len(page) < PAGE:
            break
    return found


# -- output ------------------------------------------------------------------------------------


class Teller:
    """Prints entries and changes: lines for people, or one JSON object per line."""

    def __init__(self, session: Session) -> None:
        session.one_line = True
        self._session = session
        self._days = Days(session.out)

    def entry(self, run_id: str, entry: EntryView) -> None:
        """Print an entry."""
        if self._session.as_json:
            self._line("entry", run_id=run_id, entry=entry_data(entry))
        else:
            self._days.at(entry.at)
            print_entry(self._session.out, entry)

    def run(self, run: RunSummary) -> None:
        """Print the current status of a run."""
        if self._session.as_json:
            self._line("run", run_id=run.run_id, run=run)
            return
        at = run.updated_at
        self._days.at(at)
        line = Text(f"      {at:%H:%M:%S}.{at.microsecond // 1000:03}  ", "dim")
        line.append(visible(run.run_id), "bold")
        line.append(f"  {visible(status_told(run))}", STYLES.get(run.status, ""))
        line.append(f"  {visible(run.flow)}", "dim")
        if run.current_step and run.status == "running":
            line.append(f"  {visible(run.current_step)}", "dim")
        print_line(self._session.out, line)
        if run.status == "held":
            more = self._session.pasteable(command_line("explain", run.run_id))
            self._session.say(f"      What can be done: {more}", "yellow")

    def away(self, error: Exception) -> None:
        """Report that the store does not answer."""
        if self._session.as_json:
            self._line("away", error={"type": type(error).__name__, "message": str(error)})
        else:
            self._session.note(f"! the store does not answer, trying again: {error}", "bold red")

    def back(self) -> None:
        """Report that the store answers again."""
        if self._session.as_json:
            self._line("back")
        else:
            self._session.note("the store answers again", "green")

    def end(self, run_id: str, status: Status) -> int:
        """Report that the run has ended; return the exit code of its end."""
        code = self._session.exit_code(CODES[status])
        if self._session.as_json:
            self._line("end", run_id=run_id, status=str(status), exit_code=code)
        return code

    def _line(self, event: str, **data: Any) -> None:
        whole = {"version": JSON_VERSION, "command": self._session.command, "event": event, **data}
        click.echo(msgspec.json.encode(whole).decode())


class Source:
    """The store, queried repeatedly; waits for a store that is unavailable."""

    def __init__(self, session: Session, teller: Teller) -> None:
        self._teller = teller
        self._watched = WatchedStore(session)

    def ask(
        self, question: Callable[Concatenate[Store, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return the answer of the store, retrying until there is one."""
        pause_s, silent = FIRST_PAUSE_S, False
        while True:
            try:
                answer = question(self._watched.opened(), *args, **kwargs)
            except (Corrupt, StoreLostData, StoreTooNew):
                raise
            except StoreError as error:
                if not silent:
                    self._teller.away(error)
                silent = True
                self._watched.drop()
                time.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
            else:
                if silent:
                    self._teller.back()
                return answer

    def wait(self) -> None:
        """Wait until something may have changed."""
        store = self._watched.store
        if store is None:
            time.sleep(LOOK_S)
            return
        try:
            store.wait_for_change(LOOK_S)
        except StoreError:
            time.sleep(LOOK_S)
