"""A run as one file: what is in it, what comes back, and what is refused."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st

import holdfast
from holdfast import effect, flow, step, testing
from holdfast._operator.cli.main import main
from holdfast.errors import (
    ConfirmationRequired,
    Corrupt,
    HoldfastError,
    RunConflict,
    RunDeleted,
    RunError,
    UsageError,
)


@dataclasses.dataclass
class ExportNote:
    text: str


@step
def export_think(n: int) -> list[ExportNote]:
    return [ExportNote(f"a thought {i} " * 200) for i in range(n)]


@effect(key="export:{n}")
def export_send(n: int) -> str:
    return f"sent {n}"


@flow
def export_flow(n: int) -> str:
    notes = export_think(n)
    return f"{export_send(n)} {len(notes)}"


@flow
def export_family(n: int) -> str:
    return export_flow(n)


@pytest.fixture(params=["memory:", "sqlite:", "postgresql:"])
def source(request: pytest.FixtureRequest) -> Any:
    url = request.param
    if url == "postgresql:":
        url = request.getfixturevalue("postgres_url")
    with testing.store(url=url) as opened:
        yield opened


def target(tmp_path: Path) -> holdfast.types.Store:
    return holdfast.open(f"sqlite:///{tmp_path}/target.db", default=False)


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_there_and_back(source: testing.PrivateStore, tmp_path: Path, name: str) -> None:
    export_flow.run("r", 3)
    path = tmp_path / name
    written = source.export_run("r", path)
    assert (written.run_ids, written.size_bytes) == (["r"], path.stat().st_size)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with target(tmp_path) as other:
        imported = other.import_run(path)
        assert (imported.run_id, imported.new, imported.there) == ("r", ["r"], [])
        assert [str(e) for e in other.history("r")] == [str(e) for e in source.history("r")]
        assert [e.body for e in other.history("r")] == [e.body for e in source.history("r")]
        assert other.verify() == []
        assert export_flow.with_options(store=other).run("r", 3) == "sent 3 3"
        again = other.import_run(path)
        assert (again.new, again.there) == ([], ["r"])
    assert testing.replay(export_flow, path).result == "sent 3 3"


def test_a_file_that_is_there_is_not_overwritten(
    source: testing.PrivateStore, tmp_path: Path
) -> None:
    export_flow.run("r", 1)
    path = tmp_path / "r.jsonl"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        source.export_run("r", path)
    assert path.read_text() == "mine"
    with pytest.raises(UsageError, match="cannot be written"):
        source.export_run("r", tmp_path / "no" / "such" / "folder")


def test_another_run_of_that_id_is_a_conflict(source: testing.PrivateStore, tmp_path: Path) -> None:
    export_flow.run("r", 1)
    source.export_run("r", tmp_path / "r.jsonl")
    with target(tmp_path) as other:
        export_flow.with_options(store=other).run("r", 2)
        with pytest.raises(RunConflict):
            other.import_run(tmp_path / "r.jsonl")
        assert other.get("r").result == "sent 2 2"


def test_an_id_that_was_removed_is_refused(source: testing.PrivateStore, tmp_path: Path) -> None:
    with holdfast.run("r"):
        export_think(1)
    source.export_run("r", tmp_path / "r.jsonl")
    assert len(source.prune(older_than=0).removed) == 1
    with pytest.raises(RunDeleted):
        source.import_run(tmp_path / "r.jsonl")
    with pytest.raises(RunDeleted):
        source.export_run("r", tmp_path / "again.jsonl")


def test_a_run_that_can_go_on_stays_where_it_is(
    source: testing.PrivateStore, tmp_path: Path
) -> None:
    export_flow.submit("r", 1)
    source.export_run("r", tmp_path / "r.jsonl")
    with target(tmp_path) as other:
        with pytest.raises(
            RunError, match="Move it with `holdfast store move SOURCE TARGET --run r`"
        ):
            other.import_run(tmp_path / "r.jsonl")
        assert other.runs() == []
    words = ["--url", f"sqlite:///{tmp_path}/new.db", "store", "import", str(tmp_path / "r.jsonl")]
    told = CliRunner().invoke(main, words)
    assert "`holdfast store move SOURCE TARGET --run r`" in told.stderr, "both stores are given"


def test_a_family_goes_together(source: testing.PrivateStore, tmp_path: Path) -> None:
    assert export_family.run("top", 2) == "sent 2 2"
    written = source.export_run("top", tmp_path / "top.jsonl")
    [top, child] = written.run_ids
    assert top == "top"
    with pytest.raises(UsageError, match="is a child of run 'top'"):
        source.export_run(child, tmp_path / "child.jsonl")
    with target(tmp_path) as other:
        assert other.import_run(tmp_path / "top.jsonl").new == ["top", child]
        assert other.get(child).result == "sent 2 2"
        assert other.verify() == []
    assert testing.replay(export_family, tmp_path / "top.jsonl").result == "sent 2 2"


def test_a_fork_takes_along_what_it_stands_on(source: testing.PrivateStore, tmp_path: Path) -> None:
    export_flow.run("origin", 3)
    source.fork("origin", "fork", before="export_send", actor="test", confirm=True)
    assert export_flow.run("fork", 3) == "sent 3 3"
    assert source.export_run("fork", tmp_path / "f.jsonl").run_ids == ["origin", "fork"]
    with target(tmp_path) as other:
        assert other.import_run(tmp_path / "f.jsonl").new == ["origin", "fork"]
        assert [e.kind for e in other.history("fork")] == [e.kind for e in source.history("fork")]
        assert other.get("fork").result == "sent 3 3"
        assert other.verify() == []
    assert testing.replay(export_flow, tmp_path / "f.jsonl").result == "sent 3 3"


# -- files that somebody changed ----------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("export")


@pytest.fixture(scope="module")
def exported(folder: Path) -> bytes:
    path = folder / "r.jsonl"
    with testing.store() as store:
        export_flow.run("r", 2)
        store.export_run("r", path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (b'"sent 2"', b'"sent 3"', "entry 6"),
        (b"a thought 1", b"a thought 9", "chunk"),
        (b'"completed"', b'"failed"', "row"),
        (b'"state":"completed"', b'"state":"not_done"', "key 'export:2' of export_send"),
    ],
)
def test_an_edit_is_named(
    exported: bytes, tmp_path: Path, old: bytes, new: bytes, named: str
) -> None:
    assert old in exported
    path = tmp_path / "r.jsonl"
    path.write_bytes(exported.replace(old, new, 1))
    with holdfast.open("memory:", default=False) as store:
        with pytest.raises(Corrupt, match=named):
            store.import_run(path)
        assert store.runs() == []


def test_a_damaged_file_is_no_damage_of_the_store(exported: bytes, tmp_path: Path) -> None:
    path, url = tmp_path / "r.jsonl", f"sqlite:///{tmp_path}/a.db"
    path.write_bytes(exported.replace(b'"sent 2"', b'"sent 3"', 1))
    with holdfast.open(url, default=False) as store:
        with pytest.raises(Corrupt) as caught:
            store.import_run(path)
        assert caught.value.file == str(path)
        assert store.verify() == []
    result = CliRunner().invoke(main, ["--url", url, "store", "import", str(path)])
    assert result.exit_code == 1
    assert f"in the file {path}, and not in the store" in result.output
    assert "holdfast store verify" not in result.output


def test_missing_lines_are_noticed(exported: bytes, tmp_path: Path) -> None:
    lines = exported.splitlines(keepends=True)
    path = tmp_path / "r.jsonl"
    with holdfast.open("memory:", default=False) as store:
        for number in range(len(lines)):
            path.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))
            with pytest.raises((Corrupt, UsageError)):
                store.import_run(path)
        path.write_bytes(exported)
        store.import_run(path)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_changed_byte_is_refused(exported: bytes, folder: Path, data: Any) -> None:
    at = data.draw(st.integers(0, len(exported) - 1))
    byte = data.draw(st.integers(0, 255))
    changed = exported[:at] + bytes([byte]) + exported[at + 1 :]
    (folder / "changed").write_bytes(changed)
    with holdfast.open("memory:", default=False) as store:
        try:
            store.import_run(folder / "changed")
        except HoldfastError:
            assert store.runs() == []
        else:
            assert changed == exported


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"\x1f\x8b", b"\x1f\x8bxxxxxxxxxxxxxxx", b'{"a":1}\n']
)
def test_what_is_no_export_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(text)
    with holdfast.open("memory:", default=False) as store, pytest.raises(UsageError):
        store.import_run(path)


def test_a_key_that_was_cut_out_is_missed(exported: bytes, tmp_path: Path) -> None:
    """The end is made anew, so that only the journal tells what is missing."""
    *lines, _ = exported.splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(b'{"key"')]
    assert len(kept) == len(lines) - 1
    total = hashlib.blake2b(b"".join(kept), digest_size=16).hexdigest()
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"".join(kept) + b'{"end":"%b"}\n' % total.encode())
    with target(tmp_path) as other:
        with pytest.raises(Corrupt, match="key 'export:.*' .*does not have it"):
            other.import_run(path)
        assert other.runs() == []


@effect(name="export-undoable")
def export_pay(n: int) -> int:
    return n


@export_pay.undo
def export_unpay(result: int, n: int) -> None:
    undone.append(n)


undone: list[int] = []


@flow(name="export-undoing")
def export_undoing(n: int) -> int:
    return export_pay(n)


def test_a_run_from_a_file_is_rolled_back_only_when_that_is_confirmed(
    source: testing.PrivateStore, tmp_path: Path
) -> None:
    undone.clear()
    export_undoing.run("r", 7)
    path = tmp_path / "r.jsonl"
    source.export_run("r", path)
    assert source.import_run(path).there == ["r"]
    with target(tmp_path) as other:
        other.import_run(path)
        assert "read from the file r.jsonl" in str(other.explain("r"))
        assert other.get("r").waiting_for is None
        with pytest.raises(ConfirmationRequired, match="in both stores, it is undone twice"):
            other.rollback("r")
        assert source.rollback("r").status == "rolled_back"
        assert undone == [7]
        assert other.preview_rollback("r").confirm
        assert other.rollback("r", confirm=True).status == "rolled_back"
    assert undone == [7, 7], "what was confirmed is done"


def test_a_compressed_file_that_was_cut_is_refused(exported: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(exported)[:-9])
    with holdfast.open("memory:", default=False) as store:
        with pytest.raises((Corrupt, UsageError)):
            store.import_run(path)
        assert store.runs() == []


# -- the command line ---------------------------------------------------------------------------


def test_commands(tmp_path: Path, terminal: None) -> None:
    url, other = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    with holdfast.open(url, default=False) as store:
        export_flow.with_options(store=store).run("r", 1)
    path = str(tmp_path / "r.jsonl.gz")

    def said(*words: str, code: int = 0, given: str | None = None) -> str:
        runner = CliRunner(env={"COLUMNS": "200"})
        result = runner.invoke(main, words, input=given, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.output

    assert "Written:" in said("--url", url, "store", "export", "r", path)
    assert "Imported: 1 run" in said("--url", other, "store", "import", path)
    assert "Run r already exists, unchanged." in said("--url", other, "store", "import", path)
    assert "younger than its key_ttl" in said(
        "--url", url, "store", "prune", "--older-than", "0s", "--yes"
    )
    assert "0 runs removed." in said("--url", url, "store", "prune")
    with holdfast.open(url, default=False) as store:
        with holdfast.run("plain", store=store):
            pass
    dry = said("--url", url, "store", "prune", "--older-than", "0", "--dry-run")
    assert "1 run would be removed." in dry
    assert re.search(r"WOULD BE REMOVED.*\n *plain +block +completed", dry)
    assert "0 runs would" in said(
        "--url", url, "store", "prune", "--older-than", "3600", "--dry-run"
    )
    declined = said("--url", url, "store", "prune", "--older-than", "0s", given="n\n")
    assert "Nothing was removed." in declined
    assert re.search(r"TO BE REMOVED.*\n *plain .*\n.*Remove 1 run permanently", declined)
    assert "give --yes" in said(
        "--url", url, "store", "prune", "--older-than", "0s", "--json", code=2
    )
    assert "1 run removed." in said(
        "--url", url, "store", "prune", "--older-than", "0s", given="y\n"
    )
    assert "was deleted" in said("--url", url, "show", "plain", code=6)


def test_what_gc_removes_is_listed_up_to_a_number(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with holdfast.open(url, default=False) as store:
        for number in range(23):
            with holdfast.run(f"r{number:02}", store=store):
                pass
    words = ["--url", url, "store", "prune", "--older-than", "0", "--dry-run"]
    told = CliRunner(env={"COLUMNS": "100"}).invoke(main, words).output
    assert len(re.findall(r"r\d\d", told)) == 20
    assert "… and 3 more" in told


def test_a_file_that_is_refused_makes_no_store(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text("{}\n")
    words = ["--url", f"sqlite:///{tmp_path}/new.db", "import", str(file)]
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 2
    assert list(tmp_path.iterdir()) == [file]
