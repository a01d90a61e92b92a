"""Forking by people: what the command says and asks, what `explain` tells, and what a fork needs of
the run that it came from, in its store and in another."""

from __future__ import annotations

import dataclasses
import enum
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import holdfast
from holdfast import effect, flow, step, testing, turns
from holdfast._engine.journal.rows import SEQ_BITS
from holdfast._engine.values.class_registry import KNOWN
from holdfast._operator.act import fork, store_move
from holdfast._operator.act.run_files import export
from holdfast._operator.act.store_move import Fate
from holdfast._operator.cli.main import main
from holdfast._operator.explain.status_report import explain
from holdfast._operator.read import run_views
from holdfast._operator.read.timeline import timeline
from holdfast._runtime import registry
from holdfast.errors import (
    ConfirmationRequired,
    Corrupt,
    RunConflict,
    RunDeleted,
    RunFailed,
    RunHeld,
    UsageError,
)
from tests.ops.meanwhile import Meanwhile

calls: Counter[str] = Counter()


@step(name="fk.search")
def search(topic: str) -> dict[str, Any]:
    calls["search"] += 1
    return {"about": topic, "text": "long " * 200}


@effect(name="fk.mail")
def mail(to: str) -> str:
    calls["mail"] += 1
    return f"sent to {to}"


@mail.undo
def unmail(result: str, to: str) -> None:
    calls["unmail"] += 1


@step(name="fk.write")
def write(text: str) -> str:
    calls["write"] += 1
    return text.upper()


@flow(name="fk.report")
def report(topic: str, to: str) -> str:
    found = search(topic)
    sent = mail(to)
    return write(f"{found['about']}, {sent}")


class Urgency(enum.Enum):
    HIGH = 2


@dataclasses.dataclass
class Claimed:
    name: str
    urgency: Urgency


@flow(name="fk.claim")
def claim(customer: str, item: Claimed) -> str:
    return write(f"{customer}: {item.name}")


@pytest.fixture(autouse=True)
def _anew() -> None:
    calls.clear()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[holdfast.types.Store]:
    with holdfast.open(f"sqlite:///{tmp_path}/here.db") as store:
        report.run("r", "refunds", "ann")
        yield store


@pytest.fixture
def cli(opened: holdfast.types.Store) -> Callable[..., Result]:
    def invoke(*words: str, answer: str = "") -> Result:
        runner = CliRunner(env={"COLUMNS": "100"})
        arguments = ["--url", opened.url, *words]
        return runner.invoke(main, arguments, input=answer, catch_exceptions=False)

    return invoke


def test_the_step_to_fork_before_is_required(cli, opened: holdfast.types.Store) -> None:
    refused = cli("fork", "r", "new")
    assert refused.exit_code == 2
    assert "--before" in refused.output
    with pytest.raises(UsageError, match="before="):
        opened.fork("r", "new", before=None)  # type: ignore[arg-type]
    assert [run.run_id for run in opened.runs()] == ["r"]


# -- the command ----------------------------------------------------------------------------------


def test_the_command_says_what_it_did_and_what_goes_on(cli: Callable[..., Result]) -> None:
    result = cli("fork", "r", "f", "--before", "fk.write")
    assert result.exit_code == 0
    assert (
        "run 'f' goes on from run 'r' before fk.write, with 2 recorded outcomes." in result.output
    )
    [line] = [line for line in result.output.splitlines() if "MODULE:fk.report" in line]
    assert line.strip().startswith("holdfast ")
    assert line.endswith(" run MODULE:fk.report f")
    assert "is this fork already" in cli("fork", "r", "f", "--before", "fk.write").output
    assert report.run("f", "refunds", "ann") == "REFUNDS, SENT TO ANN"
    assert calls == {"search": 1, "mail": 1, "write": 2}


def test_the_command_asks_before_effects_are_repeated(
    cli: Callable[..., Result], opened: holdfast.types.Store, terminal: None
) -> None:
    refused = cli("fork", "r", "f", "--before", "fk.search", answer="n\n")
    assert "fk.mail (happened)" in refused.output
    assert [run.run_id for run in opened.runs()] == ["r"]
    told = cli("fork", "r", "f", "--before", "fk.search", "--json")
    assert told.exit_code == 2
    assert json.loads(told.stdout)["error"]["effects"] == ["fk.mail (happened)"]
    assert cli("fork", "r", "f", "--before", "fk.search", answer="y\n").exit_code == 0
    assert cli("fork", "r", "g", "--before", "fk.search", "--confirm").exit_code == 0
    made = json.loads(cli("fork", "r", "h", "--before", "fk.search", "--confirm", "--json").stdout)
    assert made["fork"]["repeats"] == ["fk.mail"]
    assert made["next"][0].endswith(" run MODULE:fk.report h")


