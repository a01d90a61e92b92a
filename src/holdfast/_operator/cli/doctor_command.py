"""The command `doctor`: report problems of a store or a run, and what to do about them."""

from __future__ import annotations

import click

from holdfast._engine.text import count, moment
from holdfast._features.watchdog import store as watchdog
from holdfast._features.watchdog.model import Finding, Severity
from holdfast._operator.cli.exit_codes import DAMAGED, HELD, OK
from holdfast._operator.cli.session import Session, command
from holdfast._operator.explain import doctor
from holdfast._operator.explain.doctor import Checkup, Trouble
from holdfast._stores.lookups import existing_row

_STYLE = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: ""}


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "doctor", pages=True)(_doctor)


@click.argument("run_id", required=False)
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=doctor.LOOKED_AT,
    show_default=True,
    help="How many open and failed runs to examine, newest first.",
)
def _doctor(session: Session, run_id: str | None, limit: int) -> int:
    """Report problems of a store, or of one run, and how to solve them.

    Runs: stuck, looping, a repeated action, a partial failure, runaway cost. Store: lost commits,
    runs that wait for a decision, queues without a worker, expired leases, disk space. Exit code 3
    if a problem needs a person, 7 if a run cannot be read or commits were lost, and 0 if there is
    no problem. `holdfast store verify` finds all damage.
    """
    store = session.store()
    if run_id is not None:
        row = existing_row(store, run_id)
        return _one(session, watchdog.of_run(store, row), doctor.of_run(store, row))
    told, findings = doctor.checkup(store, limit)
    wants = doctor.needs_somebody([*told.troubles, *findings])
    code = DAMAGED if told.is_damaged else HELD if wants else OK
    if session.as_json:
        session.answer(checkup=told, findings=findings, exit_code=code)
        return code
    _show_store(session, told)
    for finding in findings:
        _show(session, finding, of_run=True)
    if code == OK:
        session.say("Nothing needs to be done.", "green")
    verify = session.pasteable("holdfast store verify")
    session.say(f"Not read: {', '.join(told.unchecked)}. To check all of it: {verify}", "dim")
    return code


def _one(session: Session, findings: list[Finding], troubles: list[Trouble]) -> int:
    code = HELD if doctor.needs_somebody([*troubles, *findings]) else OK
    if session.as_json:
        session.answer(checkup=None, findings=findings, exit_code=code)
        return code
    _show_troubles(session, troubles)
    for finding in findings:
        _show(session, finding, of_run=False)
    if not findings and not troubles:
        session.say("No problem found in this run.", "green")
    return code


def _show_store(session: Session, told: Checkup) -> None:
    facts = [told.url]
    if told.schema_version is not None:
        facts.append(f"schema version {told.schema_version}")
    if told.file_bytes is not None and told.wal_bytes is not None and told.free_bytes is not None:
        facts.append(f"{_mib(told.file_bytes)} and a log of {_mib(told.wal_bytes)}")
        facts.append(f"{_mib(told.free_bytes)} free")
    looked = count(told.looked_at, "open or failed run")
    facts.append(f"{looked} looked at" + ("" if told.complete else "; there are more (--limit)"))
    session.say(", ".join(facts))
    _show_troubles(session, told.troubles)


def _show_troubles(session: Session, troubles: list[Trouble]) -> None:
    for trouble in troubles:
        session.say(f"{trouble.what}: {trouble.text}", _STYLE[trouble.severity])
        for action in trouble.actions:
            session.say(f"    {session.pasteable(action)}")


def _show(session: Session, finding: Finding, *, of_run: bool) -> None:
    run = f"run {finding.run_id}, " if of_run else ""
    name = str(finding.kind).replace("_", " ")
    since = moment(round(finding.since.timestamp() * 1e6))
    session.say(f"{run}{name}: {finding.text} (since {since})", _STYLE[finding.severity])
    if finding.noted_at is not None:
        noted = moment(round(finding.noted_at.timestamp() * 1e6))
        session.say(f"    noted {noted}: {finding.did}{'' if finding.open else '; it is over'}")
    if finding.open:
        for action in finding.actions:
            session.say(f"    {session.pasteable(action)}")


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