def test_a_dry_run_lists_what_is_repeated_and_makes_nothing(
    cli: Callable[..., Result], opened: holdfast.types.Store
) -> None:
    told = cli("fork", "r", "f", "--before", "fk.search", "--dry-run").output
    assert "Run 'f' would go on from run 'r' before fk.search." in told
    assert "fk.mail (happened)" in told
    words = ("--input", '{"topic": "claims"}', "--dry-run", "--json")
    preview = json.loads(cli("fork", "r", "f", "--before", "fk.search", *words).stdout)["preview"]
    assert preview["effects"] == [{"step": "fk.mail", "what": "happened"}]
    assert preview["differences"] == ["input topic"]
    assert "repeat no effect" in cli("fork", "r", "f", "--before", "fk.write", "--dry-run").output
    assert [run.run_id for run in opened.runs()] == ["r"]


def test_a_preview_needs_no_id(opened: holdfast.types.Store) -> None:
    """Not even that of a run which exists."""
    planned = fork.plan_fork(opened._backend, "r", None, before="fk.search", actor="kim")
    assert planned.new.run_id == ""
    assert opened.preview_fork("r", before="fk.search") == fork.preview(planned)


def test_a_preview_refuses_the_ids_that_the_fork_would_refuse(
    cli: Callable[..., Result], opened: holdfast.types.Store
) -> None:
    opened.fork("r", "same", before="fk.write")
    report.run("other", "refunds", "ann")
    report.run("gone", "refunds", "ann")
    row = opened._backend.get("gone")
    assert row is not None
    assert opened._backend.forget(row, 9)
    for taken, refused in (("other", RunConflict), ("gone", RunDeleted)):
        with pytest.raises(refused):
            opened.fork("r", taken, before="fk.write")
        words = ("fork", "r", taken, "--before", "fk.write")
        dry, real = cli(*words, "--dry-run"), cli(*words)
        assert dry.exit_code == real.exit_code != 0
        assert dry.stderr == real.stderr
    assert cli("fork", "r", "same", "--before", "fk.write", "--dry-run").exit_code == 0


def test_what_is_given_on_the_command_line(cli: Callable[..., Result]) -> None:
    given = ["--input", '{"topic": "claims"}', "--result", 'fk.mail="sent by hand"']
    result = cli("fork", "r", "f", "--before", "fk.mail", *given)
    assert "It was given otherwise: input topic, result of fk.mail." in result.output
    assert report.run("f", "claims", "ann") == "REFUNDS, SENT BY HAND"
    assert calls == {"search": 1, "mail": 1, "write": 2}
    for words, said in (
        (["--input", "[1]"], "a JSON object"),
        (["--input", "{"], "--input takes JSON"),
        (["--result", "fk.mail"], "STEP=JSON"),
        (["--state", "1"], "--state is for a loop of turns"),
    ):
        refused = cli("fork", "r", "x", "--before", "fk.mail", "--confirm", *words)
        assert refused.exit_code != 0
        assert said in refused.output


@flow(name="fk.add")
def add(n: int) -> str:
    write("first")
    return write(str(n + 1))


WRONG = ("fork", "a", "b", "--before", "fk.write#2", "--input", '{"n": "seven"}')


def test_an_input_is_checked_where_the_code_is_at_hand(
    opened: holdfast.types.Store, cli: Callable[..., Result]
) -> None:
    add.run("a", 1)
    refused = cli(*WRONG)
    assert refused.exit_code == 2
    assert "--input: n: Expected `int`" in refused.output
    told = json.loads(cli(*WRONG[:-1], '{"n": 7}', "--json").stdout)
    assert told["fork"]["input_checked"] is True
    plain = json.loads(cli("fork", "a", "c", "--before", "fk.write", "--json").stdout)
    assert plain["fork"]["input_checked"] is None


def test_an_input_that_was_not_checked_is_said_and_can_be_given_anew(
    opened: holdfast.types.Store, cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    add.run("a", 1)
    with monkeypatch.context() as patched:
        patched.delitem(registry.flows, "fk.add")  # As in a process of the command line.
        assert "Its input was not checked" in cli(*WRONG).output
        told = json.loads(cli(*WRONG, "--json").stdout)
        assert told["fork"]["input_checked"] is False
        missing = cli(*WRONG, "--app", "tests.ops.test_text")
        assert (missing.exit_code, "no flow 'fk.add'" in missing.output) == (2, True)
    with pytest.raises(RunFailed):
        add.run("b", "seven")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    said = explain(opened._backend, "b")
    [anew] = [it for it in said.actions if "fork a NEW_RUN_ID" in it.command]
    assert anew.command.endswith("--input JSON")
    assert "The input of a run cannot be changed" in anew.meaning


def test_inputs_of_classes_that_are_not_known_here_come_along(
    opened: holdfast.types.Store, cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    claim.run("c", "ada", Claimed("roof", Urgency.HIGH))
    with monkeypatch.context() as patched:
        patched.delitem(registry.flows, "fk.claim")
        for cls in (Claimed, Urgency):
            patched.delitem(KNOWN._by_name, cls.__name__)
            patched.delitem(KNOWN._names, cls)
        made = cli("fork", "c", "d", "--before", "fk.write", "--input", '{"customer": "bob"}')
        assert made.exit_code == 0, made.output
        assert "It was given otherwise: input customer." in made.output
        refused = cli("fork", "c", "e", "--before", "fk.write", "--input", '{"item": "wall"}')
        assert refused.exit_code == 2
        assert "of a class that this process does not know" in refused.output
    assert claim.run("d", "bob", Claimed("roof", Urgency.HIGH)) == "BOB: ROOF"


def test_the_error_has_a_command_that_works(
    opened: holdfast.types.Store, cli: Callable[..., Result]
) -> None:
    with pytest.raises(ConfirmationRequired) as caught:
        opened.fork("r", "f", before="fk.mail")
    [way] = [way for way in caught.value.ways if way.startswith("holdfast ")]
    import shlex

    assert cli(*shlex.split(way)[1:]).exit_code == 0


# -- looking --------------------------------------------------------------------------------------


def test_it_is_told_where_a_fork_came_from(
    opened: holdfast.types.Store, cli: Callable[..., Result]
) -> None:
    opened.fork("r", "f", before="fk.mail", input={"to": "bob"}, actor="kim", confirm=True)
    told = " ".join(str(opened.explain("f")).split())
    assert "It was forked from run r, before fk.mail, by kim; 1 outcome of that run came" in told
    assert "It differs from that run in: input to." in told
    assert "which kim confirmed: fk.mail." in told
    shown = cli("show", "f").output
    assert "fork of" in shown
    assert "borrowed" in shown
    assert "run_forked" in cli("history", "f").output
    assert "search" not in str(opened.explain("r"))


def test_given_values_are_shown_as_values(opened: holdfast.types.Store) -> None:
    long = {"about": "other", "text": "n" * 5_000}
    opened.fork("r", "f", before="fk.write", results={"fk.search": long})
    assert opened.history("f")[1].body["results"] == {"fk.search": long}


# -- what was undone, moved, deleted, damaged -----------------------------------------------------


def test_an_effect_that_was_taken_back_is_not_borrowed(opened: holdfast.types.Store) -> None:
    opened.rollback("r")
    opened.recover()
    assert calls["unmail"] == 1
    with pytest.raises(ConfirmationRequired, match="fk.mail .happened, and was taken back."):
        opened.fork("r", "f", before="fk.write")
    opened.fork("r", "f", before="fk.write", confirm=True)
    assert report.run("f", "refunds", "ann") == "REFUNDS, SENT TO ANN"
    assert calls == {"search": 1, "mail": 2, "unmail": 1, "write": 2}


def test_a_fork_takes_back_only_what_it_did_itself(opened: holdfast.types.Store) -> None:
    opened.fork("r", "f", before="fk.write")
    report.run("f", "refunds", "ann")
    opened.rollback("f")
    opened.recover()
    assert opened.get("f").status == "rolled_back"
    assert calls["unmail"] == 0


def forget(store: holdfast.types.Store, run_id: str) -> None:
    row = store._backend.get(run_id)
    assert row is not None
    assert store._backend.forget(row, store._backend.now_us())


def test_a_run_that_was_deleted(opened: holdfast.types.Store) -> None:
    report.run("alone", "x", "y")
    forget(opened, "alone")
    with pytest.raises(RunDeleted, match="alone"):
        opened.fork("alone", "g", before="fk.write")
    with pytest.raises(RunDeleted, match="alone"):
        opened.fork("r", "alone", before="fk.write")


def test_a_run_that_is_deleted_meanwhile(
    opened: holdfast.types.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = opened._backend.start

    def deleted_meanwhile(*arguments: Any) -> Any:
        forget(opened, "r")
        return start(*arguments)

    monkeypatch.setattr(opened._backend, "start", deleted_meanwhile)
    with pytest.raises(RunDeleted, match="'r'"):
        opened.fork("r", "f", before="fk.write")
    assert opened._backend.get("f") is None


def test_damage_of_the_other_run_is_noticed(opened: holdfast.types.Store, tmp_path: Path) -> None:
    opened.fork("r", "f", before="fk.write")
    row = opened._backend.get("r")
    assert row is not None
    opened.close()
    file = sqlite3.connect(tmp_path / "here.db")
    file.execute(
        "UPDATE journal SET body = replace(body, 'sent to ann', 'sent to bob') "
        f"WHERE id >> {SEQ_BITS} = ?",
        (row.run_no,),
    )
    file.commit()
    file.close()
    with holdfast.open(f"sqlite:///{tmp_path}/here.db") as again:
        with pytest.raises(Corrupt):
            report.run("f", "refunds", "ann")
        assert calls["write"] == 1
        assert {finding.run_id for finding in again.verify()} >= {"r"}


# -- other stores ---------------------------------------------------------------------------------


def test_a_fork_moves_after_the_run_that_it_came_from(tmp_path: Path) -> None:
    with (
        testing.store(url=f"sqlite:///{tmp_path}/1.db") as here,
        testing.store(url=f"sqlite:///{tmp_path}/2.db") as there,
    ):
        there_report = report.with_options(store=there)
        report.with_options(store=here).run("r", "refunds", "ann")
        here.fork("r", "open", before="fk.write")
        here.fork("r", "done", before="fk.write")
        report.with_options(store=here).run("done", "refunds", "ann")
        here.fork("done", "grandchild", before="fk.write")

        def copy(*wanted: str) -> dict[str, tuple[Fate, str]]:
            moved = store_move.move_runs(here._backend, there._backend, wanted, actor="ann")
            return {one.run_id: (one.fate, one.why) for one in moved}

        [(fate, why)] = copy("open").values()
        assert fate is Fate.STAYS
        assert "borrows from run 'r'" in why
        assert here.get("open").status == "queued"
        every = copy("grandchild", "done", "open", "r")
        assert {fate for fate, _ in every.values()} == {Fate.MOVED}
        calls.clear()
        assert there_report.run("open", "refunds", "ann") == "REFUNDS, SENT TO ANN"
        assert there_report.run("grandchild", "refunds", "ann") == "REFUNDS, SENT TO ANN"
        assert calls == {"write": 2}
        assert there.verify() == []
        with pytest.raises(RunHeld, match="moved to"):
            here.fork("open", "x", before="fk.search", confirm=True)


def test_a_fork_is_exported_with_the_run_that_it_came_from(
    opened: holdfast.types.Store, tmp_path: Path
) -> None:
    opened.fork("r", "f", before="fk.write")
    told = report.run("f", "refunds", "ann")
    file = tmp_path / "f.holdfast"
    opened.export_run("f", file)
    calls.clear()
    assert testing.replay(report, file).result == told
    with testing.store(url=f"sqlite:///{tmp_path}/there.db") as there:
        there.import_run(file)
        assert sorted(run.run_id for run in there.runs()) == ["f", "r"]
        assert report.with_options(store=there).run("f", "refunds", "ann") == told
        assert there.verify() == []
        assert not calls
        there.fork("f", "g", before="fk.write")
        assert report.with_options(store=there).run("g", "refunds", "ann") == told
        assert calls == {"write": 1}


def test_a_state_of_an_unknown_class_is_given_from_python(
    opened: holdfast.types.Store, cli: Callable[..., Result]
) -> None:
    import subprocess
    import sys

    script = (
        "import dataclasses, sys, holdfast\n"
        "from holdfast import flow, step, turns\n"
        "@dataclasses.dataclass\n"
        "class Elsewhere:\n    n: int\n"
        "@step(name='fk.count')\ndef count(n: int) -> int:\n    return n + 1\n"
        "@flow(name='fk.counting')\n"
        "def counting() -> int:\n"
        "    for at in turns(Elsewhere(0)):\n"
        "        at.n = count(at.n)\n"
        "        if at.n == 3:\n            return 3\n"
        "with holdfast.open(sys.argv[1]) as store:\n    counting.run('elsewhere')\n"
    )
    subprocess.run([sys.executable, "-c", script, opened.url], check=True)
    asked = ["fork", "elsewhere", "e", "--before", "turns[2]"]
    refused = cli(*asked, "--state", '{"n": 7}')
    assert refused.exit_code != 0
    assert "from Python" in " ".join(refused.output.split())
    assert cli(*asked).exit_code == 0


def test_what_is_given_is_redacted(tmp_path: Path) -> None:
    def redact(path: str, value: Any) -> Any:
        return "(secret)" if isinstance(value, str) and "hunter2" in value else value

    with holdfast.open(f"sqlite:///{tmp_path}/kept.db", redact=redact) as store:
        report.run("r", "refunds", "ann")
        store.fork("r", "f", before="fk.write", results={"fk.mail": "my hunter2"})
        assert store.history("f")[1].body["results"] == {"fk.mail": "(secret)"}
        assert report.run("f", "refunds", "ann") == "REFUNDS, (SECRET)"
    assert b"hunter2" not in (tmp_path / "kept.db").read_bytes()


def test_what_was_taken_back_in_a_turn_that_is_over_is_said(opened: holdfast.types.Store) -> None:
    @flow(name="fk.mailing")
    def mailing() -> int:
        for sent in turns([0]):
            sent.append(len(mail(str(len(sent)))))
            if len(sent) > 4:
                return len(sent)
        raise AssertionError

    mailing.run("m")
    opened.rollback("m")
    opened.recover()
    with pytest.raises(ConfirmationRequired) as caught:
        opened.fork("m", "n", before="turns[3]")
    assert caught.value.effects == (
        *(f"turns[{n}]/fk.mail (was taken back, and is not done again)" for n in range(3)),
        "turns[3]/fk.mail (happened, and was taken back)",
    )


# -- forks that are deleted meanwhile -------------------------------------------------------------


LOOKS: dict[str, Callable[[Any, Path], object]] = {
    "explain": lambda kept, _: explain(kept, "f"),
    "show": lambda kept, _: run_views.view(kept, "f"),
    "history": lambda kept, _: run_views.history(kept, "f"),
    "timeline": lambda kept, _: timeline(kept, "f"),
    "export": lambda kept, to: export(kept, "f", to),
}


@pytest.mark.parametrize("url", ["memory:", "sqlite:///here.db"])
@pytest.mark.parametrize("look", LOOKS)
def test_a_fork_that_is_deleted_while_one_looks_is_told_as_deleted(
    look: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever call of the look the deletion comes before: deleted, and never damaged."""
    monkeypatch.chdir(tmp_path)
    deleted, ended = 0, False
    for at in range(1, 100):
        with testing.store(url=url.replace("here", f"{at}")) as store:
            report.with_options(store=store).run("r", "refunds", "ann")
            store.fork("r", "f", before="fk.write")
            report.with_options(store=store).run("f", "refunds", "ann")
            meanwhile = Meanwhile(store._backend, at, lambda kept=store._backend: remove(kept))  # type: ignore[misc]
            try:
                assert "damaged" not in repr(LOOKS[look](meanwhile, tmp_path / f"{at}.run"))
            except RunDeleted:
                deleted += 1
            if ended := meanwhile.left > 0:
                break
    assert ended
    assert deleted


def remove(kept: Any) -> None:
    for run_id in ("f", "r"):  # The fork first: the other one stands as long as it does.
        assert kept.forget(kept.get(run_id), 99)
